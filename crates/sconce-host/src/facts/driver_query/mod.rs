//! Questions that only the driver's libraries answer, asked in a child process with a time limit.
//!
//! A driver that is broken answers late or never, or takes the process down that asks. The child
//! is the calling program itself, started with a name, arguments and input of its choice; it calls [`run_query`] and prints what that gives, one line of JSON. The parent calls
//! [`query_nvml()`] or [`cuda_init`].

mod cuda;

use std::ffi::OsString;
use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sconce_schema::facts::CudaInit;
use serde::de::DeserializeOwned;

use super::nvml::{self, NvmlReply};
use crate::nvml::NvmlLibrary;

/// How to start a child that answers.
#[derive(Debug, Clone)]
pub struct QueryProcess {
    /// The program.
    pub program: PathBuf,
    /// Its `argv[0]`, where that is another name than the program's.
    pub name: Option<OsString>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What it reads on its standard input; at most 4 KiB, which a pipe takes at once.
    pub input: Vec<u8>,
    /// How long it may take.
    pub limit: Duration,
}

/// What a child is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverQuery {
    /// `cuInit` of this library: a file, or a name that the loader finds.
    Cuda(OsString),
    /// Everything of NVML.
    Nvml(NvmlLibrary),
}

impl DriverQuery {
    /// `cuInit` of the machine's own `libcuda.so.1`.
    #[must_use]
    pub fn system_cuda() -> Self {
        Self::Cuda("libcuda.so.1".into())
    }
}

/// Why a child gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DriverQueryError {
    /// It could not be started, or not be waited for.
    #[error("{} cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It took too long and was killed.
    #[error("no answer within {limit_ms} ms")]
    Late {
        /// The limit.
        limit_ms: u128,
    },
    /// A signal ended it.
    #[error("ended by signal {number} ({})", signal_name(*number))]
    Signal {
        /// The signal.
        number: i32,
    },
    /// It ended without an answer.
    #[error("ended with exit code {code} and no answer")]
    Ended {
        /// The exit code.
        code: i32,
    },
}

/// The child's part: the answer to print, one line without its end. In it NVIDIA's library is
/// loaded, and whatever goes wrong there ends this process.
#[must_use]
pub fn run_query(question: &DriverQuery) -> String {
    match question {
        DriverQuery::Cuda(library) => json(&cuda::init_driver(library)),
        DriverQuery::Nvml(from) => json(&nvml::read(from)),
    }
}

/// Numbers and texts alone, which always can be written.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// What came of `cuInit` in a child.
#[must_use]
pub fn cuda_init(child: &QueryProcess) -> CudaInit {
    ask(child).unwrap_or_else(|error| CudaInit {
        error: Some(error.to_string()),
        ..CudaInit::default()
    })
}

/// What NVML told a child.
#[must_use]
pub fn query_nvml(child: &QueryProcess) -> NvmlReply {
    ask(child).unwrap_or_else(|error| NvmlReply::from_error(&error.to_string()))
}

/// Starts the child and reads its answer: the last line of its output that is one, since a library
/// may print too.
fn ask<T: DeserializeOwned>(child: &QueryProcess) -> Result<T, DriverQueryError> {
    /// The answer for a machine with 16 cards has 30 KB.
    const MAX_OUTPUT_BYTES: u64 = 4 << 20;
    let start = |source| DriverQueryError::Start {
        program: child.program.clone(),
        source,
    };
    let deadline = Instant::now() + child.limit;
    let mut command = Command::new(&child.program);
    if let Some(name) = &child.name {
        command.arg0(name);
    }
    let mut started = command
        .args(&child.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(start)?;
    if let Some(mut stdin) = started.stdin.take() {
        // One that has ended says more by its end.
        let _ = stdin.write_all(&child.input);
    }
    let output = started.stdout.take();
    let (tell, told) = mpsc::channel();
    // Not joined: it ends with the pipe, which a grandchild may keep open.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // What was read before a failure still counts.
            let _ = output.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
        }
        // Nobody listens where it came too late.
        let _ = tell.send(bytes);
    });
    let bytes = told.recv_timeout(child.limit).ok();
    let status = wait(&mut started, deadline).map_err(start)?;
    match (bytes, status) {
        (_, None) => Err(DriverQueryError::Late {
            limit_ms: child.limit.as_millis(),
        }),
        (bytes, Some(status)) => {
            let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
            let mut lines = text.lines().rev();
            let found = lines.find_map(|line| {
                let line = line.trim();
                line.starts_with('{')
                    .then(|| serde_json::from_str(line).ok())?
            });
            // An answer counts although the library crashed while it was let go.
            found.ok_or_else(|| ended(status))
        }
    }
}

