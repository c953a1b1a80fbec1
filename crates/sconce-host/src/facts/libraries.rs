//! Which copies of the driver's libraries there are, and which one a program gets.
//!
//! A program that asks for `libcuda.so.1` gets the first that the loader finds (ld.so(8)): in the
//! folders of `LD_LIBRARY_PATH`, by `/etc/ld.so.cache`, in the default folders. The RUNPATH of the
//! asking library comes between the first two; no library of CUDA's or PyTorch's names the driver
//! there. Copies that the loader does not look at are listed too, and never win: images of NVIDIA
//! keep one in /usr/local/cuda/compat, Windows puts one into /usr/lib/wsl/lib.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sconce_schema::DriverVersion;
use sconce_schema::facts::DriverLibrary;

use crate::cdi::{is_library, library_folders, named_in_cache};
use crate::nvidia::is_version;
use crate::roots::Roots;

/// What programs ask for.
const NAMES: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// Folders beside those that [`library_folders`] knows.
const EXTRA_LIBRARY_DIRS: [&str; 5] = [
    "/usr/local/cuda/compat",
    "/usr/local/cuda/compat/lib",
    "/usr/local/cuda/compat/lib.real",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib",
];

/// More folders than any LD_LIBRARY_PATH has.
const MAX_FOLDERS: usize = 256;

/// The loader of a machine, for one environment.
#[derive(Debug)]
pub struct LibrarySearch<'a> {
    roots: &'a Roots,
    path: Vec<PathBuf>,
    cache: Vec<u8>,
}

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FoundLibrary {
    /// As it was found, as the machine names it.
    asked: PathBuf,
    /// Links resolved, as the machine names it.
    resolved: PathBuf,
    /// Where it can be opened.
    located: PathBuf,
    wins: bool,
}

impl<'a> LibrarySearch<'a> {
    /// With this `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn new(roots: &'a Roots, ld_library_path: Option<&str>) -> Self {
        /// A cache of a thousand libraries has 100 KB.
        const MAX_CACHE_BYTES: u64 = 64 << 20;
        let mut cache = Vec::new();
        if let Ok(file) = File::open(roots.etc.join("ld.so.cache")) {
            // What was read before a failure still counts.
            let _ = file.take(MAX_CACHE_BYTES).read_to_end(&mut cache);
        }
        Self {
            roots,
            path: folders_of(ld_library_path.unwrap_or_default()),
            cache,
        }
    }

    /// Every copy of every name, each file once, the winner of a name first.
    pub(super) fn driver_libraries(&self) -> Vec<DriverLibrary> {
        let mut libraries = Vec::new();
        for name in NAMES {
            libraries.extend(
                self.find(name, &self.path, true)
                    .iter()
                    .map(|found| found.describe(name)),
            );
        }
        libraries
    }

    /// The version of the C library: in the name of its file before glibc 2.34 (`libc-2.31.so`),
    /// else in the text that it prints when it is run as a program.
    pub(super) fn glibc_version(&self) -> Option<String> {
        /// Real ones have 2 MB.
        const MAX_GLIBC_BYTES: u64 = 16 << 20;
        let found = self.winner("libc.so.6")?;
        let name = found.resolved.file_name()?.to_str()?;
        let in_name = name
            .strip_prefix("libc-")
            .and_then(|rest| rest.strip_suffix(".so"));
        match in_name {
            Some(version) if is_version(version) => Some(version.to_owned()),
            _ => glibc_banner(&contents(&found.located, MAX_GLIBC_BYTES)?),
        }
    }

    /// The newest `GLIBCXX_` version of the C++ library, from the names in its file.
    pub(super) fn glibcxx_version(&self) -> Option<String> {
        /// Real ones have 2 MB, and up to 20 MB with debugging information.
        const MAX_LIBSTDCXX_BYTES: u64 = 32 << 20;
        let found = self.winner("libstdc++.so.6")?;
        newest_glibcxx(&contents(&found.located, MAX_LIBSTDCXX_BYTES)?)
    }

    /// The files of the machine's own cuDNN, of each major version.
    pub(super) fn cudnn_files(&self) -> Vec<String> {
        let names = ["libcudnn.so.9", "libcudnn.so.8", "libcudnn.so.7"];
        let found = names.into_iter().filter_map(|name| self.winner(name));
        found
            .map(|found| found.resolved.to_string_lossy().into_owned())
            .collect()
    }

    /// Where the machine's own library of a name lies, before links are followed: as
    /// `/etc/ld.so.cache` has it, else in the default folders.
    #[must_use]
    pub fn find_system_library(&self, name: &str) -> Option<PathBuf> {
        self.winner(name).map(|found| found.asked)
    }

    /// The machine's own: what one environment puts first is the loader's simulation to tell.
    fn winner(&self, name: &str) -> Option<FoundLibrary> {
        let found = self.find(name, &[], false);
        found.into_iter().find(|found| found.wins)
    }

    fn find(&self, name: &str, path: &[PathBuf], elsewhere: bool) -> Vec<FoundLibrary> {
        let join = |folder: &PathBuf| folder.join(name);
        let mut searched: Vec<PathBuf> = path.iter().map(join).collect();
        searched.extend(named_in_cache(&self.cache, name));
        searched.extend(default_folders().iter().map(join));
        let by_loader = searched.len();
        if elsewhere {
            searched.extend(library_folders(self.roots).iter().map(join));
            searched.extend(
                EXTRA_LIBRARY_DIRS
                    .iter()
                    .map(|folder| Path::new(folder).join(name)),
            );
        }
        let mut found: Vec<FoundLibrary> = Vec::new();
        for (place, asked) in searched.into_iter().enumerate() {
            let located = self.roots.locate(&asked);
            let Ok(end) = located.canonicalize() else {
                continue;
            };
            let resolved = self.named(&end);
            let known = found.iter().any(|known| known.resolved == resolved);
            // The loader passes over what is no library for this machine.
            if known || !is_library(&located) {
                continue;
            }
            found.push(FoundLibrary {
                asked,
                resolved,
                located,
                wins: place < by_loader && found.is_empty(),
            });
        }
        found
    }

    /// The path as the machine names it.
    fn named(&self, path: &Path) -> PathBuf {
        let root = self.roots.root.canonicalize();
        match root.as_ref().map(|root| path.strip_prefix(root)) {
            Ok(Ok(rest)) => Path::new("/").join(rest),
            _ => path.to_owned(),
        }
    }
}

