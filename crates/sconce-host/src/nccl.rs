//! Which network NCCL chose, read from the log that each process writes where `NCCL_DEBUG_FILE` says.
//!
//! The run can put anything there: names, sizes and numbers of files are bounded, no link is followed, and nothing but
//! regular files is opened.

mod log;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sconce_base::tree::TreeDirectory;
use sconce_schema::network::NcclNetwork;

pub use log::NcclLog;

/// The variables that have NCCL say which network it takes, and the value of each. `INIT` has the choice and the ranks,
/// `NET` the devices and GPU Direct RDMA, `ENV` the settings that it found: some dozen lines a process, all at its start
/// (`src/debug.cc` of NCCL; WARN lines are in every subsystem). `%p` is the process as it sees itself.
pub const VARIABLES: [(&str, &str); 2] = [
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "INIT,ENV,NET"),
];
/// The variable that has NCCL write to a file.
pub const FILE_VARIABLE: &str = "NCCL_DEBUG_FILE";
/// How each process's file is called in its directory.
pub const FILE_NAME: &str = "%p.log";

/// Processes whose files are read.
const MAX_FILES: usize = 256;
/// Of a file no more is read: the choice is at its beginning.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Of all files together, this much is kept with a record.
const MAX_KEPT_BYTES: u64 = 16 << 20;
/// What one reading takes of a file at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How often a process is told of anew: it says more of its choice until its communicator is there.
const MAX_UPDATES: u32 = 8;

/// Reads a directory of NCCL's logs while the run goes on.
#[derive(Debug)]
pub struct NcclReader {
    directory: PathBuf,
    /// Settings of the run's own variables: NCCL does not say all of them.
    settings: BTreeMap<String, String>,
    files: BTreeMap<u32, LogFile>,
    buffer: Vec<u8>,
}

#[derive(Debug, Default)]
struct LogFile {
    /// Which file it is: a process of the same number begins another.
    inode: u64,
    read_bytes: u64,
    log: NcclLog,
    told: Option<NcclNetwork>,
    updates: u32,
}

impl NcclReader {
    /// Reads `directory`, to which only the run writes. `env` are its variables.
    #[must_use]
    pub fn new(directory: PathBuf, env: &BTreeMap<String, String>) -> Self {
        Self {
            directory,
            settings: log::settings_of(env),
            files: BTreeMap::new(),
            buffer: vec![0; CHUNK_BYTES],
        }
    }

    /// Returns what is new since the last call of each process that has chosen, by process.
    pub fn read(&mut self) -> Vec<NcclNetwork> {
        let Ok(directory) = TreeDirectory::open(&self.directory) else {
            return Vec::new();
        };
        for name in directory.list_names().unwrap_or_default() {
            let Some(pid) = pid_of(&name) else { continue };
            if self.files.len() < MAX_FILES || self.files.contains_key(&pid) {
                let file = self.files.entry(pid).or_default();
                // What cannot be read now may be the next time.
                let _ = file.read(&directory, &name, &mut self.buffer);
            }
        }
        let files = self.files.iter_mut();
        let settings = &self.settings;
        files
            .filter_map(|(pid, file)| file.update(*pid, settings))
            .collect()
    }
}

impl NcclReader {
    /// Copies the beginning of each log that was read to `record` as `nccl-PID.log`, for its user alone.
    ///
    /// # Errors
    /// What the disk says; what was copied before stays.
    pub fn copy_logs(&self, record: &Path) -> io::Result<()> {
        let directory = TreeDirectory::open(&self.directory)?;
        let mut left = MAX_KEPT_BYTES;
        for pid in self.files.keys() {
            if left == 0 {
                break;
            }
            // The run may have removed it.
            let name = format!("{pid}.log");
            let Ok(log) = directory.open_regular_file(OsStr::new(&name)) else {
                continue;
            };
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600);
            let mut copy = options.open(record.join(format!("nccl-{name}")))?;
            left -= io::copy(&mut log.take(MAX_FILE_BYTES.min(left)), &mut copy)?;
        }
        Ok(())
    }
}

impl LogFile {
    fn read(
        &mut self,
        directory: &TreeDirectory,
        name: &OsStr,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let file = directory.open_regular_file(name)?;
        let metadata = file.metadata()?;
        if metadata.ino() != self.inode || metadata.len() < self.read_bytes {
            *self = Self {
                inode: metadata.ino(),
                told: self.told.take(),
                updates: self.updates,
                ..Self::default()
            };
        }
        while self.read_bytes < MAX_FILE_BYTES {
            let count = file.read_at(buffer, self.read_bytes)?;
            if count == 0 {
                break;
            }
            self.read_bytes += count as u64;
            self.log.add(&buffer[..count]);
        }
        Ok(())
    }

