//! Where outputs lie: folders of strangers that were not named, folders that let nothing go, folders that are made.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{chown, lchown, symlink};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::tests::{STRANGER, find, is_root, names, none, place, shared, text, write};
use super::*;

/// A stranger's folder in one of everybody's, with a link of that one's to `target`.
fn planted(shared: &Path, target: &Path) -> PathBuf {
    let theirs = shared.join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(target, theirs.join("link")).unwrap();
    lchown(theirs.join("link"), Some(STRANGER), Some(STRANGER)).unwrap();
    chown(&theirs, Some(STRANGER), Some(STRANGER)).unwrap();
    theirs
}

#[test]
fn a_strangers_folder_that_was_entered_is_judged_as_one_that_is_named() {
    if !is_root("a stranger's folder") {
        return;
    }
    let (own, shared) = (place(), shared());
    let target = own.path().join("target");
    fs::write(&target, "before").unwrap();
    let theirs = planted(shared.path(), &target);
    let below = theirs.join("below");
    fs::create_dir(&below).unwrap();
    symlink(&target, below.join("link")).unwrap();
    lchown(below.join("link"), Some(STRANGER), Some(STRANGER)).unwrap();
    chown(&below, Some(STRANGER), Some(STRANGER)).unwrap();
    let (open, open_below) = (File::open(&theirs).unwrap(), File::open(&below).unwrap());
    let (number, number_below) = (open.as_raw_fd(), open_below.as_raw_fd());
    std::env::set_current_dir(&theirs).unwrap();
    for path in [
        "link".to_owned(),
        "./link".to_owned(),
        "below/link".to_owned(),
        "below/../link".to_owned(),
        "/proc/self/cwd/link".to_owned(),
        "/proc/thread-self/cwd/below/link".to_owned(),
        format!("/dev/fd/{number}/link"),
        format!("/proc/self/fd/{number_below}/link"),
        format!("/proc/self/fd/{number_below}/../link"),
    ] {
        let error = write(Path::new(&path), "after").unwrap_err();
        assert!(
            matches!(error, OutputError::StrangersLink { uid: STRANGER, .. }),
            "{path}: {error}"
        );
        let error = write(&theirs.join(&path), "after").unwrap_err();
        assert!(matches!(error, OutputError::StrangersLink { .. }), "{path}");
    }
    // Nor are folders made, keys written or folders found through a link of theirs.
    symlink(own.path(), theirs.join("folder")).unwrap();
    lchown(theirs.join("folder"), Some(STRANGER), Some(STRANGER)).unwrap();
    let path = Path::new("folder/new");
    for error in [
        OutputDirectory::open_or_create(path).unwrap_err(),
        DirectoryDestination::for_path(path).unwrap_err(),
        NewFile::for_path(path, 0o600).unwrap_err(),
        find(path).unwrap_err(),
    ] {
        assert!(
            matches!(error, OutputError::StrangersLink { .. }),
            "{error}"
        );
    }
    assert_eq!(text(&target), "before");
    // What the caller makes there is written, and followed.
    write(Path::new("new"), "new").unwrap();
    symlink(&target, "own").unwrap();
    write(Path::new("own"), "after").unwrap();
    assert_eq!(
        (text(&theirs.join("new")).as_str(), text(&target).as_str()),
        ("new", "after")
    );
    // A stranger's folder in one that is nobody else's leads where its owner says.
    let home = own.path().join("home");
    fs::create_dir(&home).unwrap();
    symlink(&target, home.join("link")).unwrap();
    lchown(home.join("link"), Some(STRANGER), Some(STRANGER)).unwrap();
    chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
    // Below /tmp as this is, nobody else may write to the folder above.
    std::env::set_current_dir(&home).unwrap();
    write(Path::new("link"), "by its owner").unwrap();
    assert_eq!(text(&target), "by its owner");
}

/// Whether a folder could be made one that lets no name go (chattr(1), `+a`), or one as others again.
fn set_append_only(folder: &Path, is_append_only: bool) -> bool {
    let folder = File::open(folder).unwrap();
    ioctl_getflags(&folder).is_ok_and(|mut flags| {
        flags.set(IFlags::APPEND, is_append_only);
        ioctl_setflags(&folder, flags).is_ok()
    })
}

