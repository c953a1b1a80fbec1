//! Repositories that git made, against what git says of them.

use std::path::Path;
use std::process::Command;

use super::*;

/// Runs git in a folder, with nothing of this user's settings.
fn git(folder: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org"])
        .args(["-c", "protocol.file.allow=always", "-C"])
        .arg(folder)
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(folder: &Path, message: &str, day: u32) {
    let date = format!("2024-01-{day:02}T00:00:00Z");
    let set = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    let output = Command::new("git")
        .args(set)
        .arg("-C")
        .arg(folder)
        .args(["commit", "-q", "--allow-empty", "-m", message])
        .env("GIT_COMMITTER_DATE", &date)
        .env("GIT_AUTHOR_DATE", &date)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status();
    assert!(output.unwrap().success());
}

/// `v1-3` by this reader, and by git.
fn both(folder: &Path) -> (Option<String>, String) {
    let own = Repository::open(folder).and_then(|repository| {
        let head = repository.head()?;
        let tags = repository.tags();
        let described = describe(&repository, head, &tags)?;
        let name = &tags[described.tag?].name;
        let node = &head.to_hex()[..12];
        Some(format!("{name}-{}-g{node}", described.distance))
    });
    let words = ["describe", "--tags", "--long", "--abbrev=12"];
    (own, git(folder, &words))
}

fn assert_same(folder: &Path) {
    let (own, gits) = both(folder);
    assert_eq!(own, Some(gits));
}

#[test]
fn the_newest_commits_time_is_gits() {
    let dir = tempfile::tempdir().unwrap();
    let time = || Repository::open(dir.path()).and_then(|repository| repository.head_time());
    assert_eq!(time(), None, "no repository");
    git(dir.path(), &["init", "-q"]);
    assert_eq!(time(), None, "no commit");
    for day in 1..4 {
        commit(dir.path(), "one", day);
    }
    let gits = git(dir.path(), &["log", "-1", "--format=%ct"]).parse().ok();
    assert_eq!(time(), gits);
    git(dir.path(), &["gc", "-q"]);
    assert_eq!(time(), gits, "in a pack");
}

/// A history with two branches, merges, annotated tags and others, and two tags of one commit.
fn repository(options: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    git(folder, &[&["init", "-q", "-b", "main"], options].concat());
    commit(folder, "one", 1);
    git(folder, &["tag", "v1"]);
    commit(folder, "two", 2);
    git(folder, &["checkout", "-q", "-b", "side"]);
    commit(folder, "side", 3);
    git(folder, &["tag", "-a", "-m", "x", "v1.5"]);
    git(folder, &["tag", "v1.4-same"]);
    commit(folder, "side again", 4);
    git(folder, &["checkout", "-q", "main"]);
    for day in 5..9 {
        commit(folder, "main", day);
    }
    git(folder, &["merge", "-q", "--no-ff", "-m", "merge", "side"]);
    commit(folder, "last", 12);
    dir
}

#[test]
fn a_commit_is_described_as_git_does() {
    let dir = repository(&[]);
    let folder = dir.path();
    assert_same(folder);
    // In packs, with its references in a list, and on every commit of it.
    git(folder, &["gc", "-q", "--aggressive", "--prune=now"]);
    for commit in git(folder, &["rev-list", "HEAD"]).lines() {
        git(folder, &["checkout", "-q", commit]);
        assert_same(folder);
    }
    // A tag of before that moved since the list was made.
    git(folder, &["tag", "-f", "v1", "main~2"]);
    git(folder, &["checkout", "-q", "main"]);
    assert_same(folder);
}

#[test]
fn differences_in_packs_are_followed() {
    let dir = repository(&[]);
    let folder = dir.path();
    let long = "the same words again and again, ".repeat(50);
    for day in 13..29 {
        commit(folder, &format!("{long}{day}"), day);
    }
    git(
        folder,
        &[
            "repack",
            "-q",
            "-a",
            "-d",
            "-f",
            "--depth=40",
            "--window=50",
        ],
    );
    assert_same(folder);
    git(
        folder,
        &[
            "-c",
            "repack.useDeltaBaseOffset=false",
            "repack",
            "-q",
            "-a",
            "-d",
            "-f",
        ],
    );
    assert_same(folder);
}

#[test]
fn names_of_sha256_are_read() {
    let dir = repository(&["--object-format=sha256"]);
    assert_same(dir.path());
    git(dir.path(), &["gc", "-q"]);
    assert_same(dir.path());
    std::fs::write(dir.path().join("a"), "").unwrap();
    git(dir.path(), &["add", "a"]);
    let found = Repository::open(dir.path()).unwrap();
    assert_eq!(tracked_files(&found).unwrap(), [Path::new("a")]);
}

#[test]
fn worktrees_and_clones_of_others_objects_are_repositories() {
    let dir = repository(&[]);
    let place = tempfile::tempdir().unwrap();
    let beside = place.path().join("beside");
    git(
        dir.path(),
        &["worktree", "add", "-q", beside.to_str().unwrap(), "v1.5"],
    );
    commit(&beside, "beside", 14);
    assert_same(&beside);
    let shared = place.path().join("shared");
    let from = dir.path().to_str().unwrap();
    git(place.path(), &["clone", "-q", "--shared", from, "shared"]);
    assert_same(&shared);
    let found = Repository::find(&beside.join("no/such/folder")).unwrap();
    assert_eq!(found.work_tree, beside);
}

#[test]
fn a_shallow_clone_has_the_history_that_it_has() {
    let dir = repository(&[]);
    let place = tempfile::tempdir().unwrap();
    let from = format!("file://{}", dir.path().display());
    git(place.path(), &["clone", "-q", "--depth=1", &from, "cut"]);
    let cut = Repository::open(&place.path().join("cut")).unwrap();
    let described = describe(&cut, cut.head().unwrap(), &cut.tags()).unwrap();
    assert_eq!((described.tag, described.distance), (None, 1));
}

#[test]
fn a_repository_without_tags_or_commits() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Repository::open(dir.path()).is_none());
    git(dir.path(), &["init", "-q"]);
    let empty = Repository::open(dir.path()).unwrap();
    assert_eq!((empty.head(), empty.tags()), (None, Vec::new()));
    for day in 1..5 {
        commit(dir.path(), "x", day);
    }
    let described = describe(&empty, empty.head().unwrap(), &[]).unwrap();
    assert_eq!((described.tag, described.distance), (None, 4));
}

