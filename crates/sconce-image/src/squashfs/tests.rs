//! What is written is read back by squashfs-tools, which know the format from elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use proptest::prelude::*;
use sconce_base::output::OutputForm;
use sconce_schema::NoProgress;
use tempfile::TempDir;

use super::*;

/// The smallest that the format has, so that small files have several.
const BLOCK: usize = 4096;
const HOWS: [Compression; 3] = [Compression::Zstd, Compression::Gzip, Compression::None];

fn shape(compression: Compression, threads: usize) -> Shape {
    Shape {
        compression,
        block_bytes: BLOCK as u32,
        threads,
    }
}

fn to(path: &Path) -> OutputDestination {
    OutputDestination::for_path(path, OutputForm::Seekable, |_| {
        Err(io::ErrorKind::Unsupported.into())
    })
    .unwrap()
}

/// A squashfs file of these trees in a folder of its own.
fn squashed(
    roots: &[&Path],
    made: &[ExtraEntry],
    shape: Shape,
) -> (TempDir, PathBuf, SquashfsSummary) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file.sqsh");
    let sources: Vec<SquashfsTree<'_>> = roots
        .iter()
        .map(|root| SquashfsTree { name: "tree", root })
        .collect();
    let written = write_to(&sources, made, shape, to(&file), &NoProgress).unwrap();
    assert_eq!(file.metadata().unwrap().len(), written.size_bytes);
    assert_eq!(written.size_bytes % PAD, 0);
    (place, file, written)
}

/// Runs unsquashfs; `None` where there is none.
fn unsquashfs(args: &[&OsStr]) -> Option<String> {
    let unsquashfs = sconce_testkit::find_program("unsquashfs")?;
    let out = Command::new(unsquashfs).args(args).output().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && complaints.is_empty(),
        "{complaints}"
    );
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn unpacked(file: &Path) -> Option<TempDir> {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    unsquashfs(&[
        "-n".as_ref(),
        "-q".as_ref(),
        "-d".as_ref(),
        root.as_ref(),
        file.as_ref(),
    ])?;
    Some(place)
}

/// Everything below a folder: kind and mode, size, time of files, content or target, and the first
/// name of the same file.
fn listed(root: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, Vec<u8>, PathBuf)> {
    fn walk(
        root: &Path,
        at: &Path,
        found: &mut BTreeMap<PathBuf, (u32, u64, i64, Vec<u8>, PathBuf)>,
    ) {
        for entry in fs::read_dir(root.join(at)).unwrap() {
            let path = at.join(entry.unwrap().file_name());
            let real = root.join(&path);
            let meta = real.symlink_metadata().unwrap();
            let (content, time, size) = if meta.is_dir() {
                walk(root, &path, found);
                (Vec::new(), 0, 0)
            } else if meta.is_symlink() {
                let target = fs::read_link(&real).unwrap();
                (target.as_os_str().as_bytes().to_vec(), 0, meta.len())
            } else {
                (fs::read(&real).unwrap(), meta.mtime(), meta.len())
            };
            // The inode's number, until the first name is known.
            let inode = PathBuf::from(meta.ino().to_string());
            found.insert(path, (meta.mode(), size, time, content, inode));
        }
    }
    let mut found = BTreeMap::new();
    walk(root, Path::new(""), &mut found);
    let mut first: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for (path, entry) in &mut found {
        entry.4 = first
            .entry(entry.4.clone())
            .or_insert_with(|| path.clone())
            .clone();
    }
    found
}

fn check(root: &Path, compression: Compression) {
    let (_place, file, written) = squashed(&[root], &[], shape(compression, 2));
    let expected = listed(root);
    let firsts = expected.iter().filter(|(path, entry)| entry.4 == **path);
    assert_eq!(written.inodes, firsts.count() as u64 + 1);
    if let Some(back) = unpacked(&file) {
        let found = listed(&back.path().join("root"));
        for (path, entry) in &expected {
            assert!(found.get(path) == Some(entry), "{}", path.display());
        }
        assert_eq!(found.len(), expected.len());
    }
}

