//! What training processes tell of themselves: the folder that the probe writes to, on its way into the
//! record.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sconce_compat::tables::find_hardware;
use sconce_host::{Roots, TrainingReader};
use sconce_schema::event::{GpuSummary, RecordEvent, Sample};
use sconce_schema::spec::RunSpec;
use sconce_schema::training::{GpuOutOfMemory, RatedThroughput};

use crate::run_temp_dir::RunTempDir;

/// PyTorch's snapshots in one record, and how large each may be, bytes.
const MAX_SNAPSHOTS: usize = 4;
const MAX_SNAPSHOT_BYTES: u64 = 64 << 20;

/// What the caller says of the accounting of a run from inside.
#[derive(Debug, Clone, Copy, Default)]
pub struct AccountingOverrides {
    /// Nothing is brought into the program that accounts for its steps.
    pub no_probe: bool,
    /// The floating point operations of one step are counted.
    pub flops: bool,
    /// What the program keeps more and more of is looked for.
    pub leak_stacks: bool,
}

/// What is asked of the probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountingOptions {
    /// Whether the operations of a step are counted.
    pub flops: bool,
    /// Whether what the program keeps more and more of is looked for.
    pub kept: bool,
}

impl AccountingOverrides {
    /// What they and the spec ask for; `None` where nothing is to be accounted.
    pub fn merge_with_spec(&self, spec: &RunSpec) -> Option<AccountingOptions> {
        (!self.no_probe && spec.probe.unwrap_or(true)).then(|| AccountingOptions {
            flops: self.flops || spec.flops.unwrap_or(false),
            kept: self.leak_stacks,
        })
    }
}

/// Where processes of a run tell of themselves.
#[derive(Debug)]
pub enum ProbeDirectory {
    /// In this folder.
    Folder(PathBuf),
    /// In a folder that the run makes, and which its processes see here.
    InMemory(PathBuf),
}

/// The folder on the disk, in one that is nobody else's.
pub fn accounting_dir(above: &RunTempDir) -> PathBuf {
    above.path().join("account")
}

/// Makes a folder that processes of any user can write to.
///
/// # Errors
/// It cannot be made.
pub fn open_to_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o1777))
}

/// Reads the folder while the run goes on.
#[derive(Debug)]
pub struct AccountingReader {
    reader: TrainingReader,
    /// The cards of the run.
    gpus: Vec<GpuSummary>,
    /// Snapshots that the record has.
    kept: usize,
}

impl AccountingReader {
    /// Of a run that begins now.
    pub fn new(folder: PathBuf, gpus: &[GpuSummary]) -> Self {
        Self {
            reader: TrainingReader::new(folder, &Roots::default()),
            gpus: gpus.to_vec(),
            kept: 0,
        }
    }

    /// Adds to `sample` what processes told, and gives what is an event of its own. Snapshots are copied
    /// into `record`, the record's folder.
    pub fn read(
        &mut self,
        sample: &mut Sample,
        pids: &[u32],
        ended: bool,
        record: Option<&Path>,
    ) -> Vec<RecordEvent> {
        let told = self.reader.read(pids, ended);
        sample.training = told.training;
        sample.training_left_out = told.left_out;
        let mut events = Vec::new();
        for mut setup in told.setups {
            let card = setup.card.as_deref().filter(|_| setup.flops.is_some());
            setup.peak = card.and_then(|uuid| peak(&self.gpus, uuid));
            events.push(RecordEvent::Setup(Box::new(setup)));
        }
        for (mut oom, snapshot) in told.out_of_memory {
            if let (Some(snapshot), Some(record)) = (snapshot, record) {
                self.keep(&mut oom, snapshot, record);
            }
            events.push(RecordEvent::CardOutOfMemory(Box::new(oom)));
        }
        events
    }

    fn keep(&mut self, oom: &mut GpuOutOfMemory, snapshot: File, record: &Path) {
        if self.kept >= MAX_SNAPSHOTS {
            oom.no_snapshot = Some(format!("the record has {MAX_SNAPSHOTS} already"));
            return;
        }
        self.kept += 1;
        let name = format!("oom-{}.pickle", self.kept);
        match copied(snapshot, &record.join(&name)) {
            Ok(true) => oom.snapshot = Some(name),
            Ok(false) => {
                oom.no_snapshot =
                    Some(format!("it has more than {} MiB", MAX_SNAPSHOT_BYTES >> 20));
            }
            Err(error) => oom.no_snapshot = Some(error.to_string()),
        }
    }
}