#[test]
fn a_folder_that_lets_nothing_go_has_files_written_in_place() {
    let place = place();
    let path = place.path().join("file");
    fs::write(&path, "before, and longer").unwrap();
    if !set_append_only(place.path(), true) {
        sconce_testkit::report_skip("append-only", "folders cannot be made append-only here");
        return;
    }
    let replaced = write(&path, "after");
    let made = write(&place.path().join("new"), "new");
    let left = names(place.path());
    assert!(set_append_only(place.path(), false));
    assert!(replaced.is_ok() && made.is_ok(), "{replaced:?} {made:?}");
    assert_eq!(text(&path), "after");
    assert_eq!(left, ["file", "new"]);
}

#[test]
fn what_was_made_of_a_folder_goes_where_it_is_not_completed() {
    let place = place();
    fs::create_dir(place.path().join("there")).unwrap();
    fs::write(place.path().join("there/file"), "kept").unwrap();
    for path in ["a/b/c", "there/a/b", "there/new/../b"] {
        let folder = OutputDirectory::open_or_create(&place.path().join(path)).unwrap();
        let inner = folder.ensure_subdir("d").unwrap().ensure_subdir("e");
        let inner = inner.unwrap();
        let output = inner.output_for("f", OutputForm::Text).unwrap();
        output.write(b"text").unwrap();
        assert!(place.path().join(path).join("d/e/f").exists());
        drop((folder, inner));
        assert_eq!(names(place.path()), ["there"]);
        assert_eq!(names(&place.path().join("there")), ["file"]);
    }
    // Of what was there, nothing goes; nor does a folder in which another is at work.
    let folder = OutputDirectory::open_or_create(&place.path().join("x/../there")).unwrap();
    let output = folder.output_for("file", OutputForm::Text).unwrap();
    output.write(b"after").unwrap();
    drop(folder);
    assert_eq!(text(&place.path().join("there/file")), "after");
    assert_eq!(names(place.path()), ["there"]);
    let folder = OutputDirectory::open_or_create(&place.path().join("both")).unwrap();
    fs::write(place.path().join("both/other"), "another's").unwrap();
    drop(folder);
    assert_eq!(names(&place.path().join("both")), ["other"]);
}

#[test]
fn a_folder_that_cannot_be_made_whole_leaves_none_of_those_above() {
    let place = place();
    let long = "x".repeat(300);
    let path = place.path().join("a/b").join(long);
    OutputDirectory::open_or_create(&path).unwrap_err();
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
}

#[test]
fn files_in_a_folder_that_is_written_are_known() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("there/blobs")).unwrap();
    fs::write(at("there/index"), "").unwrap();
    fs::write(at("file"), "").unwrap();
    symlink("there", at("link")).unwrap();
    symlink("there/index", at("index")).unwrap();
    let folder = |name: &str| DirectoryDestination::for_path(&at(name)).unwrap();
    for (directory, file, wanted) in [
        ("there", "there/index", true),
        ("there", "index", true),
        ("link", "there/new", true),
        ("there", "link/blobs/new", true),
        ("there", "new", false),
        ("new", "new", true),
        ("new/x", "new", true),
        ("new", "newer", false),
        ("none/../new", "new", true),
        ("there/blobs", "there/index", false),
    ] {
        let output = find(&at(file)).unwrap();
        assert_eq!(
            folder(directory).overlaps(&output),
            wanted,
            "{directory} {file}"
        );
    }
    // A descriptor of a file in it.
    let index = File::options().append(true).open(at("index")).unwrap();
    let descriptor = OutputDestination {
        path: at("index"),
        form: OutputForm::Text,
        kind: Kind::Descriptor(3, index),
        for_everybody: false,
    };
    assert!(folder("there").overlaps(&descriptor) && !folder("new").overlaps(&descriptor));
}

#[test]
fn what_takes_the_place_of_what_is_read_is_known() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("folder/deep")).unwrap();
    fs::write(at("folder/file"), "").unwrap();
    symlink("folder", at("link")).unwrap();
    for (output, input, wanted) in [
        ("folder/file", "link/file", true),
        ("folder/new", "folder/file", false),
        // One that is made before the output is written.
        ("link/new", "folder/new", true),
        ("folder/new", "folder/other", false),
        ("folder/deep/new", "folder", true),
        ("folder/file", "link", true),
        ("new", "folder", false),
    ] {
        let found = find(&at(output)).unwrap();
        assert_eq!(
            found.would_overwrite(&at(input)),
            wanted,
            "{output} {input}"
        );
    }
    let null = OutputDestination::for_path(Path::new("/dev/null"), OutputForm::Text, none);
    assert!(!null.unwrap().would_overwrite(Path::new("/dev/null")));
}
