//! Small locks for tests.

use sconce_schema::Sha256;
use sconce_schema::lock::{Deb, FORMAT, Lock, LockTarget, LockedVersions, Wheel};

pub(super) fn wheel(name: &str, version: &str) -> Wheel {
    let file = format!("{}-{version}-py3-none-any.whl", name.replace('-', "_"));
    Wheel {
        name: name.into(),
        version: version.into(),
        url: format!("https://index.example.org/{file}"),
        file,
        size: Some(1),
        sha256: digest(name, version),
        build: None,
    }
}

pub(super) fn deb(name: &str, version: &str) -> Deb {
    Deb {
        name: name.into(),
        version: version.into(),
        source: None,
        source_version: None,
        architecture: "amd64".into(),
        url: format!("https://deb.example.org/pool/{name}.deb"),
        size: 1,
        sha256: digest(name, version),
    }
}

pub(super) fn lock(wheels: &[Wheel], debs: &[Deb]) -> Lock {
    Lock {
        version: FORMAT,
        inputs: Sha256([0; 32]),
        target: LockTarget {
            release: "debian/trixie".into(),
            architecture: "amd64".into(),
            python: "3.13".into(),
        },
        versions: LockedVersions::default(),
        wheels: wheels.to_vec(),
        debs: debs.to_vec(),
        stages: Vec::new(),
        interpreter: None,
    }
}

fn digest(name: &str, version: &str) -> Sha256 {
    crate::documents::compute_sha256(format!("{name} {version}").as_bytes())
}
