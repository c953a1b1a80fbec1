//! `sconce.lock`.

use sconce_schema::lock::{
    BuildRequest, Deb, FORMAT, FORMAT_WITH_BUILDS, FORMAT_WITH_STAGES, Lock, LockTarget,
    LockedStage, LockedVersions, StandalonePython, Wheel, WheelBuild,
};
use sconce_schema::{CudaVersion, DriverVersion, Sha256};

use super::goldens;

fn wheel(name: &str) -> Wheel {
    Wheel {
        name: name.into(),
        version: "2.15.0".into(),
        file: format!("{name}-2.15.0-cp313-cp313-manylinux_2_28_x86_64.whl"),
        url: format!("https://packages.example/{name}-2.15.0.whl"),
        size: Some(915_000_000),
        sha256: Sha256([0x1a; 32]),
        build: None,
    }
}

fn deb(name: &str) -> Deb {
    Deb {
        name: name.into(),
        version: "2.41-12+b1".into(),
        source: Some("glibc".into()),
        source_version: Some("2.41-12".into()),
        architecture: "amd64".into(),
        url: format!("https://deb.example/pool/{name}.deb"),
        size: 2_800_000,
        sha256: Sha256([0x2b; 32]),
    }
}

/// A lock with all that format 3 has.
fn full_lock() -> Lock {
    Lock {
        version: FORMAT_WITH_STAGES,
        inputs: Sha256([0x0f; 32]),
        target: LockTarget {
            release: "debian/trixie".into(),
            architecture: "amd64".into(),
            python: "3.13".into(),
        },
        versions: LockedVersions {
            python: "3.13.5-2+deb13u5".into(),
            glibc: "2.41-12".into(),
            torch: Some("2.15.0+cu132".into()),
            cuda: Some(CudaVersion::new(13, 2)),
            cudnn: Some("9.26.0.51".into()),
            nccl: Some("2.30.3".into()),
            triton: Some("3.8.0".into()),
            lowest_driver: Some(DriverVersion {
                major: 580,
                minor: 65,
                patch: Some(6),
            }),
        },
        wheels: vec![wheel("torch"), wheel("triton")],
        debs: vec![deb("libc6")],
        stages: vec![LockedStage {
            name: "builder".into(),
            wheels: vec![wheel("setuptools")],
            debs: vec![deb("g++")],
        }],
        interpreter: None,
    }
}

#[test]
fn full_lock_is_written_as_before_and_read_back() {
    let lock = full_lock();
    assert_eq!(lock.oldest_format(), lock.version);
    let text = lock.to_text();
    goldens().assert_same("lock.toml", &text);
    assert_eq!(Lock::parse(&text).unwrap(), lock);
}

#[test]
fn what_is_built_and_where_the_python_is_from_is_written_and_read_back() {
    let mut lock = full_lock();
    lock.version = FORMAT_WITH_BUILDS;
    lock.interpreter = Some(StandalonePython {
        version: "3.10.13".into(),
        release: "20240107".into(),
        file: "cpython-3.10.13+20240107-x86_64-unknown-linux-gnu-install_only.tar.gz".into(),
        url: "https://pythons.example/cpython-3.10.13.tar.gz".into(),
        size: Some(29_000_000),
        sha256: Sha256([0x3c; 32]),
    });
    lock.wheels[1].build = Some(Box::new(WheelBuild {
        sha256: None,
        commit: Some("8c9f1e2d3b4a5968778695a4b3c2d1e0f1a2b3c4".into()),
        subdirectory: Some("python".into()),
        build_requires: vec![wheel("setuptools"), wheel("wheel")],
        asked: BuildRequest::default(),
    }));
    assert_eq!(lock.oldest_format(), FORMAT_WITH_BUILDS);
    let text = lock.to_text();
    goldens().assert_same("lock-with-builds.toml", &text);
    assert_eq!(Lock::parse(&text).unwrap(), lock);
    let build = lock.wheels[1].build.as_mut().unwrap();
    build.asked = BuildRequest {
        requires: vec!["torch==2.15.0".into()],
        variables: [("FORCE_CUDA".to_owned(), "1".to_owned())].into(),
        sees_environment: true,
    };
    assert_eq!(lock.oldest_format(), FORMAT);
    lock.version = FORMAT;
    let text = lock.to_text();
    goldens().assert_same("lock-with-requests.toml", &text);
    assert_eq!(Lock::parse(&text).unwrap(), lock);
}
