//! What an image can do without: the removals of `variant = "slim"`, each with a name by which it
//! can be kept. Whether a file goes is a function of its path, but for two removals that look into
//! the sources of the same package first ([`source_scan`]).

mod source_scan;
mod strip;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sconce_schema::spec::Removal;
use sconce_schema::{ComputeCapability, Lock};

use self::source_scan::SourceScan;
pub(crate) use self::strip::{StrippedFile, strip_symbols};

/// Counts up whenever the same removals would leave other files.
const FORMAT: u32 = 1;
/// Smaller files are not looked into: there are many, and they hold little.
const MIN_INSPECTED_BYTES: u64 = 64 << 10;

/// What files of C, C++ and CUDA end with that only a compiler reads.
const HEADERS: [&str; 8] = ["h", "hh", "hpp", "hxx", "cuh", "inl", "inc", "ipp"];
/// Folders of /usr/share for people.
const DOCS: [&str; 7] = [
    "doc", "doc-base", "gtk-doc", "help", "info", "locale", "man",
];

/// Which device code in a library the cards of an image never run, told by whoever can read it.
#[derive(Debug, Clone)]
pub struct DeviceCodeFilter {
    /// The cards' compute capabilities, in order and each once.
    pub cards: Vec<ComputeCapability>,
    /// Parts of a file that none of the cards runs: they become zeros. A file that is no library,
    /// or that cannot be read, has none.
    pub unneeded: fn(&File, &[ComputeCapability]) -> Vec<Range<u64>>,
}

impl PartialEq for DeviceCodeFilter {
    fn eq(&self, other: &Self) -> bool {
        self.cards == other.cards
    }
}

impl Eq for DeviceCodeFilter {}

/// The removals that an image is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlimRules {
    removals: BTreeSet<Removal>,
    device_code: Option<DeviceCodeFilter>,
}

impl SlimRules {
    /// Every removal but those of `keep`, and those that what `lock` holds needs. Without
    /// `device_code` an image is for every card.
    #[must_use]
    pub fn new(keep: &[Removal], lock: &Lock, device_code: Option<DeviceCodeFilter>) -> Self {
        let needed = |removal: &Removal| match removal {
            Removal::Headers | Removal::Static => compiles(lock),
            Removal::Amd => lock.versions.cuda.is_none(),
            Removal::DeviceCode => device_code.is_none(),
            _ => false,
        };
        let wanted = |removal: &Removal| !keep.contains(removal) && !needed(removal);
        Self {
            removals: Removal::ALL.into_iter().filter(wanted).collect(),
            device_code,
        }
    }

    /// The name of the choice, for a layer's key.
    pub(crate) fn key_label(&self) -> String {
        // The compiler is a layer of its own: no other one depends on whether it is there.
        let files = self.removals.iter();
        let files = files.filter(|removal| **removal != Removal::Compiler);
        let names = files.map(|removal| removal.name().to_owned());
        let cards = self.device_code().map(|code| &code.cards);
        let cards = cards.into_iter().flatten().map(ToString::to_string);
        let words: Vec<String> = names.chain(cards).collect();
        format!("slim {FORMAT} {}", words.join(" "))
    }

    fn device_code(&self) -> Option<&DeviceCodeFilter> {
        let code = self.device_code.as_ref();
        code.filter(|_| self.removals.contains(&Removal::DeviceCode))
    }

    /// What a file that stays becomes, if anything is taken out of it.
    pub(crate) fn strip_file(&self, path: &Path, meta: &Metadata) -> Option<StrippedFile> {
        if !meta.is_file() || meta.len() < MIN_INSPECTED_BYTES {
            return None;
        }
        let symbols = self.removals.contains(&Removal::Symbols);
        let stripped = symbols.then(|| strip_symbols(path)).flatten();
        let unneeded = self.unneeded(path);
        if unneeded.is_empty() {
            return stripped;
        }
        let mut without = stripped.unwrap_or_else(|| StrippedFile::with_size(meta.len()));
        without.zero_ranges(unneeded);
        Some(without)
    }

    fn unneeded(&self, path: &Path) -> Vec<Range<u64>> {
        let Some((code, file)) = self.device_code().zip(File::open(path).ok()) else {
            return Vec::new();
        };
        (code.unneeded)(&file, &code.cards)
    }
}

