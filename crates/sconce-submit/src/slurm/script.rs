//! The script that sbatch is given: its own lines, the target's, and one step that starts Sconce on every node.
//!
//! Three rules of quoting meet in it. Lines of `#SBATCH` are split by sbatch itself: quotes hold words together, within
//! `"…"` a `\` takes the next character as it is, an unquoted `#` ends the line, nothing is expanded. The path of the
//! log is a pattern beside that, in which `%%` stands for `%` (sbatch(1), "FILENAME PATTERN"). The last line is the
//! shell's. Tried with 22.05.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use sconce_base::text::{is_unprintable, to_printable};
use sconce_schema::job::JobArray;
use sconce_schema::request::Mount;

use super::options::check_options;
use super::owned_options::{SBATCH, SRUN, owned_of_sbatch, owned_of_srun};
use crate::dependency::{DependencyKind, JobDependency};
use crate::error::SubmitError;
use crate::scheduler::{JobScript, NodeWork, StepContainer};

/// The log of what the script and srun say: in a job's directory, or in that of an array's element.
pub const LOG_NAME: &str = "logs/scheduler.log";

/// The directory in a job's, with one for each element of an array, which its index names.
pub const ARRAY_DIR: &str = "array";

/// The directory in a job's for what becomes of its preparation.
pub const PREPARATION_DIR: &str = "preparation";

/// The logs of what each task prints, beside [`LOG_NAME`]; `%t` is its number (srun(1), "IO REDIRECTION").
const TASK_LOG_PATTERN: &str = "logs/task-%t.log";

/// What stands before the token in a job's comment.
const COMMENT_PREFIX: &str = "sconce:";

/// What a script says where a line of the target's `setup` fails, before its exit code.
pub(super) const SETUP_FAILED: &str = "sconce: a line of setup failed with exit code ";

/// The longest token, characters.
const MAX_TOKEN_CHARS: usize = 128;

/// Lines of other schedulers that sbatch reads too (sbatch(1), `--ignore-pbs`), and its own.
const HEADER_WORDS: [&str; 3] = ["#SBATCH", "#PBS", "#BSUB"];

/// Returns the comment by which a job is found.
///
/// # Errors
/// The token is none.
pub(super) fn job_comment(token: &str) -> Result<String, SubmitError> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if token.is_empty() || token.len() > MAX_TOKEN_CHARS || !token.chars().all(is_part) {
        let wanted = "letters, digits, `-`, `_` and `.`, 128 at most";
        return Err(wrong_value("the job's token", token, wanted));
    }
    Ok(format!("{COMMENT_PREFIX}{token}"))
}

/// The token in a comment; `None` where it is of somebody else's job.
pub(super) fn token_of_comment(comment: &str) -> Option<&str> {
    comment.strip_prefix(COMMENT_PREFIX)
}

/// Renders the script of a job.
///
/// Whether it is started again after a node's failure is left to Slurm (`JobRequeue` of slurm.conf(5)) and to the
/// target's own options: `--open-mode=append` keeps the log of earlier starts either way.
///
/// # Errors
/// A value cannot stand in a script, or an option of the target contradicts one of Sconce's.
pub(super) fn render_script(job: &JobScript<'_>) -> Result<String, SubmitError> {
    check_numbers(job)?;
    let target = job.target;
    let sbatch = check_options(&SBATCH, &target.sbatch, &owned_of_sbatch(job))?;
    let srun = check_options(&SRUN, &target.srun, &owned_of_srun())?;
    check_setup(&target.setup)?;

    let mut script = String::from("#!/bin/sh\n");
    for (name, value) in sbatch_options(job)? {
        let _ = writeln!(script, "#SBATCH --{name}={}", quote_for_sbatch(&value));
    }
    for words in sbatch {
        let words: Vec<String> = words.iter().map(|word| quote_for_sbatch(word)).collect();
        let _ = writeln!(script, "#SBATCH {}", words.join(" "));
    }
    script.push('\n');
    script.push_str(&setup_lines(&target.setup));
    let words = srun_words(job, srun)?;
    let mut words: Vec<String> = words.iter().map(|word| quote_for_shell(word)).collect();
    words.insert(1, cpus_of_task(job));
    let _ = writeln!(script, "exec {}", words.join(" "));
    Ok(script)
}

