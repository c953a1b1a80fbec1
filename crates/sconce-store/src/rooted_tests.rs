use super::*;
use proptest::prelude::*;
use std::os::unix::fs::MetadataExt as _;

/// A folder `tree` beside a file that nobody may reach.
fn pen() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "kept").unwrap();
    (folder, tree, outside)
}

fn assert_closed(outside: &Path) {
    let names: Vec<_> = fs::read_dir(outside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["file"]);
    let file = outside.join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    assert_eq!(outside.metadata().unwrap().mode() & 0o7777, 0o755);
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn links_are_followed_inside() {
    let (_folder, tree, outside) = pen();
    let out = outside.to_str().unwrap().as_bytes();
    let mut rooted = ScopedRoot::new(&tree, OnConflict::Stay);
    rooted.create_symlink(b"lib", b"usr/lib").unwrap();
    rooted.write(b"/lib/a", b"1", 0o4755).unwrap();
    assert_eq!(text(&tree.join("usr/lib/a")), "1");
    let mode = tree.join("usr/lib/a").metadata().unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
    rooted.create_symlink(b"abs", b"/usr/./lib/../lib").unwrap();
    assert_eq!(rooted.read(b"abs/a", 9).unwrap().unwrap(), b"1");
    rooted.create_symlink(b"up", b"../../../../..").unwrap();
    rooted.write(b"up/b", b"2", 0o644).unwrap();
    assert_eq!(text(&tree.join("b")), "2");
    rooted.create_symlink(b"out", out).unwrap();
    rooted.write(b"out/file", b"inside", 0o644).unwrap();
    assert_eq!(rooted.read(b"out/file", 9).unwrap().unwrap(), b"inside");
    // The link itself is replaced, not what it leads to.
    let file = outside.join("file");
    rooted
        .create_symlink(b"f", file.to_str().unwrap().as_bytes())
        .unwrap();
    assert_eq!(rooted.read(b"f", 9).unwrap().unwrap(), b"inside");
    rooted.write(b"f", b"3", 0o644).unwrap();
    assert_eq!(text(&tree.join("f")), "3");
    assert_closed(&outside);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let (_folder, tree, outside) = pen();
    for folders in [OnConflict::Stay, OnConflict::Yield] {
        let mut rooted = ScopedRoot::new(&tree, folders);
        for name in [
            &b"../outside/file"[..],
            b"a/../../outside/file",
            b"a\0b",
            b"..",
            b"",
            b"/",
        ] {
            assert!(rooted.write(name, b"x", 0o644).is_err());
            assert!(rooted.create_symlink(name, b"x").is_err());
            assert!(rooted.hard_link(b"h", name).is_err());
        }
        for name in [&b".."[..], b"a\0b"] {
            assert!(rooted.ensure_dir(name, 0o755).is_err());
            assert!(rooted.resolve_path(name).is_err() && rooted.contains_entry(name).is_err());
        }
        assert!(
            rooted.create_symlink(b"x", b"").is_err()
                && rooted.create_symlink(b"x", b"a\0").is_err()
        );
    }
    assert_closed(&outside);
}

#[test]
fn hard_links_stay_inside() {
    let (_folder, tree, outside) = pen();
    let mut rooted = ScopedRoot::new(&tree, OnConflict::Yield);
    let file = outside.join("file").to_str().unwrap().as_bytes().to_vec();
    rooted.create_symlink(b"l", &file).unwrap();
    // Another name of the link, not of the file that it leads to.
    rooted.hard_link(b"h", b"l").unwrap();
    assert!(tree.join("h").is_symlink());
    assert!(rooted.hard_link(b"x", &file).is_err());
    assert!(rooted.hard_link(b"x", b"usr").is_err());
    rooted.write(b"a", b"1", 0o644).unwrap();
    rooted.hard_link(b"a", b"a").unwrap();
    assert_eq!(text(&tree.join("a")), "1");
    assert_closed(&outside);
}

#[test]
fn what_stands_in_the_way_stays_or_goes() {
    let (_folder, tree, _outside) = pen();
    let mut stay = ScopedRoot::new(&tree, OnConflict::Stay);
    stay.write(b"d/x", b"1", 0o644).unwrap();
    stay.create_symlink(b"l", b"d").unwrap();
    assert!(stay.write(b"d", b"", 0o644).is_err());
    assert_eq!(stay.create_symlink(b"d", b"e").unwrap(), None);
    assert_eq!(stay.ensure_dir(b"l", 0o755).unwrap(), tree.join("d"));
    let mut yields = ScopedRoot::new(&tree, OnConflict::Yield);
    assert_eq!(yields.ensure_dir(b"l", 0o2711).unwrap(), tree.join("l"));
    assert_eq!(tree.join("l").symlink_metadata().unwrap().mode(), 0o40711);
    // What was known of the folder is forgotten with it.
    yields.write(b"d/y", b"2", 0o644).unwrap();
    yields.create_symlink(b"d", b"l").unwrap();
    yields.write(b"d/z", b"3", 0o644).unwrap();
    assert_eq!(text(&tree.join("l/z")), "3");
    assert!(!tree.join("l/y").exists());
    assert!(yields.write(b"l/z/below", b"", 0o644).is_err());
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let (_folder, tree, _outside) = pen();
    let mut rooted = ScopedRoot::new(&tree, OnConflict::Stay);
    rooted.create_symlink(b"loop", b"loop").unwrap();
    rooted.create_symlink(b"gone", b"/nowhere").unwrap();
    rooted.write(b"f", b"12345", 0o600).unwrap();
    for name in [&b"x"[..], b"x/y", b"loop", b"gone", b"f/x"] {
        assert_eq!(rooted.resolve_path(name).unwrap(), None);
        assert_eq!(rooted.read(name, 9).unwrap(), None);
    }
    assert!(rooted.contains_entry(b"gone").unwrap() && !rooted.contains_entry(b"x/y").unwrap());
    assert!(!rooted.contains_entry(b"gone/x").unwrap() && rooted.contains_entry(b"/").unwrap());
    assert_eq!(rooted.resolve_path(b"/").unwrap(), Some(tree.clone()));
    assert_eq!(rooted.read(b"/", 9).unwrap(), None);
    assert!(rooted.write(b"loop/x", b"", 0o644).is_err());
    assert!(rooted.read(b"f", 4).is_err() && rooted.read(b"f", 5).unwrap().is_some());
    set_modified(&tree.join("gone"), -5).unwrap();
    assert_eq!(tree.join("gone").symlink_metadata().unwrap().mtime(), -5);
}

#[test]
fn nothing_lies_too_deep() {
    let (_folder, tree, _outside) = pen();
    for folders in [OnConflict::Stay, OnConflict::Yield] {
        let mut rooted = ScopedRoot::new(&tree, folders);
        let deep = vec!["d"; 250].join("/").into_bytes();
        rooted.ensure_dir(&deep, 0o755).unwrap();
        rooted.create_symlink(b"l", &deep).unwrap();
        for name in [
            [&deep[..], b"/e"].concat(),
            b"l/e".to_vec(),
            b"l/e/f".to_vec(),
        ] {
            assert!(rooted.ensure_dir(&name, 0o755).is_err());
        }
        assert!(rooted.write(b"l/e/f", b"", 0o644).is_err());
        rooted.write(b"l/file", b"", 0o644).unwrap();
    }
}

fn some_name() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c", "..", ".", "../../outside/file", "OUT"]);
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_leaves_the_folder(
        steps in prop::collection::vec((0..6_u8, some_name(), some_name()), 1..24),
        yields: bool,
    ) {
        let (_folder, tree, outside) = pen();
        let out = outside.to_str().unwrap();
        let folders = if yields { OnConflict::Yield } else { OnConflict::Stay };
        let mut rooted = ScopedRoot::new(&tree, folders);
        for (kind, name, other) in steps {
            let (name, other) = (name.replace("OUT", out), other.replace("OUT", out));
            let (name, other) = (name.as_bytes(), other.as_bytes());
            match kind {
                0 => drop(rooted.write(name, b"x", 0o777)),
                1 => drop(rooted.ensure_dir(name, 0)),
                2 => drop(rooted.create_symlink(name, other)),
                3 => drop(rooted.hard_link(name, other)),
                4 => drop(rooted.make_folder(name)),
                _ => if let Ok(Some(text)) = rooted.read(name, 99) {
                    prop_assert_eq!(text, b"x");
                }
            }
            if let Ok(Some(found)) = rooted.resolve_path(other) {
                prop_assert!(found.starts_with(&tree));
            }
        }
        assert_closed(&outside);
    }
}
