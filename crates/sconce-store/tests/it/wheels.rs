//! Wheels become trees, or nothing.

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use proptest::prelude::*;
use sconce_base::direct_io::MTIME;
use sconce_fetch::FetchError;
use sconce_schema::{Hint as _, NoProgress, exit};
use sconce_store::wheel::{InstallOptions, WheelError, WheelLimits, ZipError};
use sconce_store::{Store, StoreError};

use crate::archive::{Entry, demo, demo_with, entry, locked, zip, zip_with};
use crate::fetching::{fetcher, noise};
use crate::server::{Server, serve, serve_some};

/// A store and what it makes of the wheel `bytes` under a `file:` URL.
fn install(bytes: &[u8]) -> (tempfile::TempDir, Result<std::path::PathBuf, StoreError>) {
    install_with(bytes, InstallOptions::default())
}

fn install_with(
    bytes: &[u8],
    options: InstallOptions,
) -> (tempfile::TempDir, Result<std::path::PathBuf, StoreError>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wheel");
    fs::write(&file, bytes).unwrap();
    let wheel = locked(&format!("file://{}", file.display()), bytes);
    let store = Store::open(&folder.path().join("store")).unwrap();
    let trees = store.ensure_wheels_with(&fetcher(), &[wheel], "3.13", &NoProgress, options);
    (folder, trees.map(|mut trees| trees.remove(0)))
}

