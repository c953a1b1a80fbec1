//! Destinations of every kind, as root and as who may less.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::thread;

use rustix::fs::{CWD, FileType, mknodat};
use sconce_schema::Hint as _;
use tempfile::TempDir;

use super::*;

pub(super) const STRANGER: u32 = 12_345;

pub(super) fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Descriptor 1 of these tests is a file of theirs; no other is handed on.
pub(super) fn none(_: RawFd) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::NotFound.into())
}

pub(super) fn find(path: &Path) -> Result<OutputDestination, OutputError> {
    OutputDestination::for_path(path, OutputForm::Text, none)
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), OutputError> {
    find(path)?.write(text.as_bytes())
}

pub(super) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Whether the test may play others; what it leaves out is said.
pub(super) fn is_root(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        sconce_testkit::report_skip("not-root", format_args!("{what} needs root"));
    }
    root
}

/// A folder in which everybody may make files, as /tmp.
pub(super) fn shared() -> TempDir {
    let shared = place();
    fs::set_permissions(shared.path(), Permissions::from_mode(0o1777)).unwrap();
    shared
}

fn fifo(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).unwrap();
}

#[test]
fn a_new_file_appears_when_it_is_complete() {
    let place = place();
    let path = place.path().join("new");
    let output = find(&path).unwrap();
    assert!(output.is_file() && names(place.path()).is_empty());
    let mut file = output.open().unwrap();
    file.write_all(b"half").unwrap();
    drop(file);
    assert!(names(place.path()).is_empty(), "{:?}", names(place.path()));
    write(&path, "whole").unwrap();
    assert_eq!(text(&path), "whole");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = u32::from_str_radix(mask.unwrap().trim(), 8).unwrap();
    assert_eq!(mode(&path), 0o666 & !mask);
    assert_eq!(names(place.path()), ["new"]);
}

#[test]
fn what_is_larger_than_a_buffer_is_written_whole() {
    let place = place();
    let path = place.path().join("large");
    for length in [1 << 20, (3 << 20) + 4321] {
        let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        find(&path).unwrap().write(&bytes).unwrap();
        assert!(fs::read(&path).unwrap() == bytes, "{length}");
        let output = OutputDestination::for_path(&path, OutputForm::Seekable, none).unwrap();
        let mut file = output.open().unwrap();
        file.write_all(&bytes).unwrap();
        file.begin_with(b"first").unwrap();
        file.finish().unwrap();
        let read = fs::read(&path).unwrap();
        assert!(read[..5] == *b"first" && read[5..] == bytes[5..]);
    }
}

#[test]
fn a_file_that_is_replaced_keeps_mode_owner_and_attributes() {
    let place = place();
    let path = place.path().join("file");
    fs::write(&path, "before").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let attribute =
        rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty());
    if is_root("a file of another owner") {
        chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
    }
    let (owner, inode) = (
        path.metadata().unwrap().uid(),
        path.metadata().unwrap().ino(),
    );
    let mut half = find(&path).unwrap().open().unwrap();
    half.write_all(b"half").unwrap();
    drop(half);
    assert_eq!(text(&path), "before");
    write(&path, "after").unwrap();
    let meta = path.metadata().unwrap();
    assert_eq!((text(&path).as_str(), mode(&path)), ("after", 0o640));
    assert_eq!((meta.uid(), meta.ino() == inode), (owner, false));
    assert_eq!(names(place.path()), ["file"]);
    if attribute.is_ok() {
        let mut room = [0_u8; 16];
        let length = rustix::fs::getxattr(&path, "user.note", &mut room[..]).unwrap();
        assert_eq!(&room[..length], b"kept");
    }
}

#[test]
fn the_other_name_of_a_file_keeps_what_it_had() {
    let place = place();
    let (path, other) = (place.path().join("file"), place.path().join("other"));
    fs::write(&path, "before").unwrap();
    fs::hard_link(&path, &other).unwrap();
    write(&path, "after").unwrap();
    assert_eq!(
        (text(&path).as_str(), text(&other).as_str()),
        ("after", "before")
    );
}

#[test]
fn own_links_are_followed_and_stay() {
    let place = place();
    let folder = place.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), "before").unwrap();
    symlink("folder/../folder/file", place.path().join("link")).unwrap();
    symlink("link", place.path().join("again")).unwrap();
    symlink(&folder, place.path().join("there")).unwrap();
    symlink("folder/new", place.path().join("dangling")).unwrap();
    for (name, target) in [
        ("again", "folder/file"),
        ("there/file", "folder/file"),
        ("dangling", "folder/new"),
    ] {
        write(&place.path().join(name), name).unwrap();
        assert_eq!(text(&place.path().join(target)), name);
    }
    let link = place.path().join("link").symlink_metadata().unwrap();
    assert!(link.is_symlink());
    symlink("loop", place.path().join("loop")).unwrap();
    let error = write(&place.path().join("loop"), "").unwrap_err();
    assert!(matches!(error, OutputError::Io { .. }), "{error}");
}

