//! A Dockerfile: its base image, what its `RUN` lines install, its variables and its command.
//! Nothing of it is run.

mod command;
mod image;
mod install;
mod parse;
mod shell;
mod stage;

use std::collections::BTreeSet;

use sconce_schema::spec::{MountSpec, WORKSPACE};

pub(super) use self::install::{Installs, PIP_VALUES, add_debian_package, without_prefix};
use self::parse::Instruction;
use self::shell::ShellVariables;
use self::stage::{StageOutline, StageState, strip_dir_prefix};
use super::{ImportError, ImportedSpec, SiblingFiles, conda};

/// More stages than any Dockerfile has.
const MAX_STAGES: usize = 200;

pub(super) fn convert(text: &str, beside: SiblingFiles<'_>) -> Result<ImportedSpec, ImportError> {
    let instructions = parse::parse_instructions(text);
    let mut variables = ShellVariables::default();
    let plans = plans(&instructions, &mut variables);
    if plans.is_empty() {
        return Err(ImportError::Nothing { missing: "no FROM" });
    }
    let mut stage = StageState::new(beside, variables);
    stage.apply_stage(&plans, plans.len() - 1, &mut BTreeSet::new());
    Ok(finish(stage))
}

/// The stages, with the variables that stand before the first.
fn plans<'a>(
    instructions: &'a [Instruction],
    variables: &mut ShellVariables,
) -> Vec<StageOutline<'a>> {
    let mut plans: Vec<StageOutline<'_>> = Vec::new();
    for one in instructions {
        if one.keyword == "FROM" && plans.len() >= MAX_STAGES {
            break;
        }
        match (one.keyword.as_str(), plans.last_mut()) {
            ("FROM", _) => {
                let expanded = variables.expand(&one.rest);
                let mut words = expanded.split_whitespace();
                let base = words.next().unwrap_or_default().to_owned();
                let name = words.nth(1).map(str::to_ascii_lowercase);
                plans.push(StageOutline {
                    line: one.line,
                    base,
                    name,
                    instructions: Vec::new(),
                });
            }
            (_, Some(plan)) => plan.instructions.push(one),
            ("ARG", None) => {
                if let Some((name, value)) = one.rest.split_once('=') {
                    let value = variables.expand(value.trim().trim_matches(['"', '\'']));
                    variables.set(name.trim(), value);
                }
            }
            _ => {}
        }
    }
    plans
}

/// The words of each simple command of a script and where it begins, but for those that a condition decides
/// about.
pub(super) fn script_words(script: &str) -> Vec<(usize, Vec<String>)> {
    let commands = shell::parse_commands(script, &mut ShellVariables::default());
    let always = commands.into_iter().filter(|command| !command.conditional);
    always
        .map(|command| (command.place, command.words))
        .collect()
}

fn finish(mut stage: StageState<'_>) -> ImportedSpec {
    // One index of all commands is the spec's; one of some is asked beside the machine's own.
    let same = stage.indexes.windows(2).all(|pair| pair[0].1 == pair[1].1);
    for (line, url) in std::mem::take(&mut stage.indexes) {
        if same && !stage.usual_index {
            stage.draft.set_index(Some(line), &url);
        } else {
            stage.draft.extra_index(Some(line), &url);
        }
    }
    let places = places(&mut stage);
    variables(&mut stage, &places);
    let folder = moved(&stage.folder, &places);
    if folder.starts_with(WORKSPACE) && folder != WORKSPACE && !folder.split('/').any(|p| p == "..")
    {
        stage.draft.spec.run.workdir = Some(folder);
    }
    leave_out_missing_program(&mut stage, &places);
    let command = command::resolve_command(stage.entrypoint.take(), stage.cmd.take());
    if let Some(command) = command {
        run_command(&mut stage, command, &places);
    }
    let files = std::mem::take(&mut stage.files);
    let required: BTreeSet<String> = stage
        .draft
        .requirements()
        .iter()
        .map(|r| r.text.clone())
        .collect();
    let mut draft = stage.draft;
    if let [(_, path, Some(own))] = files.as_slice()
        && *own == required
    {
        draft.spec.python.requirements = Some(path.clone());
        return draft.finish_referring();
    }
    for (line, path, _) in files {
        let why = "its requirements are copied into the spec, as they are not all; later changes of it do not count";
        draft.note_decision(line, &path, why.to_owned());
    }
    draft.finish()
}

/// Where folders of the image are in a run: what is copied to the working directory is in the
/// spec's folder there, and what is copied elsewhere is mounted.
fn places(stage: &mut StageState<'_>) -> Vec<(String, String)> {
    let mut places: Vec<(String, String)> = Vec::new();
    let read: Vec<String> = stage
        .files
        .iter()
        .map(|(_, path, _)| path.clone())
        .collect();
    let folder = stage.folder.clone();
    let copies = std::mem::take(&mut stage.copies);
    for copy in &copies {
        let workspace = format!("{WORKSPACE}/{}", copy.source);
        let workspace = workspace.trim_end_matches('/').to_owned();
        let here = strip_dir_prefix(&copy.target, &folder).filter(|_| folder != "/");
        if here.is_some() || copy.source.is_empty() && copy.target != "/" {
            // `COPY a.txt .` to the working directory says where that is.
            if here == Some(&copy.source) {
                places.push((folder.clone(), WORKSPACE.to_owned()));
            }
            places.push((copy.target.clone(), workspace));
            continue;
        }
        if read.contains(&copy.source) || copy.source.is_empty() {
            continue;
        }
        let mount = format!("./{}:{}", copy.source, copy.target);
        match mount.parse::<MountSpec>() {
            Ok(mount) if copy.target != "/" => {
                if !stage.draft.spec.run.mounts.contains(&mount) {
                    stage.draft.spec.run.mounts.push(mount);
                    let why = "mounted instead of copied".to_owned();
                    stage.draft.note_decision(
                        copy.line,
                        &format!("{} {}", copy.source, copy.target),
                        why,
                    );
                }
            }
            _ => {
                let why = "nothing is copied in: give it with `mounts` in [run]";
                stage.left_out(copy.line, &format!("{} {}", copy.source, copy.target), why);
            }
        }
    }
    if copies.is_empty() && folder != "/" {
        places.push((folder, WORKSPACE.to_owned()));
    }
    // The longest first: the nearest one says it.
    places.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
    places
}

