//! Which versions of Python a release has.

use super::index::DebianIndex;
use super::relation;

/// The versions that a release has (`3.11`, `3.13`), lowest first.
#[must_use]
pub fn list_python_versions(index: &DebianIndex<'_>) -> Vec<String> {
    let mut minors: Vec<u32> = index.package_names().filter_map(minor).collect();
    minors.sort_unstable();
    minors
        .into_iter()
        .map(|minor| format!("3.{minor}"))
        .collect()
}

/// The version that `python3` stands for.
#[must_use]
pub fn default_version(index: &DebianIndex<'_>) -> Option<String> {
    let python3 = index.package(index.find_newest("python3")?);
    let groups = relation::parse_field(python3.depends).ok()?;
    let minor = groups
        .iter()
        .flatten()
        .find_map(|relation| minor(relation.name))?;
    Some(format!("3.{minor}"))
}

fn minor(name: &str) -> Option<u32> {
    name.strip_prefix("python3.")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paragraph(name: &str, depends: &str) -> String {
        let sha256 = "0".repeat(64);
        format!(
            "Package: {name}\nVersion: 1\nArchitecture: all\nFilename: p\nSize: 1\nSHA256: {sha256}\nDepends: {depends}\n\n"
        )
    }

    #[test]
    fn come_from_the_index() {
        let text = [
            paragraph(
                "python3",
                "python3.13 (>= 3.13.5-1~), libpython3-stdlib (= 3.13.5-1)",
            ),
            paragraph("python3.13", "python3.13-minimal"),
            paragraph("python3.9", ""),
            paragraph("python3.13-minimal", ""),
        ]
        .concat();
        let mut index = DebianIndex::default();
        index.add_suite(0, &text, "amd64").unwrap();
        assert_eq!(list_python_versions(&index), ["3.9", "3.13"]);
        assert_eq!(default_version(&index).as_deref(), Some("3.13"));
        assert_eq!(default_version(&DebianIndex::default()), None);
    }
}
