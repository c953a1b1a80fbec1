//! What the CPUs are, from `/proc/cpuinfo` and `/sys/devices/system/cpu`
//! (`Documentation/ABI/testing/sysfs-devices-system-cpu`, `Documentation/admin-guide/cputopology.rst`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sconce_schema::Bytes;
use sconce_schema::facts::{CpuCache, Processor};

use crate::roots::Roots;
use crate::{cpus, small_files};

/// More than the first CPU's paragraph has: some 250 flags. The kernel makes the text CPU by CPU.
const MAX_CPUINFO_BYTES: u64 = 16 << 10;
/// More CPUs than any machine has.
const MAX_CPUS: usize = 8192;
/// Caches of one CPU, and known faults.
const MAX_CACHES: usize = 16;
const MAX_FAULTS: usize = 128;
const MAX_FLAGS: usize = 1024;
/// So much of a text.
const MAX_TEXT_CHARS: usize = 200;

/// `None` where nothing is known.
pub(super) fn read(roots: &Roots) -> Option<Processor> {
    let text =
        small_files::text_up_to(&roots.proc.join("cpuinfo"), MAX_CPUINFO_BYTES).unwrap_or_default();
    let folder = roots.sys.join("devices/system/cpu");
    let own = |name: &str| small_files::read_line(&folder.join("cpu0").join(name));
    let topology = topology(&folder);
    let counted = |count: usize| u32::try_from(count).ok().filter(|&count| count > 0);
    let distinct = |of: fn(&(u32, u32)) -> (u32, u32)| {
        counted(topology.iter().map(of).collect::<BTreeSet<_>>().len())
    };
    let nodes = small_files::read_line(&roots.sys.join("devices/system/node/online"));
    let found = Processor {
        online: small_files::read_line(&folder.join("online"))
            .and_then(|list| cpus::count_list(&list))
            .or_else(|| counted(topology.len())),
        sockets: distinct(|(socket, _)| (*socket, 0)),
        cores: distinct(|core| *core),
        numa_nodes: nodes.and_then(|list| cpus::count_list(&list)),
        caches: caches(&folder.join("cpu0/cache")),
        max_mhz: own("cpufreq/cpuinfo_max_freq")
            .and_then(|khz| Some(khz.parse::<u32>().ok()? / 1000)),
        governor: own("cpufreq/scaling_governor").map(|text| cut(&text)),
        vulnerabilities: vulnerabilities(&folder.join("vulnerabilities")),
        ..named(&text)
    };
    (found != Processor::default()).then_some(found)
}

/// What the first paragraph of `/proc/cpuinfo` says.
fn named(text: &str) -> Processor {
    let first = text.split("\n\n").next().unwrap_or_default();
    let number = |key: &str| small_files::find_field(first, key)?.parse().ok();
    let flags = small_files::find_field(first, "flags")
        .or_else(|| small_files::find_field(first, "Features"));
    let flags = flags.unwrap_or_default().split_ascii_whitespace();
    let flags: Vec<String> = flags.take(MAX_FLAGS).map(cut).collect();
    let vendor = small_files::find_field(first, "vendor_id")
        .or_else(|| small_files::find_field(first, "CPU implementer"));
    // Arm's kernels do not say it.
    let is_x86 = small_files::find_field(first, "flags").is_some();
    Processor {
        vendor: vendor.map(cut),
        family: number("cpu family"),
        model: number("model"),
        stepping: number("stepping"),
        hypervisor: is_x86.then(|| flags.iter().any(|flag| flag == "hypervisor")),
        flags,
        ..Processor::default()
    }
}

/// Socket and core of each CPU that is online.
fn topology(folder: &Path) -> Vec<(u32, u32)> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let is_cpu = |name: &String| {
        let number = name.strip_prefix("cpu");
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let place = |name: String| {
        let number = |file: &str| {
            let path = folder.join(&name).join("topology").join(file);
            u32::try_from(small_files::read_number(&path)?).ok()
        };
        Some((number("physical_package_id")?, number("core_id")?))
    };
    let cpus = names.filter(is_cpu).take(MAX_CPUS);
    cpus.filter_map(place).collect()
}

