use super::*;
use crate::debian::sources::MirrorOverride;
use crate::documents::memory::{MAIN, MemoryDocuments};
use crate::python::IndexSettings;
use crate::python::build_settings::BuildSettings;
use crate::python::uv::UvSource;
use sconce_schema::lock::{FORMAT_WITH_STAGES, FORMAT_WITHOUT_STAGES};
use sconce_schema::spec::BuiltinService;
use sconce_schema::{Hint, NoProgress, Sha256, exit};
use sconce_store::Store;
use std::error::Error as _;
use std::time::{Duration, SystemTime};

const KEYRING: &[u8] = include_bytes!("../tests/data/archive/keyring.gpg");

fn input() -> LockInput {
    LockInput {
        release: "debian/trixie".into(),
        is_release_open: false,
        architecture: "amd64".into(),
        python: None,
        python_bound: None,
        requirements: Requirements::default(),
        project_folders: Vec::new(),
        project_names: Vec::new(),
        project_builds: Vec::new(),
        folder: "/".into(),
        system_packages: vec!["git".into()],
        services: Vec::new(),
        compiler: None,
        more: Vec::new(),
        as_of: None,
        build_settings: BuildSettings::default(),
        index: IndexSettings::default(),
        mirror: MirrorOverride {
            main: Some(MAIN.into()),
            security: None,
        },
        previous: None,
        upgrade: false,
        inputs: Sha256([7; 32]),
    }
}

fn lock_with(
    input: &LockInput,
    change: impl FnOnce(&mut LockContext<'_>),
) -> Result<Lock, ResolveError> {
    resolve_with(input, change).map(|resolved| resolved.lock)
}

fn resolve_with(
    input: &LockInput,
    change: impl FnOnce(&mut LockContext<'_>),
) -> Result<ResolvedLock, ResolveError> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let memory = MemoryDocuments::with_test_archive();
    let mut env = LockContext {
        documents: &memory,
        store: &store,
        apt_files: Vec::new(),
        keyring: Some(KEYRING.to_owned()),
        path_folders: ["/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
        environment: BTreeMap::new(),
        uv: UvSource::default(),
        python_downloads: None,
        pip_index: IndexSettings::default(),
        source_builder: None,
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_040_263),
    };
    change(&mut env);
    resolve(input, &env, &NoProgress)
}

fn version<'l>(lock: &'l Lock, name: &str) -> Option<&'l str> {
    lock.debs
        .iter()
        .find(|deb| deb.name == name)
        .map(|deb| deb.version.as_str())
}

#[test]
fn a_lock_of_debian_packages() {
    let lock = lock_with(&input(), |_| {}).unwrap();
    assert_eq!(lock.inputs, Sha256([7; 32]));
    assert_eq!(lock.target.python, "3.13");
    assert_eq!(lock.versions.python, "3.13.5-2");
    assert_eq!(lock.versions.glibc, "2.41-12");
    assert_eq!(version(&lock, "git"), Some("1:2.47.3-0+deb13u1"));
    assert_eq!(
        version(&lock, "openssl"),
        Some("3.5.1-1+deb13u2"),
        "from the security suite"
    );
    assert_eq!(version(&lock, "debconf"), None, "for scripts only");
    let openssl = lock.debs.iter().find(|deb| deb.name == "openssl").unwrap();
    assert_eq!(
        openssl.url,
        "https://deb.example.org/debian-security/pool/main/o/openssl/openssl_3.5.1-1+deb13u2_amd64.deb"
    );
    assert!(lock.debs.is_sorted_by_key(|deb| &deb.name));
    assert_eq!(Lock::parse(&lock.to_text()).unwrap(), lock);
}

#[test]
fn what_a_stage_has_more_is_locked_beside() {
    let plain = lock_with(
        &LockInput {
            system_packages: Vec::new(),
            ..input()
        },
        |_| {},
    )
    .unwrap();
    assert_eq!(plain.version, FORMAT_WITHOUT_STAGES);
    assert!(!plain.to_text().contains("stage"));
    let more = |system: &[&str]| StageRequirements {
        name: format!("with-{}", system.len()),
        devel: false,
        system: system.iter().map(ToString::to_string).collect(),
        python: Vec::new(),
    };
    let staged = LockInput {
        system_packages: Vec::new(),
        more: vec![more(&[]), more(&["git"])],
        ..input()
    };
    let lock = lock_with(&staged, |_| {}).unwrap();
    assert_eq!(lock.version, FORMAT_WITH_STAGES);
    assert_eq!((&lock.debs, lock.stages.len()), (&plain.debs, 1));
    let stage = &lock.stages[0];
    assert_eq!(stage.name, "with-1");
    assert!(stage.debs.iter().any(|deb| deb.name == "git"));
    assert!(!stage.debs.iter().any(|deb| plain.debs.contains(deb)));
    let whole = lock.for_stage("with-1");
    assert_eq!(whole.debs.len(), plain.debs.len() + stage.debs.len());
    assert!(whole.debs.is_sorted_by_key(|deb| &deb.name) && whole.stages.is_empty());
    assert_eq!(lock.for_stage("with-0"), lock);
    assert_eq!(Lock::parse(&lock.to_text()).unwrap(), lock);

    let unknown = LockInput {
        more: vec![more(&["gti"])],
        ..input()
    };
    let error = lock_with(&unknown, |_| {}).unwrap_err();
    assert_eq!(error.exit_code(), exit::NO_SOLUTION);
}

