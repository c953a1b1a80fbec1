//! `Contents-ARCH.gz`: which package of a suite has which file (Debian's repository format, "Contents
//! indices": a path, white space, and the packages as `SECTION/NAME`, with commas between them).
//!
//! Asked for libraries alone: which package brings the one that a program needs. An index is some hundred
//! megabytes of text, so it is read as a stream and nothing of it is kept but what was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

use super::relation::is_name;

/// Longer lines are no line of a library: those of files that hundreds of packages have are.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Packages that are kept of one library.
const MAX_CANDIDATES: usize = 64;
/// Longer names of files are none (Linux's `NAME_MAX`).
const MAX_FILE_NAME_BYTES: usize = 255;

/// A package that has a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryPackage {
    /// Its name.
    pub name: String,
    /// The library's folder, `/usr/lib/x86_64-linux-gnu`.
    pub folder: String,
    /// Whether the loader looks there by itself (ld.so(8), and Debian's `/etc/ld.so.conf.d`).
    pub is_on_search_path: bool,
}

/// The packages that have one library, the one to take first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibraryPackages {
    /// Never empty in an answer.
    pub candidates: Vec<LibraryPackage>,
}

impl LibraryPackages {
    /// The package to take.
    #[must_use]
    pub fn best(&self) -> Option<&LibraryPackage> {
        self.candidates.first()
    }

    /// The packages that would do as well as the best by all that is known of them: names of the same
    /// length, in a folder of the same kind.
    pub fn ties(&self) -> impl Iterator<Item = &LibraryPackage> {
        let best = self.best().map(rank);
        let others = self.candidates.iter().skip(1);
        others.filter(move |other| Some(rank(other)) == best)
    }

    fn add(&mut self, package: LibraryPackage) {
        let is_known = |known: &LibraryPackage| known.name == package.name;
        match self.candidates.iter_mut().find(|known| is_known(known)) {
            // One package may have it twice: the place where it is found counts.
            Some(known) if rank(&package) < rank(known) => *known = package,
            Some(_) => return,
            None => self.candidates.push(package),
        }
        self.candidates
            .sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
        self.candidates.truncate(MAX_CANDIDATES);
    }
}

/// What goes before what: a library that the loader finds, a package that is for running, a short name,
/// as that of `libgl1` among drivers' own.
fn rank(package: &LibraryPackage) -> (bool, bool, usize) {
    let is_for_building = package.name.ends_with("-dev");
    (
        !package.is_on_search_path,
        is_for_building,
        package.name.len(),
    )
}

/// Which packages have libraries of these names, in an index of `architecture`. Lines that are none are
/// passed over.
///
/// # Errors
/// The stream ends in an error.
pub fn find_libraries(
    index: &mut impl BufRead,
    architecture: &str,
    names: &BTreeSet<String>,
) -> io::Result<BTreeMap<String, LibraryPackages>> {
    let mut found: BTreeMap<String, LibraryPackages> = BTreeMap::new();
    let folders = search_path(architecture);
    let mut line = Vec::new();
    while read_line(index, &mut line)? {
        let Some((folder, name, packages)) = parse_library(&line) else {
            continue;
        };
        if !names.contains(name) {
            continue;
        }
        for package in packages.split(',') {
            let package = package.rsplit('/').next().unwrap_or_default();
            if is_for_running(package) {
                found
                    .entry(name.to_owned())
                    .or_default()
                    .add(LibraryPackage {
                        name: package.to_owned(),
                        folder: format!("/{folder}"),
                        is_on_search_path: folders.iter().any(|known| known == folder),
                    });
            }
        }
    }
    found.retain(|_, packages| !packages.candidates.is_empty());
    Ok(found)
}

/// Where Debian's loader looks, without a slash before it.
fn search_path(architecture: &str) -> Vec<String> {
    let triplet = match architecture {
        "amd64" => "x86_64-linux-gnu",
        "arm64" => "aarch64-linux-gnu",
        other => other,
    };
    let folders = ["usr/lib", "lib", "usr/lib64", "lib64"];
    let of_triplet = ["usr/lib", "lib"].map(|folder| format!("{folder}/{triplet}"));
    folders
        .map(str::to_owned)
        .into_iter()
        .chain(of_triplet)
        .collect()
}

