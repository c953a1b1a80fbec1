//! The libraries of an environment and what steers the search for them.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::library::ElfLibrary;

/// Longest path that the kernel takes, with its NUL (`PATH_MAX`).
const PATH_MAX: usize = 4096;
/// Symbolic links that the kernel follows for one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// Libraries of the C and C++ runtimes, which every system that runs manylinux wheels has: for
/// [`LibraryTree::add_provided_name`] where only the Python packages of an environment are known.
pub const BASE_NAMES: &[&str] = &[
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
    "libz.so.1",
];

/// Libraries that come with NVIDIA's driver into the environment when it runs: for
/// [`LibraryTree::add_provided_name`] where the run will have a card.
pub const DRIVER_NAMES: &[&str] = &[
    "libcuda.so.1",
    "libcudadebugger.so.1",
    "libnvcuvid.so.1",
    "libnvidia-encode.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvoptix.so.1",
];

/// What lies at a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TreeEntry<'a> {
    /// A library.
    Library(&'a ElfLibrary),
    /// A file that the loader opens and then refuses with this text.
    Refused(&'static str),
    /// A symbolic link to this.
    Link(String),
}

/// Libraries by path, and what steers the search for them.
///
/// Directories need not be named: one that is not known counts as there, so that `$ORIGIN/../lib`
/// can be followed. Paths that are not absolute are not kept.
#[derive(Debug, Clone)]
pub struct LibraryTree<'a> {
    /// `e_machine` of the programs that run: a library for another is passed over.
    pub machine: u16,
    /// `LD_LIBRARY_PATH`, as it stands.
    pub library_path: String,
    /// `LD_PRELOAD`, as it stands.
    pub preload: String,
    /// The program, a path of the tree: its `DT_RPATH` serves every library without `DT_RUNPATH`.
    pub program: Option<String>,
    /// Where the loader looks last, in order.
    pub default_directories: Vec<String>,
    /// Subdirectories for better processors that are tried before each directory, best first:
    /// `glibc-hwcaps/x86-64-v3`.
    pub hwcaps: Vec<String>,
    /// What `$LIB` stands for: `lib/x86_64-linux-gnu` in Debian, `lib64` in Fedora.
    pub lib: String,
    /// What `$PLATFORM` stands for: `x86_64`, or `haswell` with a glibc before 2.37.
    pub platform: String,
    entries: BTreeMap<String, TreeEntry<'a>>,
    cache: HashMap<String, Vec<String>>,
    provided: HashSet<String>,
}

impl<'a> LibraryTree<'a> {
    /// An empty tree with the default directories of Debian and Fedora, for a machine (`e_machine`,
    /// 62 is x86-64, 183 is AArch64).
    #[must_use]
    pub fn new(machine: u16) -> Self {
        let (triplet, platform) = match machine {
            183 => ("aarch64-linux-gnu", "aarch64"),
            _ => ("x86_64-linux-gnu", "x86_64"),
        };
        Self {
            machine,
            library_path: String::new(),
            preload: String::new(),
            program: None,
            default_directories: vec![
                format!("/lib/{triplet}"),
                format!("/usr/lib/{triplet}"),
                "/lib64".to_owned(),
                "/usr/lib64".to_owned(),
                "/lib".to_owned(),
                "/usr/lib".to_owned(),
            ],
            hwcaps: Vec::new(),
            lib: format!("lib/{triplet}"),
            platform: platform.to_owned(),
            entries: BTreeMap::new(),
            cache: HashMap::new(),
            provided: HashSet::new(),
        }
    }

    /// A library lies at this path.
    pub fn add_library(&mut self, path: &str, library: &'a ElfLibrary) {
        self.put(path, TreeEntry::Library(library));
    }

    /// A file that is no library lies at this path. The loader does not look further when it comes
    /// upon it; `short`: it is too short for an ELF header.
    pub fn add_refused_file(&mut self, path: &str, short: bool) {
        let text = match short {
            true => "file too short",
            false => "invalid ELF header",
        };
        self.put(path, TreeEntry::Refused(text));
    }

