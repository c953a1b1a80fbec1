//! A lock that is older than what its project asks for: the lock counts, which is said.

use std::collections::BTreeMap;

use sconce_formats::normalize_project_name;
use toml::{Table, Value};

use super::graph::{LockedNeed, LockedOrigin, LockedPackage};
use super::{LockSelection, ReadLock, in_folder, needs_of_project, poetry};
use crate::note::redacted_line;
use crate::project_table::toml_table;
use crate::specifier::{evaluate_specifiers, parse_numbers};
use crate::{ImportFormat, ImportSource};

/// More of them are counted alone.
const MAX_NAMED: usize = 5;

/// Where the file that the lock was made from asks for something that the lock does not have, in a sentence that says
/// what counts and how to renew the lock.
pub(super) fn describe(
    format: ImportFormat,
    source: &ImportSource<'_>,
    read: &ReadLock,
    selection: &LockSelection<'_>,
) -> Option<String> {
    let (file, command) = match format {
        ImportFormat::UvLock => ("pyproject.toml", "uv lock"),
        ImportFormat::PoetryLock => ("pyproject.toml", "poetry lock"),
        ImportFormat::PdmLock => ("pyproject.toml", "pdm lock"),
        ImportFormat::PipfileLock => ("Pipfile", "pipenv lock"),
        _ => return None,
    };
    let root = toml_table(&in_folder(source)(file)?).ok()?;
    let mut needs = match format {
        ImportFormat::PipfileLock => poetry::read_needs(root.get("packages")?.as_table()?, true),
        ImportFormat::PoetryLock => poetry::wanted(&root, selection, &mut Vec::new())?,
        _ => needs_of_project(&root, selection)?,
    };
    // An extra may name the project itself, `all = ["net[train]"]`, which few tools lock.
    let own = root.get("project").and_then(|it| it.get("name")?.as_str());
    let own = own.and_then(normalize_project_name);
    needs.retain(|need| own.is_none() || normalize_project_name(&need.name) != own);
    let differences = find_differences(&needs, &read.graph.packages, &overridden(&root));
    let named = differences.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(|text| redacted_line(text)).collect();
    let more = match differences.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| {
        format!(
            "{file} asks for {}{more}: the lock is older and counts; `{command}` renews it",
            named.join(", ")
        )
    })
}

/// `urllib3>2.1 (locked: 1.26.20)`, `x (not locked)`
fn find_differences(
    needs: &[LockedNeed],
    packages: &[LockedPackage],
    overridden: &[String],
) -> Vec<String> {
    let mut by_name: BTreeMap<String, Vec<&LockedPackage>> = BTreeMap::new();
    for package in packages {
        if let Some(name) = normalize_project_name(&package.name) {
            by_name.entry(name).or_default().push(package);
        }
    }
    let mut differences: Vec<String> = Vec::new();
    for need in needs {
        let Some(name) = normalize_project_name(&need.name) else {
            continue;
        };
        let specifiers = need.specifiers.as_deref().unwrap_or_default();
        let locked = by_name.get(&name).map_or(&[][..], Vec::as_slice);
        let text = match locked {
            // What another system needs alone may be missing.
            [] if need.marker.is_none() => format!("{name}{specifiers} (not locked)"),
            [] => continue,
            _ if overridden.contains(&name) => continue,
            _ if locked.iter().any(|package| may_fit(package, specifiers)) => continue,
            _ => {
                let versions = locked.iter().filter_map(|p| p.version.as_deref());
                let versions: Vec<&str> = versions.take(MAX_NAMED).collect();
                format!("{name}{specifiers} (locked: {})", versions.join(", "))
            }
        };
        if !differences.contains(&text) {
            differences.push(text);
        }
    }
    differences
}

/// Whether a package may be what is asked for: what is said by an address, and what is not understood, may be.
fn may_fit(package: &LockedPackage, specifiers: &str) -> bool {
    let is_of_index = matches!(
        package.origin,
        LockedOrigin::Index | LockedOrigin::Wheels(_)
    );
    let version = package.version.as_deref().unwrap_or_default();
    // `2.0rc1` is older than `2.0`, and its numbers are the same.
    let public = version.split('+').next().unwrap_or_default();
    let is_release = public.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let numbers = parse_numbers(version).filter(|_| is_of_index && is_release);
    numbers.is_none_or(|numbers| evaluate_specifiers(&numbers, specifiers) != Some(false))
}