/// Packages for debuggers and installers bring nothing that a program loads.
fn is_for_running(package: &str) -> bool {
    let aside = ["-dbg", "-dbgsym", "-udeb", "-cross"];
    is_name(package) && !aside.iter().any(|end| package.ends_with(end))
}

/// Reads the next line without its end; one that is too long is passed over and read as empty. Whether
/// there was one.
fn read_line(index: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let (mut is_first, mut is_long) = (true, false);
    loop {
        let bytes = match index.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Ok(!is_first);
        }
        is_first = false;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        is_long |= line.len() + part.len() > MAX_LINE_BYTES;
        match is_long {
            true => line.clear(),
            false => line.extend_from_slice(part),
        }
        let used = part.len() + usize::from(end.is_some());
        index.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// The folder, the name and the packages of a line that is of a library in a folder for such.
fn parse_library(line: &[u8]) -> Option<(&str, &str, &str)> {
    let is_library_folder = [b"usr/lib".as_slice(), b"lib"]
        .iter()
        .any(|begin| line.starts_with(begin));
    if !is_library_folder {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?;
    if line.contains(|c: char| c.is_control() && c != '\t') {
        return None;
    }
    // A path may have spaces in it, the list of packages has none.
    let (path, packages) = line.trim_end().rsplit_once([' ', '\t'])?;
    let (folder, name) = path.trim_end().rsplit_once('/')?;
    let is_library = name.ends_with(".so") || name.contains(".so.");
    (is_library && name.len() <= MAX_FILE_NAME_BYTES).then_some((folder, name, packages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufReader, Read};

    fn find(text: &[u8], names: &[&str]) -> BTreeMap<String, LibraryPackages> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        find_libraries(&mut &text[..], "amd64", &names).unwrap()
    }

    fn named(text: &str, name: &str) -> Vec<String> {
        let found = find(text.as_bytes(), &[name]);
        let packages = found.get(name).cloned().unwrap_or_default();
        packages
            .candidates
            .into_iter()
            .map(|one| one.name)
            .collect()
    }

    /// Lines of bookworm's and trixie's own indexes.
    const REAL: &str = "\
usr/lib/x86_64-linux-gnu/libGL.so                       libdevel/libgl-dev
usr/lib/x86_64-linux-gnu/libGL.so.1                     libs/libgl1
usr/lib/x86_64-linux-gnu/libGL.so.1.7.0                 libs/libgl1
usr/lib/x86_64-linux-gnu/libpulse.so.0                  libs/libpulse0,libs/apulse
usr/lib/x86_64-linux-gnu/apulse/libpulse.so.0 sound/apulse
lib/x86_64-linux-gnu/libusb-0.1.so.4                    libs/libusb-0.1-4
usr/lib/x86_64-linux-gnu/blas/libblas.so.3              libs/libblas3
usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3  libs/libopenblas0-pthread
usr/lib/debug/usr/lib/libGL.so.1                        debug/libgl1-dbg
usr/share/doc/libGL.so.1/copyright                      doc/other
";

    #[test]
    fn the_package_of_a_library_is_found() {
        assert_eq!(named(REAL, "libGL.so.1"), ["libgl1"]);
        assert_eq!(named(REAL, "libusb-0.1.so.4"), ["libusb-0.1-4"]);
        assert_eq!(named(REAL, "libnone.so.1"), [""; 0]);
        // Where nothing but the package for building has it, that is what brings it.
        assert_eq!(named(REAL, "libGL.so"), ["libgl-dev"]);
    }

    #[test]
    fn what_the_loader_finds_by_itself_goes_first() {
        let found = find(REAL.as_bytes(), &["libblas.so.3"]);
        let blas = &found["libblas.so.3"];
        let best = blas.best().unwrap();
        assert_eq!(best.name, "libblas3");
        assert!(!best.is_on_search_path);
        assert_eq!(best.folder, "/usr/lib/x86_64-linux-gnu/blas");
        let text = "usr/lib/a/libx.so.1 x/a\nusr/lib/x86_64-linux-gnu/libx.so.1 x/a-longer-name\n";
        assert_eq!(named(text, "libx.so.1"), ["a-longer-name", "a"]);
        let text = "usr/lib/libx.so.1 x/libx-dev,x/libx1-of-others\nusr/lib/libx.so.1 x/libx-dbg\n";
        assert_eq!(named(text, "libx.so.1"), ["libx1-of-others", "libx-dev"]);
    }

    #[test]
    fn a_shorter_name_goes_first_and_a_tie_is_known() {
        let text = "usr/lib/libx.so.1 x/libx1-b,x/libx1,x/libx1-a\n";
        let found = find(text.as_bytes(), &["libx.so.1"]);
        let packages = &found["libx.so.1"];
        assert_eq!(packages.best().unwrap().name, "libx1");
        assert_eq!(packages.ties().count(), 0);
        let found = find(b"lib/libx.so.1 a/bb,a/aa,a/ccc\n", &["libx.so.1"]);
        let packages = &found["libx.so.1"];
        let ties: Vec<&str> = packages.ties().map(|one| one.name.as_str()).collect();
        assert_eq!(
            (packages.best().unwrap().name.as_str(), ties),
            ("aa", vec!["bb"])
        );
    }

    #[test]
    fn hostile_lines_name_nothing() {
        let long = format!("usr/lib/libx.so.1 {}\n", "a/b,".repeat(MAX_LINE_BYTES));
        let after = format!("{long}usr/lib/libx.so.1 libs/libx1\n");
        assert_eq!(named(&after, "libx.so.1"), ["libx1"]);
        for text in [
            "usr/lib/libx.so.1",
            "usr/lib/libx.so.1 ",
            "usr/lib/libx.so.1\u{1b}[2J libs/libx1",
            "usr/lib/libx.so.1 libs/libx1\u{1b}[31m",
            "usr/lib/libx.so.1 libs/--option",
            "usr/lib/libx.so.1 libs/a;rm",
            "usr/lib/libx.so.1 libs/Ünicode",
            "usr/lib/libx.so.1 ,,,/",
            "usr/lib/../../libx.so.1/ libs/libx1",
            "etc/libx.so.1 libs/libx1",
        ] {
            assert_eq!(named(text, "libx.so.1"), [""; 0], "{text:?}");
        }
        assert!(find(b"usr/lib/libx.so.1 \xff\xfe/x\n\n\0\0\n", &["libx.so.1"]).is_empty());
        let many: String = (0..1000)
            .map(|number| format!("usr/lib/libx.so.1 libs/p{number}\n"))
            .collect();
        assert_eq!(named(&many, "libx.so.1").len(), MAX_CANDIDATES);
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let endless = BufReader::with_capacity(8192, io::repeat(b'u').take(64 << 20));
        let names = ["libx.so.1".to_owned()].into();
        let mut endless = endless;
        assert!(
            find_libraries(&mut endless, "amd64", &names)
                .unwrap()
                .is_empty()
        );
        let mut line = Vec::new();
        let mut endless = BufReader::new(io::repeat(b'u').take(64 << 20));
        assert!(read_line(&mut endless, &mut line).unwrap());
        assert!(line.capacity() <= 4 * MAX_LINE_BYTES, "{}", line.capacity());
    }

    proptest! {
        #[test]
        fn nothing_panics_and_names_are_debians(
            text in "(usr/lib/|lib/|libx.so.1|[ ,/\t\n]|a|\\PC){0,60}"
        ) {
            for packages in find(text.as_bytes(), &["libx.so.1"]).values() {
                prop_assert!(packages.candidates.iter().all(|one| is_name(&one.name)));
            }
        }
    }
}
