use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use sconce_schema::NoProgress;
use tar::{Builder, Header};

use super::*;
use crate::sbom::tests::fixture_lock;

/// Files of an archive, and links, which are the texts that begin with `->`.
const FILES: [(&str, &str); 10] = [
    ("python/bin/python3.10", "elf"),
    (
        "python/bin/python3.10-config",
        "#!/bin/sh\nprefix=\"/install\"\n",
    ),
    ("python/bin/python3-config", "->python3.10-config"),
    (
        "python/lib/python3.10/_sysconfigdata__linux_x86_64-linux-gnu.py",
        "build_time_vars = {'CC': 'clang -pthread',\n 'prefix': '/install'}\n",
    ),
    (
        "python/lib/python3.10/config-3.10-x86_64-linux-gnu/Makefile",
        "CC=\t\tclang\nprefix=\t/install\n",
    ),
    (
        "python/lib/python3.10/_sysconfig_vars__linux_x86_64-linux-gnu.json",
        "{\n  \"CC\": \"clang -pthread\",\n  \"prefix\": \"/install\"\n}",
    ),
    (
        "python/lib/python3.10/build-details.json",
        "{\n  \"base_prefix\": \"/install\"\n}",
    ),
    ("python/lib/pkgconfig/python-3.10.pc", "prefix=/install\n"),
    ("python/lib/python3.10/os.py", "where = '/install'\n"),
    ("python/include/python3.10/Python.h", "int x;\n"),
];

/// A store with an archive of `files`, and a lock of it.
fn with_archive(files: &[(&str, &str)]) -> (tempfile::TempDir, Store, Lock) {
    let mut tar = Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = Header::new_gnu();
        header.set_mode(0o755);
        match text.strip_prefix("->") {
            Some(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, name, target).unwrap();
            }
            None => {
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, name, text.as_bytes()).unwrap();
            }
        }
    }
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&tar.into_inner().unwrap()).unwrap();
    let bytes = gz.finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let sha256 = Sha256(sha2::Sha256::digest(&bytes).into());
    store.put_blob(&bytes, &sha256).unwrap();
    let mut lock = fixture_lock();
    lock.target.python = "3.10".to_owned();
    lock.interpreter = Some(StandalonePython {
        version: "3.10.13".to_owned(),
        release: "20240107".to_owned(),
        file: "cpython-3.10.13.tar.gz".to_owned(),
        url: "https://host.example/cpython-3.10.13.tar.gz".to_owned(),
        size: None,
        sha256,
    });
    (folder, store, lock)
}

fn ensure(lock: &Lock, store: &Store) -> Result<Option<PathBuf>, StandaloneError> {
    ensure_tree(lock, store, None, Priority::Foreground, &NoProgress)
}

#[test]
fn a_tree_speaks_of_where_it_lies() {
    let (_folder, store, lock) = with_archive(&FILES);
    assert_eq!(find_tree(&lock, &store), None);
    let tree = ensure(&lock, &store).unwrap().unwrap();
    assert_eq!(find_tree(&lock, &store).as_ref(), Some(&tree));
    let prefix = tree.join("opt/python/3.10");
    let text = |path: &str| fs::read_to_string(prefix.join(path)).unwrap();
    let data = text("lib/python3.10/_sysconfigdata__linux_x86_64-linux-gnu.py");
    assert_eq!(
        data,
        "build_time_vars = {'CC': 'cc -pthread',\n 'prefix': '/opt/python/3.10'}\n"
    );
    assert_eq!(
        text("lib/python3.10/_sysconfig_vars__linux_x86_64-linux-gnu.json"),
        "{\n  \"CC\": \"cc -pthread\",\n  \"prefix\": \"/opt/python/3.10\"\n}"
    );
    assert_eq!(
        text("lib/python3.10/build-details.json"),
        "{\n  \"base_prefix\": \"/opt/python/3.10\"\n}"
    );
    let makefile = text("lib/python3.10/config-3.10-x86_64-linux-gnu/Makefile");
    assert_eq!(makefile, "CC=\t\tcc\nprefix=\t/opt/python/3.10\n");
    assert_eq!(
        text("lib/pkgconfig/python-3.10.pc"),
        "prefix=/opt/python/3.10\n"
    );
    assert_eq!(
        text("bin/python3-config"),
        "#!/bin/sh\nprefix=\"/opt/python/3.10\"\n"
    );
    assert_eq!(
        text("lib/python3.10/os.py"),
        "where = '/install'\n",
        "no library is changed"
    );
    let mode = prefix.join("bin/python3.10-config").metadata().unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o755);
    assert!(prefix.join("lib/python3.10/site-packages").is_dir());

    // Debian's has none, and another archive another tree.
    let mut other = lock.clone();
    other.interpreter.as_mut().unwrap().sha256 = Sha256([9; 32]);
    assert_ne!(tree_key(&other), tree_key(&lock));
    assert!(matches!(
        ensure(&other, &store),
        Err(StandaloneError::Gone { .. })
    ));
    other.interpreter = None;
    assert_eq!(
        (tree_key(&other), ensure(&other, &store).unwrap()),
        (None, None)
    );
}

#[test]
fn links_of_an_archive_are_not_mended_through() {
    let outside = tempfile::tempdir().unwrap();
    let kept = outside.path().join("x.pc");
    fs::write(&kept, "prefix=/install\n").unwrap();
    let [folder, file] = [outside.path(), &kept].map(|path| format!("->{}", path.display()));
    let program = ("python/bin/python3.10", "elf");
    for link in [
        ("python/lib/pkgconfig", folder.as_str()),
        ("python/lib/pkgconfig/x.pc", &file),
        ("python/bin/script", &file),
        ("python/lib/python3.10/_sysconfigdata_x.py", &file),
        ("python/lib/python3.10/config-3.10", &folder),
        ("python/lib/python3.10/site-packages", &folder),
    ] {
        let (_folder, store, lock) = with_archive(&[program, link]);
        let _ = ensure(&lock, &store);
        assert_eq!(
            fs::read_to_string(&kept).unwrap(),
            "prefix=/install\n",
            "{link:?}"
        );
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{link:?}");
    }
}

#[test]
fn an_archive_of_another_python_is_refused() {
    for files in [
        [("python/bin/python3.9", "elf")],
        [("python/bin/python3.10", "->python3.9")],
        [("python/bin/python3.10/x", "a folder")],
    ] {
        let (_folder, store, lock) = with_archive(&files);
        let error = ensure(&lock, &store).unwrap_err();
        assert_eq!(error.exit_code(), exit::VERIFY, "{files:?}");
        assert!(error.hint().is_some());
        assert_eq!(find_tree(&lock, &store), None);
    }
}