    fn update(&mut self, pid: u32, settings: &BTreeMap<String, String>) -> Option<NcclNetwork> {
        let mut now = self.log.network(pid)?;
        for (name, value) in settings {
            let said = now.settings.entry(name.clone());
            said.or_insert_with(|| value.clone());
        }
        if self.updates == MAX_UPDATES || self.told.as_ref() == Some(&now) {
            return None;
        }
        self.updates += 1;
        self.told = Some(now.clone());
        Some(now)
    }
}

/// The process whose file has this name; other names are nobody's.
fn pid_of(name: &OsStr) -> Option<u32> {
    let digits = name.to_str()?.strip_suffix(".log")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn reader_of(directory: &Path) -> NcclReader {
        NcclReader::new(directory.to_owned(), &BTreeMap::new())
    }

    fn line(text: &str) -> String {
        format!("n1:7:7 [0] NCCL INFO {text}\n")
    }

    #[test]
    fn a_choice_is_told_once_and_again_when_more_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("7.log");
        let mut reader = reader_of(dir.path());
        assert!(reader.read().is_empty());
        // The last line is not whole yet.
        fs::write(&path, "n1:7:7 [0] NCCL INFO Using net").unwrap();
        assert!(reader.read().is_empty());
        let mut file = fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"work IB\n").unwrap();
        let [first] = &*reader.read() else {
            panic!("one process");
        };
        assert_eq!((first.inner_pid, &*first.network), (7, "IB"));
        assert!(reader.read().is_empty());
        let more = line("comm 0x1 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0");
        file.write_all(more.as_bytes()).unwrap();
        assert_eq!(reader.read()[0].ranks, Some(2));
        // Another process of the same number begins the file anew.
        fs::write(&path, line("Using network Socket")).unwrap();
        let [again] = &*reader.read() else {
            panic!("one process");
        };
        assert_eq!((&*again.network, again.ranks), ("Socket", None));
    }

    #[test]
    fn a_setting_that_nccl_does_not_say_is_that_of_the_runs_variables() {
        let dir = tempfile::tempdir().unwrap();
        let said = line("NCCL_IB_HCA set to mlx5_0") + &line("Using network Socket");
        fs::write(dir.path().join("7.log"), said).unwrap();
        let variables = [
            ("NCCL_NET", "Socket"),
            ("NCCL_IB_HCA", "other"),
            ("TOKEN", "secret"),
        ];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let env = variables.map(owned).into();
        let told = NcclReader::new(dir.path().to_owned(), &env).read();
        let settings: Vec<(&str, &str)> = (told[0].settings.iter())
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(
            settings,
            [("NCCL_IB_HCA", "mlx5_0"), ("NCCL_NET", "Socket")]
        );
    }

    #[test]
    fn only_regular_files_of_processes_are_read_and_not_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let choice = line("Using network IB");
        fs::write(dir.path().join("secret"), &choice).unwrap();
        symlink(dir.path().join("secret"), dir.path().join("8.log")).unwrap();
        fs::create_dir(dir.path().join("9.log")).unwrap();
        for name in ["007.log", "-1.log", "+1.log", "4294967296.log", "1.txt"] {
            fs::write(dir.path().join(name), &choice).unwrap();
        }
        let fifo = dir.path().join("10.log");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        let late = dir.path().join("11.log");
        let filler = line(&"x".repeat(1000)).repeat(1100);
        fs::write(&late, filler + &choice).unwrap();
        assert!(reader_of(dir.path()).read().is_empty());
        assert!(reader_of(Path::new("/nowhere")).read().is_empty());
    }

    #[test]
    fn neither_many_processes_nor_one_that_changes_its_mind_fill_a_record() {
        let dir = tempfile::tempdir().unwrap();
        for pid in 1..=MAX_FILES + 10 {
            let file = dir.path().join(format!("{pid}.log"));
            fs::write(file, line("Using network IB")).unwrap();
        }
        let mut reader = reader_of(dir.path());
        assert_eq!(reader.read().len(), MAX_FILES);
        let pid = *reader.files.keys().next().unwrap();
        let path = dir.path().join(format!("{pid}.log"));
        let mut told = 1;
        for round in 0..20 {
            let mut file = fs::File::options().append(true).open(&path).unwrap();
            let choice = line(&format!("Using network N{round}"));
            file.write_all(choice.as_bytes()).unwrap();
            told += reader.read().len();
        }
        assert_eq!(told, MAX_UPDATES as usize);
    }
}
