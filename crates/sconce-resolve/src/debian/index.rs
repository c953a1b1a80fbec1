//! `Packages` files: what a suite holds (deb-src-control(5), the repository format's `Packages`
//! indexes). Parsing borrows from the text and keeps only what resolving needs: a suite's index
//! is 50 MB and more.

use std::collections::HashMap;

use super::control;
use super::relation::{self, RelationError};
use super::version;

/// One package as an index names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebianPackage<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The name of its source package.
    pub source: &'a str,
    /// The version of its source package.
    pub source_version: &'a str,
    /// `amd64`, `all`, ….
    pub architecture: &'a str,
    /// Number of the suite that holds it, in the order in which the suites were added.
    pub suite: usize,
    /// Path of the `.deb` below the archive's base address.
    pub path: &'a str,
    /// Size of the `.deb` in bytes.
    pub size: u64,
    /// SHA-256 of the `.deb`, hexadecimal.
    pub sha256: &'a str,
    /// Lowest is most important: required 0, important 1, standard 2, everything else 3.
    pub priority: u8,
    /// `Pre-Depends`, as written.
    pub pre_depends: &'a str,
    /// `Depends`, as written.
    pub depends: &'a str,
    /// `Conflicts`, as written.
    pub conflicts: &'a str,
    /// `Breaks`, as written.
    pub breaks: &'a str,
    /// `Provides`, as written.
    pub provides: &'a str,
}

/// A text that is not an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A paragraph lacks something or holds nonsense.
    #[error("paragraph {paragraph} (package `{package}`): {what}")]
    Paragraph {
        /// Its number, from 1.
        paragraph: usize,
        /// The package's name, where it was read.
        package: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A `Provides` that cannot be read.
    #[error("package `{package}` has a malformed Provides field")]
    Provides {
        /// The package's name.
        package: String,
        /// What is wrong with it.
        source: RelationError,
    },
}

/// Everything that the suites hold for one architecture.
#[derive(Debug, Default)]
pub struct DebianIndex<'a> {
    packages: Vec<DebianPackage<'a>>,
    by_name: HashMap<&'a str, Vec<usize>>,
    providers: HashMap<&'a str, Vec<Provider<'a>>>,
}

/// A package that provides a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider<'a> {
    /// The package's number in the index.
    pub package: usize,
    /// The version that it provides, where it says one.
    pub version: Option<&'a str>,
}

impl<'a> DebianIndex<'a> {
    /// Adds the text of one suite's index; packages of other architectures than `architecture`
    /// and `all` are left out.
    pub fn add_suite(
        &mut self,
        suite: usize,
        text: &'a str,
        architecture: &str,
    ) -> Result<(), IndexError> {
        for (number, paragraph) in control::split_paragraphs(text).enumerate() {
            let package = parse_paragraph(suite, number + 1, paragraph)?;
            if package.architecture == architecture || package.architecture == "all" {
                self.insert(package)?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, package: DebianPackage<'a>) -> Result<(), IndexError> {
        let number = self.packages.len();
        let provides =
            relation::parse_field(package.provides).map_err(|source| IndexError::Provides {
                package: package.name.to_owned(),
                source,
            })?;
        for provided in provides.iter().flatten() {
            self.providers
                .entry(provided.name)
                .or_default()
                .push(Provider {
                    package: number,
                    version: provided.version.map(|(_, version)| version),
                });
        }
        self.by_name.entry(package.name).or_default().push(number);
        self.packages.push(package);
        Ok(())
    }

    /// The package with this number.
    ///
    /// # Panics
    /// When the number is not one that this index gave.
    #[must_use]
    pub fn package(&self, number: usize) -> &DebianPackage<'a> {
        &self.packages[number]
    }

    /// How many packages it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packages.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty()
    }