/// Lists Sconce's own options of sbatch.
fn sbatch_options(job: &JobScript<'_>) -> Result<Vec<(&'static str, String)>, SubmitError> {
    let layout = job.layout;
    let target = job.target;
    let name = one_line("the job's name", job.name)?;
    let job_dir = absolute("the job's directory", job.job_dir)?;
    if job_dir.contains('\\') {
        // sbatch(1), "FILENAME PATTERN": a backslash keeps all patterns as they are, and with them `%%`.
        let wanted = "a path without `\\`, which Slurm's own log could lie in";
        return Err(wrong_value("the job's directory", &job_dir, wanted));
    }
    let log = format!("{}/{LOG_NAME}", log_root(&job_dir, job));
    let work_dir = absolute("the working directory", job.work_dir)?;
    let gpus = layout.gpus_per_node.filter(|gpus| *gpus > 0);
    let mut options = vec![
        ("job-name", name),
        ("comment", job_comment(job.token)?),
        ("nodes", layout.nodes.to_string()),
        ("ntasks-per-node", layout.tasks_per_node().to_string()),
    ];
    let mut add = |name, value: Option<String>| options.extend(value.map(|value| (name, value)));
    add("array", job.array.map(format_array));
    add(
        "cpus-per-task",
        job.cpus_per_task.map(|cpus| cpus.to_string()),
    );
    let kind = target.gpu_type.as_deref();
    let kind = kind.map(|kind| one_line("gpu-type", kind)).transpose()?;
    let kind = kind.map_or_else(String::new, |kind| format!("{kind}:"));
    add("gpus-per-node", gpus.map(|gpus| format!("{kind}{gpus}")));
    let memory = job.memory_per_node.map(|bytes| bytes.0.div_ceil(1 << 20));
    add("mem", memory.map(|mib| format!("{mib}M")));
    add("time", job.time_limit.map(format_time));
    for (name, value) in [
        ("partition", &target.partition),
        ("account", &target.account),
        ("qos", &target.qos),
        ("constraint", &target.constraint),
        ("reservation", &target.reservation),
    ] {
        let value = value.as_deref().map(|value| one_line(name, value));
        add(name, value.transpose()?);
    }
    options.extend(dependency_options(job.after));
    if job.leaves_limits {
        options.push(("propagate", "NONE".to_owned()));
    }
    options.extend([
        // The variables of whoever hands it over stay there: they may be secrets, and they are another machine's.
        ("export", "NONE".to_owned()),
        ("open-mode", "append".to_owned()),
        ("output", log),
        ("chdir", work_dir),
    ]);
    Ok(options)
}

/// Lists the options by which a job waits for others, and leaves the queue where one of them ends otherwise than it has
/// to: it would wait for ever (sbatch(1), `--dependency`).
pub(super) fn dependency_options(after: &[JobDependency]) -> Vec<(&'static str, String)> {
    if after.is_empty() {
        return Vec::new();
    }
    vec![
        ("dependency", dependency_value(after, &[])),
        ("kill-on-invalid-dep", "yes".to_owned()),
    ]
}

/// All of `after`, by their kinds: `afterany:7,afterok:8:9`. Words of shell that become ids of jobs which have to end well
/// stand last.
fn dependency_value(after: &[JobDependency], words: &[&str]) -> String {
    let kinds = [
        DependencyKind::AfterAny,
        DependencyKind::AfterNotOk,
        DependencyKind::AfterOk,
    ];
    let of_kind = |kind: DependencyKind| {
        let jobs = after.iter().filter(|one| one.kind == kind);
        let mut ids: Vec<&str> = jobs.map(|one| one.job.as_str()).collect();
        if kind == DependencyKind::AfterOk {
            ids.extend(words);
        }
        (!ids.is_empty()).then(|| format!("{}:{}", kind.name(), ids.join(":")))
    };
    let parts: Vec<String> = kinds.into_iter().filter_map(of_kind).collect();
    parts.join(",")
}

/// Renders a script that hands over both, the second after the first. Options of sbatch's command line count before those
/// of a script (sbatch(1), "INPUT ENVIRONMENT VARIABLES").
///
/// # Errors
/// A script has a line by which the shell would end it.
pub(super) fn render_both(
    preparation: &str,
    job: &str,
    after: &[JobDependency],
) -> Result<String, SubmitError> {
    const ENDS: [&str; 2] = ["END_OF_PREPARATION", "END_OF_JOB"];
    for script in [preparation, job] {
        if let Some(line) = script.lines().find(|line| ENDS.contains(line)) {
            let wanted = "a line that does not end the script around it";
            return Err(wrong_value("a line of `setup`", line, wanted));
        }
    }
    // A cluster's name may stand behind the number (sbatch(1), `--parsable`).
    let dependency = dependency_value(after, &["${preparation%%;*}"]);
    let [end_of_preparation, end_of_job] = ENDS;
    Ok(format!(
        "#!/bin/sh\n\
         # Hands over two jobs: the first makes the environment, the second runs in it.\n\
         set -e\n\
         preparation=$(sbatch --parsable <<'{end_of_preparation}'\n\
         {preparation}\
         {end_of_preparation}\n\
         )\n\
         exec sbatch \"--dependency={dependency}\" --kill-on-invalid-dep=yes \"$@\" <<'{end_of_job}'\n\
         {job}\
         {end_of_job}\n"
    ))
}