impl FoundLibrary {
    fn describe(&self, name: &str) -> DriverLibrary {
        let compat = |path: &Path| path.components().any(|part| part.as_os_str() == "compat");
        let file = self.resolved.file_name().and_then(|name| name.to_str());
        DriverLibrary {
            name: name.to_owned(),
            path: self.resolved.to_string_lossy().into_owned(),
            version: file.and_then(version_in_name),
            wins: self.wins,
            compat: compat(&self.asked) || compat(&self.resolved),
        }
    }
}

/// The driver's version in `libcuda.so.580.65.06`. Windows' `libcuda.so.1.1` has none.
pub(crate) fn version_in_name(name: &str) -> Option<DriverVersion> {
    let (_, version) = name.split_once(".so.")?;
    let version: DriverVersion = is_version(version).then(|| version.parse().ok())??;
    // No driver with CUDA has a smaller number.
    (version.major >= 100).then_some(version)
}

/// Folders of `LD_LIBRARY_PATH`, parted by colons or semicolons. An empty or relative entry means
/// a folder below the caller's own, and one with a `$` is completed by the loader: neither is
/// where a driver lies, and both are left out.
fn folders_of(list: &str) -> Vec<PathBuf> {
    list.split([':', ';'])
        .filter(|entry| entry.starts_with('/') && !entry.contains('$'))
        .take(MAX_FOLDERS)
        .map(PathBuf::from)
        .collect()
}

/// The folders that the loader knows by itself, Debian's before Red Hat's: a machine has one kind.
fn default_folders() -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    [
        format!("/lib/{triplet}"),
        format!("/usr/lib/{triplet}"),
        "/lib64".to_owned(),
        "/usr/lib64".to_owned(),
        "/lib".to_owned(),
        "/usr/lib".to_owned(),
    ]
    .map(PathBuf::from)
    .to_vec()
}