/// The projects whose versions uv and pdm were told to take, whatever asks for others.
fn overridden(root: &Table) -> Vec<String> {
    let tool = |name: &str| root.get("tool").and_then(|tool| tool.get(name));
    let of_uv = tool("uv").and_then(|uv| uv.get("override-dependencies")?.as_array());
    let of_uv = of_uv.into_iter().flatten().filter_map(Value::as_str);
    let of_pdm = tool("pdm").and_then(|pdm| pdm.get("resolution")?.get("overrides")?.as_table());
    let of_pdm = of_pdm.into_iter().flatten().map(|(name, _)| name.as_str());
    let names = of_uv.filter_map(super::requirement_need);
    let names = names.filter_map(|need| normalize_project_name(&need.name));
    names
        .chain(of_pdm.filter_map(normalize_project_name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::requirement_need;

    fn differences(needs: &[&str], locked: &[(&str, &str)]) -> Vec<String> {
        let needs: Vec<LockedNeed> = needs.iter().filter_map(|n| requirement_need(n)).collect();
        let packages = locked.iter().map(|(name, version)| LockedPackage {
            name: (*name).to_owned(),
            version: Some((*version).to_owned()),
            ..LockedPackage::default()
        });
        let packages: Vec<LockedPackage> = packages.collect();
        find_differences(&needs, &packages, &["over".to_owned()])
    }

    #[test]
    fn what_a_lock_cannot_be_of_is_told() {
        let locked = [("urllib3", "1.26.20"), ("Py_Yaml", "6.0"), ("over", "1")];
        assert_eq!(
            differences(
                &[
                    "urllib3>2.1",
                    "py-yaml>=5",
                    "idna",
                    "pywin32 ; sys_platform == 'win32'",
                    "over>2"
                ],
                &locked
            ),
            ["urllib3>2.1 (locked: 1.26.20)", "idna (not locked)"]
        );
        for fits in [
            "a>=1,<3",
            "a!=1",
            "a @ https://example.org/a",
            "a==2.*",
            "a>=2.x",
            "a[x]",
        ] {
            assert_eq!(
                differences(&[fits], &[("a", "1"), ("a", "2.0")]),
                [""; 0],
                "{fits}"
            );
        }
        assert_eq!(differences(&["a>=2"], &[("a", "2.0rc1")]), [""; 0]);
        assert_eq!(differences(&["a==2.6.0"], &[("a", "2.6.0+cu124")]), [""; 0]);
    }

    const UV: &str = "version = 1\n[[package]]\nname = \"n\"\nversion = \"1\"\nsource = { virtual = \".\" }\n\
        dependencies = [{ name = \"a\" }]\n[[package]]\nname = \"a\"\nversion = \"1.0\"\n\
        source = { registry = \"https://index.example.org/simple\" }\n";
    const POETRY: &str = "[[package]]\nname = \"a\"\nversion = \"1.0\"\noptional = false\n\
        [metadata]\nlock-version = \"2.0\"\n";
    const PIPFILE: &str =
        r#"{"_meta": {"pipfile-spec": 6}, "default": {"a": {"version": "==1.0"}}}"#;

    /// What is said of a lock with `a` 1.0 when it is locked, and whether it is said when it is imported.
    fn said(format: ImportFormat, lock: &str, project: &str, extras: &[String]) -> Option<String> {
        let beside = |path: &str| match path {
            "pyproject.toml" | "Pipfile" => Some(project.to_owned()),
            _ => None,
        };
        let path = format.file_names()[0];
        let selection = LockSelection {
            extras,
            groups: &[],
            machine: sconce_formats::tags::CpuArchitecture::X86_64,
        };
        let pinned =
            crate::read_pinned_lock(format, path, lock, &beside, &selection).expect("a lock");
        let imported = crate::import_spec(format, path, lock, &beside).expect("a lock");
        let is_noted = imported
            .notes
            .iter()
            .any(|note| note.why.contains(" renews it"));
        assert!(is_noted || pinned.disagreement.is_none() || !extras.is_empty());
        pinned.disagreement
    }

    #[test]
    fn every_tool_says_how_to_renew_its_lock() {
        let project = "[project]\nname = 'n'\ndependencies = ['a>=2', 'b']\n";
        let poetry = "[tool.poetry.dependencies]\npython = '*'\na = '^2'\n";
        for (format, lock, project, expected) in [
            (
                ImportFormat::UvLock,
                UV,
                project,
                "pyproject.toml asks for a>=2 (locked: 1.0), b (not locked): the lock is older and counts; \
                 `uv lock` renews it",
            ),
            (
                ImportFormat::PoetryLock,
                POETRY,
                poetry,
                "pyproject.toml asks for a>=2,<3 (locked: 1.0): the lock is older and counts; `poetry lock` renews it",
            ),
            (
                ImportFormat::PipfileLock,
                PIPFILE,
                "[packages]\na = '==2'\n",
                "Pipfile asks for a==2 (locked: 1.0): the lock is older and counts; `pipenv lock` renews it",
            ),
        ] {
            assert_eq!(said(format, lock, project, &[]).as_deref(), Some(expected));
        }
        let agrees = "[project]\nname = 'n'\ndependencies = ['a>=1']\n[project.optional-dependencies]\nx = ['b']\n";
        assert_eq!(said(ImportFormat::UvLock, UV, agrees, &[]), None);
        assert_eq!(said(ImportFormat::UvLock, UV, "not toml", &[]), None);
        assert_eq!(said(ImportFormat::PipfileLock, PIPFILE, agrees, &[]), None);
        let extras = ["x".to_owned()];
        assert!(said(ImportFormat::UvLock, UV, agrees, &extras).is_some());
        let own = agrees.replace("['b']", "['N[y]']");
        let poetry = POETRY.replace("optional = false", "groups = [\"main\"]");
        for (format, lock) in [
            (ImportFormat::UvLock, UV),
            (ImportFormat::PoetryLock, poetry.as_str()),
        ] {
            assert_eq!(said(format, lock, &own, &extras), None, "{format:?}");
        }
    }
}
