//! A record that is still being written.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sconce_record::{RecordError, RecordReader, RunEntry, RunState};
use sconce_report::live::LiveRun;

/// So long a record is read before a key is looked for.
const READ_TIME_SLICE: Duration = Duration::from_millis(50);

/// An open record, read as far as it goes.
pub(super) struct RecordFollower {
    path: PathBuf,
    record: RecordReader<BufReader<File>>,
    /// Lines up to this time, µs, were taken before the record was opened anew.
    taken_us: Option<u64>,
    /// It was read to its end once: a line that is torn then is one that is being written.
    caught_up: bool,
    /// The list knew of more than was read.
    behind: bool,
}

impl RecordFollower {
    pub(super) fn open(path: &Path) -> Result<(Self, LiveRun), RecordError> {
        let record = sconce_record::open_record(path)?;
        let run = LiveRun::new(record.started.clone(), record.running);
        let follow = Self {
            path: path.to_owned(),
            record,
            taken_us: None,
            caught_up: false,
            behind: false,
        };
        Ok((follow, run))
    }

    /// Gives new lines to `run`; true when there may be more at once.
    pub(super) fn read_new_lines(&mut self, run: &mut LiveRun) -> bool {
        let until = Instant::now() + READ_TIME_SLICE;
        while Instant::now() < until {
            match self.record.next() {
                None => {
                    self.caught_up = true;
                    return false;
                }
                Some(Ok(line)) => {
                    self.behind = false;
                    if self.taken_us.is_none_or(|taken| line.t_us > taken) {
                        run.add_line(Ok(line));
                    }
                }
                Some(Err(_)) if self.caught_up => {}
                Some(damage) => run.add_line(damage),
            }
        }
        true
    }

    /// Where the list knows a later line and none comes, the file is another now, or a line was
    /// read while it was being written: the record is opened anew.
    pub(super) fn reconcile_with_entry(&mut self, entry: &RunEntry, run: &mut LiveRun) {
        if !self.caught_up {
            return;
        }
        let last_us = entry.last.as_ref().map_or(0, |line| line.t_us);
        if last_us > run.t_us() {
            if self.behind
                && let Ok(record) = sconce_record::open_record(&self.path)
            {
                self.record = record;
                self.taken_us = Some(run.t_us());
                self.behind = false;
            } else {
                self.behind = true;
            }
        } else if entry.state == RunState::Interrupted {
            run.mark_interrupted();
        }
    }
}
