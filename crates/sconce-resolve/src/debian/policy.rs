//! Dependencies that a root file system does not need when no maintainer script ever runs in it.

/// A package that others depend on for their maintainer scripts (or their services) alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedDependency {
    /// Its name, real or virtual.
    pub name: &'static str,
    /// Why nothing is lost.
    pub reason: &'static str,
}

const fn dropped(name: &'static str, reason: &'static str) -> DroppedDependency {
    DroppedDependency { name, reason }
}

const SERVICES: &str = "its programs register services with an init system; the image has none";
const QUESTIONS: &str = "it asks questions while packages are installed; nothing asks here";

/// The list. A dependency that one of these would satisfy counts as satisfied. A package that is
/// asked for by name is installed all the same.
pub const DROPPED: &[DroppedDependency] = &[
    dropped(
        "adduser",
        "called by scripts only; users come from sysusers.d files",
    ),
    dropped("cdebconf", QUESTIONS),
    dropped("debconf", QUESTIONS),
    dropped("debconf-2.0", QUESTIONS),
    dropped("dpkg", "named for features of the unpacker; Sconce unpacks"),
    dropped("init-system-helpers", SERVICES),
    dropped("insserv", SERVICES),
    dropped("install-info", "run by triggers to index info pages"),
    dropped("lsb-base", SERVICES),
    dropped("runit-helper", SERVICES),
    dropped(
        "systemd-standalone-sysusers",
        "called by scripts only; users come from sysusers.d files",
    ),
    dropped(
        "systemd-standalone-tmpfiles",
        "called by scripts only; folders come from tmpfiles.d files",
    ),
    dropped(
        "systemd-sysusers",
        "called by scripts only; users come from sysusers.d files",
    ),
    dropped(
        "systemd-tmpfiles",
        "called by scripts only; folders come from tmpfiles.d files",
    ),
    dropped("sysvinit-utils", SERVICES),
    dropped(
        "ucf",
        "called by scripts to keep a person's edits of configuration files",
    ),
    dropped("update-inetd", SERVICES),
];

/// Whether `name` is on the list.
#[must_use]
pub fn is_dropped(name: &str) -> bool {
    DROPPED
        .binary_search_by(|entry| entry.name.cmp(name))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_found() {
        assert!(DROPPED.is_sorted_by_key(|entry| entry.name));
        assert!(DROPPED.iter().all(|entry| is_dropped(entry.name)));
        assert!(!is_dropped("libc6"));
    }
}