/// What the run's card of this UUID could do at most, where there are figures of its kind.
fn peak(gpus: &[GpuSummary], uuid: &str) -> Option<RatedThroughput> {
    let gpu = gpus.iter().find(|gpu| gpu.uuid == uuid)?;
    let hardware = find_hardware(&gpu.name).ok()?.hardware;
    let single = hardware.fp32_tflops * 1e12;
    let rate = |tflops: Option<f64>| tflops.map_or(single, |rate| rate * 1e12);
    let form = hardware.form.map(|form| format!(" {form}"));
    Some(RatedThroughput {
        card: format!("{}{}", hardware.card.name, form.unwrap_or_default()),
        half_per_s: rate(hardware.tensor_tflops),
        tf32_per_s: rate(hardware.tf32_tflops),
        single_per_s: single,
    })
}

/// Whether it was small enough.
fn copied(from: File, to: &Path) -> io::Result<bool> {
    let mut options = File::options();
    let mut made = options.write(true).create_new(true).mode(0o600).open(to)?;
    let whole = io::copy(&mut from.take(MAX_SNAPSHOT_BYTES + 1), &mut made)
        .map(|bytes| bytes <= MAX_SNAPSHOT_BYTES);
    // Of one that is not whole nothing stays, on a full disk least of all.
    if !matches!(whole, Ok(true)) {
        fs::remove_file(to)?;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_that_of_the_runs_own_card() {
        let card = |uuid: &str, name: &str| GpuSummary {
            index: 0,
            uuid: uuid.to_owned(),
            name: name.to_owned(),
            memory: None,
        };
        let cards = [
            card("GPU-1", "NVIDIA H100 PCIe"),
            card("GPU-2", "Tesla P100-SXM2-16GB"),
            card("GPU-3", "NVIDIA GeForce RTX 3080 Laptop GPU"),
        ];
        let found = peak(&cards, "GPU-1").unwrap();
        assert!(found.card.contains("H100") && found.card.contains("PCIe"));
        assert!(found.half_per_s > found.tf32_per_s && found.tf32_per_s > found.single_per_s);
        // Without tensor cores all is done at one rate.
        let found = peak(&cards, "GPU-2").unwrap();
        assert_eq!(found.half_per_s, found.single_per_s);
        assert_eq!(found.tf32_per_s, found.single_per_s);
        assert!(peak(&cards, "GPU-3").is_none());
        assert!(peak(&cards, "GPU-4").is_none());
        assert!(peak(&[card("GPU-5", "what nobody knows")], "GPU-5").is_none());
    }

    #[test]
    fn flags_and_spec_ask_together() {
        let spec = |probe, flops| RunSpec {
            probe,
            flops,
            ..RunSpec::default()
        };
        let flags = |no_probe, flops| AccountingOverrides {
            no_probe,
            flops,
            leak_stacks: false,
        };
        let asked = |flags: AccountingOverrides, spec: RunSpec| {
            flags.merge_with_spec(&spec).map(|asked| asked.flops)
        };
        assert_eq!(asked(flags(false, false), spec(None, None)), Some(false));
        assert_eq!(asked(flags(false, true), spec(None, None)), Some(true));
        assert_eq!(
            asked(flags(false, false), spec(None, Some(true))),
            Some(true)
        );
        assert_eq!(asked(flags(true, false), spec(None, Some(true))), None);
        assert_eq!(asked(flags(false, true), spec(Some(false), None)), None);
    }

    #[test]
    fn a_snapshot_that_is_too_large_is_left_out_and_no_fifth_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut account = AccountingReader::new(folder.path().join("none"), &[]);
        let source = folder.path().join("source");
        let file = File::create(&source).unwrap();
        let mut keep = |size: u64| {
            file.set_len(size).unwrap();
            let mut oom = GpuOutOfMemory::default();
            account.keep(&mut oom, File::open(&source).unwrap(), folder.path());
            (oom.snapshot, oom.no_snapshot)
        };
        let (snapshot, why) = keep(MAX_SNAPSHOT_BYTES + 1);
        assert_eq!(snapshot, None);
        assert_eq!(why.unwrap(), "it has more than 64 MiB");
        assert!(!folder.path().join("oom-1.pickle").exists());
        for number in 2..=4 {
            assert_eq!(keep(10).0.unwrap(), format!("oom-{number}.pickle"));
        }
        assert_eq!(keep(10).1.unwrap(), "the record has 4 already");
    }
}
