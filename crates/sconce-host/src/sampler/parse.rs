//! Parsers of what the kernel writes about processes and cgroups. They allocate nothing.

/// The first number of a text.
pub(super) fn first_number(text: &[u8]) -> Option<u64> {
    words(text).next().and_then(decimal)
}

/// The value of a line `key value`.
pub(super) fn flat_keyed_value(text: &[u8], key: &str) -> Option<u64> {
    lines(text).find_map(|line| {
        let rest = line.strip_prefix(key.as_bytes())?;
        rest.starts_with(b" ").then(|| first_number(rest)).flatten()
    })
}

/// The value of a line `Key:   value` (`/proc/PID/io`, `smaps_rollup`, in its own unit).
pub(super) fn number_field(text: &[u8], key: &str) -> Option<u64> {
    lines(text).find_map(|line| {
        let rest = line.strip_prefix(key.as_bytes())?.strip_prefix(b":")?;
        first_number(rest)
    })
}

/// Every number of a list such as `cgroup.procs`; what is no number is passed over.
pub(super) fn all_numbers(text: &[u8]) -> impl Iterator<Item = u32> {
    words(text).filter_map(|word| u32::try_from(decimal(word)?).ok())
}

/// The kernel's name of a process (`comm`): 15 bytes at most, zeros behind it.
pub(super) type CommName = [u8; 16];

/// What stands between the first bracket of `/proc/PID/stat` and the last.
fn stat_name(text: &[u8]) -> Option<CommName> {
    let from = text.iter().position(|&byte| byte == b'(')? + 1;
    let to = text.iter().rposition(|&byte| byte == b')')?;
    let mut name = CommName::default();
    for (to, from) in name.iter_mut().zip(text.get(from..to)?) {
        *to = *from;
    }
    Some(name)
}

/// The last number of `NSpid:` in `/proc/PID/status`: what the process calls itself.
pub(super) fn innermost_pid(text: &[u8]) -> Option<u32> {
    let line = lines(text).find_map(|line| line.strip_prefix(b"NSpid:"))?;
    all_numbers(line).last()
}

/// µs in a line of pressure stall information: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
pub(super) fn pressure_total_us(text: &[u8], kind: &str) -> Option<u64> {
    let line = lines(text).find_map(|line| line.strip_prefix(kind.as_bytes()))?;
    let total = words(line).find_map(|word| word.strip_prefix(b"total="))?;
    decimal(total)
}

/// No machine has more CPUs.
const MAX_CPUS: usize = 8192;

/// Ticks in which each CPU of `/proc/stat` was busy, by its number; 0 for one that is offline. Idle time
/// and waiting for I/O are not counted (proc_stat(5)); guests are counted in `user` by the kernel.
pub(super) fn cpus_busy_ticks(text: &[u8]) -> Vec<u64> {
    let mut busy = Vec::new();
    for line in lines(text) {
        let Some(rest) = line.strip_prefix(b"cpu") else {
            // They stand first, and the line of interrupts after them is long.
            break;
        };
        let mut words = words(rest);
        if rest.first().is_none_or(u8::is_ascii_whitespace) {
            continue;
        }
        let cpu = words.next().and_then(decimal).map(usize::try_from);
        let Some(Ok(cpu)) = cpu.filter(|cpu| cpu.is_ok_and(|cpu| cpu < MAX_CPUS)) else {
            continue;
        };
        // user, nice, system, idle, iowait, irq, softirq, steal.
        let ticks = words
            .take(8)
            .enumerate()
            .fold(0_u64, |sum, (n, word)| match n {
                3 | 4 => sum,
                _ => sum.saturating_add(decimal(word).unwrap_or(0)),
            });
        if busy.len() <= cpu {
            busy.resize(cpu + 1, 0);
        }
        busy[cpu] = ticks;
    }
    busy
}

/// Bytes received and sent by all devices of `/proc/PID/net/dev` but loopback.
pub(super) fn network_bytes(text: &[u8]) -> Option<(u64, u64)> {
    let (mut received, mut sent) = (0_u64, 0_u64);
    // Two lines of heads.
    for line in lines(text).skip(2) {
        // A device's name may not hold a colon; an alias's does, and the figures follow the last one.
        let Some(colon) = line.iter().rposition(|&byte| byte == b':') else {
            continue;
        };
        if line[..colon].trim_ascii() == b"lo" {
            continue;
        }
        let mut figures = words(&line[colon + 1..]).map(decimal);
        received = received.saturating_add(figures.next()??);
        sent = sent.saturating_add(figures.nth(7)??);
    }
    Some((received, sent))
}

