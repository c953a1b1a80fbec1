//! A run's processes, from `/proc`.
//!
//! Where the kernel keeps no account (no cgroup), CPU time and I/O are added up here, so that a
//! process that ended is not forgotten: what a process used passes to the parent that waits for
//! it (`cutime` and `cstime`; `/proc/PID/io` includes it). What a vanished process had used and
//! no parent in the run inherited (it was reaped by a process outside, or ignored) is kept as of
//! the last time it was seen. The sums never fall; they miss what such a process used after it
//! was last seen.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;

use sconce_schema::Bytes;
use sconce_schema::event::ProcessSample;

use super::identity::{ProcessIdentity, process_role};
use super::parse::{self, Stat};
use super::reread_file::read_whole;

/// After so many readings the processes that are not the run's are looked at again, in case the
/// kernel gave one's number to another.
const RECHECK_INTERVAL_READINGS: u32 = 60;
/// A sample tells of no more processes than these.
const MAX_SAMPLED_PROCESSES: usize = 32;

/// A run's processes at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessTreeTotals {
    pub(super) processes: u32,
    pub(super) threads: u32,
    pub(super) rss: Bytes,
    /// Since the run began.
    pub(super) cpu_us: u64,
    /// Since the run began; absent where the kernel keeps no such account or no process may be
    /// asked.
    pub(super) read_bytes: Option<u64>,
    pub(super) write_bytes: Option<u64>,
}

/// A process of the run, as last seen.
#[derive(Debug)]
struct Member {
    stat: Stat,
    /// Bytes read and written, its waited-for children's included.
    io: Option<(u64, u64)>,
    /// The reading in which it was last seen.
    seen: u32,
    /// Ticks of its own since the reading before.
    grown: u64,
    /// What it was started with, and how often that was read: a process is first seen between its
    /// beginning and what it executes now and then.
    identity: Option<ProcessIdentity>,
    identified: u8,
}

/// How often a process is asked what it is, while it keeps its name.
const MAX_IDENTIFICATIONS: u8 = 2;

/// Watches the processes of one run.
#[derive(Debug)]
pub(super) struct ProcessTracker {
    proc: PathBuf,
    root: Option<u32>,
    reaper: Option<u32>,
    /// When the reaper started, in clock ticks since boot, as first seen.
    reaper_start: Option<u64>,
    asks_io: bool,
    members: HashMap<u32, Member>,
    /// Processes that belong to somebody else.
    strangers: HashSet<u32>,
    /// Sessions that a process of the run leads or led.
    sessions: HashSet<u32>,
    reading: u32,
    cpu_ticks: u64,
    io: Option<(u64, u64)>,
    path: String,
    buffer: Vec<u8>,
}

/// Growth since the last reading.
#[derive(Debug, Default)]
struct Growth {
    own_ticks: u64,
    waited_ticks: u64,
    new_ticks: u64,
    gone_ticks: u64,
    io: Pair,
    new_io: Pair,
    gone_io: Pair,
    io_seen: bool,
}

/// Bytes read and written.
#[derive(Debug, Default, Clone, Copy)]
struct Pair(u64, u64);

impl Pair {
    fn add(&mut self, (read, written): (u64, u64)) {
        self.0 = self.0.saturating_add(read);
        self.1 = self.1.saturating_add(written);
    }
}

impl ProcessTracker {
    pub(super) fn new(
        proc: PathBuf,
        root: Option<u32>,
        reaper: Option<u32>,
        asks_io: bool,
    ) -> Self {
        Self {
            proc,
            root,
            reaper,
            reaper_start: None,
            asks_io,
            members: HashMap::new(),
            strangers: HashSet::new(),
            sessions: HashSet::new(),
            reading: 0,
            cpu_ticks: 0,
            io: None,
            path: String::new(),
            buffer: Vec::new(),
        }
    }