/// The archive of these tests has no compiler.
#[test]
fn a_compiler_is_asked_for_and_not_to_be_had() {
    let with = |compiler| LockInput {
        compiler,
        ..input()
    };
    let error = lock_with(&with(Some(true)), |_| {}).unwrap_err();
    assert_eq!(error.exit_code(), exit::NO_SOLUTION);
    let plain = lock_with(&with(None), |_| {}).unwrap();
    assert_eq!(plain.version, FORMAT_WITHOUT_STAGES);
    assert_eq!(lock_with(&with(Some(false)), |_| {}).unwrap(), plain);
}

/// The archive of these tests has no openssh-server, and no uv is there.
#[test]
fn a_service_brings_its_packages() {
    let with = |service| LockInput {
        services: vec![service],
        ..input()
    };
    let error = lock_with(&with(BuiltinService::Ssh), |_| {}).unwrap_err();
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    assert!(why.contains("openssh-server"), "{error}: {why}");
    for service in [BuiltinService::Jupyter, BuiltinService::Tensorboard] {
        let error = lock_with(&with(service), |_| {}).unwrap_err();
        assert!(matches!(error, ResolveError::Uv(_)), "{error}");
    }
}

#[test]
fn the_previous_lock_is_kept_until_asked() {
    let mut previous = lock_with(&input(), |_| {}).unwrap();
    for deb in &mut previous.debs {
        if ["openssl", "libssl3t64"].contains(&deb.name.as_str()) {
            deb.version = "3.5.1-1".into();
        }
    }
    let kept = LockInput {
        previous: Some(previous.clone()),
        ..input()
    };
    assert_eq!(
        version(&lock_with(&kept, |_| {}).unwrap(), "openssl"),
        Some("3.5.1-1")
    );
    let upgraded = LockInput {
        upgrade: true,
        ..kept.clone()
    };
    assert_eq!(
        version(&lock_with(&upgraded, |_| {}).unwrap(), "openssl"),
        Some("3.5.1-1+deb13u2")
    );
    previous.target.release = "debian/bookworm".into();
    let other = LockInput {
        previous: Some(previous),
        ..kept
    };
    assert_eq!(
        version(&lock_with(&other, |_| {}).unwrap(), "openssl"),
        Some("3.5.1-1+deb13u2")
    );
}

#[test]
fn what_the_security_archive_has_is_told() {
    let resolved = resolve_with(&input(), |_| {}).unwrap();
    let security = resolved.security.unwrap();
    let versions: Vec<_> = security.values().map(String::as_str).collect();
    assert!(security.contains_key("openssl"), "{security:?}");
    assert!(!security.contains_key("git"), "{security:?}");
    assert!(
        versions.iter().all(|v| *v == "3.5.1-1+deb13u2"),
        "{security:?}"
    );

    let mut present = resolved.lock.clone();
    for deb in &mut present.debs {
        if deb.name == "openssl" {
            deb.version = "3.5.1-1".into();
        }
    }
    let changes = crate::outdated::diff_locks(&present, &resolved.lock, Some(&security));
    assert_eq!((changes.0.len(), changes.security_update_count()), (1, 1));
}

#[test]
fn what_cannot_be_locked_says_why() {
    let fails = |change: fn(&mut LockInput)| {
        let mut input = input();
        change(&mut input);
        lock_with(&input, |_| {}).unwrap_err()
    };
    let error = fails(|i| i.python = Some("3.7".into()));
    assert!(error.to_string().starts_with("Python 3.7 is too old: 3.8"));
    assert_eq!(error.exit_code(), exit::BAD_INPUT);
    let error = fails(|i| i.release = "debian/sid".into());
    assert_eq!(
        (
            error.exit_code(),
            error.hint().unwrap().contains("debian/trixie")
        ),
        (exit::BAD_INPUT, true)
    );
    assert_eq!(
        fails(|i| i.architecture = "m68k".into()).exit_code(),
        exit::BAD_INPUT
    );
    let error = fails(|i| i.system_packages = vec!["gti".into()]);
    assert_eq!(
        (error.exit_code(), error.hint().unwrap()),
        (exit::NO_SOLUTION, "did you mean git?".to_owned())
    );
    let error = fails(|i| i.mirror.main = None);
    assert!(
        error.hint().unwrap().contains("[system] mirror = "),
        "{error}"
    );
    let error = fails(|i| i.requirements.packages = vec!["torch".into()]);
    assert!(matches!(error, ResolveError::Uv(_)), "{error}");
}

#[test]
fn nothing_is_trusted_without_its_keyring() {
    let error = lock_with(&input(), |env| env.keyring = Some(b"other".to_vec())).unwrap_err();
    assert_eq!(error.exit_code(), exit::VERIFY);
    let error = lock_with(&input(), |env| env.path_folders.clear()).unwrap_err();
    assert!(error.hint().unwrap().contains("gpgv"), "{error}");
}