fn contents(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// `2.36` of `GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.`
fn glibc_banner(bytes: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b" release version ";
    let version = |after: &[u8]| {
        let text: String = after
            .iter()
            .take(16)
            .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
            .map(|&byte| char::from(byte))
            .collect();
        let version = text.trim_end_matches('.');
        is_version(version).then(|| version.to_owned())
    };
    after_each(bytes, BEFORE).find_map(version)
}

/// `3.4.30` where `GLIBCXX_3.4.30` is the newest of the library's version names.
fn newest_glibcxx(bytes: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"\0GLIBCXX_3.4.";
    let number = |after: &[u8]| {
        let end = after.iter().take(6).position(|&byte| byte == 0)?;
        std::str::from_utf8(&after[..end]).ok()?.parse::<u32>().ok()
    };
    let newest = after_each(bytes, BEFORE).filter_map(number).max()?;
    Some(format!("3.4.{newest}"))
}

/// What follows each place where `before` stands.
fn after_each<'b>(bytes: &'b [u8], before: &'static [u8]) -> impl Iterator<Item = &'b [u8]> {
    memchr::memmem::find_iter(bytes, before).map(move |at| &bytes[at + before.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shared_library;
    use proptest::prelude::*;

    fn machine(files: &[&str]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let (file, target) = file.split_once(" -> ").unwrap_or((file, ""));
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match target {
                "" => std::fs::write(path, shared_library(Some("x"))).unwrap(),
                target => std::os::unix::fs::symlink(target, path).unwrap(),
            }
        }
        let roots = Roots::from_dir(folder.path());
        (folder, roots)
    }

    fn told(libraries: &[DriverLibrary]) -> Vec<String> {
        let tell = |library: &DriverLibrary| {
            let version = library.version.map(|version| version.to_string());
            format!(
                "{}{} {}{}",
                library.path,
                version.map_or(String::new(), |version| format!(" {version}")),
                if library.wins { "wins" } else { "-" },
                if library.compat { " compat" } else { "" },
            )
        };
        libraries.iter().map(tell).collect()
    }

    #[test]
    fn the_first_of_the_loader_wins_and_every_file_is_told_once() {
        let (_folder, roots) = machine(&[
            "usr/lib64/libcuda.so.550.54.15",
            "usr/lib64/libcuda.so.1 -> libcuda.so.550.54.15",
            "lib64 -> usr/lib64",
            "usr/local/cuda-12.8/compat/libcuda.so.570.86.10",
            "usr/local/cuda-12.8/compat/libcuda.so.1 -> libcuda.so.570.86.10",
            "usr/local/cuda -> cuda-12.8",
        ]);
        let driver = "/usr/lib64/libcuda.so.550.54.15 550.54.15";
        let compat = "/usr/local/cuda-12.8/compat/libcuda.so.570.86.10 570.86.10";
        let plain = LibrarySearch::new(&roots, None).driver_libraries();
        let expected = [format!("{driver} wins"), format!("{compat} - compat")];
        assert_eq!(told(&plain), expected);
        let path = "relative::/nowhere;/usr/local/cuda/compat:$ORIGIN/x";
        let put_first = LibrarySearch::new(&roots, Some(path)).driver_libraries();
        let expected = [format!("{compat} wins compat"), format!("{driver} -")];
        assert_eq!(told(&put_first), expected);
    }

    #[test]
    fn the_machines_own_library_is_told_by_its_name() {
        let (_folder, roots) = machine(&[
            "usr/lib64/libz.so.1.3",
            "usr/lib64/libz.so.1 -> libz.so.1.3",
            "opt/libz.so.1",
        ]);
        let loader = LibrarySearch::new(&roots, Some("/opt"));
        assert_eq!(
            loader.find_system_library("libz.so.1"),
            Some(PathBuf::from("/usr/lib64/libz.so.1"))
        );
        assert_eq!(loader.find_system_library("libnone.so.1"), None);
    }

    #[test]
    fn what_is_no_library_does_not_win() {
        let (_folder, roots) = machine(&["usr/lib64/libnvidia-ml.so.1", "opt/x"]);
        let script = roots.root.join("opt/libnvidia-ml.so.1");
        std::fs::write(script, "INPUT(libnvidia-ml.so)\n").unwrap();
        let found = LibrarySearch::new(&roots, Some("/opt")).driver_libraries();
        assert_eq!(told(&found), ["/usr/lib64/libnvidia-ml.so.1 wins"]);
    }

    /// The folder after microsoft/WSL issue 8587: three plain files, and ldconfig knows one.
    #[test]
    fn windows_library_has_no_version() {
        let (_folder, roots) = machine(&[
            "usr/lib/wsl/lib/libcuda.so.1",
            "usr/lib/wsl/lib/libcuda.so.1.1",
        ]);
        let found = LibrarySearch::new(&roots, None).driver_libraries();
        assert_eq!(told(&found), ["/usr/lib/wsl/lib/libcuda.so.1 -"]);
        assert_eq!(version_in_name("libcuda.so.1.1"), None);
        assert_eq!(version_in_name("libcuda.so.1"), None);
        assert_eq!(version_in_name("libcuda.so"), None);
    }

    #[test]
    fn versions_in_libraries() {
        // As Debian 12's and Ubuntu 24.04's libc.so.6 print them.
        for (banner, version) in [
            (
                "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n",
                Some("2.36"),
            ),
            (
                "GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8.4) stable release version 2.39.\n",
                Some("2.39"),
            ),
            (
                "GNU C Library development release version 2.39.9000.\n",
                Some("2.39.9000"),
            ),
            (" release version ", None),
            (" release version x.y", None),
        ] {
            assert_eq!(glibc_banner(banner.as_bytes()).as_deref(), version);
        }
        let names = b"\0GLIBCXX_3.4\0GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0GLIBCXX_DEBUG\0GLIBCXX_3.4.x\0";
        assert_eq!(newest_glibcxx(names).as_deref(), Some("3.4.30"));
        assert_eq!(newest_glibcxx(b"\0GLIBCXX_3.4.30"), None, "cut off");
    }

    #[test]
    fn this_machines_c_library() {
        let roots = Roots::default();
        let glibc = LibrarySearch::new(&roots, None).glibc_version().unwrap();
        assert!(glibc.starts_with("2."), "{glibc}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in "[ -~\u{0}]{0,40}", at in 0..40_usize) {
            let mut whole = b"\0GLIBCXX_3.4.30\0 release version 2.36".to_vec();
            let at = at % whole.len();
            whole.splice(at..at, bytes.bytes());
            let _ = (glibc_banner(&whole), newest_glibcxx(&whole), folders_of(&bytes));
            let _ = version_in_name(&bytes);
        }
    }
}
