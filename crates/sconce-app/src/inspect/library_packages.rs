//! Which of the packages that have a library is named, and in which words.

use sconce_compat::loader::SystemPackage;
use sconce_resolve::debian::contents::LibraryPackages;
use sconce_schema::Finding;
use sconce_schema::finding::FixAction;

/// Others that are named beside a package.
const MAX_NAMED_TIES: usize = 3;
/// The key of a spec that such a finding asks to change.
const KEY: &str = "system.packages";

/// The package to add: the best that the lock does not have. Where it has the best one, that brings the
/// library already, and none is named.
pub(super) fn choose_package(
    packages: &LibraryPackages,
    is_locked: &dyn Fn(&str) -> bool,
) -> Option<SystemPackage> {
    let best = packages.best().filter(|best| !is_locked(&best.name))?;
    let ties: Vec<&str> = packages.ties().map(|tie| tie.name.as_str()).collect();
    let mut remarks = Vec::new();
    if !ties.is_empty() {
        let more = ties.len().saturating_sub(MAX_NAMED_TIES);
        let mut named = ties[..ties.len() - more].join(", ");
        if more > 0 {
            named += &format!(" and {more} more");
        }
        remarks.push(format!("so does {named}"));
    }
    if !best.is_on_search_path {
        remarks.push(format!(
            "in {}, where the loader does not look by itself",
            best.folder
        ));
    }
    Some(SystemPackage {
        name: best.name.clone(),
        remark: (!remarks.is_empty()).then(|| remarks.join("; ")),
    })
}

/// The package of Debian that a finding about a missing library names.
pub(super) fn package_of(finding: &Finding) -> Option<&str> {
    if finding.code != "library-not-found" {
        return None;
    }
    finding.mends.iter().find_map(|mend| match &mend.action {
        Some(FixAction::Spec { key, value }) if key == KEY => {
            value.strip_prefix("[\"")?.strip_suffix("\"]")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_resolve::debian::contents::LibraryPackage;

    fn packages(names: &[(&str, bool)]) -> LibraryPackages {
        let candidate = |(name, is_on_search_path): &(&str, bool)| LibraryPackage {
            name: (*name).to_owned(),
            folder: "/usr/lib/x".to_owned(),
            is_on_search_path: *is_on_search_path,
        };
        LibraryPackages {
            candidates: names.iter().map(candidate).collect(),
        }
    }

    #[test]
    fn a_tie_and_a_folder_aside_are_said() {
        let chosen = |names: &[(&str, bool)]| choose_package(&packages(names), &|_| false).unwrap();
        assert_eq!(chosen(&[("libx1", true), ("libx1-a", true)]).remark, None);
        let tied = chosen(&[("aa", true), ("bb", true), ("ccc", true)]);
        assert_eq!(tied.remark.as_deref(), Some("so does bb"));
        let many = [
            ("aa", true),
            ("bb", true),
            ("cc", true),
            ("dd", true),
            ("ee", true),
        ];
        let remark = chosen(&many).remark;
        assert_eq!(remark.as_deref(), Some("so does bb, cc, dd and 1 more"));
        let aside = chosen(&[("libx1", false)]).remark.unwrap();
        assert!(aside.contains("/usr/lib/x, where the loader"), "{aside}");
    }

    #[test]
    fn what_is_locked_is_not_asked_for() {
        let both = packages(&[("libx1", true), ("libx1-other", true)]);
        assert_eq!(choose_package(&both, &|name| name == "libx1"), None);
        assert_eq!(
            choose_package(&LibraryPackages::default(), &|_| false),
            None
        );
    }
}