/// Bytes that no compressor makes shorter.
fn noise(length: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn file(path: &Path, bytes: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree with one of everything.
fn everything_once() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let sizes = [
        0,
        1,
        99,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        3 * BLOCK,
        3 * BLOCK + 7,
    ];
    for (at, size) in sizes.into_iter().enumerate() {
        file(
            &root.join(format!("sizes/text-{at}")),
            "text ".repeat(size).as_bytes(),
            0o644,
        );
        file(
            &root.join(format!("sizes/noise-{at}")),
            &noise(size, at as u64),
            0o600,
        );
        file(
            &root.join(format!("sizes/zeros-{at}")),
            &vec![0; size],
            0o444,
        );
    }
    // More than one piece, with holes at its beginning, inside and at its end.
    let mut large = noise(PIECE + 2 * BLOCK + 5, 7);
    large[..BLOCK].fill(0);
    large[5 * BLOCK..9 * BLOCK].fill(0);
    large[PIECE - BLOCK..].fill(0);
    file(&root.join("large"), &large, 0o755);
    file(&root.join("pieces"), &noise(2 * PIECE, 8), 0o755);
    for at in 0..300 {
        let bytes = noise(at * 3, at as u64);
        file(
            &root.join(format!("small/{:03}/{at:03}", at / 64)),
            &bytes,
            0o644,
        );
    }
    for at in 0..700 {
        let name = format!("wide/{}{at:03}", "w".repeat(at % 250));
        file(&root.join(name), b"", 0o644);
    }
    // So small that more of them fit a block of the table than one header may stand for.
    fs::create_dir(root.join("links")).unwrap();
    for at in 0..700 {
        symlink("x", root.join(format!("links/{at}"))).unwrap();
    }
    let mut deep = root.to_owned();
    for at in 0..120 {
        deep.push(format!("d{at}"));
    }
    file(&deep.join("bottom"), b"here", 0o644);
    let longest = "n".repeat(255);
    file(&root.join(&longest), b"name", 0o4755);
    file(
        &root.join(OsStr::from_bytes(b"not \xff UTF-8\n")),
        b"name",
        0o644,
    );
    fs::create_dir(root.join("empty")).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("../nowhere", root.join("link")).unwrap();
    symlink("t".repeat(4000), root.join("long link")).unwrap();
    fs::hard_link(root.join("sizes/noise-5"), root.join("a first name")).unwrap();
    fs::hard_link(root.join("sizes/noise-5"), root.join("small/000/z")).unwrap();
    let old = fs::File::options()
        .append(true)
        .open(root.join("large"))
        .unwrap();
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1))
        .unwrap();
    place
}

const PIECE: usize = sconce_base::direct_io::CHUNK_BYTES as usize;

#[test]
fn a_tree_comes_back_as_it_was() {
    let tree = everything_once();
    for compression in HOWS {
        check(tree.path(), compression);
    }
}

#[test]
fn the_bytes_do_not_depend_on_the_cores() {
    let tree = everything_once();
    for compression in HOWS {
        let bytes = |threads| {
            let (_place, file, _) = squashed(&[tree.path()], &[], shape(compression, threads));
            fs::read(file).unwrap()
        };
        let one = bytes(1);
        assert!(one == bytes(2) && one == bytes(9), "{compression:?}");
    }
}

#[test]
fn an_empty_tree_is_a_file_system_too() {
    let tree = tempfile::tempdir().unwrap();
    check(tree.path(), Compression::Zstd);
}

fn made(path: &str, mode: u16, bytes: Option<&[u8]>) -> ExtraEntry {
    ExtraEntry {
        path: path.into(),
        mode,
        bytes: bytes.map(Into::into),
    }
}

/// Mode, owner, size and path of everything, as `unsquashfs -lln` prints them.
fn lines(file: &Path) -> Option<Vec<String>> {
    let text = unsquashfs(&["-lln".as_ref(), file.as_ref()])?;
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words[5..].join(" ");
        // A folder's size is that of its list.
        let size = if words[0].starts_with('d') {
            "-"
        } else {
            words[2]
        };
        format!(
            "{} {} {size} {}",
            words[0],
            words[1],
            path.trim_start_matches("squashfs-root")
        )
    };
    Some(
        text.lines()
            .filter(|line| line.contains("squashfs-root"))
            .map(line)
            .collect(),
    )
}