    /// The processes of the last reading that used the most CPU since the one before, and of those
    /// alike the largest; 32 at most, by number.
    pub(super) fn top_processes(&mut self) -> Vec<ProcessSample> {
        let alive = self
            .members
            .iter()
            .filter(|(_, member)| !member.stat.zombie);
        let mut order: Vec<_> = alive
            .map(|(&pid, member)| (member.grown, member.stat.rss_pages, pid))
            .collect();
        if order.len() > MAX_SAMPLED_PROCESSES {
            order.select_nth_unstable_by(MAX_SAMPLED_PROCESSES, |a, b| b.cmp(a));
            order.truncate(MAX_SAMPLED_PROCESSES);
        }
        let mut pids: Vec<u32> = order.into_iter().map(|(_, _, pid)| pid).collect();
        pids.sort_unstable();
        for &pid in &pids {
            let parent = self.members.get(&pid).map(|member| member.stat.parent);
            for pid in [parent, Some(pid)].into_iter().flatten() {
                self.identify(pid);
            }
        }
        pids.into_iter().filter_map(|pid| self.tell(pid)).collect()
    }

    fn identify(&mut self, pid: u32) {
        let Some(member) = self.members.get_mut(&pid) else {
            return;
        };
        if member.identified < MAX_IDENTIFICATIONS {
            member.identified += 1;
            let folder = self.proc.join(pid.to_string());
            member.identity = Some(ProcessIdentity::read(&folder, pid, &mut self.buffer));
        }
    }

    fn tell(&self, pid: u32) -> Option<ProcessSample> {
        let Member { stat, identity, .. } = self.members.get(&pid)?;
        let identity = identity.as_ref();
        let length = stat.name.iter().position(|byte| *byte == 0);
        let name = &stat.name[..length.unwrap_or(stat.name.len())];
        let parent = self.members.get(&stat.parent);
        let parent = parent.and_then(|parent| parent.identity.as_ref());
        let role = identity.and_then(|own| process_role(name, own, parent));
        Some(ProcessSample {
            pid,
            inner_pid: identity.and_then(|own| own.inner_pid),
            parent: stat.parent,
            name: String::from_utf8_lossy(name).into_owned(),
            role: role.map(str::to_owned),
            cpu_us: stat.own_ticks.saturating_mul(tick_us()),
            rss: Bytes(
                stat.rss_pages
                    .saturating_mul(rustix::param::page_size() as u64),
            ),
            threads: stat.threads,
        })
    }