/// A Python that Debian does not have is looked for in a table.
#[test]
fn a_python_that_nobody_has_says_which_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("pythons.json");
    let entry = |minor: u32| {
        serde_json::json!({
            "name": "cpython", "arch": "x86_64", "os": "linux", "libc": "gnu", "major": 3,
            "minor": minor, "patch": 1, "sha256": "0".repeat(64),
            "url": "https://host.example/cpython-3.9.1+20260101-install_only.tar.gz",
        })
    };
    let text = serde_json::json!({"a": entry(8), "b": entry(9)}).to_string();
    std::fs::write(&table, text).unwrap();
    let mut input = input();
    input.python = Some("3.12".into());
    let fails = |named: Option<&Path>| {
        let named = named.map(|path| path.to_str().unwrap().to_owned());
        lock_with(&input, |env| env.python_downloads = named).unwrap_err()
    };
    let error = fails(Some(&table));
    assert_eq!(
        error.to_string(),
        "debian/trixie has no Python 3.12, but 3.13, and no standalone one is known but 3.8, 3.9"
    );
    assert_eq!(error.exit_code(), exit::NO_SOLUTION);
    let error = fails(Some(&folder.path().join("none.json")));
    assert_eq!(error.exit_code(), exit::BAD_INPUT);
    assert!(error.hint().unwrap().contains("python-downloads"));
    std::fs::write(&table, "<html>").unwrap();
    let error = fails(Some(&table));
    assert!(
        error
            .source()
            .unwrap()
            .to_string()
            .contains("is not a table")
    );
    // Without a table the machine's pip would bring one.
    let error = fails(None);
    assert!(error.hint().unwrap().contains("3.13"), "{error}");
}

#[test]
fn a_release_that_is_not_named_follows_the_python() {
    let release = |python: Option<&str>, is_release_open| {
        let input = LockInput {
            python: python.map(str::to_owned),
            is_release_open,
            ..input()
        };
        with_release_of_python(input).unwrap().release
    };
    assert_eq!(release(Some("3.11"), true), "debian/bookworm");
    let bounded = |bound: &str| {
        let input = LockInput {
            python_bound: Some(bound.to_owned()),
            is_release_open: true,
            ..input()
        };
        with_release_of_python(input).map(|input| (input.python, input.release))
    };
    let (python, release_of_bound) = bounded("<3.12").unwrap();
    assert_eq!(python.as_deref(), Some("3.11"));
    assert_eq!(release_of_bound, "debian/bookworm");
    assert_eq!(bounded(">=3.9").unwrap().0, None);
    assert!(matches!(
        bounded("<3.8").unwrap_err(),
        ResolveError::PythonBound { .. }
    ));
    for (python, is_open) in [(Some("3.11"), false), (Some("3.10"), true), (None, true)] {
        assert_eq!(release(python, is_open), "debian/trixie");
    }
}

/// A uv of a few lines: it says its version and writes the lock that it was asked for.
#[test]
fn wheels_come_from_uv() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let uv = folder.path().join("uv");
    let script = concat!(
        "#!/bin/sh\n[ \"$1\" = --version ] && { echo uv 0.13.8; exit; }\n",
        "case \"$*\" in *'--python-version 3.13.5 --python-platform x86_64-manylinux_2_40'*) ;; *) echo \"$*\" >&2; exit 1 ;; esac\n",
        // As uv ends while another git still writes into its checkout.
        "[ -e \"$0.called\" ] || { touch \"$0.called\"; printf 'cause: Git operation failed\\ncause: failed to remove directory `a`: Directory not empty (os error 39)\\n' >&2; exit 2; }\n",
        "while [ \"$1\" != --output-file ]; do shift; done\n",
        "read -r wanted\n",
        "cat > \"$2\" <<EOF\nlock-version = '1.0'\n[[packages]]\nname = '${wanted%%==*}'\nversion = '2.15.0'\n",
        "wheels = [{ url = 'https://u:p@example.org/torch-2.15.0-cp313-cp313-manylinux_2_28_x86_64.whl', hashes = { sha256 = '80b1b5bfe38eb0e9f5ff09f206dcac0a87aadd084230d4a36eea5ec5232c115b' } }]\nEOF\n",
    );
    std::fs::write(&uv, script).unwrap();
    std::fs::set_permissions(&uv, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut input = input();
    input.requirements.packages = vec!["torch==2.15.0".into()];
    let lock = lock_with(&input, |env| {
        env.uv.path_uv = Some(uv);
        env.environment
            .insert("PATH".into(), "/usr/bin:/bin".into());
    })
    .unwrap();
    assert_eq!(lock.versions.torch.as_deref(), Some("2.15.0"));
    assert_eq!(
        lock.wheels[0].url,
        "https://example.org/torch-2.15.0-cp313-cp313-manylinux_2_28_x86_64.whl"
    );
    assert!(!lock.to_text().contains("u:p"));
}