    /// Every name, in no order.
    pub fn package_names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.by_name.keys().copied()
    }

    /// The highest version of `name`; of equal ones the first suite's.
    #[must_use]
    pub fn find_newest(&self, name: &str) -> Option<usize> {
        self.versions_of(name).iter().copied().reduce(|best, next| {
            let order = version::compare(self.packages[next].version, self.packages[best].version);
            if order.is_gt() { next } else { best }
        })
    }

    /// Exactly this version of `name`, of the first suite that has it.
    #[must_use]
    pub fn find_version(&self, name: &str, version: &str) -> Option<usize> {
        self.versions_of(name)
            .iter()
            .copied()
            .find(|number| self.packages[*number].version == version)
    }

    /// Every version of `name`, in the suites' order.
    #[must_use]
    pub fn versions_of(&self, name: &str) -> &[usize] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Packages, of any version, that say they provide `name`.
    #[must_use]
    pub fn providers_of(&self, name: &str) -> &[Provider<'a>] {
        self.providers.get(name).map_or(&[], Vec::as_slice)
    }
}

fn parse_paragraph(
    suite: usize,
    paragraph: usize,
    text: &str,
) -> Result<DebianPackage<'_>, IndexError> {
    let mut package = DebianPackage {
        name: "",
        version: "",
        source: "",
        source_version: "",
        architecture: "",
        suite,
        path: "",
        size: 0,
        sha256: "",
        priority: 3,
        pre_depends: "",
        depends: "",
        conflicts: "",
        breaks: "",
        provides: "",
    };
    let (mut size, mut source) = ("", "");
    for (field, value) in control::parse_fields(text) {
        match field {
            "Package" => package.name = value,
            "Version" => package.version = value,
            "Source" => source = value,
            "Architecture" => package.architecture = value,
            "Filename" => package.path = value,
            "Size" => size = value,
            "SHA256" => package.sha256 = value,
            "Priority" => package.priority = priority(value),
            "Pre-Depends" => package.pre_depends = value,
            "Depends" => package.depends = value,
            "Conflicts" => package.conflicts = value,
            "Breaks" => package.breaks = value,
            "Provides" => package.provides = value,
            _ => {}
        }
    }
    let wrong = |what| IndexError::Paragraph {
        paragraph,
        package: package.name.to_owned(),
        what,
    };
    if !relation::is_name(package.name) {
        return Err(wrong("it has no usable name"));
    }
    if package.version.is_empty() || package.architecture.is_empty() {
        return Err(wrong("it has no version or no architecture"));
    }
    if !is_path_below(package.path) {
        return Err(wrong("its file is not a path below the archive"));
    }
    if package.sha256.len() != 64 || !package.sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong("it has no SHA-256"));
    }
    (package.source, package.source_version) = match source {
        "" => (package.name, package.version),
        source => split_source(source, package.version)
            .ok_or_else(|| wrong("its source package has no usable name or version"))?,
    };
    package.size = size.parse().map_err(|_| wrong("it has no size"))?;
    Ok(package)
}

/// `gcc-defaults (1.220)`: the version stands there where it is not the package's own.
fn split_source<'a>(source: &'a str, version: &'a str) -> Option<(&'a str, &'a str)> {
    let Some((name, rest)) = source.split_once(' ') else {
        return relation::is_name(source).then_some((source, version));
    };
    let version = rest.trim().strip_prefix('(')?.strip_suffix(')')?.trim();
    (relation::is_name(name) && !version.is_empty()).then_some((name, version))
}

fn priority(value: &str) -> u8 {
    match value {
        "required" => 0,
        "important" => 1,
        "standard" => 2,
        _ => 3,
    }
}

