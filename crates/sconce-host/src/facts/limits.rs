//! Limits of this process and its memory pages.

use sconce_schema::facts::{Hugepages, RlimitFacts, RlimitPair, SeccompMode};

use crate::roots::Roots;
use crate::{cpus, small_files};

/// /proc/self/limits, one line a limit, its words in columns (proc_pid_limits(5)). `unlimited` is
/// an absent number.
pub(super) fn parse(text: &str) -> RlimitFacts {
    let limit = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut words = line.split_ascii_whitespace();
        let mut number = || match words.next()? {
            "unlimited" => Some(None),
            word => word.parse().ok().map(Some),
        };
        Some(RlimitPair {
            soft: number()?,
            hard: number()?,
        })
    };
    RlimitFacts {
        open_files: limit("Max open files"),
        locked_memory: limit("Max locked memory"),
        processes: limit("Max processes"),
        stack: limit("Max stack size"),
        address_space: limit("Max address space"),
    }
}

/// `SeccompMode` of /proc/self/status (proc_pid_status(5)).
pub(super) fn parse_seccomp(status: &str) -> Option<SeccompMode> {
    match small_files::find_field(status, "Seccomp")? {
        "0" => Some(SeccompMode::Off),
        "1" => Some(SeccompMode::Strict),
        "2" => Some(SeccompMode::Filter),
        _ => None,
    }
}

/// Whether the effective user, the second of `Uid`, is root.
pub(super) fn is_root(status: &str) -> Option<bool> {
    let user = small_files::find_field(status, "Uid")?
        .split_ascii_whitespace()
        .nth(1)?;
    Some(user == "0")
}

/// The reserved pages of /proc/meminfo, and the kernel's choice about transparent ones.
pub(super) fn read_hugepages(roots: &Roots, meminfo: &str) -> Option<Hugepages> {
    let found = Hugepages {
        total: small_files::find_field(meminfo, "HugePages_Total").and_then(|n| n.parse().ok()),
        size: cpus::memory_line(meminfo, "Hugepagesize"),
        transparent: small_files::read_line(
            &roots.sys.join("kernel/mm/transparent_hugepage/enabled"),
        )
        .and_then(|line| chosen(&line)),
    };
    (found != Hugepages::default()).then_some(found)
}

/// `always [madvise] never`: the word in brackets.
fn chosen(line: &str) -> Option<String> {
    let words = line.split_ascii_whitespace();
    let mut inner = words.filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    inner.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Bytes;

    /// Captured in a container of Docker's on Debian 12.
    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max stack size            8388608              unlimited            bytes     
Max processes             96365                96365                processes 
Max open files            1024                 524288               files     
Max locked memory         65536                65536                bytes     
Max address space         unlimited            unlimited            bytes     
";

    #[test]
    fn limits_of_a_process() {
        let limits = parse(LIMITS);
        let limit = |soft, hard| Some(RlimitPair { soft, hard });
        assert_eq!(limits.open_files, limit(Some(1024), Some(524_288)));
        assert_eq!(limits.locked_memory, limit(Some(65_536), Some(65_536)));
        assert_eq!(limits.stack, limit(Some(8_388_608), None));
        assert_eq!(limits.address_space, limit(None, None));
        assert_eq!(
            parse("Max open files\nMax processes x y\n"),
            RlimitFacts::default()
        );
    }

    #[test]
    fn modes_and_users() {
        assert_eq!(
            parse_seccomp("Seccomp:\t2\nSeccomp_filters:\t1\n"),
            Some(SeccompMode::Filter)
        );
        assert_eq!(parse_seccomp("Seccomp:\t0\n"), Some(SeccompMode::Off));
        assert_eq!(parse_seccomp(""), None);
        assert_eq!(is_root("Uid:\t1000\t0\t0\t0\n"), Some(true));
        assert_eq!(is_root("Uid:\t0\t1000\t0\t0\n"), Some(false));
        assert_eq!(is_root(""), None);
    }

    #[test]
    fn pages() {
        let roots = Roots::from_dir("/nowhere");
        let text = "HugePages_Total:      16\nHugepagesize:       2048 kB\n";
        let found = read_hugepages(&roots, text).unwrap();
        assert_eq!(
            (found.total, found.size),
            (Some(16), Some(Bytes::from_mib(2)))
        );
        assert_eq!(read_hugepages(&roots, ""), None);
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }
}