#[test]
fn later_trees_count_and_files_belong_to_root_or_the_user() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (low, high) = (one.path(), two.path());
    file(&low.join("both"), b"lower", 0o600);
    file(&low.join("folder/hidden/file"), b"hidden", 0o644);
    file(&low.join("now a folder"), b"hidden", 0o644);
    file(&low.join("etc/rc"), b"lower", 0o644);
    file(&low.join("home/sconce/x"), b"", 0o644);
    file(&low.join("home/sconces/x"), b"", 0o644);
    file(&low.join("workspace/x"), b"", 0o644);
    file(&high.join("both"), b"upper!", 0o755);
    file(&high.join("folder/hidden"), b"file", 0o644);
    file(&high.join("now a folder/file"), b"", 0o644);
    for root in [low, high] {
        for folder in [
            "folder",
            "etc",
            "home",
            "home/sconce",
            "home/sconces",
            "workspace",
            "now a folder",
        ] {
            if root.join(folder).is_dir() {
                fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
    }
    fs::set_permissions(low.join("workspace"), fs::Permissions::from_mode(0o700)).unwrap();
    let made = [
        made("etc/rc", 0o755, Some(b"made")),
        made("made/below/file", 0o640, Some(b"1")),
        made("workspace", 0o755, None),
        made("both/now", 0o644, Some(b"")),
    ];
    let (_place, file, _) = squashed(&[low, high], &made, shape(Compression::Zstd, 2));
    let Some(lines) = lines(&file) else { return };
    assert_eq!(
        lines,
        [
            "drwxr-xr-x 0/0 - ",
            "drwxr-xr-x 0/0 - /both",
            "-rw-r--r-- 0/0 0 /both/now",
            "drwxr-xr-x 0/0 - /etc",
            "-rwxr-xr-x 0/0 4 /etc/rc",
            "drwxr-xr-x 0/0 - /folder",
            "-rw-r--r-- 0/0 4 /folder/hidden",
            "drwxr-xr-x 0/0 - /home",
            "drwxr-xr-x 1000/1000 - /home/sconce",
            "-rw-r--r-- 1000/1000 0 /home/sconce/x",
            "drwxr-xr-x 0/0 - /home/sconces",
            "-rw-r--r-- 0/0 0 /home/sconces/x",
            "drwxr-xr-x 0/0 - /made",
            "drwxr-xr-x 0/0 - /made/below",
            "-rw-r----- 0/0 1 /made/below/file",
            "drwxr-xr-x 0/0 - /now a folder",
            "-rw-r--r-- 0/0 0 /now a folder/file",
            "drwx------ 1000/1000 - /workspace",
            "-rw-r--r-- 1000/1000 0 /workspace/x",
        ]
    );
}

#[test]
fn a_folder_may_have_more_entries_than_sixteen_bits_count() {
    let name = |at: usize| format!("many/{at:06}-{}", "n".repeat(at % 40));
    let mut all: Vec<ExtraEntry> = (0..70_000)
        .map(|at| made(&name(at), 0o644, Some(b"")))
        .collect();
    // Its number is too far from that of `many`.
    all.push(made("zz", 0o644, Some(b"last")));
    let (_place, file, written) = squashed(&[], &all, shape(Compression::Zstd, 2));
    assert_eq!(written.inodes, 70_003);
    let Some(lines) = lines(&file) else { return };
    assert_eq!(lines.len(), 70_003);
    assert!(
        lines[70_001].ends_with(&format!("/{}", name(69_999))),
        "{}",
        lines[70_001]
    );
    assert_eq!(lines[70_002], "-rw-r--r-- 0/0 4 /zz");
    // One name of them, by the index.
    let found = unsquashfs(&["-l".as_ref(), file.as_ref(), name(43_210).as_ref()]);
    assert!(found.unwrap().contains(&name(43_210)));
}

#[test]
fn names_have_256_bytes_at_most() {
    let longest = made(&"n".repeat(256), 0o644, Some(b"x"));
    let (_place, file, _) = squashed(&[], &[longest], shape(Compression::Zstd, 1));
    if let Some(lines) = lines(&file) {
        assert!(lines[1].ends_with(&"n".repeat(256)));
    }
    let too_long = [made(&"n".repeat(257), 0o644, Some(b"x"))];
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("out");
    fs::write(&target, "before").unwrap();
    let refused = write(&[], &too_long, Compression::Zstd, to(&target), &NoProgress);
    assert!(matches!(refused, Err(SquashfsError::Name { .. })));
    // What was there is still there, and nothing beside it.
    assert_eq!(fs::read(&target).unwrap(), b"before");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_written_is_named() {
    // Enough that it is not all kept in memory until the end.
    let tree = tempfile::tempdir().unwrap();
    file(&tree.path().join("large"), &noise(1 << 20, 1), 0o644);
    let empty = tempfile::tempdir().unwrap();
    for root in [tree.path(), empty.path()] {
        let source = [SquashfsTree { name: "tree", root }];
        let full = to(Path::new("/dev/full"));
        let refused = write_to(&source, &[], shape(HOWS[0], 1), full, &NoProgress).unwrap_err();
        assert_eq!(refused.to_string(), "cannot write /dev/full");
        assert!(refused.hint().unwrap().contains("disk is full"));
    }
}

#[test]
fn the_file_appears_at_once() {
    let tree = tempfile::tempdir().unwrap();
    file(&tree.path().join("a"), b"a", 0o644);
    let sources = [SquashfsTree {
        name: "tree",
        root: tree.path(),
    }];
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("out");
    for _ in 0..2 {
        write(&sources, &[], Compression::Gzip, to(&target), &NoProgress).unwrap();
        assert_eq!(&fs::read(&target).unwrap()[..4], b"hsqs");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
    let gone = [SquashfsTree {
        name: "tree",
        root: &place.path().join("absent"),
    }];
    let refused = write(&gone, &[], Compression::Gzip, to(&target), &NoProgress);
    assert!(matches!(refused, Err(SquashfsError::Source(_))));
}

/// What a random entry is.
#[derive(Debug, Clone)]
enum Random {
    Text(usize),
    Noise(usize),
    Holes(Vec<bool>, usize),
    Link(String),
    Same(prop::sample::Index),
    Folder,
}

fn random() -> impl Strategy<Value = Random> {
    // Often just beside a block's size.
    let size = || {
        prop_oneof![
            0..3 * BLOCK,
            (BLOCK - 2)..=(BLOCK + 2),
            Just(0),
            Just(2 * BLOCK)
        ]
    };
    prop_oneof![
        size().prop_map(Random::Text),
        size().prop_map(Random::Noise),
        (prop::collection::vec(any::<bool>(), 0..5), 0..BLOCK)
            .prop_map(|(blocks, end)| Random::Holes(blocks, end)),
        "[a-z/.]{1,60}".prop_map(Random::Link),
        any::<prop::sample::Index>().prop_map(Random::Same),
        Just(Random::Folder),
    ]
}

/// A few folders below each other, and names that sort around the slash.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]{1,2}[-.0]?", 1..5).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn random_trees_come_back(
        entries in prop::collection::vec((path(), random(), 0_u32..512), 0..60),
        how in 0..HOWS.len(),
    ) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        let mut files: Vec<PathBuf> = Vec::new();
        for (name, what, mode) in entries {
            let path = root.join(name);
            // A name may lie below a file, or be taken.
            if fs::create_dir_all(path.parent().unwrap()).is_err() || path.symlink_metadata().is_ok() {
                continue;
            }
            let bytes = match what {
                Random::Text(size) => "some text. ".bytes().cycle().take(size).collect(),
                Random::Noise(size) => noise(size, u64::from(mode)),
                Random::Holes(blocks, end) => {
                    let mut bytes = Vec::new();
                    for full in blocks {
                        bytes.extend(if full { noise(BLOCK, 3) } else { vec![0; BLOCK] });
                    }
                    bytes.resize(bytes.len() + end, 0);
                    bytes
                }
                Random::Link(target) => {
                    symlink(target, path).unwrap();
                    continue;
                }
                Random::Same(index) => {
                    if !files.is_empty() {
                        fs::hard_link(index.get(&files), path).unwrap();
                    }
                    continue;
                }
                Random::Folder => {
                    fs::create_dir(path).unwrap();
                    continue;
                }
            };
            file(&path, &bytes, mode | 0o400);
            files.push(path);
        }
        check(root, HOWS[how]);
    }
}
