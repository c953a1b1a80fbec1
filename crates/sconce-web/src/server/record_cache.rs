//! Records that were read, kept for as long as they say the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sconce_record::{RecordError, RunEntry, RunListing, RunState};
use sconce_report::views::{RecordView, RunSeries, SeriesFold};

use crate::view::POINTS_PER_FIGURE;

/// How many runs are kept.
const MAX_CACHED_RUNS: usize = 6;
/// What goes on is read again no sooner than this many times as long as reading took, so that it costs
/// no more than a tenth of a core however long it is.
const REFRESH_COST_FACTOR: u32 = 10;
/// But for short ones it is no sooner than this.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(900);

/// What was read of a folder of runs.
pub struct RecordCache {
    folder: PathBuf,
    listing: Mutex<Option<(Instant, Arc<RunListing>)>>,
    runs: Mutex<BTreeMap<String, Slot>>,
    /// One record is read at a time for a window: each takes all there is of a core.
    windows: Mutex<()>,
}

struct Slot {
    used: Instant,
    run: Arc<Mutex<Option<CachedRun>>>,
}

#[derive(Clone)]
struct CachedRun {
    view: Arc<RecordView>,
    stand: Stand,
    again: Instant,
}

/// Where a run stood: its last line's time, and whether it went on.
type Stand = (Option<u64>, RunState);

impl RecordCache {
    /// Makes one for a folder of runs, of which nothing is read yet.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            listing: Mutex::default(),
            runs: Mutex::default(),
            windows: Mutex::default(),
        }
    }

    pub(super) fn list_runs(&self) -> Result<Arc<RunListing>, RecordError> {
        let mut kept = locked(&self.listing);
        if let Some((until, listing)) = &*kept
            && Instant::now() < *until
        {
            return Ok(listing.clone());
        }
        let began = Instant::now();
        let listing = Arc::new(sconce_record::list_runs(&self.folder)?);
        *kept = Some((rested(began), listing.clone()));
        Ok(listing)
    }

    /// A run of the folder, by its whole id.
    pub(super) fn load_view(&self, id: &str) -> Result<Option<Arc<RecordView>>, RecordError> {
        let listing = self.list_runs()?;
        let Some(entry) = find(&listing, id) else {
            return Ok(None);
        };
        let slot = self.slot(id);
        let mut run = locked(&slot);
        let stand = (entry.last.as_ref().map(|line| line.t_us), entry.state);
        if let Some(run) = &*run {
            let over = stand.1 != RunState::Running && run.stand.1 == RunState::Running;
            if run.stand == stand || (Instant::now() < run.again && !over) {
                return Ok(Some(run.view.clone()));
            }
        }
        let began = Instant::now();
        let view = Arc::new(RecordView::from_record(
            sconce_record::open_record(&entry.path)?,
            POINTS_PER_FIGURE,
        ));
        *run = Some(CachedRun {
            view: view.clone(),
            stand,
            again: rested(began),
        });
        Ok(Some(view))
    }

    /// Reads the newest runs ahead of whoever asks for them: a record of a day takes seconds. One that
    /// cannot be read is told to whoever opens it.
    pub(super) fn read_ahead(&self) {
        let Ok(listing) = self.list_runs() else {
            return;
        };
        let mut newest: Vec<&RunEntry> = listing.runs.iter().collect();
        newest.sort_by_key(|run| Reverse(run.started.unix_ms));
        for run in newest.into_iter().take(MAX_CACHED_RUNS) {
            let _ = self.load_view(&run.started.id);
        }
    }

    /// Figures of a part of a run, finer than what is kept of the whole.
    pub(super) fn load_time_range(
        &self,
        id: &str,
        from_us: u64,
        to_us: u64,
        points: usize,
    ) -> Result<Option<RunSeries>, RecordError> {
        let listing = self.list_runs()?;
        let Some(entry) = find(&listing, id) else {
            return Ok(None);
        };
        let _one = locked(&self.windows);
        let mut fold = SeriesFold::new(from_us, Some(to_us), points);
        let record = sconce_record::open_record(&entry.path)?;
        fold.apply_start_event(&record.started);
        for line in record.without_processes().flatten() {
            // A line that tells steps may be a reading later than they were.
            if line.t_us > to_us.saturating_add(60_000_000) {
                break;
            }
            fold.add_line(&line);
        }
        Ok(Some(fold.finish()))
    }

    fn slot(&self, id: &str) -> Arc<Mutex<Option<CachedRun>>> {
        let mut runs = locked(&self.runs);
        while runs.len() >= MAX_CACHED_RUNS && !runs.contains_key(id) {
            let oldest = runs
                .iter()
                .min_by_key(|(_, slot)| slot.used)
                .map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { break };
            runs.remove(&oldest);
        }
        let slot = runs.entry(id.to_owned()).or_insert_with(|| Slot {
            used: Instant::now(),
            run: Arc::default(),
        });
        slot.used = Instant::now();
        slot.run.clone()
    }
}

fn find<'a>(listing: &'a RunListing, id: &str) -> Option<&'a RunEntry> {
    listing.runs.iter().find(|run| run.started.id == id)
}

/// When something is read again that took from `began` until now.
fn rested(began: Instant) -> Instant {
    Instant::now() + (began.elapsed() * REFRESH_COST_FACTOR).max(MIN_REFRESH_INTERVAL)
}

/// A thread that panicked leaves what it kept whole: it is replaced, never changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A run's folder; `minute` is when it began.
    fn record(runs: &Path, id: &str, minute: u64) {
        let started = format!(
            r#"{{"t_us":0,"event":"started","format":1,"id":"{id}","unix-ms":{},"command":["true"],"folder":"/","mode":"host","sconce-pid":1,"limits":{{}},"host":{{"hostname":"sun","kernel":"6.12","cpus":8,"memory":1}},"gpus":[]}}"#,
            minute * 60_000
        );
        let ended = r#"{"t_us":5,"event":"ended","exit":{"code":0},"last":{}}"#;
        let folder = runs.join(id);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(
            folder.join(sconce_record::FILE),
            format!("{started}\n{ended}\n"),
        )
        .unwrap();
    }

    #[test]
    fn the_newest_runs_are_read_ahead() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..=MAX_CACHED_RUNS as u64 {
            record(folder.path(), &format!("run-{n}"), n);
        }
        let kept = RecordCache::new(folder.path().to_owned());
        kept.read_ahead();
        let read: Vec<String> = locked(&kept.runs).keys().cloned().collect();
        let wanted: Vec<String> = (1..=MAX_CACHED_RUNS).map(|n| format!("run-{n}")).collect();
        assert_eq!(read, wanted);
        let slot = kept.slot("run-3");
        assert!(locked(&slot).is_some());
    }
}
