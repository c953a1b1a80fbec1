use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// How long somebody plays against the walk.
const PLAY: Duration = Duration::from_secs(2);
/// So many that some are exchanged between a look at all of them and what is done with each.
const FOLDERS: usize = 30;

fn close(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// Does `work` on a new tree, closed in places, whose folders are exchanged meanwhile for links to `victim` and back.
fn play_against(tree: &Path, victim: &Path, work: impl FnOnce()) {
    let links = tree.with_extension("links");
    let pairs: Vec<[PathBuf; 2]> = (0..FOLDERS)
        .map(|number| [tree, &links].map(|place| place.join(number.to_string())))
        .collect();
    fs::create_dir(&links).unwrap();
    for [folder, link] in &pairs {
        let closed = folder.join("closed");
        fs::create_dir_all(closed.join("inner")).unwrap();
        close(&closed, 0o500);
        symlink(victim, link).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let begin = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begin.wait();
            for [folder, link] in pairs.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // It is refused where one of them is not there.
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(CWD, folder, CWD, link, flags);
            }
        });
        begin.wait();
        work();
        is_over.store(true, Ordering::Relaxed);
    });
    remove_tree(&links).unwrap();
    remove_tree(tree).unwrap();
}

/// A place in memory where there is one: the more rounds, the surer one is lost.
fn quick_place() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// A folder that nobody may touch, with something in it.
fn victim(place: &Path) -> PathBuf {
    let victim = place.join("victim");
    fs::create_dir_all(victim.join("deep")).unwrap();
    for name in ["lock", "deep/lock"] {
        fs::write(victim.join(name), vec![1; 4 << 20]).unwrap();
    }
    close(&victim, 0o755);
    victim
}

#[test]
fn a_tree_is_removed_with_its_closed_folders_and_links_lead_nowhere() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(place.path());
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::write(tree.join("a/b/file"), "").unwrap();
    symlink(&victim, tree.join("a/link")).unwrap();
    symlink("nowhere", tree.join("a/b/c/loose")).unwrap();
    close(&tree.join("a/b/c"), 0o000);
    close(&tree.join("a/b"), 0o500);
    remove_tree(&tree).unwrap();
    assert!(!tree.exists() && victim.join("deep/lock").exists());
    // What is not there is removed, a file and a link are as well as a tree.
    remove_tree(&tree).unwrap();
    remove_tree(&tree.join("nor/above")).unwrap();
    fs::write(&tree, "").unwrap();
    remove_tree(&tree).unwrap();
    symlink(&victim, &tree).unwrap();
    remove_tree(&tree).unwrap();
    assert!(tree.symlink_metadata().is_err() && victim.join("lock").exists());
    assert!(remove_tree(Path::new("/")).is_err());
}

/// More levels than descriptors, and a path that is too long for the kernel.
#[test]
fn a_deep_tree_is_measured_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut folder = TreeDirectory::open(&tree).unwrap();
    for _ in 0..2100 {
        rustix::fs::mkdirat(&folder.0, "d", Mode::RWXU).unwrap();
        folder = folder.open_subdir("d".as_ref()).unwrap();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = openat(&folder.0, "file", flags, Mode::RWXU).unwrap();
    rustix::io::write(&file, &[1; 64 << 10]).unwrap();
    assert!(measure_disk_space(&tree) >= 64 << 10);
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
}

#[test]
fn disk_space_is_what_is_below_and_not_behind_links() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(place.path());
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    fs::write(tree.join("inner/file"), [1; 64 << 10]).unwrap();
    symlink(&victim, tree.join("link")).unwrap();
    let size = measure_disk_space(&tree);
    assert!((64 << 10..4 << 20).contains(&size), "{size}");
    assert_eq!(measure_disk_space(&tree.join("link")), 0);
    assert_eq!(measure_disk_space(&tree.join("none")), 0);
}

#[test]
fn files_that_are_kept_stay_and_all_others_go() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(place.path());
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    for name in ["a.pyc", "inner/b.pyc", "inner/half"] {
        fs::write(tree.join(name), "").unwrap();
    }
    symlink(victim.join("lock"), tree.join("inner/link.pyc")).unwrap();
    symlink(&victim, tree.join("folder")).unwrap();
    retain_files(&tree, |name| {
        Path::new(name).extension().is_some_and(|e| e == "pyc")
    })
    .unwrap();
    let left = |folder: &Path| {
        let mut names = TreeDirectory::open(folder).unwrap().list_names().unwrap();
        names.sort();
        names
    };
    assert_eq!(left(&tree), ["a.pyc", "inner"]);
    assert_eq!(left(&tree.join("inner")), ["b.pyc"]);
    assert!(victim.join("lock").exists());
}

#[test]
fn only_regular_files_of_the_folder_itself_are_opened() {
    let place = tempfile::tempdir().unwrap();
    let victim = victim(place.path());
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    symlink(victim.join("lock"), tree.join("link")).unwrap();
    symlink(&victim, tree.join("folder")).unwrap();
    let fifo = tree.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let folder = TreeDirectory::open(&tree).unwrap();
    assert!(folder.open_regular_file("file".as_ref()).is_ok());
    for name in ["link", "folder", "fifo", ".", "..", "folder/lock", ""] {
        assert!(folder.open_regular_file(name.as_ref()).is_err(), "{name}");
        assert!(folder.open_subdir(name.as_ref()).is_err(), "{name}");
    }
    assert!(folder.remove_file("folder/lock".as_ref()).is_err());
    assert!(TreeDirectory::open(&tree.join("folder")).is_err());
    assert!(victim.join("lock").exists());
    let error = open_regular_file(&tree.join("link")).unwrap_err();
    assert_eq!(error.to_string(), "it is a link, not a plain file");
}

/// Root reaches what is closed without opening it: the modes are a plain user's part.
#[test]
fn nothing_behind_a_link_is_removed_or_opened_up_while_folders_are_exchanged() {
    let place = quick_place();
    let victim = victim(place.path());
    close(&victim.join("deep"), 0o555);
    let tree = place.path().join("tree");
    let end = Instant::now() + PLAY;
    while Instant::now() < end {
        // That it is refused meanwhile is no fault.
        play_against(&tree, &victim, || drop(remove_tree(&tree)));
    }
    assert!(victim.join("lock").exists() && victim.join("deep/lock").exists());
    assert_eq!((mode(&victim), mode(&victim.join("deep"))), (0o755, 0o555));
}

#[test]
fn nothing_behind_a_link_is_measured_while_folders_are_exchanged() {
    let place = quick_place();
    let victim = victim(place.path());
    let tree = place.path().join("tree");
    let mut largest = 0;
    play_against(&tree, &victim, || {
        let end = Instant::now() + PLAY;
        while Instant::now() < end {
            largest = largest.max(measure_disk_space(&tree));
        }
    });
    assert!(largest < 4 << 20, "{largest}");
}