fn caches(folder: &Path) -> Vec<CpuCache> {
    let cache = |number: usize| {
        let own =
            |name: &str| small_files::read_line(&folder.join(format!("index{number}")).join(name));
        Some(CpuCache {
            level: own("level")?.parse().ok()?,
            kind: cut(&own("type")?),
            size: size(&own("size")?)?,
            shared_by: own("shared_cpu_list").and_then(|list| cpus::count_list(&list)),
        })
    };
    (0..MAX_CACHES).map_while(cache).collect()
}

/// `48K`, in KiB as the kernel writes all of them.
fn size(text: &str) -> Option<Bytes> {
    let kib: u64 = text.strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

fn vulnerabilities(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let fault = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some((cut(&name), cut(&small_files::read_line(&entry.path())?)))
    };
    entries.take(MAX_FAULTS).filter_map(fault).collect()
}

fn cut(text: &str) -> String {
    let plain = text
        .chars()
        .filter(|c| !sconce_base::text::is_unprintable(*c));
    plain.take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two lines of a Xeon's, shortened by hand.
    const X86: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
                       model name\t: Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz\nstepping\t: 6\n\
                       flags\t\t: fpu avx2 avx512f hypervisor\n\nprocessor\t: 1\nvendor_id\t: x\n";

    #[test]
    fn a_machine_of_two_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/cpuinfo", X86);
        const CPU: &str = "sys/devices/system/cpu";
        for (cpu, socket, core) in [(0, 0, 0), (1, 1, 0), (2, 0, 0), (3, 1, 0)] {
            let folder = format!("{CPU}/cpu{cpu}/topology");
            write(
                &format!("{folder}/physical_package_id"),
                &format!("{socket}\n"),
            );
            write(&format!("{folder}/core_id"), &format!("{core}\n"));
        }
        write(&format!("{CPU}/cpufreq/x"), "");
        write(&format!("{CPU}/online"), "0-3\n");
        write("sys/devices/system/node/online", "0-1\n");
        for (name, text) in [
            ("level", "1"),
            ("type", "Data"),
            ("size", "48K"),
            ("shared_cpu_list", "0,2"),
        ] {
            write(&format!("{CPU}/cpu0/cache/index0/{name}"), text);
        }
        write(&format!("{CPU}/cpu0/cpufreq/cpuinfo_max_freq"), "3500000\n");
        write(&format!("{CPU}/vulnerabilities/meltdown"), "Not affected\n");
        let found = super::read(&Roots::from_dir(dir.path())).unwrap();
        let cache = CpuCache {
            level: 1,
            kind: "Data".to_owned(),
            size: Bytes::from_kib(48),
            shared_by: Some(2),
        };
        let expected = Processor {
            vendor: Some("GenuineIntel".to_owned()),
            family: Some(6),
            model: Some(106),
            stepping: Some(6),
            online: Some(4),
            sockets: Some(2),
            cores: Some(2),
            numa_nodes: Some(2),
            caches: vec![cache],
            max_mhz: Some(3500),
            governor: None,
            hypervisor: Some(true),
            flags: ["fpu", "avx2", "avx512f", "hypervisor"]
                .map(String::from)
                .to_vec(),
            vulnerabilities: [("meltdown".to_owned(), "Not affected".to_owned())].into(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn arm_says_less() {
        let text = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\n";
        let found = named(text);
        assert_eq!(found.vendor.as_deref(), Some("0x41"));
        assert_eq!((found.flags.len(), found.hypervisor), (3, None));
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(super::read(&Roots::from_dir(nothing.path())), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = (named(&text), size(&text));
        }
    }
}