/// Lists the words of the step, of which the script becomes the process.
fn srun_words(job: &JobScript<'_>, target: Vec<Vec<String>>) -> Result<Vec<String>, SubmitError> {
    let layout = job.layout;
    let tasks = u64::from(layout.nodes) * u64::from(layout.tasks_per_node());
    let mut words = vec![
        "srun".to_owned(),
        // sbatch's `--export=NONE` is in the job as SLURM_EXPORT_ENV, which srun would obey (sbatch(1), `--export`).
        "--export=ALL".to_owned(),
        format!("--nodes={}", layout.nodes),
        format!("--ntasks={tasks}"),
        format!("--ntasks-per-node={}", layout.tasks_per_node()),
    ];
    words.push("--kill-on-bad-exit=1".to_owned());
    let job_dir = absolute("the job's directory", job.job_dir)?;
    words.push(format!(
        "--output={}/{TASK_LOG_PATTERN}",
        log_root(&job_dir, job)
    ));
    words.extend(target.into_iter().flatten());
    words.extend(container_words(job)?);
    words.extend([absolute("the program", job.program)?, "node".to_owned()]);
    if job.work == NodeWork::Preparation {
        words.push("--prepare".to_owned());
    }
    words.push(job_dir);
    Ok(words)
}

/// Lists the words that have Slurm start the step in a container: `--container` (srun(1)), or pyxis' own
/// (its README, "srun options").
fn container_words(job: &JobScript<'_>) -> Result<Vec<String>, SubmitError> {
    Ok(match job.container {
        None => Vec::new(),
        Some(StepContainer::Bundle(bundle)) => {
            let bundle = absolute("the container's bundle", bundle)?;
            vec![format!("--container={bundle}")]
        }
        Some(StepContainer::Squashfs { image, mounts }) => {
            let mut words = vec![format!(
                "--container-image={}",
                absolute("the container's image", image)?
            )];
            let mounts = mounts.iter().map(pyxis_mount);
            let mounts = mounts.collect::<Result<Vec<_>, _>>()?;
            if !mounts.is_empty() {
                words.push(format!("--container-mounts={}", mounts.join(",")));
            }
            // The user stays who they are, and the home is not there.
            words.extend(
                [
                    "--no-container-mount-home",
                    "--no-container-remap-root",
                    "--no-container-entrypoint",
                    "--container-writable",
                ]
                .map(str::to_owned),
            );
            words
        }
    })
}

/// A mount as pyxis takes it: `SOURCE:TARGET[:FLAGS]`, with a comma between mounts and no way to quote either.
fn pyxis_mount(mount: &Mount) -> Result<String, SubmitError> {
    let path = |path: &Path| {
        let text = absolute("a mount", path)?;
        match text.contains([':', ',']) {
            true => Err(wrong_value(
                "a mount",
                &text,
                "a path without `:` and `,`, which pyxis splits at",
            )),
            false => Ok(text),
        }
    };
    let flags = if mount.read_only { ":ro" } else { "" };
    Ok(format!(
        "{}:{}{flags}",
        path(&mount.source)?,
        path(&mount.target)?
    ))
}

/// Says how many CPUs each task has, in shell: from 22.05 to 23.02 srun does not take that from the job (RELEASE_NOTES
/// of 22.05 and 23.11), and would give one. Where nobody said how many, it is a task's share of those that the job
/// has on its first node.
fn cpus_of_task(job: &JobScript<'_>) -> String {
    let tasks = job.layout.tasks_per_node();
    match job.cpus_per_task {
        Some(cpus) => format!("--cpus-per-task={cpus}"),
        None => {
            let cpus = "SLURM_CPUS_ON_NODE";
            format!("--cpus-per-task=$(({cpus} > {tasks} ? {cpus} / {tasks} : 1))")
        }
    }
}