#[test]
fn what_strangers_put_into_shared_folders_is_refused() {
    if !is_root("a stranger's link") {
        return;
    }
    let (own, shared) = (place(), shared());
    let target = own.path().join("target");
    fs::write(&target, "before").unwrap();
    let at = |name: &str| shared.path().join(name);
    for (link, to) in [("link", target.as_path()), ("folder", own.path())] {
        symlink(to, at(link)).unwrap();
        std::os::unix::fs::lchown(at(link), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    for path in [at("link"), at("folder/target"), at("folder/new")] {
        let error = write(&path, "after").unwrap_err();
        assert!(
            matches!(error, OutputError::StrangersLink { uid: STRANGER, .. }),
            "{error}"
        );
    }
    fs::write(at("file"), "theirs").unwrap();
    fifo(&at("fifo"), FileType::Fifo, 0);
    for name in ["file", "fifo"] {
        chown(at(name), Some(STRANGER), Some(STRANGER)).unwrap();
        let error = write(&at(name), "after").unwrap_err();
        assert!(
            matches!(error, OutputError::StrangersFile { uid: STRANGER, .. }),
            "{error}"
        );
    }
    assert_eq!(
        (text(&target).as_str(), text(&at("file")).as_str()),
        ("before", "theirs")
    );
    // A stranger's own folder, and links of its owner in it, are that one's to arrange,
    // where nobody but the caller could have put it, as below /home.
    let theirs = own.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(&target, theirs.join("link")).unwrap();
    std::os::unix::fs::lchown(theirs.join("link"), Some(STRANGER), None).unwrap();
    chown(&theirs, Some(STRANGER), None).unwrap();
    write(&theirs.join("link"), "by its owner").unwrap();
    assert_eq!(text(&target), "by its owner");
}

#[test]
fn a_strangers_folder_in_a_shared_one_leads_nowhere_else() {
    if !is_root("a stranger's folder") {
        return;
    }
    let (own, shared) = (place(), shared());
    let target = own.path().join("target");
    fs::write(&target, "before").unwrap();
    let theirs = shared.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(&target, theirs.join("link")).unwrap();
    std::os::unix::fs::lchown(theirs.join("link"), Some(STRANGER), Some(STRANGER)).unwrap();
    chown(&theirs, Some(STRANGER), Some(STRANGER)).unwrap();
    let refused = |error: OutputError| {
        let is = matches!(error, OutputError::StrangersLink { uid: STRANGER, .. });
        assert!(is, "{error}");
    };
    refused(write(&theirs.join("link"), "after").unwrap_err());
    refused(write(&theirs.join("../theirs/link"), "after").unwrap_err());
    let folder = OutputDirectory::open_or_create(&theirs).unwrap();
    refused(folder.output_for("link", OutputForm::Text).unwrap_err());
    assert_eq!(text(&target), "before");
    // A file of the caller's there, and one by the caller's own link, are written.
    write(&theirs.join("new"), "new").unwrap();
    symlink(&target, theirs.join("own")).unwrap();
    write(&theirs.join("own"), "after").unwrap();
    assert_eq!(
        (text(&theirs.join("new")).as_str(), text(&target).as_str()),
        ("new", "after")
    );
}

/// An access list as the kernel keeps it (linux/posix_acl_xattr.h): owner, `STRANGER`, group, mask, others.
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, allowed, id) in [
        (1_u16, 6_u16, nobody),
        (2, 6, STRANGER),
        (4, 4, nobody),
        (0x10, 6, nobody),
        (0x20, 0, nobody),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(allowed.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn who_could_not_read_the_old_file_cannot_read_the_new_one() {
    let place = place();
    let folder = File::open(place.path()).unwrap();
    let path = place.path().join("file");
    fs::write(&path, "before").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let default = rustix::fs::fsetxattr(
        &folder,
        "system.posix_acl_default",
        &access_list(),
        rustix::fs::XattrFlags::empty(),
    );
    if let Err(error) = default {
        sconce_testkit::report_skip(
            "access-lists",
            format_args!("the temporary folder has none: {error}"),
        );
        return;
    }
    let is_listed = |path: &Path| {
        let mut room = [0_u8; 256];
        rustix::fs::getxattr(path, "system.posix_acl_access", &mut room[..]).is_ok()
    };
    let fresh = place.path().join("fresh");
    write(&fresh, "new").unwrap();
    assert!(is_listed(&fresh), "a new file has its folder's list");
    write(&path, "after").unwrap();
    assert!(!is_listed(&path));
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
    // One that the old file had stays.
    write(&fresh, "again").unwrap();
    assert!(is_listed(&fresh));
}

#[test]
fn names_that_no_descriptor_and_no_file_has_are_refused() {
    let place = place();
    for path in ["/dev/fd/+1", "/dev/fd/01", "/dev/fd/-1"] {
        let error = find(Path::new(path)).unwrap_err();
        let said = format!("{error} {}", error.hint().unwrap());
        assert!(
            !said.contains("descriptor") && !said.contains('>'),
            "{said}"
        );
    }
    fs::write(place.path().join("file"), "kept").unwrap();
    assert!(write(&place.path().join("file/."), "lost").is_err());
    assert!(write(&place.path().join("new/."), "lost").is_err());
    assert_eq!(text(&place.path().join("file")), "kept");
}

#[test]
fn what_is_mounted_when_it_is_entered_is_found() {
    if !is_root("an automount") {
        return;
    }
    // debugfs mounts tracefs below itself for whoever enters it, in a namespace that goes with the process.
    let path = place();
    let script = "mount -t debugfs none \"$1\" && [ -d \"$1/tracing\" ] || exit 77; exec sleep 20";
    let child = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(path.path())
        .spawn();
    let Ok(mut child) = child else {
        sconce_testkit::report_skip("automount", "no mount namespaces");
        return;
    };
    let inside = format!(
        "/proc/{}/root{}/tracing/instances",
        child.id(),
        path.path().display()
    );
    let mounted = (0..100).any(|_| {
        thread::sleep(std::time::Duration::from_millis(20));
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", child.id())).unwrap_or_default();
        mounts.contains(&format!("{} debugfs", path.path().display()))
    });
    if mounted {
        let error = find(Path::new(&inside)).unwrap_err();
        assert_eq!(
            error.io_kind(),
            Some(io::ErrorKind::IsADirectory),
            "{error}"
        );
    } else {
        sconce_testkit::report_skip("automount", "there is no debugfs with tracing to mount");
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_device_stays_one() {
    if !is_root("a device") {
        return;
    }
    let place = place();
    let null = place.path().join("null");
    fifo(&null, FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    if File::options().write(true).open(&null).is_err() {
        sconce_testkit::report_skip("tmp-nodev", "the temporary folder has no devices");
        return;
    }
    for form in [OutputForm::Text, OutputForm::Binary, OutputForm::Seekable] {
        let output = OutputDestination::for_path(&null, form, none).unwrap();
        assert!(!output.is_file());
        output.write(&vec![1; 100_000]).unwrap();
    }
    assert!(null.metadata().unwrap().file_type().is_char_device());
    let full = place.path().join("full");
    fifo(&full, FileType::CharacterDevice, rustix::fs::makedev(1, 7));
    let error = write(&full, "text").unwrap_err();
    assert_eq!(error.io_kind(), Some(io::ErrorKind::StorageFull));
    assert!(error.to_string().contains("full") && error.hint().is_some());
}

#[test]
fn a_fifo_is_streamed_to() {
    let place = place();
    let path = place.path().join("fifo");
    fifo(&path, FileType::Fifo, 0);
    let from = path.clone();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        File::open(from).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    write(&path, "through it").unwrap();
    assert_eq!(reader.join().unwrap(), "through it");
    assert!(path.metadata().unwrap().file_type().is_fifo());
    let error = OutputDestination::for_path(&path, OutputForm::Seekable, none).unwrap_err();
    assert!(matches!(error, OutputError::NotSeekable { .. }), "{error}");
}

#[test]
fn what_cannot_be_a_file_is_said_before() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::write(at("file"), "").unwrap();
    for (path, said) in [
        (at("socket"), "a socket"),
        (place.path().to_owned(), "cannot write"),
        (at("none/file"), "cannot write"),
        (at("file/x"), "cannot write"),
        (at("new/"), "cannot write"),
        (PathBuf::new(), "cannot write"),
    ] {
        let error = find(&path).unwrap_err();
        assert!(error.to_string().contains(said), "{path:?}: {error}");
    }
    let error = find(&at("none/file")).unwrap_err();
    assert!(error.hint().unwrap().contains("mkdir -p"));
    assert_eq!(names(place.path()), ["file", "socket"]);
}

#[test]
fn a_descriptor_is_duplicated_with_its_offset() {
    /// The descriptor that is asked for is the file of a test, whatever its number is.
    fn duplicated(number: RawFd) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fdinfo/{number}");
        let info = fs::read_to_string(path)?;
        // Of a file that was opened for writing, its last flag is 1.
        assert!(info.contains("flags:"));
        PLACE
            .with_borrow(|file| file.as_ref().unwrap().try_clone())
            .map(OwnedFd::from)
    }
    thread_local! {
        static PLACE: std::cell::RefCell<Option<File>> = const { std::cell::RefCell::new(None) };
    }
    let place = place();
    let path = place.path().join("out");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"before ").unwrap();
    let number = file.as_raw_fd();
    PLACE.set(Some(file.try_clone().unwrap()));
    symlink(format!("/dev/fd/{number}"), place.path().join("link")).unwrap();
    for name in [
        format!("/dev/fd/{number}"),
        format!("/proc/self/fd/{number}"),
        format!("/proc/{}/fd/{number}", std::process::id()),
        place.path().join("link").to_string_lossy().into_owned(),
    ] {
        let output =
            OutputDestination::for_path(Path::new(&name), OutputForm::Binary, duplicated).unwrap();
        assert_eq!(
            (output.descriptor_number(), output.is_file()),
            (Some(number), false)
        );
        output.write(b"x ").unwrap();
    }
    file.write_all(b"after").unwrap();
    assert_eq!(text(&path), "before x x x x after");
    let error =
        OutputDestination::for_path(Path::new("-"), OutputForm::Seekable, duplicated).unwrap_err();
    assert!(matches!(error, OutputError::NotSeekable { .. }), "{error}");
    // Open for reading alone.
    PLACE.set(Some(File::open(&path).unwrap()));
    let error =
        OutputDestination::for_path(Path::new("-"), OutputForm::Text, duplicated).unwrap_err();
    assert!(
        matches!(error, OutputError::Closed { number: 1, .. }),
        "{error}"
    );
}

#[test]
fn a_file_in_a_folder_that_is_closed_is_written_in_place() {
    if rustix::process::geteuid().is_root() {
        // Root may write to any folder; that of /proc/sys takes no new file.
        let path = Path::new("/proc/self/comm");
        let before = text(path);
        write(path, "outputs").unwrap();
        assert_eq!(text(path), "outputs\n");
        write(path, before.trim_end()).unwrap();
        return;
    }
    let place = place();
    let path = place.path().join("file");
    fs::write(&path, "what was there before").unwrap();
    let inode = path.metadata().unwrap().ino();
    fs::set_permissions(place.path(), Permissions::from_mode(0o555)).unwrap();
    write(&path, "after").unwrap();
    assert_eq!(
        (text(&path).as_str(), path.metadata().unwrap().ino()),
        ("after", inode)
    );
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let error = find(&path).unwrap_err();
    assert_eq!(error.io_kind(), Some(io::ErrorKind::PermissionDenied));
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_new_file_replaces_nothing() {
    let place = place();
    let at = |name: &str| place.path().join(name);
    fs::write(at("file"), "kept").unwrap();
    symlink("nothing", at("link")).unwrap();
    fifo(&at("fifo"), FileType::Fifo, 0);
    for name in ["file", "link", "fifo"] {
        let error = NewFile::for_path(&at(name), 0o600).unwrap_err();
        assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    }
    let key = NewFile::for_path(&at("key"), 0o600).unwrap();
    assert!(!at("key").exists());
    fs::write(at("key"), "another's").unwrap();
    let error = key.write(b"mine").unwrap_err();
    assert!(matches!(error, OutputError::Exists { .. }), "{error}");
    assert_eq!(text(&at("key")), "another's");
    let key = NewFile::for_path(&at("other"), 0o600).unwrap();
    key.write(b"mine").unwrap();
    assert_eq!(
        (text(&at("other")).as_str(), mode(&at("other"))),
        ("mine", 0o600)
    );
}

#[test]
fn a_folder_is_made_and_holds_its_files() {
    let place = place();
    let path = place.path().join("a/b");
    DirectoryDestination::for_path(&path).unwrap();
    assert!(names(place.path()).is_empty());
    let folder = OutputDirectory::open_or_create(&path).unwrap();
    let inner = folder.ensure_subdir("c").unwrap();
    inner
        .output_for("d", OutputForm::Text)
        .unwrap()
        .write(b"text")
        .unwrap();
    assert_eq!(text(&path.join("c/d")), "text");
    assert!(inner.open_file("d").is_ok() && folder.open_file("d").is_err());
    assert!(!folder.is_empty().unwrap());
    assert_eq!(inner.read("d", 2).unwrap(), b"te");
    folder.keep();
    drop((folder, inner));
    assert_eq!(text(&path.join("c/d")), "text");
    fs::write(place.path().join("file"), "").unwrap();
    for path in [
        Path::new("-"),
        &place.path().join("file"),
        Path::new("/dev/stdout"),
    ] {
        let error = DirectoryDestination::for_path(path).unwrap_err();
        assert!(
            matches!(error, OutputError::NotAFolder { .. }),
            "{path:?}: {error}"
        );
    }
}
