//! What the program does while a run goes on: it records it.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use sconce_host::{GpuMonitor, Roots, SampleScope, Sampler};
use sconce_record::RecordWriter;
use sconce_run::{ResourceUsage, RunObserver};
use sconce_schema::event::{
    ExitStatus, OomKill, RecordEvent, RunEnded, RunStarted, Sample, ServiceEvent, ServiceState,
    UnenforcedLimit, WriteLoss,
};

use crate::accounting::{AccountingReader, ProbeDirectory};
use crate::context::AppContext;
use crate::node_network::NetworkWatch;
use crate::reporter::AppEvent;

/// Records one run, and says beforehand what cannot be enforced.
pub struct Recorder<'a> {
    runs: &'a std::path::Path,
    started: RunStarted,
    context: &'a AppContext,
    unenforced: Vec<UnenforcedLimit>,
    began: Instant,
    writer: Option<RecordWriter>,
    sampler: Option<Sampler>,
    /// The kernel's own account, told at the end.
    used: Option<ResourceUsage>,
    /// Bytes of logs that the disk did not take.
    logs_lost: u64,
    /// The library that reads cards, until the sampler has it.
    gpus: Option<Box<dyn GpuMonitor>>,
    /// The folder in which processes of the run tell of their steps, until the run begins.
    told: Option<ProbeDirectory>,
    /// The same, where the run has made it.
    shared: Option<OwnedFd>,
    account: Option<AccountingReader>,
    /// The disk was asked to keep the record: not for a run that is over in a moment.
    kept: bool,
    /// Called once, at the first reading: work that may use what the command leaves idle.
    idle_work: Option<Box<dyn FnOnce() + 'a>>,
    /// Called once, when the run goes on without its caller.
    pub begun: Option<Box<dyn FnOnce() + 'a>>,
    /// What to open of each service, said once when it is there.
    pub links: BTreeMap<String, Vec<String>>,
    /// Where each service is reached, without anything secret: goes into the record.
    pub open: BTreeMap<String, Vec<String>>,
    /// Reads which network NCCL takes, of a node's part of a job.
    pub(crate) network: Option<NetworkWatch>,
    /// Why the run must end: its ranks took TCP, and the job wants none that do.
    pub(crate) slow_network: Option<String>,
    /// The first thing that kept the record from being written.
    pub lost: Option<sconce_record::RecordError>,
}

impl<'a> Recorder<'a> {
    /// Makes the recorder of a run that is about to start.
    pub fn new(
        runs: &'a std::path::Path,
        started: RunStarted,
        context: &'a AppContext,
        gpus: Option<Box<dyn GpuMonitor>>,
        told: Option<ProbeDirectory>,
        idle_work: Option<Box<dyn FnOnce() + 'a>>,
    ) -> Self {
        Self {
            runs,
            gpus,
            told,
            shared: None,
            account: None,
            started,
            context,
            unenforced: Vec::new(),
            began: Instant::now(),
            writer: None,
            sampler: None,
            used: None,
            kept: false,
            logs_lost: 0,
            idle_work,
            begun: None,
            links: BTreeMap::new(),
            open: BTreeMap::new(),
            network: None,
            slow_network: None,
            lost: None,
        }
    }

    /// The folder of the record, if there is one.
    pub fn path(&self) -> Option<PathBuf> {
        self.writer.as_ref().map(|writer| writer.path().to_owned())
    }

    /// Whether the command was executed.
    pub fn has_begun(&self) -> bool {
        self.sampler.is_some()
    }

    /// Ends the record of a command that was begun and could not be executed.
    pub fn record_start_failure(&mut self, code: u8) {
        if self.writer.is_some() {
            self.ended(ExitStatus::Code(code), None);
        }
    }

    fn write(&mut self, event: &RecordEvent) {
        let t_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.write_event(t_us, event)
        {
            self.lost.get_or_insert(error);
        }
    }

    /// A reading of everything; what is an event of its own is written.
    fn sample(&mut self, ended: bool) -> Option<Sample> {
        let sampler = self.sampler.as_mut()?;
        let mut sample = match ended {
            true => sampler.sample_last(),
            false => sampler.sample(),
        };
        if let Some(network) = &mut self.network {
            let update = network.read();
            sample.nccl = update.networks;
            match update.slow {
                // A run that has ended all the same is not ended for it.
                Some(slow) if network.is_strict() && !ended => self.slow_network = Some(slow),
                Some(slow) => self.context.report(&AppEvent::JobRemark(&slow)),
                None => {}
            }
        }
        if let Some(account) = &mut self.account {
            let pids = sampler.pids();
            let record = self
                .writer
                .as_ref()
                .and_then(|writer| writer.path().parent());
            for event in account.read(&mut sample, &pids, ended, record) {
                self.write(&event);
            }
        }
        Some(sample)
    }
}