/// The directory in which logs lie, as a pattern: of each element of an array its own (`%a`).
fn log_root(job_dir: &str, job: &JobScript<'_>) -> String {
    let job_dir = escape_pattern(job_dir);
    match (job.work, job.array) {
        (NodeWork::Preparation, _) => format!("{job_dir}/{PREPARATION_DIR}"),
        (NodeWork::Run, Some(_)) => format!("{job_dir}/{ARRAY_DIR}/%a"),
        (NodeWork::Run, None) => job_dir,
    }
}

/// The elements of an array as sbatch takes them (`--array`): `0-3,7%2`.
fn format_array(array: &JobArray) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for index in &array.indices {
        match ranges.last_mut() {
            Some((_, last)) if *index == *last + 1 => *last = *index,
            _ => ranges.push((*index, *index)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let list = ranges.collect::<Vec<_>>().join(",");
    match array.at_once {
        Some(at_once) => format!("{list}%{at_once}"),
        None => list,
    }
}

/// A directory in a pattern of sbatch's and srun's, in which `%%` stands for `%`.
fn escape_pattern(dir: &str) -> String {
    dir.trim_end_matches('/').replace('%', "%%")
}

/// Refuses numbers that Slurm would take for something else: 0 is all memory and no limit of time.
fn check_numbers(job: &JobScript<'_>) -> Result<(), SubmitError> {
    let layout = job.layout;
    let at_least_one = "a number of 1 or more";
    for (what, is_zero) in [
        ("the number of nodes", layout.nodes == 0),
        ("the number of CPUs", job.cpus_per_task == Some(0)),
        (
            "the memory of a node",
            job.memory_per_node.is_some_and(|bytes| bytes.0 == 0),
        ),
        (
            "the time limit",
            job.time_limit.is_some_and(|time| time.is_zero()),
        ),
    ] {
        if is_zero {
            return Err(wrong_value(what, "0", at_least_one));
        }
    }
    Ok(())
}

/// Refuses lines of setup that sbatch would read as its own.
fn check_setup(lines: &[String]) -> Result<(), SubmitError> {
    for line in lines {
        one_line("a line of `setup`", line)?;
        if HEADER_WORDS.iter().any(|word| line.starts_with(word)) {
            let wanted = "a line of shell: options belong into `sbatch` of the target";
            return Err(wrong_value("a line of `setup`", line, wanted));
        }
    }
    Ok(())
}

/// The lines of setup, of which one that fails ends the job and says so: a module that is not there would be missed later,
/// or not at all. A line `set +e` before lets it go on.
fn setup_lines(lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("trap 'echo \"{SETUP_FAILED}$?\" >&2' EXIT\nset -e\n{lines}set +e\ntrap - EXIT\n")
}

/// Formats a time as sbatch takes it (`--time`): hours, or days with hours, and whole seconds.
fn format_time(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let (minutes, s) = (seconds / 60, seconds % 60);
    let (hours, m) = (minutes / 60, minutes % 60);
    let (days, h) = (hours / 24, hours % 24);
    match days {
        0 => format!("{h:02}:{m:02}:{s:02}"),
        _ => format!("{days}-{h:02}:{m:02}:{s:02}"),
    }
}

/// Takes a value that stands in one line.
fn one_line(what: &'static str, value: &str) -> Result<String, SubmitError> {
    // A tab may stand in a line of shell.
    let breaks = |c: char| is_unprintable(c) && c != '\t';
    if value.trim().is_empty() || value.contains(breaks) {
        let wanted = "one line that is not empty and has no control characters";
        return Err(wrong_value(what, value, wanted));
    }
    Ok(value.to_owned())
}

/// Takes a path that every node can open.
pub(super) fn absolute(what: &'static str, path: &Path) -> Result<String, SubmitError> {
    let text = path.to_str().filter(|_| path.is_absolute());
    let wanted = "an absolute path in UTF-8";
    let text = text.ok_or_else(|| wrong_value(what, &path.to_string_lossy(), wanted))?;
    one_line(what, text)
}

fn wrong_value(what: &'static str, value: &str, wanted: &'static str) -> SubmitError {
    SubmitError::Value {
        what,
        value: to_printable(value, 120),
        wanted,
    }
}

/// Whether a character stands for itself in both kinds of lines.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_./=:,%+@".contains(c)
}

/// Quotes a word of a `#SBATCH` line.
fn quote_for_sbatch(word: &str) -> String {
    if !word.is_empty() && word.chars().all(|c| is_plain(c) || c == '&' || c == '|') {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Quotes a word for a shell (POSIX, Shell Command Language, 2.2.2).
fn quote_for_shell(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
