//! What a process is for, from what it was started with.

use std::path::Path;

use super::parse;
use super::reread_file::read_whole;

/// A loader's worker; a rank of several; what the run is for.
pub(super) const WORKER: &str = "worker";
pub(super) const RANK: &str = "rank";
pub(super) const MAIN: &str = "main";

/// What PyTorch calls the processes of its loaders, since 2.6.
const LOADER_NAME: &[u8] = b"pt_data_worker";
/// Of a command line, no more than this is looked at or kept.
const MAX_COMMAND_BYTES: usize = 4096;

/// What is read once of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProcessIdentity {
    /// Its number in its own namespace, where that is another.
    pub(super) inner_pid: Option<u32>,
    /// Program and arguments, a zero byte after each; its beginning.
    command: Vec<u8>,
    /// `RANK` was in its environment when it began.
    has_rank: bool,
}

impl ProcessIdentity {
    /// Reads it below `/proc/PID`; what may not be read is absent.
    pub(super) fn read(folder: &Path, pid: u32, buffer: &mut Vec<u8>) -> Self {
        let mut text = |name: &str| {
            let file = std::fs::File::open(folder.join(name)).ok()?;
            read_whole(&file, buffer).map(<[u8]>::to_vec)
        };
        let inner_pid = text("status")
            .and_then(|text| parse::innermost_pid(&text))
            .filter(|inner| *inner != pid);
        let mut command = text("cmdline").unwrap_or_default();
        command.truncate(MAX_COMMAND_BYTES);
        let has_rank = text("environ").is_some_and(|text| has_rank(&text));
        Self {
            inner_pid,
            command,
            has_rank,
        }
    }

    fn is_python(&self) -> bool {
        let program = self.command.split(|byte| *byte == 0).next();
        let name = program.and_then(|path| path.rsplit(|byte| *byte == b'/').next());
        name.is_some_and(|name| name.starts_with(b"python") || name.starts_with(b"pypy"))
    }

    fn says(&self, words: &str) -> bool {
        memchr::memmem::find(&self.command, words.as_bytes()).is_some()
    }
}

/// The role of a process named `name`, with a parent that belongs to the run, or none.
pub(super) fn process_role(
    name: &[u8],
    own: &ProcessIdentity,
    parent: Option<&ProcessIdentity>,
) -> Option<&'static str> {
    if name == LOADER_NAME {
        return Some(WORKER);
    }
    if !own.is_python() {
        return None;
    }
    // Compilers of kernels, and what keeps a list of shared memory: neither loads data.
    if own.says("compile_worker") || own.says("resource_tracker") {
        return None;
    }
    if own.says("multiprocessing.spawn") || own.says("spawn_main") {
        return Some(WORKER);
    }
    // The process that forks workers on request is none; its children are.
    let forked = parent.is_some_and(|parent| parent.command == own.command);
    if forked {
        return Some(WORKER);
    }
    if own.says("multiprocessing.forkserver") {
        return None;
    }
    if own.has_rank {
        return Some(RANK);
    }
    let below_python = parent.is_some_and(ProcessIdentity::is_python);
    (!below_python).then_some(MAIN)
}

/// Whether an environment has `RANK` with a number.
fn has_rank(environ: &[u8]) -> bool {
    environ.split(|byte| *byte == 0).any(|variable| {
        variable
            .strip_prefix(b"RANK=")
            .is_some_and(|rank| !rank.is_empty() && rank.iter().all(u8::is_ascii_digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str], has_rank: bool) -> ProcessIdentity {
        ProcessIdentity {
            inner_pid: None,
            command: words
                .iter()
                .flat_map(|word| [word.as_bytes(), b"\0"].concat())
                .collect(),
            has_rank,
        }
    }

    #[test]
    fn roles() {
        let train = of(&["/usr/bin/python3.13", "train.py"], false);
        let shell = of(&["sh", "run.sh"], false);
        let torchrun = of(&["python", "/bin/torchrun", "train.py"], false);
        let rank = of(&["/usr/bin/python3", "-u", "train.py"], true);
        let spawned = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9)";
        let spawned = of(
            &["/usr/bin/python3", "-c", spawned, "--multiprocessing-fork"],
            false,
        );
        let tracker = "from multiprocessing.resource_tracker import main;main(7)";
        let tracker = of(&["/usr/bin/python3", "-c", tracker], false);
        let server = "from multiprocessing.forkserver import main; main(5, 6)";
        let server = of(&["/usr/bin/python3", "-c", server], false);
        let compile = of(
            &["python", "torch/_inductor/compile_worker/__main__.py"],
            false,
        );
        for (own, parent, expected) in [
            (&train, Some(&shell), Some(MAIN)),
            (&train, None, Some(MAIN)),
            (&shell, None, None),
            (&torchrun, None, Some(MAIN)),
            (&rank, Some(&torchrun), Some(RANK)),
            (&rank, Some(&rank), Some(WORKER)),
            (&train, Some(&train), Some(WORKER)),
            (&spawned, Some(&train), Some(WORKER)),
            (&tracker, Some(&train), None),
            (&server, Some(&train), None),
            (&server, Some(&server), Some(WORKER)),
            (&compile, Some(&train), None),
            (&compile, Some(&compile), None),
        ] {
            assert_eq!(process_role(b"python", own, parent), expected, "{own:?}");
        }
        assert_eq!(
            process_role(LOADER_NAME, &ProcessIdentity::default(), None),
            Some(WORKER)
        );
    }

    #[test]
    fn a_rank_is_a_number() {
        assert!(has_rank(b"A=1\0RANK=0\0"));
        for text in [
            &b"RANK=\0"[..],
            b"RANK=a\0",
            b"LOCAL_RANK=1\0",
            b"",
            b"XRANK=1",
        ] {
            assert!(!has_rank(text));
        }
    }

    #[test]
    fn what_is_read_of_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("status", "Name:\tpython\nNSpid:\t4123\t17\n");
        write("cmdline", "python\0train.py\0");
        write("environ", "HOME=/\0RANK=3\0");
        let read = || ProcessIdentity::read(folder.path(), 4123, &mut Vec::new());
        assert_eq!(read().inner_pid, Some(17));
        assert_eq!(process_role(b"python", &read(), None), Some(RANK));
        write("status", "NSpid:\t4123\n");
        assert_eq!(read().inner_pid, None);
        let nothing = ProcessIdentity::read(&folder.path().join("gone"), 1, &mut Vec::new());
        assert_eq!(nothing, ProcessIdentity::default());
    }
}
