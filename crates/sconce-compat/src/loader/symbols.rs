//! Versions and symbols that loaded objects need of each other.

use super::process::{DlopenResult, LoaderProcess};
use crate::library::{ElfLibrary, symbol_hash};

/// A version that an object needs and the library loaded for it does not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionMismatch {
    /// The object that needs it.
    pub needer: usize,
    /// The library that should define it.
    pub provider: usize,
    /// `GLIBC_2.38`.
    pub version: String,
}

/// Symbols that an object needs and nothing in its scope defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndefinedSymbols {
    /// The object that needs them.
    pub needer: usize,
    /// Mangled, sorted.
    pub symbols: Vec<String>,
}

impl LoaderProcess<'_, '_> {
    /// Versions needed by the objects that were loaded here and not defined by what they got
    /// (glibc's `_dl_check_map_versions`): a library without any version is taken as it is.
    #[must_use]
    pub fn version_misses(&self, opened: &DlopenResult) -> Vec<VersionMismatch> {
        let mut misses = Vec::new();
        for needer in new_objects(opened) {
            for needs in &self.objects()[needer].library.needs_versions {
                let Some(provider) = self.find_object(&needs.of) else {
                    continue;
                };
                let library = self.objects()[provider].library;
                if library.defines_versions.is_empty() {
                    continue;
                }
                for version in &needs.versions {
                    if !defines_version(library, version) {
                        misses.push(VersionMismatch {
                            needer,
                            provider,
                            version: version.clone(),
                        });
                    }
                }
            }
        }
        misses
    }

    /// Symbols needed by the objects that were loaded here which neither the process's global scope
    /// nor this call's defines. Nothing is said where a library is missing: the loader does not come
    /// to symbols then.
    #[must_use]
    pub fn undefined_symbols(&self, opened: &DlopenResult) -> Vec<UndefinedSymbols> {
        let objects = self.objects();
        if opened
            .scope
            .iter()
            .any(|&object| objects[object].incomplete)
        {
            return Vec::new();
        }
        let mut scope: Vec<&ElfLibrary> = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            let seen = object.global || opened.scope.contains(&at);
            if seen && !object.library.defined.is_empty() {
                scope.push(object.library);
            }
        }
        let mut all = Vec::new();
        for needer in new_objects(opened) {
            let mut symbols = Vec::new();
            for symbol in &objects[needer].library.undefined {
                if !defined(&mut scope, symbol) {
                    symbols.push(symbol.clone());
                }
            }
            if !symbols.is_empty() {
                all.push(UndefinedSymbols { needer, symbols });
            }
        }
        all
    }
}

fn new_objects(opened: &DlopenResult) -> impl Iterator<Item = usize> {
    let scope = opened.scope.iter().copied();
    scope.filter(|&object| object >= opened.first_new)
}

fn defines_version(library: &ElfLibrary, version: &str) -> bool {
    // A library's own name is always a version, and is not among those kept.
    library.soname.as_deref() == Some(version)
        || library
            .defines_versions
            .iter()
            .any(|defined| defined == version)
}

/// Whether one of the libraries defines a symbol. The one that does is asked first the next time:
/// symbols come sorted, so neighbours mostly come from the same library.
fn defined(scope: &mut [&ElfLibrary], symbol: &str) -> bool {
    let hash = symbol_hash(symbol.as_bytes());
    let defines = |library: &&ElfLibrary| library.defined.binary_search(&hash).is_ok();
    match scope.iter().position(defines) {
        Some(at) => {
            scope.swap(0, at);
            true
        }
        None => false,
    }
}