impl RunObserver for Recorder<'_> {
    fn unenforced(&mut self, what: &[UnenforcedLimit]) {
        self.unenforced.extend_from_slice(what);
        self.context.report(&AppEvent::LimitsNotEnforced(what));
    }

    fn shared(&mut self, folder: OwnedFd) {
        self.shared = Some(folder);
    }

    fn way_out(&mut self, name: &str) {
        self.started.way_out = Some(name.to_owned());
    }

    fn started(&mut self, target: &SampleScope) {
        self.began = Instant::now();
        let told = match self.told.take() {
            Some(ProbeDirectory::Folder(folder)) => Some(folder),
            // By its descriptor: no path of the machine leads there.
            Some(ProbeDirectory::InMemory(_)) => (self.shared.as_ref())
                .map(|folder| format!("/proc/self/fd/{}", folder.as_raw_fd()).into()),
            None => None,
        };
        self.account = told.map(|folder| AccountingReader::new(folder, &self.started.gpus));
        match RecordWriter::create(self.runs, &self.started) {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => self.context.report(&AppEvent::RunNotRecorded(&error)),
        }
        for item in std::mem::take(&mut self.unenforced) {
            self.write(&RecordEvent::Unenforced(item));
        }
        let target = SampleScope {
            gpus: self.started.gpus.iter().map(|gpu| gpu.index).collect(),
            ..target.clone()
        };
        self.sampler = Some(Sampler::new(&Roots::default(), target, self.gpus.take()));
    }

    fn goes_on(&mut self) {
        if let Some(begun) = self.begun.take() {
            begun();
        }
    }

    fn service(&mut self, what: &ServiceEvent) {
        let mut told = what.clone();
        if matches!(what.state, ServiceState::Healthy | ServiceState::Running) {
            told.open = self.open.remove(&what.name).unwrap_or_default();
        }
        self.write(&RecordEvent::Service(Box::new(told)));
        self.context.report(&AppEvent::Service(what));
        if !self.context.quiet
            && matches!(what.state, ServiceState::Healthy | ServiceState::Running)
        {
            for link in self.links.remove(&what.name).into_iter().flatten() {
                self.context.report(&AppEvent::ServiceLink {
                    service: &what.name,
                    link: &link,
                });
            }
        }
    }

    fn tick(&mut self) {
        if let Some(sample) = self.sample(false) {
            self.write(&RecordEvent::Sample(Box::new(sample)));
        }
        if let Some(writer) = &self.writer
            && !self.kept
        {
            writer.keep_beside();
            self.kept = true;
        }
        if let Some(work) = self.idle_work.take() {
            work();
        }
    }

    fn must_end(&self) -> bool {
        self.slow_network.is_some()
    }

    fn used(&mut self, used: ResourceUsage) {
        self.used = Some(used);
    }

    fn logs_lost(&mut self, bytes: u64) {
        self.logs_lost = bytes;
    }

    fn ended(&mut self, exit: ExitStatus, out_of_memory: Option<OomKill>) {
        let mut last = Box::new(self.sample(true).unwrap_or_default());
        // Without a cgroup, what ended between two readings is missing from their count.
        let counted = self.used.map(|used| used.user_us + used.system_us);
        last.cpu_us = last.cpu_us.max(counted);
        if let (Some(network), Some(record)) = (&self.network, self.path())
            && let Some(record) = record.parent()
            && let Err(error) = network.keep_logs(record)
        {
            let remark = format!("what NCCL wrote is not kept beside the record: {error}");
            self.context.report(&AppEvent::JobRemark(&remark));
        }
        let lost = WriteLoss {
            lines: self
                .writer
                .as_ref()
                .map_or(0, RecordWriter::lost_event_count),
            log_bytes: self.logs_lost,
        };
        self.write(&RecordEvent::Ended(RunEnded {
            exit,
            last,
            out_of_memory,
            largest_process: self.used.map(|used| used.max_rss),
            lost: (lost.lines > 0 || lost.log_bytes > 0).then_some(lost),
        }));
        // Who started it in the background may ask only after the machine has gone down.
        if let Some(writer) = &self.writer
            && self.kept
        {
            writer.sync_data();
        }
    }
}