/// Whether this is a relative path of plain characters that does not climb.
pub(super) fn is_path_below(path: &str) -> bool {
    !path.is_empty()
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
        && path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._+~:-".contains(&b))
        && !path.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two paragraphs as trixie has them, addresses changed.
    const REAL: &str = include_str!("../../tests/data/Packages.small");

    #[test]
    fn reads_real_paragraphs() {
        let mut index = DebianIndex::default();
        index.add_suite(0, REAL, "amd64").unwrap();
        assert_eq!(index.len(), 2);
        let python = index.package(index.find_newest("python3.13-minimal").unwrap());
        assert_eq!(python.version, "3.13.5-2+deb13u5");
        assert_eq!(python.size, 2_224_552);
        assert_eq!(
            (python.source, python.source_version),
            ("python3.13", "3.13.5-2+deb13u5")
        );
        assert_eq!(python.pre_depends, "libc6 (>= 2.38)");
        assert!(python.sha256.starts_with("c1fda9e7"));
        assert_eq!(index.providers_of("awk").len(), 1);
        let mawk = index.package(index.find_newest("mawk").unwrap());
        assert_eq!((mawk.source, mawk.priority), ("mawk", 0));
    }

    #[test]
    fn a_source_package_may_have_a_version_of_its_own() {
        let read = |source: &str| {
            let text = paragraph("gcc", "4:14.2.0-1", "amd64", "p") + source;
            let mut index = DebianIndex::default();
            index.add_suite(0, &text, "amd64").ok()?;
            let package = index.package(0);
            Some((package.source.to_owned(), package.source_version.to_owned()))
        };
        let is = |name: &str, version: &str| Some((name.to_owned(), version.to_owned()));
        assert_eq!(read(""), is("gcc", "4:14.2.0-1"));
        assert_eq!(read("Source: gcc-14\n"), is("gcc-14", "4:14.2.0-1"));
        assert_eq!(
            read("Source: gcc-defaults (1.220)\n"),
            is("gcc-defaults", "1.220")
        );
        for wrong in ["../x", "a b", "gcc ()", "gcc (1", "(1)"] {
            assert_eq!(read(&format!("Source: {wrong}\n")), None, "{wrong}");
        }
    }

    fn paragraph(name: &str, version: &str, architecture: &str, path: &str) -> String {
        let sha256 = "0".repeat(64);
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nFilename: {path}\nSize: 1\nSHA256: {sha256}\n"
        )
    }

    #[test]
    fn the_newest_version_of_all_suites_wins() {
        let release = paragraph("a", "1.0-1", "amd64", "pool/a1.deb");
        let security = paragraph("a", "1.0-1+deb13u1", "amd64", "pool/a2.deb");
        let mut index = DebianIndex::default();
        index.add_suite(0, &release, "amd64").unwrap();
        index.add_suite(1, &security, "amd64").unwrap();
        assert_eq!(index.package(index.find_newest("a").unwrap()).suite, 1);
        assert_eq!(index.find_version("a", "1.0-1"), Some(0));
        assert_eq!(index.find_newest("b"), None);
    }

    #[test]
    fn other_architectures_are_left_out() {
        let text = [
            paragraph("a", "1", "armhf", "pool/a"),
            paragraph("b", "1", "all", "pool/b"),
        ]
        .join("\n");
        let mut index = DebianIndex::default();
        index.add_suite(0, &text, "amd64").unwrap();
        assert_eq!(index.package_names().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn refuses_hostile_paragraphs() {
        for path in [
            "",
            "/etc/passwd",
            "../x.deb",
            "pool/../../x",
            "http://evil.example/x",
            "pool//x",
            "pool/a b",
            "pool/%2e%2e/x",
        ] {
            let mut index = DebianIndex::default();
            assert!(
                index
                    .add_suite(0, &paragraph("a", "1", "all", path), "amd64")
                    .is_err(),
                "{path}"
            );
        }
        for text in [
            paragraph("../a", "1", "all", "p"),
            paragraph("a", "", "all", "p"),
            paragraph("a", "1", "all", "p").replace("Size: 1", "Size: -1"),
            paragraph("a", "1", "all", "p").replace("SHA256: 0", "SHA256: g"),
            paragraph("a", "1", "all", "p") + "Provides: (((",
            "garbage".to_owned(),
        ] {
            assert!(
                DebianIndex::default().add_suite(0, &text, "amd64").is_err(),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Package|Size|SHA256|: |\n|\n\n|\\PC){0,40}") {
            let _ = DebianIndex::default().add_suite(0, &text, "amd64");
        }
    }
}