    /// A symbolic link lies at this path, to a file or a directory.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.put(path, TreeEntry::Link(target.to_owned()));
    }

    /// The next line of `ld.so.cache` gives this path for this name.
    pub fn add_cache_entry(&mut self, name: &str, path: &str) {
        let paths = self.cache.entry(name.to_owned()).or_default();
        paths.push(path.to_owned());
    }

    /// A library of this name will be there when it runs, though it is not in the tree.
    pub fn add_provided_name(&mut self, name: &str) {
        self.provided.insert(name.to_owned());
    }

    /// The libraries in order of their paths, without links.
    pub fn libraries(&self) -> impl Iterator<Item = (&str, &'a ElfLibrary)> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            TreeEntry::Library(library) => Some((path.as_str(), *library)),
            _ => None,
        })
    }

    /// The path without symbolic links, `.` and `..`, or none where it cannot be followed.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Option<String> {
        if !path.starts_with('/') || path.len() >= PATH_MAX {
            return None;
        }
        let mut done = String::with_capacity(path.len());
        let mut ahead = parts(path);
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part == ".." {
                done.truncate(done.rfind('/').unwrap_or(0));
                continue;
            }
            let parent = done.len();
            done.push('/');
            done.push_str(&part);
            if let Some(TreeEntry::Link(target)) = self.entries.get(&done) {
                links += 1;
                if links > MAX_LINKS || target.len() >= PATH_MAX {
                    return None;
                }
                done.truncate(if target.starts_with('/') { 0 } else { parent });
                ahead.extend(parts(target));
            }
        }
        if done.is_empty() {
            done.push('/');
        }
        Some(done)
    }

    /// The files of a directory that is written without links, in order.
    pub(super) fn files(&self, directory: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{directory}/");
        let from = self.entries.range(prefix.clone()..);
        from.map_while(move |(path, _)| Some((path, path.strip_prefix(&prefix)?)))
            .filter(|(_, name)| !name.contains('/'))
            .map(|(path, _)| path.as_str())
    }

    pub(super) fn entry_at(&self, real: &str) -> Option<&TreeEntry<'a>> {
        self.entries.get(real)
    }

    pub(super) fn in_cache(&self, name: &str) -> &[String] {
        self.cache.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_provided(&self, name: &str) -> bool {
        self.provided.contains(name)
    }

    /// One entry of a search path with `$ORIGIN`, `$LIB` and `$PLATFORM` put in, without slashes at
    /// its end. None: it stands for nothing that can be searched.
    pub(super) fn expand_tokens(&self, entry: &str, origin: Option<&str>) -> Option<String> {
        let mut out = String::with_capacity(entry.len());
        let mut rest = entry;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            let tokens = [
                ("ORIGIN", origin),
                ("LIB", Some(self.lib.as_str())),
                ("PLATFORM", Some(self.platform.as_str())),
            ];
            let found = tokens
                .into_iter()
                .find_map(|(name, value)| Some((token(rest, name)?, value)));
            match found {
                Some((after, value)) => {
                    out.push_str(value?);
                    rest = after;
                }
                None => out.push('$'),
            }
            if out.len() >= PATH_MAX {
                return None;
            }
        }
        out.push_str(rest);
        let kept = match out.trim_end_matches('/').len() {
            0 => out.len().min(1),
            kept => kept,
        };
        out.truncate(kept);
        (out.len() < PATH_MAX).then_some(out)
    }

    fn put(&mut self, path: &str, entry: TreeEntry<'a>) {
        if path.starts_with('/') {
            self.entries.insert(path.to_owned(), entry);
        }
    }
}

/// The parts of a path, last first, without those that lead nowhere.
fn parts(path: &str) -> Vec<String> {
    let parts = path.rsplit('/').filter(|part| !matches!(*part, "" | "."));
    parts.map(str::to_owned).collect()
}

/// What follows a token, `ORIGIN` or `{ORIGIN}`, at the start of a text (glibc's `is_dst`).
fn token<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    if let Some(inner) = text.strip_prefix('{') {
        return inner.strip_prefix(name)?.strip_prefix('}');
    }
    let after = text.strip_prefix(name)?;
    let goes_on = after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (!goes_on).then_some(after)
}

/// The directory of a path, as text.
pub(super) fn parent_dir(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(at) => &path[..at],
        None => "",
    }
}

/// The last part of a path, as text.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_as_the_kernel_does() {
        let mut tree = LibraryTree::new(62);
        tree.add_link("/lib", "usr/lib");
        tree.add_link("/usr/lib/a.so", "deep/a.so.1");
        tree.add_link("/opt/env", "/srv/../srv/env-1");
        tree.add_link("/loop", "/loop");
        tree.add_link("/grow", "grow/grow");
        for (path, real) in [
            ("/lib/x.so", Some("/usr/lib/x.so")),
            ("/lib/../x", Some("/usr/x")),
            ("/lib/a.so", Some("/usr/lib/deep/a.so.1")),
            ("/opt/env/lib//./x", Some("/srv/env-1/lib/x")),
            ("/../..", Some("/")),
            ("/loop/x", None),
            ("/grow", None),
            ("lib/x.so", None),
        ] {
            assert_eq!(tree.resolve(path).as_deref(), real, "{path}");
        }
        assert_eq!(tree.resolve(&"/x".repeat(2048)), None);
    }

    #[test]
    fn tokens_are_put_in() {
        let tree = LibraryTree::new(62);
        for (entry, value) in [
            ("$ORIGIN/../lib/", "/o/../lib"),
            ("${ORIGIN}", "/o"),
            ("/x/$LIB", "/x/lib/x86_64-linux-gnu"),
            ("/x/${PLATFORM}/y", "/x/x86_64/y"),
            ("$ORIGINAL", "$ORIGINAL"),
            ("${ORIGIN", "${ORIGIN"),
            ("a$", "a$"),
            ("///", "/"),
            ("", ""),
            ("é$ORIGIN", "é/o"),
        ] {
            assert_eq!(
                tree.expand_tokens(entry, Some("/o")).as_deref(),
                Some(value)
            );
        }
        assert_eq!(tree.expand_tokens("$ORIGIN/x", None), None);
        assert_eq!(
            tree.expand_tokens(&"$ORIGIN".repeat(9000), Some("/o")),
            None
        );
    }

    #[test]
    fn files_of_a_directory_are_its_own() {
        let mut tree = LibraryTree::new(62);
        for path in ["/a/b.so", "/a/c/d.so", "/a/e.so", "/ab/f.so", "relative.so"] {
            tree.add_refused_file(path, true);
        }
        let files: Vec<_> = tree.files("/a").collect();
        assert_eq!(files, ["/a/b.so", "/a/e.so"]);
    }
}
