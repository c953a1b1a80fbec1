//! How many CPUs the caller may use.

use std::path::Path;

use sconce_schema::{Bytes, Millicores};

use crate::cgroups::Cgroups;
use crate::small_files;

/// Counts a kernel CPU list such as `0-3,8,10-11` (the format of `Cpus_allowed_list`, see
/// `Documentation/admin-guide/cputopology.rst`).
pub(crate) fn count_list(list: &str) -> Option<u32> {
    list.trim().split(',').try_fold(0_u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// `max 100000` or `150000 100000`: the quota of one v2 cgroup; `None` for no limit.
pub(crate) fn parse_cpu_max(text: &str) -> Option<Millicores> {
    let mut words = text.split_ascii_whitespace();
    let quota = words.next()?.parse::<u64>().ok()?;
    quota_of(quota, words.next()?.parse().ok()?)
}

fn quota_of(quota_us: u64, period_us: u64) -> Option<Millicores> {
    if period_us == 0 {
        return None;
    }
    Millicores::from_cores(quota_us as f64 / period_us as f64)
}

/// The lowest quota of the caller's own cgroup and of those above it, as far as they are visible.
/// v2's `cpu.max` before v1's `cpu.cfs_quota_us`.
pub(crate) fn read_quota(cgroups: &Cgroups) -> Option<Millicores> {
    let hierarchy = cgroups.find_hierarchy("cpu")?;
    let own = hierarchy.own.as_deref()?;
    own.ancestors()
        .take_while(|folder| folder.starts_with(&hierarchy.mount))
        .filter_map(|folder| {
            if hierarchy.v2 {
                parse_cpu_max(&small_files::read_text(&folder.join("cpu.max"))?)
            } else {
                // -1 is "no limit", which is no number here.
                quota_of(
                    small_files::read_number(&folder.join("cpu.cfs_quota_us"))?,
                    small_files::read_number(&folder.join("cpu.cfs_period_us"))?,
                )
            }
        })
        .min()
}

/// The CPU's name from `/proc/cpuinfo`: `model name` (x86), else `cpu` (POWER). Arm names none.
/// Only the first CPU's paragraph is read: the kernel makes the text CPU by CPU, and on older
/// kernels asks each one for its clock.
pub(crate) fn read_model_name(proc: &Path) -> Option<String> {
    let text = small_files::text_up_to(&proc.join("cpuinfo"), 4096)?;
    ["model name", "cpu"]
        .iter()
        .find_map(|key| small_files::find_field(&text, key))
        .map(str::to_owned)
}

/// A `kB` line of `/proc/meminfo`, which means KiB.
pub(crate) fn memory_line(meminfo: &str, key: &str) -> Option<Bytes> {
    let kib = small_files::find_field(meminfo, key)?
        .strip_suffix("kB")?
        .trim();
    kib.parse::<u64>().ok()?.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (list, count) in [
            ("0-1\n", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("5", Some(1)),
            ("", None),
            ("3-1", None),
            ("0-4294967295", None),
            ("a", None),
        ] {
            assert_eq!(count_list(list), count, "{list:?}");
        }
    }

    #[test]
    fn quotas() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(Millicores(1500)));
        assert_eq!(parse_cpu_max("150000 0"), None);
        assert_eq!(parse_cpu_max("150000"), None);
    }

    #[test]
    fn memory_is_kib() {
        let text = "MemTotal:       24682416 kB\nMemFree:        16678668 kB\n";
        assert_eq!(
            memory_line(text, "MemTotal"),
            Some(Bytes::from_kib(24_682_416))
        );
        assert_eq!(memory_line(text, "MemAvailable"), None);
        assert_eq!(
            memory_line("MemTotal: 99999999999999999999 kB", "MemTotal"),
            None
        );
    }
}