/// Waits until the deadline, then kills. `None` for a child that was late. One that is stuck in
/// the kernel cannot be killed; it is left behind, and init reaps it when the driver lets it go.
fn wait(
    child: &mut std::process::Child,
    deadline: Instant,
) -> Result<Option<ExitStatus>, std::io::Error> {
    const POLL_INTERVAL: Duration = Duration::from_millis(1);
    const KILL_TIMEOUT: Duration = Duration::from_millis(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    child.kill()?;
    let last = Instant::now() + KILL_TIMEOUT;
    while child.try_wait()?.is_none() && Instant::now() < last {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(None)
}

fn ended(status: ExitStatus) -> DriverQueryError {
    match (status.signal(), status.code()) {
        (Some(number), _) => DriverQueryError::Signal { number },
        (None, code) => DriverQueryError::Ended {
            code: code.unwrap_or(-1),
        },
    }
}

/// Signals that end a process by its own fault, and kills (signal(7)).
fn signal_name(number: i32) -> &'static str {
    match number {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => "another signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> CudaInit {
        cuda_init(&QueryProcess {
            program: "/bin/sh".into(),
            name: None,
            input: Vec::new(),
            arguments: vec!["-c".into(), script.into()],
            limit,
        })
    }

    const LONG_TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn answers_and_ends() {
        let told = shell(
            r#"echo noise; echo '{"result":100,"devices":null}'; kill -SEGV $$"#,
            LONG_TIMEOUT,
        );
        assert_eq!((told.result, told.error), (Some(100), None));
        for (script, error) in [
            ("kill -SEGV $$", "ended by signal 11 (SIGSEGV)"),
            ("exit 3", "ended with exit code 3 and no answer"),
            ("echo '{ no json'", "ended with exit code 0 and no answer"),
            ("echo '[1]'", "ended with exit code 0 and no answer"),
        ] {
            assert_eq!(
                shell(script, LONG_TIMEOUT).error.as_deref(),
                Some(error),
                "{script}"
            );
        }
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let told = shell("exec sleep 600", Duration::from_millis(50));
        assert_eq!(told.error.as_deref(), Some("no answer within 50 ms"));
    }

    #[test]
    fn a_program_that_is_not_there() {
        let child = QueryProcess {
            program: "/nowhere/sconce".into(),
            name: None,
            input: Vec::new(),
            arguments: vec![],
            limit: LONG_TIMEOUT,
        };
        let error = cuda_init(&child).error.unwrap();
        assert!(
            error.starts_with("/nowhere/sconce cannot be started"),
            "{error}"
        );
        assert_eq!(query_nvml(&child).library.error, Some(error));
    }

    #[test]
    fn a_library_that_is_not_there() {
        let told: CudaInit = serde_json::from_str(&run_query(&DriverQuery::Cuda(
            "/nowhere/libcuda.so.1".into(),
        )))
        .unwrap();
        let error = told.error.unwrap();
        assert!(
            error.contains("/nowhere/libcuda.so.1: cannot open"),
            "{error}"
        );
        assert_eq!(told.result, None);
    }
}