/// Whether an environment has something that compiles when a script runs.
fn compiles(lock: &Lock) -> bool {
    let compiler = |name: &str| {
        ["gcc", "g++", "clang", "tcc"].iter().any(|compiler| {
            name.strip_prefix(compiler).is_some_and(|rest| {
                let version = rest.strip_prefix('-').unwrap_or(rest);
                version.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
    };
    // NVRTC and nvcc are given headers by these.
    let wheel = |name: &str| {
        ["cupy", "nvidia-cuda-nvcc", "ziglang"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    lock.all_debs().any(|deb| compiler(&deb.name)) || lock.wheels.iter().any(|one| wheel(&one.name))
}

/// Which removal a path falls under, whatever the package.
pub(crate) fn classify_path(path: &Path, is_folder: bool) -> Option<Removal> {
    let parts: Vec<&OsStr> = path.iter().collect();
    let has = |name: &str| parts.iter().any(|part| *part == name);
    let starts = |prefix: &[&str]| {
        parts.len() > prefix.len() && prefix.iter().zip(&parts).all(|(name, part)| *part == *name)
    };
    let name = path.file_name()?;
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let in_site = parts.iter().position(|part| *part == "site-packages");
    if let Some(site) = in_site {
        let below = &parts[site + 1..];
        // A file may be called `test`.
        let folders = if is_folder {
            below
        } else {
            below.split_last()?.1
        };
        if folders
            .iter()
            .any(|part| *part == "tests" || *part == "test")
        {
            return Some(Removal::Tests);
        }
        let amd = ["triton", "backends", "amd", "lib"].map(OsStr::new);
        if below.len() > amd.len() && below.starts_with(&amd) {
            return Some(Removal::Amd);
        }
    }
    let from_wheel = in_site.is_some() || starts(&["opt", "venv"]);
    let docs = DOCS.iter().any(|folder| {
        starts(&["usr", "share", folder]) || starts(&["opt", "venv", "share", folder])
    });
    if docs {
        // Licences have to go with what they cover.
        return (name != "copyright").then_some(Removal::Docs);
    }
    match ending {
        _ if is_folder => {}
        "a" => return Some(Removal::Static),
        "pyi" if from_wheel => return Some(Removal::Stubs),
        "pyc" if from_wheel && has("__pycache__") => return Some(Removal::Bytecode),
        _ => {}
    }
    let header = (!is_folder && HEADERS.contains(&ending))
        // The headers of C++'s library, and CUDA's of it, have no ending.
        || (has("include") && !["py", "pyc", "json"].contains(&ending) && !is_library(name));
    (header && (from_wheel || starts(&["usr", "include"]))).then_some(Removal::Headers)
}

/// `libx.so`, `libx.so.1`.
fn is_library(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

/// The removals as they are for one tree.
pub(crate) struct SlimFilter<'a> {
    rules: &'a SlimRules,
    /// The tree that has the package's sources.
    sources: &'a Path,
    /// Whether the tree is bytecode that the image is meant to have.
    is_bytecode: bool,
    seen: OnceLock<SourceScan>,
}

impl<'a> SlimFilter<'a> {
    pub(crate) fn new(rules: &'a SlimRules, sources: &'a Path, is_bytecode: bool) -> Self {
        Self {
            rules,
            sources,
            is_bytecode,
            seen: OnceLock::new(),
        }
    }

    /// The removal that takes a path of the tree away.
    pub(crate) fn removal_for(&self, path: &Path, is_folder: bool) -> Option<Removal> {
        let removal = classify_path(path, is_folder)
            .filter(|removal| self.rules.removals.contains(removal))?;
        let seen = || self.seen.get_or_init(|| SourceScan::read(self.sources));
        let stays = match removal {
            Removal::Bytecode => self.is_bytecode,
            Removal::Tests => seen().import_tests,
            Removal::Stubs => seen().read_stubs,
            _ => false,
        };
        (!stays).then_some(removal)
    }
}

/// A file that is left out, or of which a part is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedFile {
    /// By which removal.
    pub removal: Removal,
    /// Inside.
    pub path: PathBuf,
    /// By how many bytes the unpacked image is smaller; 0 where a file only compresses better.
    pub bytes: u64,
    /// Bytes that become zeros, which take no room in a layer.
    pub zeros: u64,
}

/// Adds what the filter takes from the tree `root`.
pub(crate) fn collect_removed_files(
    root: &Path,
    filter: &SlimFilter<'_>,
    taken: &mut Vec<RemovedFile>,
) -> io::Result<()> {
    list_folder(root, Path::new(""), filter, taken)
}

/// Adds every file of the tree `root`, as taken by `removal`.
pub(crate) fn list_all(
    root: &Path,
    removal: Removal,
    taken: &mut Vec<RemovedFile>,
) -> io::Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (meta, path) = (entry.metadata()?, folder.join(entry.file_name()));
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            taken.push(RemovedFile {
                removal,
                path,
                bytes: if meta.is_file() { meta.len() } else { 0 },
                zeros: 0,
            });
        }
    }
    Ok(())
}

fn list_folder(
    root: &Path,
    folder: &Path,
    filter: &SlimFilter<'_>,
    taken: &mut Vec<RemovedFile>,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let (meta, path) = (entry.metadata()?, folder.join(entry.file_name()));
        if meta.is_dir() {
            list_folder(root, &path, filter, taken)?;
            continue;
        }
        let mut take = |removal, bytes, zeros| {
            let path = path.clone();
            taken.push(RemovedFile {
                removal,
                path,
                bytes,
                zeros,
            });
        };
        if let Some(removal) = filter.removal_for(&path, false) {
            take(removal, if meta.is_file() { meta.len() } else { 0 }, 0);
            continue;
        }
        if !meta.is_file() || meta.len() < MIN_INSPECTED_BYTES {
            continue;
        }
        let rules = filter.rules;
        if rules.removals.contains(&Removal::Symbols)
            && let Some(stripped) = strip_symbols(&entry.path())
        {
            let smaller = meta.len().saturating_sub(stripped.size());
            take(Removal::Symbols, smaller, stripped.zeroed_bytes());
        }
        let unneeded = rules.unneeded(&entry.path());
        if !unneeded.is_empty() {
            let zeros = unneeded.iter().map(|part| part.end - part.start).sum();
            take(Removal::DeviceCode, 0, zeros);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SITE: &str = "opt/venv/lib/python3.13/site-packages";

    #[test]
    fn what_goes_is_decided_by_the_path() {
        use Removal::{Amd, Bytecode, Docs, Headers, Static, Stubs, Tests};
        let site = |path: &str| classify_path(&Path::new(SITE).join(path), false);
        for (path, goes) in [
            ("numpy/_core/tests/test_umath.py", Some(Tests)),
            ("sympy/core/tests/data/x.h", Some(Tests)),
            ("numpy/testing/__init__.py", None),
            ("torch/testing/_internal/common_utils.py", None),
            ("jinja2/tests.py", None),
            ("some/data/test", None),
            ("torch/include/ATen/ATen.h", Some(Headers)),
            ("nvidia/cu13/include/cuda/std/atomic", Some(Headers)),
            ("nvidia/cu13/include/__init__.py", None),
            ("include/plugin.so.1", None),
            ("torch/share/cmake/Torch/TorchConfig.cmake", None),
            ("numpy/random/bit_generator.pxd", None),
            ("numpy/_core/lib/libnpymath.a", Some(Static)),
            ("torch/_C/__init__.pyi", Some(Stubs)),
            ("six/__pycache__/x.cpython-312.pyc", Some(Bytecode)),
            ("frozen/only.pyc", None),
            ("triton/backends/amd/lib/ocml.bc", Some(Amd)),
            ("triton/backends/amd/compiler.py", None),
            ("torch/lib/libtorch_cpu.so", None),
            ("six-1.16.0.dist-info/RECORD", None),
        ] {
            assert_eq!(site(path), goes, "{path}");
        }
        for (path, goes) in [
            ("usr/share/doc/bash/README", Some(Docs)),
            ("usr/share/doc/bash/copyright", None),
            ("usr/share/man/man1/ls.1.gz", Some(Docs)),
            ("usr/share/locale/de/LC_MESSAGES/bash.mo", Some(Docs)),
            ("opt/venv/share/man/man1/ttx.1", Some(Docs)),
            ("usr/share/zoneinfo/UTC", None),
            ("usr/lib/locale/C.utf8/LC_CTYPE", None),
            ("usr/include/python3.13/Python.h", Some(Headers)),
            ("usr/lib/x86_64-linux-gnu/libpython3.13.a", Some(Static)),
            ("usr/lib/python3.13/test/__init__.py", None),
            ("usr/lib/python3.13/__pycache__/os.cpython-313.pyc", None),
            ("usr/share/perl/5.40/pod/perl.h", None),
            ("var/lib/dpkg/status.d/bash", None),
        ] {
            assert_eq!(classify_path(Path::new(path), false), goes, "{path}");
        }
        let folder = Path::new(SITE).join("numpy/tests");
        assert_eq!(classify_path(&folder, true), Some(Tests));
        assert_eq!(classify_path(&folder, false), None);
    }

    proptest! {
        /// No removal takes a module, a program or what pip knows a package by.
        #[test]
        fn what_can_be_imported_outside_of_tests_stays(
            parts in proptest::collection::vec("[a-z_]{1,8}", 0..5),
            name in "[a-z_]{1,8}",
            ending in prop_oneof![Just("py"), Just("so"), Just("cpython-313-x86_64-linux-gnu.so"), Just("json")],
        ) {
            prop_assume!(!parts.iter().any(|part| part == "test" || part == "tests"));
            let path = Path::new(SITE).join(parts.join("/")).join(format!("{name}.{ending}"));
            prop_assert_eq!(classify_path(&path, false), None);
        }
    }

    #[test]
    fn what_compiles_keeps_headers_and_each_removal_can_be_kept() {
        let mut lock = Lock::parse(include_str!("../sbom/testdata/lock.toml")).unwrap();
        lock.versions.cuda = Some("13.2".parse().unwrap());
        lock.wheels.clear();
        lock.debs.truncate(1);
        lock.debs[0].name = "gcc-14-base".to_owned();
        let has = |rules: &SlimRules, removal| rules.removals.contains(&removal);
        let rules = SlimRules::new(&[], &lock, None);
        assert!(has(&rules, Removal::Headers) && has(&rules, Removal::Static));
        for name in ["gcc", "g++-14", "clang", "tcc"] {
            lock.debs[0].name = name.to_owned();
            let rules = SlimRules::new(&[], &lock, None);
            assert!(
                !has(&rules, Removal::Headers) && !has(&rules, Removal::Static),
                "{name}"
            );
        }
        for kept in Removal::ALL {
            let rules = SlimRules::new(&[kept], &lock, None);
            assert!(!has(&rules, kept));
            assert!(!rules.key_label().contains(kept.name()));
        }
        lock.versions.cuda = None;
        assert!(!has(&SlimRules::new(&[], &lock, None), Removal::Amd));
    }

    #[test]
    fn a_package_that_needs_its_tests_or_stubs_keeps_them() {
        let rules = SlimRules {
            removals: Removal::ALL.into(),
            device_code: None,
        };
        let goes = |source: &str| {
            let dir = tempfile::tempdir().unwrap();
            let package = dir.path().join(SITE).join("p");
            fs::create_dir_all(package.join("tests")).unwrap();
            fs::write(package.join("__init__.py"), source).unwrap();
            fs::write(package.join("tests/__init__.py"), "from p.tests import *").unwrap();
            fs::write(package.join("__init__.pyi"), "x: int").unwrap();
            let mut taken = Vec::new();
            collect_removed_files(
                dir.path(),
                &SlimFilter::new(&rules, dir.path(), false),
                &mut taken,
            )
            .unwrap();
            let mut removals: Vec<_> = taken.into_iter().map(|taken| taken.removal).collect();
            removals.sort();
            removals
        };
        assert_eq!(goes(""), [Removal::Stubs, Removal::Tests]);
        assert_eq!(goes("from .tests import run"), [Removal::Stubs]);
        assert_eq!(
            goes("lazy.attach_stub(__name__, __file__)"),
            [Removal::Tests]
        );
    }

    #[test]
    fn device_code_of_other_cards_becomes_zeros() {
        fn second_half(file: &File, cards: &[ComputeCapability]) -> Vec<Range<u64>> {
            assert_eq!(cards, [ComputeCapability::new(9, 0)]);
            let size = file.metadata().unwrap().len();
            [size / 2..size, 0..0].to_vec()
        }
        let lock = Lock::parse(include_str!("../sbom/testdata/lock.toml")).unwrap();
        let code = DeviceCodeFilter {
            cards: vec![ComputeCapability::new(9, 0)],
            unneeded: second_half,
        };
        let rules = SlimRules::new(&[], &lock, Some(code.clone()));
        assert!(
            rules.key_label().ends_with("tests 9.0"),
            "{}",
            rules.key_label()
        );
        let kept = SlimRules::new(&[Removal::DeviceCode], &lock, Some(code));
        assert_ne!(rules.key_label(), kept.key_label());
        assert_eq!(
            kept.key_label(),
            SlimRules::new(&[], &lock, None).key_label()
        );

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        let bytes = vec![7; MIN_INSPECTED_BYTES as usize];
        fs::write(&path, &bytes).unwrap();
        let meta = path.metadata().unwrap();
        assert_eq!(kept.strip_file(&path, &meta), None);
        let without = rules.strip_file(&path, &meta).unwrap();
        let half = bytes.len() / 2;
        assert_eq!(without.size(), meta.len());
        assert_eq!(
            without.patch_head(0, &bytes),
            [vec![7; half], vec![0; half]].concat()
        );
        let mut taken = Vec::new();
        collect_removed_files(
            dir.path(),
            &SlimFilter::new(&rules, dir.path(), false),
            &mut taken,
        )
        .unwrap();
        let [one] = &taken[..] else {
            panic!("{taken:?}")
        };
        assert_eq!(
            (one.removal, one.bytes, one.zeros),
            (Removal::DeviceCode, 0, half as u64)
        );
    }
}
