//! What a job's tasks print: a file for each, one for the scheduler's own words.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::job::lookup::KnownJob;
use sconce_app::job::query::{SilenceWatch, query_jobs};
use sconce_schema::exit;

use crate::output;

/// Time between two looks at the files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The most that is read of a file at a time, bytes.
const MAX_READ_BYTES: u64 = 1 << 20;

/// The name of the log of what makes a job's environment before.
pub(crate) const PREPARATION: &str = "preparation";

/// Prints the logs of a job, with the task's name before each line where several are shown, of an array the element's
/// index too; as long as it has none, that of what makes its environment. With `follow`, until the job has ended.
pub(crate) fn print_job_logs(
    job: &KnownJob,
    task: Option<u32>,
    follow: bool,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<u8> {
    if let Some(task) = task {
        job.check_task(task)?;
    }
    let elements = job.elements();
    let mut watch = SilenceWatch::default();
    let mut files: BTreeMap<PathBuf, LogFile> = BTreeMap::new();
    let mut is_silent = true;
    loop {
        // Asked first: what was printed before the end is read below.
        let goes_on = follow && {
            let job = std::slice::from_ref(job);
            let known = query_jobs(job, places, context)?;
            watch.tell(known.silence.as_ref(), context);
            known.reports.iter().any(|report| !report.is_final)
        };
        for element in &elements {
            let index = job.request.array.as_ref().and_then(|_| element.dir.index());
            for (path, name) in list_logs(&element.dir.logs(), task) {
                let name = index.map_or(name.clone(), |index| format!("{index} {name}"));
                files.entry(path).or_insert_with(|| LogFile::new(name));
            }
        }
        if let Some(preparation) = job.preparation().filter(|_| files.is_empty()) {
            for (path, name) in list_logs(&preparation.dir.logs(), task) {
                let name = match name.as_str() {
                    "task-0" => PREPARATION.to_owned(),
                    other => format!("{PREPARATION} {other}"),
                };
                files.entry(path).or_insert_with(|| LogFile::new(name));
            }
        }
        let are_several = files.len() > 1;
        for (path, file) in &mut files {
            let text = file.read_lines(path, !goes_on);
            is_silent &= text.is_empty();
            let prefix = are_several.then_some(file.name.as_str());
            if !text.is_empty() && !output::write_bytes(&with_prefix(&text, prefix))? {
                return Ok(exit::OK);
            }
        }
        if !goes_on {
            if is_silent && !context.quiet {
                output::print_message(&format!("nothing was written: {}", job.request.token));
            }
            return Ok(exit::OK);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// `task-3.log` and, where no task is named, `scheduler.log`, with what is before their lines.
fn list_logs(folder: &Path, task: Option<u32>) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter_map(|path| {
            let stem = path.file_stem()?.to_str()?.to_owned();
            let number = stem.strip_prefix("task-").map(str::parse::<u32>);
            let is_meant = match (task, number) {
                (None, _) => true,
                (Some(task), Some(Ok(number))) => task == number,
                (Some(_), _) => false,
            };
            is_meant.then_some((path, stem))
        })
        .collect()
}

struct LogFile {
    name: String,
    read_bytes: u64,
    /// Of a line whose end is not there yet.
    rest: Vec<u8>,
}

impl LogFile {
    fn new(name: String) -> Self {
        Self {
            name,
            read_bytes: 0,
            rest: Vec::new(),
        }
    }

    /// The lines that have come since; with `all`, the last one without its end too.
    fn read_lines(&mut self, path: &Path, all: bool) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.rest);
        if let Ok(mut file) = File::open(path)
            && file.seek(SeekFrom::Start(self.read_bytes)).is_ok()
        {
            let limit = if all { u64::MAX } else { MAX_READ_BYTES };
            let read = file.take(limit).read_to_end(&mut text);
            self.read_bytes += read.map_or(0, |read| u64::try_from(read).unwrap_or_default());
        }
        let end = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if !all {
            self.rest = text.split_off(end);
        } else if end < text.len() {
            text.push(b'\n');
        }
        text
    }
}

fn with_prefix(text: &[u8], prefix: Option<&str>) -> Vec<u8> {
    let Some(prefix) = prefix else {
        return text.to_vec();
    };
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines
        .flat_map(|line| [prefix.as_bytes(), b" | ", line].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task-0.log");
        let mut log = LogFile::new("task-0".to_owned());
        assert_eq!(log.read_lines(&path, false), b"");
        std::fs::write(&path, "a\nb").unwrap();
        assert_eq!(log.read_lines(&path, false), b"a\n");
        std::fs::write(&path, "a\nbc\nd").unwrap();
        assert_eq!(log.read_lines(&path, false), b"bc\n");
        assert_eq!(log.read_lines(&path, true), b"d\n");
        assert_eq!(
            with_prefix(b"a\nb\n", Some("task-0")),
            b"task-0 | a\ntask-0 | b\n"
        );
    }

    #[test]
    fn one_task_is_its_own_log_alone() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["task-1.log", "task-12.log", "scheduler.log", "task-x.log"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |task| {
            let mut names: Vec<_> = list_logs(dir.path(), task)
                .into_iter()
                .map(|(_, name)| name)
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(Some(1)), ["task-1"]);
        assert_eq!(names(None).len(), 4);
    }
}