/// What is used of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) name: CommName,
    pub(super) zombie: bool,
    pub(super) parent: u32,
    pub(super) session: u32,
    /// User and system time of its own, in ticks.
    pub(super) own_ticks: u64,
    /// The same of its children that it waited for, and of theirs.
    pub(super) waited_ticks: u64,
    pub(super) threads: u32,
    /// When it began, in ticks since boot: with its id, its identity.
    pub(super) start: u64,
    pub(super) rss_pages: u64,
}

impl Stat {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        // The name, in brackets, is the process's own choice: it may hold brackets and spaces.
        let end = text.iter().rposition(|&byte| byte == b')')?;
        let mut fields = [0_u64; 22];
        let mut words = words(text.get(end + 1..)?);
        let state = words.next()?;
        for field in &mut fields {
            // Some fields are signed; none that is used can be negative, but for a session and a
            // parent of another pid namespace, which are 0.
            *field = words.next().map(|word| decimal(word).unwrap_or(0))?;
        }
        let narrow = |value| u32::try_from(value).ok();
        // fields[0] is the fourth field of the manual's count.
        let at = |manual: usize| fields[manual - 4];
        Some(Self {
            name: stat_name(text)?,
            zombie: matches!(state, b"Z" | b"X"),
            parent: narrow(at(4))?,
            session: narrow(at(6))?,
            own_ticks: at(14).saturating_add(at(15)),
            waited_ticks: at(16).saturating_add(at(17)),
            threads: narrow(at(20))?,
            start: at(22),
            rss_pages: at(24),
        })
    }
}

/// One device of a cgroup's I/O: its name `8:0` and bytes read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceIo<'a> {
    pub(super) device: &'a [u8],
    pub(super) read: u64,
    pub(super) written: u64,
}

/// v2's `io.stat`: `8:0 rbytes=180224 wbytes=0 rios=3 …`.
pub(super) fn io_stat(text: &[u8]) -> impl Iterator<Item = DeviceIo<'_>> {
    lines(text).filter_map(|line| {
        let mut words = words(line);
        let device = words.next()?;
        let (mut read, mut written) = (None, None);
        for word in words {
            if let Some(value) = word.strip_prefix(b"rbytes=") {
                read = decimal(value);
            } else if let Some(value) = word.strip_prefix(b"wbytes=") {
                written = decimal(value);
            }
        }
        Some(DeviceIo {
            device,
            read: read?,
            written: written?,
        })
    })
}