    /// The processes found by the last reading.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.members
            .iter()
            .filter(|(_, member)| !member.stat.zombie)
            .map(|(&pid, _)| pid)
    }

    pub(super) fn contains(&self, pid: u32) -> bool {
        self.members.contains_key(&pid)
    }

    /// A reading of the processes that a cgroup lists.
    pub(super) fn of_cgroup(&mut self, pids: &[u32]) -> ProcessTreeTotals {
        let mut growth = self.begin();
        for &pid in pids {
            if let Some(stat) = self.stat(pid) {
                self.meet(pid, stat, &mut growth);
            }
        }
        self.end(growth)
    }

    /// A reading of the root process and everything that descends from it.
    pub(super) fn of_tree(&mut self) -> ProcessTreeTotals {
        let mut growth = self.begin();
        let mut unknown: Vec<(u32, Stat)> = Vec::new();
        for pid in self.candidates() {
            if self.strangers.contains(&pid) {
                continue;
            }
            let Some(stat) = self.stat(pid) else { continue };
            let known = self
                .members
                .get(&pid)
                .is_some_and(|member| member.stat.start == stat.start);
            // The number of the root process, once it is gone, may become anybody's.
            if known || (self.reading == 1 && self.root == Some(pid)) {
                self.meet(pid, stat, &mut growth);
            } else {
                unknown.push((pid, stat));
            }
        }
        // A child may have a lower number than its parent: repeat until nothing is found.
        loop {
            let before = unknown.len();
            unknown.retain(|&(pid, stat)| {
                let ours = self.reaper == Some(stat.parent)
                    || self.is_current(stat.parent)
                    || self.sessions.contains(&stat.session);
                if ours {
                    self.meet(pid, stat, &mut growth);
                }
                !ours
            });
            if unknown.len() == before {
                break;
            }
        }
        self.strangers
            .extend(unknown.into_iter().map(|(pid, _)| pid));
        self.end(growth)
    }

    fn begin(&mut self) -> Growth {
        self.reading += 1;
        if self.reading.is_multiple_of(RECHECK_INTERVAL_READINGS) {
            self.strangers.clear();
        }
        Growth::default()
    }

    fn is_current(&self, pid: u32) -> bool {
        self.members
            .get(&pid)
            .is_some_and(|member| member.seen == self.reading)
    }

    /// Takes in a process of the run.
    fn meet(&mut self, pid: u32, stat: Stat, growth: &mut Growth) {
        let io = self.asks_io.then(|| self.io_of(pid)).flatten();
        if let Some(io) = io {
            growth.io_seen = true;
            match self.members.get(&pid) {
                Some(old) if old.stat.start == stat.start => {
                    let (read, written) = old.io.unwrap_or_default();
                    growth
                        .io
                        .add((io.0.saturating_sub(read), io.1.saturating_sub(written)));
                }
                _ => growth.new_io.add(io),
            }
        }
        if stat.session == pid {
            self.sessions.insert(pid);
        }
        let mut member = Member {
            stat,
            io,
            seen: self.reading,
            grown: stat.own_ticks,
            identity: None,
            identified: 0,
        };
        match self.members.remove(&pid) {
            Some(old) if old.stat.start == stat.start => {
                member.grown = stat.own_ticks.saturating_sub(old.stat.own_ticks);
                growth.own_ticks += member.grown;
                growth.waited_ticks += stat.waited_ticks.saturating_sub(old.stat.waited_ticks);
                member.io = io.or(old.io);
                member.identity = old.identity;
                if old.stat.name == stat.name {
                    member.identified = old.identified;
                }
            }
            old => {
                growth.new_ticks = growth
                    .new_ticks
                    .saturating_add(stat.own_ticks.saturating_add(stat.waited_ticks));
                if let Some(old) = old {
                    growth.lose(&old);
                }
            }
        }
        self.members.insert(pid, member);
    }

    fn end(&mut self, mut growth: Growth) -> ProcessTreeTotals {
        let reading = self.reading;
        self.members.retain(|_, member| {
            let stays = member.seen == reading;
            if !stays {
                growth.lose(member);
            }
            stays
        });
        let inherited = growth.waited_ticks.saturating_sub(growth.gone_ticks);
        self.cpu_ticks = self
            .cpu_ticks
            .saturating_add(growth.own_ticks)
            .saturating_add(growth.new_ticks)
            .saturating_add(inherited);
        if growth.io_seen {
            let mut sum = Pair::default();
            sum.add(self.io.unwrap_or_default());
            sum.add((growth.new_io.0, growth.new_io.1));
            sum.add((
                growth.io.0.saturating_sub(growth.gone_io.0),
                growth.io.1.saturating_sub(growth.gone_io.1),
            ));
            self.io = Some((sum.0, sum.1));
        }
        self.tree()
    }

    fn tree(&self) -> ProcessTreeTotals {
        let (mut processes, mut threads, mut pages) = (0_u32, 0_u32, 0_u64);
        for Member { stat, .. } in self.members.values().filter(|m| !m.stat.zombie) {
            processes += 1;
            threads = threads.saturating_add(stat.threads);
            pages = pages.saturating_add(stat.rss_pages);
        }
        ProcessTreeTotals {
            processes,
            threads,
            rss: Bytes(pages.saturating_mul(rustix::param::page_size() as u64)),
            cpu_us: self.cpu_ticks.saturating_mul(tick_us()),
            read_bytes: self.io.map(|io| io.0),
            write_bytes: self.io.map(|io| io.1),
        }
    }

    /// The processes that may be the run's. Once its reaper has ended, those that were known: it
    /// ends after every other process of the run, and the last reading, which each run waits for,
    /// need not read every process of the machine.
    fn candidates(&mut self) -> Vec<u32> {
        if self.has_reaper_ended() {
            return self.members.keys().copied().collect();
        }
        self.all_pids()
    }

    /// Whether the reaper was seen, and is no more (or somebody else has its number).
    fn has_reaper_ended(&mut self) -> bool {
        let Some(reaper) = self.reaper else {
            return false;
        };
        let start = self.stat(reaper).map(|stat| stat.start);
        match self.reaper_start {
            None => {
                self.reaper_start = start;
                false
            }
            seen => start != seen,
        }
    }

    fn all_pids(&self) -> Vec<u32> {
        let Ok(folder) = self.proc.read_dir() else {
            return Vec::new();
        };
        folder
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect()
    }

    fn open(&mut self, pid: u32, file: &str) -> Option<File> {
        use std::fmt::Write;
        self.path.clear();
        write!(self.path, "{}/{pid}/{file}", self.proc.display()).ok()?;
        File::open(&self.path).ok()
    }

    fn stat(&mut self, pid: u32) -> Option<Stat> {
        let file = self.open(pid, "stat")?;
        Stat::parse(read_whole(&file, &mut self.buffer)?)
    }

    fn io_of(&mut self, pid: u32) -> Option<(u64, u64)> {
        let file = self.open(pid, "io")?;
        let text = read_whole(&file, &mut self.buffer)?;
        Some((
            parse::number_field(text, "read_bytes")?,
            parse::number_field(text, "write_bytes")?,
        ))
    }
}