#[test]
fn tracked_files_are_those_of_git() {
    let dir = repository(&[]);
    for name in [
        "a.py",
        "deep/er/b.py",
        "deep/er/c.py",
        "größe.py",
        "untracked",
    ] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    git(dir.path(), &["add", "*.py", "deep"]);
    git(dir.path(), &["add", "-N", "untracked"]);
    let found = Repository::open(dir.path()).unwrap();
    for version in ["2", "3", "4"] {
        git(dir.path(), &["update-index", "--index-version", version]);
        let own: Vec<String> = (tracked_files(&found).unwrap().iter())
            .map(|path| path.to_str().unwrap().to_owned())
            .collect();
        let gits = git(dir.path(), &["-c", "core.quotePath=false", "ls-files"]);
        assert_eq!(own, gits.lines().collect::<Vec<_>>(), "{version}");
    }
}

#[test]
fn what_is_not_ignored_is_as_git_says() {
    let dir = repository(&[]);
    let files = [
        "a.py",
        "a.pyc",
        "build/x",
        "deep/build/x",
        "deep/er/data/1",
        "deep/er/keep.log",
        "deep/x.log",
        "data/1",
        "data/keep",
        "docs/a/b/c.txt",
        "docs/c.txt",
        "other/only/this",
        "other/only/that",
        "#odd",
        "!bang",
        "sp ",
        "logs/a/b",
        "logs/c",
        "foo/bar/baz",
        "x/foo/bar/y",
        "tail/file",
    ];
    for name in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, name).unwrap();
    }
    let lists = [
        (
            ".gitignore",
            "# why\n*.py[co]\nbuild/\n/data/*\n!/data/keep\n*.log\ndocs/**/c.txt\n\\#odd\n\\!bang\nsp\\ \n",
        ),
        ("deep/.gitignore", "!er/keep.log\ndata\n"),
        ("other/.gitignore", "only/*\n!only/this\n"),
        ("x/.gitignore", "foo/bar\n**/y\n"),
        ("logs/.gitignore", "**\n"),
        (".git/info/exclude", "tail/**\n"),
    ];
    for (name, text) in lists {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let found = Repository::open(dir.path()).unwrap();
    for below in ["", "deep", "deep/er", "other"] {
        let folder = dir.path().join(below);
        let own = found.unignored_files(&folder, 1000, &|_| false);
        let mut own: Vec<&str> = own.iter().map(|path| path.to_str().unwrap()).collect();
        own.sort_unstable();
        let words = ["ls-files", "-z", "--others", "--exclude-standard"];
        let gits = git(&folder, &words);
        let mut gits: Vec<&str> = gits.split_terminator('\0').collect();
        gits.sort_unstable();
        assert_eq!(own, gits, "{below}");
    }
    assert_eq!(found.unignored_files(dir.path(), 3, &|_| false).len(), 4);
}

/// What is damaged tells nothing, or something else, and always ends.
#[test]
fn a_damaged_repository_is_read_to_an_end() {
    let dir = repository(&[]);
    let folder = dir.path();
    git(folder, &["gc", "-q"]);
    let (own, _) = both(folder);
    assert!(own.is_some());
    let pack_folder = folder.join(".git/objects/pack");
    let files = std::fs::read_dir(&pack_folder).unwrap().flatten();
    for path in files.map(|entry| entry.path()) {
        let good = std::fs::read(&path).unwrap();
        let mut permissions = path.metadata().unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
        std::fs::set_permissions(&path, permissions).unwrap();
        for at in (0..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            std::fs::write(&path, &bad).unwrap();
            let found = Repository::open(folder).unwrap();
            if let Some(head) = found.head() {
                let described = describe(&found, head, &found.tags());
                assert!(described.is_none_or(|found| found.distance < 100));
            }
        }
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        let found = Repository::open(folder).unwrap();
        let _ = describe(&found, found.head().unwrap(), &found.tags());
        std::fs::write(&path, good).unwrap();
    }
    assert_eq!(both(folder).0, own);
}

/// Files that wait, that have no end, and that lead to each other.
#[test]
fn a_hostile_repository_names_no_commit() {
    let dir = repository(&[]);
    let head = dir.path().join(".git/HEAD");
    for text in [
        "ref: refs/heads/../../../../../etc/passwd",
        "ref: /etc/passwd",
        "ref: HEAD",
        "ref: refs/heads/round",
        "not hexadecimal",
        "+f+f+f+f+f+f+f+f+f+f+f+f+f+f+f+f+f+f+f+f",
    ] {
        std::fs::write(&head, text).unwrap();
        std::fs::write(
            dir.path().join(".git/refs/heads/round"),
            "ref: refs/heads/round",
        )
        .unwrap();
        let found = Repository::open(dir.path()).unwrap();
        assert_eq!(found.head(), None, "{text}");
    }
    std::fs::remove_dir_all(dir.path().join(".git")).unwrap();
    std::fs::write(dir.path().join(".git"), "gitdir: /dev/zero").unwrap();
    assert!(Repository::open(dir.path()).is_none());
}