/// v1's `blkio.throttle.io_service_bytes`: `8:0 Read 4096`, one line for each kind of operation.
pub(super) fn blkio_service_bytes(text: &[u8]) -> impl Iterator<Item = DeviceIo<'_>> {
    lines(text).filter_map(|line| {
        let mut words = words(line);
        let (device, kind, bytes) = (words.next()?, words.next()?, decimal(words.next()?)?);
        let (read, written) = match kind {
            b"Read" => (bytes, 0),
            b"Write" => (0, bytes),
            _ => return None,
        };
        Some(DeviceIo {
            device,
            read,
            written,
        })
    })
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Captured on a Debian 12 machine, kernel 6.18, hybrid; see tests/machines/README.md.
    const V1_MEMORY_STAT: &[u8] = include_bytes!("../../tests/captured/v1/memory.stat");
    const V1_OOM_CONTROL: &[u8] = b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
    const STAT: &[u8] = b"10858 (cat) R 10829 10829 3206 0 -1 4194304 100 0 0 0 7 5 30 2 20 0 1 0 \
        176749 3133440 394 18446744073709551615 94399234633728 94399234653609 140732459607568 0 0\n";

    #[test]
    fn stat() {
        let stat = Stat::parse(STAT).unwrap();
        let expected = Stat {
            name: *b"cat\0\0\0\0\0\0\0\0\0\0\0\0\0",
            zombie: false,
            parent: 10829,
            session: 3206,
            own_ticks: 12,
            waited_ticks: 32,
            threads: 1,
            start: 176_749,
            rss_pages: 394,
        };
        assert_eq!(stat, expected);
    }

    #[test]
    fn a_process_cannot_lie_with_its_name() {
        let rest = &STAT[b"10858 (cat".len()..];
        let mut text = b"10858 (a) Z 1 1 1 1 (".to_vec();
        text.extend_from_slice(rest);
        let stat = Stat::parse(&text).unwrap();
        assert_eq!(&stat.name, b"a) Z 1 1 1 1 (\0\0");
        let name = Stat::parse(STAT).unwrap().name;
        assert_eq!(Some(Stat { name, ..stat }), Stat::parse(STAT));
        for cut in 0..STAT.len() - 80 {
            let _ = Stat::parse(&STAT[..cut]);
        }
        assert_eq!(Stat::parse(b"1 (x) R 1 2 3"), None);
    }

    #[test]
    fn keys_are_whole_words() {
        assert_eq!(
            flat_keyed_value(V1_MEMORY_STAT, "total_inactive_file"),
            Some(67_117_056)
        );
        assert_eq!(flat_keyed_value(V1_MEMORY_STAT, "cache"), Some(67_203_072));
        assert_eq!(flat_keyed_value(V1_MEMORY_STAT, "inactive"), None);
        assert_eq!(flat_keyed_value(V1_OOM_CONTROL, "oom_kill"), Some(3));
        assert_eq!(
            flat_keyed_value(b"oom_kill 18446744073709551616", "oom_kill"),
            None
        );
        assert_eq!(first_number(b"max\n"), None);
        assert_eq!(first_number(b"27637071\n"), Some(27_637_071));
    }

    #[test]
    fn fields_with_colons() {
        let io = b"rchar: 134246464\nread_bytes: 67198976\nwrite_bytes: 67133440\n";
        assert_eq!(number_field(io, "read_bytes"), Some(67_198_976));
        let rollup = b"55d7-7ffd ---p 00000000 00:00 0    [rollup]\nRss:                1736 kB\n\
            Pss:                 442 kB\nPss_Dirty:           112 kB\n";
        assert_eq!(number_field(rollup, "Pss"), Some(442));
    }

    #[test]
    fn io_of_devices() {
        // The form of Documentation/admin-guide/cgroup-v2.rst, with a device that was only
        // opened (no figures).
        let v2 = b"8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 \n";
        let found: Vec<_> = io_stat(v2).collect();
        let expected = DeviceIo {
            device: b"8:16",
            read: 1_459_200,
            written: 314_773_504,
        };
        assert_eq!(found, [expected]);
        let v1 = b"254:0 Read 4096\n254:0 Write 8192\n254:0 Sync 12288\n254:0 Total 12288\n\
            Total 12288\n";
        let (read, written) =
            blkio_service_bytes(v1).fold((0, 0), |(r, w), io| (r + io.read, w + io.written));
        assert_eq!((read, written), (4096, 8192));
        assert_eq!(blkio_service_bytes(b"Total 0\n").count(), 0);
    }

    #[test]
    fn pressure_and_names_and_cpus() {
        // Documentation/accounting/psi.rst.
        let text = b"some avg10=0.00 avg60=0.12 avg300=0.05 total=8273\n\
                     full avg10=0.00 avg60=0.00 avg300=0.00 total=42\n";
        assert_eq!(pressure_total_us(text, "some"), Some(8273));
        assert_eq!(pressure_total_us(text, "full"), Some(42));
        assert_eq!(pressure_total_us(b"full avg10=0.00\n", "full"), None);
        assert_eq!(
            stat_name(b"7 (a) (b) c) S 1"),
            Some(*b"a) (b) c\0\0\0\0\0\0\0\0")
        );
        assert_eq!(stat_name(b"7 )("), None);
        assert_eq!(innermost_pid(b"Pid:\t7\nNSpid:\t7\t3\t1\n"), Some(1));
        assert_eq!(innermost_pid(b"Pid:\t7\n"), None);
        // Captured on two cores, Linux 6.18.
        let stat = b"cpu  14 0 20 900 5 0 1 3 0 0\ncpu0 10 0 12 400 2 0 1 2 0 0\n\
                     cpu1 4 0 8 500 3 0 0 1 0 0\nintr 123 0 9\ncpu9 1\n";
        assert_eq!(cpus_busy_ticks(stat), [25, 13]);
        assert!(cpus_busy_ticks(b"cpu99999999999 1\n").is_empty());
    }

    #[test]
    fn traffic_of_devices() {
        // Captured in a network namespace with an interface of its own, Linux 6.18.
        let text = b"Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs \
            drop fifo colls carrier compressed\n    lo:  868       8    0    0    0     0          0 \
            0      868       8    0    0    0     0       0          0\n  eth0: 1500 3 0 0 0 0 0 0 700 \
            2 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(text), Some((1500, 700)));
        assert_eq!(network_bytes(b"a\nb\n"), Some((0, 0)));
        assert_eq!(network_bytes(b"a\nb\neth0: 1 2\n"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&bytes);
            let _ = (stat_name(&bytes), innermost_pid(&bytes), pressure_total_us(&bytes, "x"));
            let _ = (cpus_busy_ticks(&bytes), network_bytes(&bytes));
            let _ = flat_keyed_value(&bytes, "x");
            let _ = number_field(&bytes, "x");
            let _ = all_numbers(&bytes).count() + io_stat(&bytes).count() + blkio_service_bytes(&bytes).count();
        }
    }
}