fn tick_us() -> u64 {
    1_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

impl Growth {
    fn lose(&mut self, member: &Member) {
        let used = member
            .stat
            .own_ticks
            .saturating_add(member.stat.waited_ticks);
        self.gone_ticks = self.gone_ticks.saturating_add(used);
        self.gone_io.add(member.io.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Writes one process of a recorded /proc.
    fn process(proc: &Path, pid: u32, parent: u32, session: u32, own: u64, waited: u64) {
        let folder = proc.join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let stat = format!(
            "{pid} (py) S {parent} {pid} {session} 0 -1 0 0 0 0 0 {own} 0 {waited} 0 20 0 3 0 {} \
             0 100 0 0\n",
            u64::from(pid) * 10
        );
        std::fs::write(folder.join("stat"), stat).unwrap();
    }

    fn gone(proc: &Path, pid: u32) {
        std::fs::remove_dir_all(proc.join(pid.to_string())).unwrap();
    }

    fn ticks(tree: ProcessTreeTotals) -> u64 {
        tree.cpu_us / (1_000_000 / rustix::param::clock_ticks_per_second())
    }

    fn found(processes: &ProcessTracker) -> Vec<u32> {
        let mut pids: Vec<u32> = processes.pids().collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn the_tree_is_found_by_parents_and_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        process(proc, 1, 0, 1, 0, 0);
        process(proc, 50, 1, 50, 0, 0); // the watcher
        process(proc, 100, 50, 100, 1, 0); // the run's root leads a session
        process(proc, 90, 101, 100, 0, 0); // a lower number than its parent
        process(proc, 101, 100, 100, 0, 0);
        process(proc, 200, 1, 200, 0, 0); // somebody else
        let mut processes = ProcessTracker::new(proc.to_owned(), Some(100), Some(50), false);
        let tree = processes.of_tree();
        assert_eq!(found(&processes), [90, 100, 101]);
        assert_eq!((tree.processes, tree.threads), (3, 9));
        assert_eq!(tree.rss, Bytes(300 * rustix::param::page_size() as u64));
        assert_eq!(tree.read_bytes, None);

        gone(proc, 101);
        process(proc, 90, 50, 100, 0, 0); // an orphan stays
        process(proc, 102, 50, 102, 0, 0); // one that the reaper inherited unseen
        process(proc, 103, 1, 100, 0, 0); // one that init inherited, in our session
        process(proc, 201, 200, 200, 0, 0);
        processes.of_tree();
        assert_eq!(found(&processes), [90, 100, 102, 103]);

        // The root's number is given to somebody else.
        gone(proc, 100);
        process(proc, 100, 1, 7, 0, 0);
        let stat = std::fs::read_to_string(proc.join("100/stat")).unwrap();
        std::fs::write(proc.join("100/stat"), stat.replace(" 1000 ", " 7777 ")).unwrap();
        processes.of_tree();
        assert_eq!(found(&processes), [90, 102, 103]);
    }

    #[test]
    fn nobody_is_looked_for_once_the_reaper_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        process(proc, 50, 1, 50, 0, 0);
        process(proc, 100, 50, 100, 1, 0);
        let mut processes = ProcessTracker::new(proc.to_owned(), Some(100), Some(50), false);
        processes.of_tree();
        // A child of the run that nobody has seen yet is found while the reaper lives,
        process(proc, 101, 100, 100, 0, 0);
        processes.of_tree();
        assert_eq!(found(&processes), [100, 101]);
        // and after it ended the known ones alone are read, whoever has its number by then.
        process(proc, 102, 100, 100, 0, 0);
        process(proc, 50, 1, 7, 0, 0);
        let stat = std::fs::read_to_string(proc.join("50/stat")).unwrap();
        std::fs::write(proc.join("50/stat"), stat.replace(" 500 ", " 7777 ")).unwrap();
        gone(proc, 100);
        processes.of_tree();
        assert_eq!(found(&processes), [101]);
    }

    #[test]
    fn the_busiest_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        let all: Vec<u32> = (100..180).collect();
        for &pid in &all {
            process(proc, pid, 100, 100, u64::from(pid), 0);
        }
        let write = |name: &str, text: &str| std::fs::write(proc.join(name), text).unwrap();
        write("100/cmdline", "python3\0train.py\0");
        write("179/cmdline", "python3\0train.py\0");
        write("179/status", "NSpid:\t179\t7\n");
        let mut processes = ProcessTracker::new(proc.to_owned(), Some(100), None, false);
        processes.of_cgroup(&all);
        let told = processes.top_processes();
        let pids: Vec<u32> = told.iter().map(|process| process.pid).collect();
        assert_eq!(pids, (148..180).collect::<Vec<_>>());
        let worker = told.last().unwrap();
        assert_eq!(
            (worker.inner_pid, worker.parent, worker.name.as_str()),
            (Some(7), 100, "py")
        );
        assert_eq!(worker.role.as_deref(), Some("worker"));
        assert_eq!(worker.cpu_us, 179 * tick_us());
        // Who did nothing since is no longer among them.
        process(proc, 100, 1, 100, 101, 0);
        processes.of_cgroup(&all);
        let told = processes.top_processes();
        assert_eq!(told.len(), 32);
        assert_eq!(told[0].pid, 100);
        assert_eq!(told[0].role.as_deref(), Some("main"));
        let none = processes.of_cgroup(&[]);
        assert_eq!((none.processes, processes.top_processes().len()), (0, 0));
    }

    #[test]
    fn what_ended_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        let mut processes = ProcessTracker::new(proc.to_owned(), Some(10), None, false);
        process(proc, 10, 1, 10, 5, 0);
        process(proc, 11, 10, 10, 20, 0);
        process(proc, 12, 10, 10, 30, 0);
        assert_eq!(ticks(processes.of_tree()), 55);
        // 11 ended with 22 ticks and its parent waited for it.
        gone(proc, 11);
        process(proc, 10, 1, 10, 6, 22);
        assert_eq!(ticks(processes.of_tree()), 58);
        // 12 ended and nobody in the run waited: its last known 30 stay.
        gone(proc, 12);
        assert_eq!(ticks(processes.of_tree()), 58);
        gone(proc, 10);
        let tree = processes.of_tree();
        assert_eq!((ticks(tree), tree.processes), (58, 0));
    }

    #[test]
    fn io_of_the_ended_passes_to_the_parent() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        let io = |pid: u32, read: u64| {
            let text = format!("rchar: 1\nread_bytes: {read}\nwrite_bytes: 0\n");
            std::fs::write(proc.join(format!("{pid}/io")), text).unwrap();
        };
        let mut processes = ProcessTracker::new(proc.to_owned(), None, None, true);
        process(proc, 10, 1, 10, 0, 0);
        process(proc, 11, 10, 10, 0, 0);
        io(10, 100);
        io(11, 1000);
        assert_eq!(processes.of_cgroup(&[10, 11]).read_bytes, Some(1100));
        gone(proc, 11);
        io(10, 100 + 1200 + 50);
        assert_eq!(processes.of_cgroup(&[10]).read_bytes, Some(1350));
        // Not readable any more: the sum stays.
        std::fs::remove_file(proc.join("10/io")).unwrap();
        assert_eq!(processes.of_cgroup(&[10]).read_bytes, Some(1350));
        io(10, 1360);
        assert_eq!(processes.of_cgroup(&[10]).read_bytes, Some(1360));
    }
}