/// A path of the image as it is in a run.
fn moved(path: &str, places: &[(String, String)]) -> String {
    for (target, workspace) in places {
        if let Some(rest) = strip_dir_prefix(path, target).filter(|_| path.starts_with('/')) {
            return match rest {
                "" => workspace.clone(),
                rest => format!("{workspace}/{rest}"),
            };
        }
    }
    path.to_owned()
}

const OWN: &str = "the environment has its own";

fn variables(stage: &mut StageState<'_>, places: &[(String, String)]) {
    for (line, name, value) in std::mem::take(&mut stage.env) {
        let begins = |list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
        match name.as_str() {
            "PIP_INDEX_URL" | "UV_INDEX_URL" | "UV_DEFAULT_INDEX" => {
                stage.draft.set_index(Some(line), &value)
            }
            "PIP_EXTRA_INDEX_URL" | "UV_EXTRA_INDEX_URL" | "UV_INDEX" => {
                for url in value.split_whitespace() {
                    stage.draft.extra_index(Some(line), url);
                }
            }
            // They are about building the image.
            "DEBIAN_FRONTEND" | "TZ_DATA" | "CUDA_VERSION" => {}
            _ if begins(&[
                "PIP_",
                "UV_",
                "CONDA_",
                "MAMBA_",
                "POETRY_",
                "NVIDIA_REQUIRE_",
            ]) => {}
            "PATH" | "LD_LIBRARY_PATH" | "LD_PRELOAD" | "LIBRARY_PATH" | "CPATH"
            | "VIRTUAL_ENV" | "HOME" => {
                stage.left_out(line, &name, OWN);
            }
            "TORCH_CUDA_ARCH_LIST"
            | "FORCE_CUDA"
            | "MAX_JOBS"
            | "CUDA_HOME"
            | "CUDA_PATH"
            | "CUDNN_VERSION" => {
                stage.left_out(line, &name, conda::COMPILER);
            }
            "NVIDIA_VISIBLE_DEVICES" | "NVIDIA_DRIVER_CAPABILITIES" => {
                if value != "all" && !value.starts_with("compute") {
                    stage.left_out(line, &name, "cards are given with `gpus` in [run]");
                }
            }
            _ if value.contains("${") => {
                stage.left_out(
                    line,
                    &format!("{name}={value}"),
                    "its value depends on another variable: write it out",
                );
            }
            _ => {
                let parts: Vec<String> = value.split(':').map(|part| moved(part, places)).collect();
                stage
                    .draft
                    .add_variable(Some(line), &name, &parts.join(":"));
            }
        }
    }
}

/// Folders that an environment has with programs in them.
const PROGRAM_FOLDERS: [&str; 7] = [
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/opt/conda",
    "/opt/venv",
];

/// Leaves out an entrypoint that the image alone has, as a `RUN` of its Dockerfile wrote it (`/entry.sh`); the command
/// that it would have started remains.
fn leave_out_missing_program(stage: &mut StageState<'_>, places: &[(String, String)]) {
    let started = command::resolve_command(stage.entrypoint.clone(), None);
    let Some(program) = started.as_ref().and_then(|command| command.words.first()) else {
        return;
    };
    let program = moved(program, places);
    let below = |folder: &str| strip_dir_prefix(&program, folder).is_some();
    let mut mounts = stage.draft.spec.run.mounts.iter();
    let is_there = !program.starts_with('/')
        || below(WORKSPACE)
        || PROGRAM_FOLDERS.into_iter().any(below)
        || mounts.any(|mount| below(&mount.target));
    if !is_there && let Some(entrypoint) = stage.entrypoint.take() {
        let why = "the image alone has it: write what it does into the command, or mount it";
        stage.left_out(entrypoint.line, &entrypoint.words.join(" "), why);
    }
}

fn run_command(
    stage: &mut StageState<'_>,
    command: command::CommandWords,
    places: &[(String, String)],
) {
    let shell = matches!(command.words.as_slice(), [one] if matches!(one.rsplit('/').next(), Some("bash" | "sh" | "zsh")));
    if shell || command.words.is_empty() {
        let why = "`sconce shell` opens one, so the spec has no command".to_owned();
        stage.draft.note_decision(command.line, "a shell", why);
        return;
    }
    if command.words.iter().any(|word| word.contains('\0')) {
        return;
    }
    let words: Vec<String> = command
        .words
        .iter()
        .map(|word| moved(word, places))
        .collect();
    if words != command.words {
        let why = "the spec's folder is at /workspace inside".to_owned();
        stage
            .draft
            .note_decision(command.line, &command.words.join(" "), why);
    }
    stage.draft.spec.run.command = words;
}

#[cfg(test)]
mod tests;