/// The same function with the other `std::string`: GCC's has the tag `__cxx11` since version 5
/// unless a library is built with `_GLIBCXX_USE_CXX11_ABI=0`. Only for names in which it does not
/// change how later parts are abbreviated; others come out as no symbol at all.
pub(super) fn other_string_abi(symbol: &str) -> Option<String> {
    const NEW: &str = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
    const TAG: &str = "B5cxx11";
    if symbol.contains(NEW) || symbol.contains(TAG) {
        return Some(symbol.replace(NEW, "Ss").replace(TAG, ""));
    }
    // `Ss` also stands inside of names (`Class`), so only where a type can begin.
    let at = symbol.rfind("Ss")?;
    let before = symbol[..at].chars().next_back()?;
    matches!(
        before,
        'E' | 'K' | '_' | 'S' | 'i' | 'l' | 'b' | 'm' | 'j' | 'v'
    )
    .then(|| format!("{}{NEW}{}", &symbol[..at], &symbol[at + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::NeededVersions;
    use crate::loader::LibraryTree;

    fn hashes(names: &[&str]) -> Vec<u64> {
        let mut hashes: Vec<_> = names
            .iter()
            .map(|name| symbol_hash(name.as_bytes()))
            .collect();
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn versions_are_asked_of_what_was_loaded() {
        let libc = ElfLibrary {
            machine: 62,
            soname: Some("libc.so.6".into()),
            defines_versions: vec!["GLIBC_2.27".into()],
            ..ElfLibrary::default()
        };
        let plain = ElfLibrary {
            machine: 62,
            ..ElfLibrary::default()
        };
        let needs = |of: &str, versions: &[&str]| NeededVersions {
            of: of.to_owned(),
            versions: versions.iter().map(|&version| version.to_owned()).collect(),
        };
        let module = ElfLibrary {
            machine: 62,
            needed: vec![
                "libc.so.6".into(),
                "libplain.so".into(),
                "libgone.so".into(),
            ],
            needs_versions: vec![
                needs("libc.so.6", &["GLIBC_2.27", "GLIBC_2.38", "libc.so.6"]),
                needs("libplain.so", &["PLAIN_1"]),
                needs("libgone.so", &["GONE_1"]),
            ],
            ..ElfLibrary::default()
        };
        let mut tree = LibraryTree::new(62);
        tree.add_library("/lib/libc.so.6", &libc);
        tree.add_library("/lib/libplain.so", &plain);
        tree.add_library("/m.so", &module);
        let (mut process, _) = LoaderProcess::start(&tree);
        let opened = process.open("/m.so", None, false);
        let misses = process.version_misses(&opened);
        let miss = VersionMismatch {
            needer: 0,
            provider: 1,
            version: "GLIBC_2.38".into(),
        };
        assert_eq!(misses, [miss]);
    }

    #[test]
    fn symbols_come_from_the_own_scope_or_the_global_one() {
        let provider = |names: &[&str]| ElfLibrary {
            machine: 62,
            defined: hashes(names),
            ..ElfLibrary::default()
        };
        let (global, local, other) = (provider(&["g"]), provider(&["l"]), provider(&["o"]));
        let module = ElfLibrary {
            machine: 62,
            needed: vec!["liblocal.so".into()],
            undefined: ["g", "l", "o", "x"].map(String::from).to_vec(),
            ..ElfLibrary::default()
        };
        let mut tree = LibraryTree::new(62);
        for (path, library) in [
            ("/lib/libglobal.so", &global),
            ("/lib/liblocal.so", &local),
            ("/lib/libother.so", &other),
            ("/m.so", &module),
        ] {
            tree.add_library(path, library);
        }
        let (mut process, _) = LoaderProcess::start(&tree);
        process.open("libglobal.so", None, true);
        process.open("libother.so", None, false);
        let opened = process.open("/m.so", None, false);
        let undefined = process.undefined_symbols(&opened);
        assert_eq!(undefined.len(), 1);
        assert_eq!(undefined[0].symbols, ["o", "x"]);
    }

    #[test]
    fn the_other_string_is_known() {
        let new = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
        let old = "_ZN3c105ErrorC2ENS_14SourceLocationESs";
        assert_eq!(other_string_abi(new).as_deref(), Some(old));
        assert_eq!(other_string_abi(old).as_deref(), Some(new));
        assert_eq!(
            other_string_abi("_ZNK5torch8autograd4Node4nameB5cxx11Ev").as_deref(),
            Some("_ZNK5torch8autograd4Node4nameEv")
        );
        assert_eq!(other_string_abi("_ZN2at7PassSsE"), None);
        assert_eq!(other_string_abi("_ZN2at4_ops3addE"), None);
    }
}