/// That the store in `folder` holds nothing, finished or unfinished.
fn assert_empty(folder: &Path) {
    let store = Store::open(&folder.join("store")).unwrap();
    assert!(store.measure_usage().unwrap().kinds.is_empty());
    let left: Vec<_> = fs::read_dir(store.root().join("tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Every file of a tree as `mode path`, sorted.
fn listing(root: &Path) -> Vec<String> {
    fn walk(root: &Path, folder: &Path, out: &mut Vec<String>) {
        for one in fs::read_dir(folder).unwrap() {
            let path = one.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            assert_eq!(meta.mtime(), MTIME as i64, "{}", path.display());
            let mode = meta.permissions().mode() & 0o7777;
            if meta.is_dir() {
                assert_eq!(mode, 0o755, "{}", path.display());
                walk(root, &path, out);
            } else {
                out.push(format!(
                    "{mode:o} {}",
                    path.strip_prefix(root).unwrap().display()
                ));
            }
        }
    }
    let mut out = Vec::new();
    walk(root, root, &mut out);
    out.sort();
    out
}

/// The error of a wheel whose bytes are the lock's and which must not be installed.
fn refused(bytes: &[u8]) -> WheelError {
    let (folder, result) = install(bytes);
    let error = result.unwrap_err();
    assert_eq!(error.exit_code(), exit::VERIFY);
    assert_empty(folder.path());
    match error {
        StoreError::Wheel { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

fn refused_zip(bytes: &[u8]) -> ZipError {
    match refused(bytes) {
        WheelError::Zip(e) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wheel_whose_file_is_in_the_store_needs_no_address() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let bytes = zip(&demo());
    let wheel = locked("file:///nowhere/demo.whl", &bytes);
    let install = || {
        store.ensure_wheels(
            &fetcher(),
            std::slice::from_ref(&wheel),
            "3.13",
            &NoProgress,
        )
    };
    assert!(matches!(install(), Err(StoreError::Fetch(_))));
    let blob = store.put_blob(&bytes, &wheel.sha256).unwrap();
    // Another version's tree may need it too.
    install().unwrap();
    assert!(blob.is_file());
}

#[test]
fn a_wheels_file_with_other_bytes_leaves_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let bytes = zip(&demo());
    let wheel = locked("file:///nowhere/demo.whl", &bytes);
    let changed = [&bytes[..bytes.len() - 1], b"x"].concat();
    for other in [&bytes[..bytes.len() / 2], &changed[..], b""] {
        let blob = store.put_blob(&bytes, &wheel.sha256).unwrap();
        fs::set_permissions(&blob, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&blob, other).unwrap();
        let wheels = std::slice::from_ref(&wheel);
        let error = store.ensure_wheels(&fetcher(), wheels, "3.13", &NoProgress);
        let error = error.unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Damaged {
                    is_removed: true,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(error.exit_code(), exit::VERIFY);
        assert_eq!(store.find_blob(&wheel.sha256), None);
        assert_empty_of_trees(&store);
    }
}

/// That no tree is left, finished or unfinished.
fn assert_empty_of_trees(store: &Store) {
    assert!(store.measure_usage().unwrap().kinds.is_empty());
    assert_eq!(fs::read_dir(store.root().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_wheel_becomes_a_tree() {
    let (_folder, tree) = install(&zip(&demo()));
    let tree = tree.unwrap();
    const SITE: &str = "opt/venv/lib/python3.13/site-packages";
    assert_eq!(
        listing(&tree),
        [
            "644 opt/venv/include/site/python3.13/demo/demo.h".to_owned(),
            format!("644 {SITE}/demo-1.0.dist-info/INSTALLER"),
            format!("644 {SITE}/demo-1.0.dist-info/METADATA"),
            format!("644 {SITE}/demo-1.0.dist-info/RECORD"),
            format!("644 {SITE}/demo-1.0.dist-info/WHEEL"),
            format!("644 {SITE}/demo-1.0.dist-info/entry_points.txt"),
            format!("644 {SITE}/demo/__init__.py"),
            format!("644 {SITE}/demo/extra.py"),
            "644 opt/venv/share/demo.txt".to_owned(),
            "755 opt/venv/bin/demo".to_owned(),
            "755 opt/venv/bin/tool".to_owned(),
            format!("755 {SITE}/demo/bin/program"),
        ]
    );
    let text = |path: &str| fs::read_to_string(tree.join(path)).unwrap();
    assert_eq!(
        text("opt/venv/bin/tool"),
        "#!/opt/venv/bin/python\nprint('tool')\n"
    );
    assert!(text("opt/venv/bin/demo").contains("from demo.main import run\n"));
    assert_eq!(
        text(&format!("{SITE}/demo-1.0.dist-info/INSTALLER")),
        "sconce\n"
    );
    assert_eq!(text(&format!("{SITE}/demo/__init__.py")), "value = 1\n");

    // Every file is recorded, sorted, with the digest of what is there.
    let record = text(&format!("{SITE}/demo-1.0.dist-info/RECORD"));
    let lines: Vec<&str> = record.lines().collect();
    assert!(lines.is_sorted());
    assert_eq!(lines.len(), 12);
    for line in lines {
        let (path, rest) = line.split_once(',').unwrap();
        if path.ends_with("/RECORD") {
            assert_eq!(rest, ",");
            continue;
        }
        let bytes = fs::read(tree.join(SITE).join(path)).unwrap();
        let digest = crate::archive::sha256(&bytes).0;
        let encoded =
            base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, digest);
        assert_eq!(rest, format!("sha256={encoded},{}", bytes.len()), "{path}");
    }
}

#[test]
fn large_files_arrive_whole() {
    // Around the writer's buffer of 1 MiB and the disk's blocks, compressible and not.
    const MIB: usize = 1 << 20;
    for size in [
        0,
        1,
        4096,
        MIB - 1,
        MIB,
        MIB + 1,
        2 * MIB,
        3 * MIB + 4096,
        3 * MIB + 5,
    ] {
        for (stored, data) in [
            (false, noise(size)),
            (true, noise(size)),
            (false, vec![7; size]),
        ] {
            let mut large = entry("demo/large.bin", &data);
            large.stored = stored;
            let (_folder, tree) = install(&demo_with(vec![large]));
            let path = tree
                .unwrap()
                .join("opt/venv/lib/python3.13/site-packages/demo/large.bin");
            assert!(fs::read(path).unwrap() == data, "{size} {stored}");
        }
    }
}

#[test]
fn sizes_may_stand_behind_the_data() {
    let data = noise(2_000_000);
    for stored in [false, true] {
        let mut one = entry("demo/one.bin", &data);
        (one.stored, one.sizes_behind) = (stored, true);
        let mut empty = entry("demo/empty", b"");
        (empty.stored, empty.sizes_behind) = (stored, true);
        let (_folder, tree) = install(&demo_with(vec![one, empty]));
        let site = tree.unwrap().join("opt/venv/lib/python3.13/site-packages");
        assert!(
            fs::read(site.join("demo/one.bin")).unwrap() == data,
            "stored: {stored}"
        );
        assert_eq!(fs::read(site.join("demo/empty")).unwrap(), b"");
    }
}

#[test]
fn the_tree_is_made_once() {
    let bytes = zip(&demo());
    let server = Server::file(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let wheel = locked(&server.url("demo.whl"), &bytes);
    assert_eq!(store.wheel_tree(&wheel, "3.13"), None);
    let wheels = [wheel];
    let ensure = |python| {
        store
            .ensure_wheels(&fetcher(), &wheels, python, &NoProgress)
            .unwrap()
    };
    let first = ensure("3.13");
    assert_eq!(ensure("3.13"), first);
    assert_eq!(store.wheel_tree(&wheels[0], "3.13"), Some(first[0].clone()));
    assert_eq!(server.requests().len(), 1);
    // Another Python has other paths.
    assert_ne!(ensure("3.11"), first);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(store.measure_usage().unwrap().kinds["wheel"].0, 2);
}

#[test]
fn wrong_bytes_leave_nothing() {
    let bytes = zip(&demo());
    let mut changed = bytes.clone();
    changed[40] ^= 1;
    let mut longer = bytes.clone();
    longer.push(0);
    let other = zip(&demo()[1..]);
    for (served, sized) in [
        (changed, true),
        (other.clone(), false),
        (longer.clone(), false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::file(served);
        let store = Store::open(&folder.path().join("store")).unwrap();
        let mut wheel = locked(&server.url("demo.whl"), &bytes);
        if !sized {
            wheel.size = None;
        }
        let e = store
            .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
            .unwrap_err();
        assert!(matches!(e, StoreError::Hash { .. }), "{e:?}");
        assert_eq!(e.exit_code(), exit::VERIFY);
        assert_empty(folder.path());
    }
    for served in [other, longer] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::file(served);
        let store = Store::open(&folder.path().join("store")).unwrap();
        let wheel = locked(&server.url("demo.whl"), &bytes);
        let e = store
            .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
            .unwrap_err();
        assert!(matches!(e, StoreError::Size { .. }), "{e:?}");
        assert_empty(folder.path());
    }
}

#[test]
fn a_server_that_never_sends_it_all_leaves_nothing() {
    let bytes = zip(&demo());
    let served = bytes.clone();
    let half = bytes.len() / 2;
    let server = Server::start(move |request, stream| {
        let most = half.saturating_sub(request.from.unwrap_or(0));
        serve_some(request, stream, &served, most);
    });
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let wheel = locked(&server.url("demo.whl"), &bytes);
    let e = store
        .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
        .unwrap_err();
    assert!(
        matches!(e, StoreError::Fetch(FetchError::BrokeOff { .. })),
        "{e:?}"
    );
    assert_empty(folder.path());
}

#[test]
fn a_drop_in_the_middle_is_mended() {
    let bytes = demo_with(vec![entry("demo/large.bin", &noise(3_000_000))]);
    let served = bytes.clone();
    let server =
        Server::start(move |request, stream| serve_some(request, stream, &served, 700_000));
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let wheel = locked(&server.url("demo.whl"), &bytes);
    let trees = store
        .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
        .unwrap();
    let large = trees[0].join("opt/venv/lib/python3.13/site-packages/demo/large.bin");
    assert!(fs::read(large).unwrap() == noise(3_000_000));
    assert!(server.requests().len() >= 5);
}

#[test]
fn one_failure_stops_all_and_keeps_what_was_complete() {
    let good = zip(&demo());
    let bad = demo_with(vec![entry("../out", b"x")]);
    let (one, two) = (good.clone(), bad.clone());
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/good" => serve(request, stream, &one),
        _ => serve(request, stream, &two),
    });
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let wheels = [
        locked(&server.url("good"), &good),
        locked(&server.url("bad"), &bad),
    ];
    // One after the other, the larger first; so the good one is asked for by itself before.
    store
        .ensure_wheels(&fetcher(), &wheels[..1], "3.13", &NoProgress)
        .unwrap();
    let e = store
        .ensure_wheels(&fetcher(), &wheels, "3.13", &NoProgress)
        .unwrap_err();
    assert!(matches!(e, StoreError::Wheel { .. }), "{e:?}");
    assert!(store.wheel_tree(&wheels[0], "3.13").is_some());
    assert!(store.wheel_tree(&wheels[1], "3.13").is_none());
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in [
        "../out",
        "demo/../../out",
        "/etc/passwd",
        "demo\\..\\out",
        "demo-1.0.data/scripts/../../../../out",
        "demo-1.0.data/data/../../out",
        "../folder/",
        "demo-1.0.data/scripts/python3.13",
    ] {
        let e = refused(&demo_with(vec![entry(name, b"")]));
        assert!(matches!(e, WheelError::Name { .. }), "{name}: {e:?}");
    }
}

#[test]
fn entries_that_are_no_files_are_refused() {
    for mode in [0o120_777, 0o020_644, 0o010_644, 0o140_644, 0o040_755] {
        let mut one = entry("demo/link", b"/etc/passwd");
        one.mode = mode;
        let e = refused(&demo_with(vec![one]));
        assert!(matches!(e, WheelError::NotAFile { .. }), "{mode:o}: {e:?}");
    }
    let e = refused(&demo_with(vec![entry("demo/folder/", b"data")]));
    assert!(matches!(e, WheelError::NotAFile { .. }), "{e:?}");
}

#[test]
fn two_entries_for_one_file_are_refused() {
    let twice = |names: [&str; 2]| demo_with(names.iter().map(|name| entry(name, b"x")).collect());
    for names in [
        ["demo/a.py", "demo/a.py"],
        ["demo/a", "demo/a/b"],
        ["demo/a/b", "demo/a"],
        ["demo/a.py", "demo-1.0.data/purelib/demo/a.py"],
    ] {
        let e = refused(&twice(names));
        assert!(matches!(e, WheelError::Twice { .. }), "{names:?}: {e:?}");
    }
}

fn changed(change: impl Fn(&mut Entry)) -> Vec<u8> {
    let mut one = entry("demo/one.py", b"one = 1\n");
    change(&mut one);
    demo_with(vec![one])
}

#[test]
fn a_directory_that_disagrees_is_refused() {
    for (what, bytes) in [
        (
            "name",
            changed(|e| e.listed_name = Some("demo/two.py".to_owned())),
        ),
        ("size", changed(|e| e.listed_size = Some(9))),
        ("checksum", changed(|e| e.listed_crc = Some(1))),
        ("hidden entry", changed(|e| e.unlisted = true)),
        ("gap", zip_with(&demo(), |bytes| bytes.extend([0; 7]))),
    ] {
        let e = refused_zip(&bytes);
        assert!(
            matches!(e, ZipError::Directory { .. } | ZipError::NoRecord { .. }),
            "{what}: {e:?}"
        );
    }
    // An entry that only the directory has: the first one, listed again under another name.
    let mut twice = zip(&demo());
    let end = twice.len() - 22;
    let start = u32::from_le_bytes(twice[end + 16..end + 20].try_into().unwrap()) as usize;
    let first = 46 + usize::from(twice[start + 28]);
    let again = twice[start..start + first].to_vec();
    twice.splice(start..start, again);
    let end = end + first;
    for at in [end + 8, end + 10] {
        twice[at] += 1;
    }
    let length = (end - start) as u32;
    twice[end + 12..end + 16].copy_from_slice(&length.to_le_bytes());
    assert!(matches!(refused_zip(&twice), ZipError::Directory { .. }));
}

#[test]
fn data_that_are_not_what_the_entry_says_are_refused() {
    let e = refused_zip(&changed(|e| e.told_size = Some(5)));
    assert!(matches!(e, ZipError::Differs { what: "size", .. }), "{e:?}");
    let e = refused_zip(&changed(|e| e.told_size = Some(50)));
    assert!(matches!(e, ZipError::Differs { what: "size", .. }), "{e:?}");
    let mut bytes = changed(|e| e.stored = true);
    bytes[30 + 11] ^= 1; // the first byte of the data
    let e = refused_zip(&bytes);
    assert!(
        matches!(e, ZipError::Differs { what: "CRC-32", .. }),
        "{e:?}"
    );
}

#[test]
fn archives_with_something_behind_them_are_refused() {
    let bytes = zip(&demo());
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(refused_zip(&longer), ZipError::Directory { .. }));
    let twice = [bytes.clone(), bytes.clone()].concat();
    assert!(matches!(refused_zip(&twice), ZipError::Directory { .. }));
    for cut in [
        0,
        3,
        29,
        100,
        bytes.len() / 2,
        bytes.len() - 23,
        bytes.len() - 1,
    ] {
        let e = refused_zip(&bytes[..cut]);
        assert!(
            matches!(e, ZipError::CutOff { .. } | ZipError::Directory { .. }),
            "{cut}: {e:?}"
        );
    }
}

#[test]
fn bombs_are_refused() {
    let limits = WheelLimits {
        bytes: 1 << 20,
        entries: 50,
    };
    let options = InstallOptions {
        threads: NonZero::new(1),
        limits,
        ..InstallOptions::default()
    };
    let bomb = demo_with(vec![entry("demo/zeros", &vec![0; 8 << 20])]);
    assert!(bomb.len() < 100_000);
    let many = demo_with((0..60).map(|i| entry(&format!("demo/{i}"), b"")).collect());
    for (bytes, unit) in [(bomb, "bytes"), (many, "entries")] {
        let (folder, result) = install_with(&bytes, options);
        let e = result.unwrap_err();
        let StoreError::Wheel {
            source: WheelError::Zip(ZipError::TooLarge { unit: found, .. }),
            ..
        } = e
        else {
            panic!("{e:?}");
        };
        assert_eq!(found, unit);
        assert_empty(folder.path());
    }
}

#[test]
fn metadata_must_be_the_projects() {
    let without = |part: &str| {
        zip(&demo()
            .into_iter()
            .filter(|e| !e.name.contains(part))
            .collect::<Vec<_>>())
    };
    let mut future = demo();
    for e in &mut future {
        if e.name.ends_with("/WHEEL") {
            e.data = b"Wheel-Version: 2.0\n".to_vec();
        }
    }
    let mut evil = demo();
    for e in &mut evil {
        if e.name.ends_with("/entry_points.txt") {
            e.data = b"[console_scripts]\n../../x = a:b\n".to_vec();
        }
    }
    let mut python = demo();
    for e in &mut python {
        if e.name.ends_with("/entry_points.txt") {
            e.data = b"[console_scripts]\npython = a:b\n".to_vec();
        }
    }
    let renamed: Vec<Entry> = demo()
        .into_iter()
        .map(|mut e| {
            e.name = e.name.replace("demo-1.0", "other-1.0");
            e
        })
        .collect();
    for (what, bytes) in [
        ("no .dist-info", without(".dist-info")),
        ("no WHEEL", without("WHEEL")),
        (
            "two of them",
            demo_with(vec![entry("x-1.dist-info/METADATA", b"")]),
        ),
        ("a later format", zip(&future)),
        ("a script outside", zip(&evil)),
        ("the interpreter", zip(&python)),
        ("another project", zip(&renamed)),
    ] {
        let e = refused(&bytes);
        assert!(matches!(e, WheelError::Metadata { .. }), "{what}: {e:?}");
    }
}

#[test]
fn the_tree_does_not_depend_on_the_umask_or_the_day() {
    let bytes = zip(&demo());
    let (_one, first) = install(&bytes);
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let (_two, second) = install(&bytes);
    rustix::process::umask(before);
    let (first, second) = (listing(&first.unwrap()), listing(&second.unwrap()));
    assert_eq!(first, second);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any change to an archive either leaves it installable or leaves nothing.
    #[test]
    fn changed_archives_leave_a_tree_or_nothing(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut behind = entry("demo/behind.py", b"behind = 1\n");
        behind.sizes_behind = true;
        let mut bytes = demo_with(vec![behind]);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (folder, result) = install(&bytes);
        match result {
            Ok(tree) => prop_assert!(!listing(&tree).is_empty()),
            Err(StoreError::Wheel { .. }) => assert_empty(folder.path()),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
        let outside: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        prop_assert_eq!(outside.len(), 2, "the wheel and the store");
    }
}
