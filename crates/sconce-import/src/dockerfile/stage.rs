//! What running a stage's instructions comes to: what it installs, sets and copies.

use std::collections::BTreeSet;

use super::super::draft::Draft;
use super::super::{SiblingFiles, inside};
use super::parse::Instruction;
use super::shell::ShellVariables;
use super::{command, image};

/// A stage: what it is made from, its name, its instructions.
#[derive(Debug, Default)]
pub(super) struct StageOutline<'a> {
    pub(super) line: usize,
    /// With the variables' values.
    pub(super) base: String,
    /// In lower case.
    pub(super) name: Option<String>,
    pub(super) instructions: Vec<&'a Instruction>,
}

/// `COPY SOURCE TARGET` from the build's own folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CopyInstruction {
    pub(super) line: usize,
    /// Relative to the spec's folder; empty for all of it.
    pub(super) source: String,
    /// Absolute, where `source` comes to lie.
    pub(super) target: String,
}

/// The state while instructions are followed.
pub(super) struct StageState<'a> {
    pub(super) draft: Draft,
    pub(super) beside: SiblingFiles<'a>,
    pub(super) variables: ShellVariables,
    /// The working directory.
    pub(super) folder: String,
    pub(super) copies: Vec<CopyInstruction>,
    /// `ENV`, in its order.
    pub(super) env: Vec<(usize, String, String)>,
    pub(super) entrypoint: Option<command::CommandWords>,
    pub(super) cmd: Option<command::CommandWords>,
    /// Requirements files: line, path, and their requirements where all of them can be locked.
    pub(super) files: Vec<(usize, String, Option<BTreeSet<String>>)>,
    /// `--index-url` of single commands.
    pub(super) indexes: Vec<(usize, String)>,
    /// Files that may still be read beside the spec.
    pub(super) reads: usize,
    /// Some command used the machine's own index.
    pub(super) usual_index: bool,
    /// Debian packages count, and what is not understood is said: it is the last stage.
    pub(super) takes_system: bool,
}

const ONLY_PYTHON: &str =
    "files of it are copied, so the Python packages that it installs are taken";
const NOT_COPIED: &str =
    "nothing is copied in, the spec's folder is at /workspace: give it with `mounts` in [run]";
const NO_SUCH: &str = "a spec has nothing like it";

impl<'a> StageState<'a> {
    pub(super) fn new(beside: SiblingFiles<'a>, variables: ShellVariables) -> Self {
        Self {
            draft: Draft::default(),
            beside,
            variables,
            folder: "/".to_owned(),
            copies: Vec::new(),
            env: Vec::new(),
            entrypoint: None,
            cmd: None,
            files: Vec::new(),
            indexes: Vec::new(),
            reads: 100,
            usual_index: false,
            takes_system: true,
        }
    }

    pub(super) fn left_out(&mut self, line: usize, what: &str, why: &str) {
        self.draft.left_out(line, what, why);
    }

    /// A path inside the image, from where the instruction stands.
    pub(super) fn absolute_path(&self, path: &str) -> String {
        let joined = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("{}/{path}", self.folder)
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in joined.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    /// The text of a file inside the image that was copied into it, and its path beside the spec.
    pub(super) fn read_copied_file(&mut self, path: &str) -> Option<(String, String)> {
        self.reads = self.reads.checked_sub(1)?;
        let at = self.absolute_path(path);
        let copied = self.copies.iter().rev().filter_map(|copy| {
            let rest = strip_dir_prefix(&at, &copy.target)?;
            inside(format!("{}/{rest}", copy.source).trim_matches('/'))
        });
        // Also where a mount or a pattern brought it in.
        let name = inside(path.trim_start_matches('/'));
        let last = path.rsplit('/').next().and_then(inside);
        copied
            .chain(name)
            .chain(last)
            .find_map(|path| Some(((self.beside)(&path)?, path)))
            .map(|(text, path)| (path, text))
    }

    /// Follows the plan at `place`, after that which it is made from.
    pub(super) fn apply_stage(
        &mut self,
        plans: &[StageOutline<'_>],
        place: usize,
        seen: &mut BTreeSet<usize>,
    ) {
        // From the first one to the last: a chain can be long.
        let mut chain = vec![place];
        while let Some(below) = named(plans, &plans[chain[0]].base, chain[0]) {
            chain.insert(0, below);
        }
        seen.extend(&chain);
        if self.takes_system {
            let first = &plans[chain[0]];
            image::apply_base_image(&first.base, first.line, &mut self.draft);
        }
        for place in chain {
            for instruction in &plans[place].instructions {
                self.instruction(instruction, plans, place, seen);
            }
        }
    }

    fn instruction(
        &mut self,
        one: &Instruction,
        plans: &[StageOutline<'_>],
        place: usize,
        seen: &mut BTreeSet<usize>,
    ) {
        let line = one.line;
        match one.keyword.as_str() {
            "RUN" => self.run(one),
            "COPY" | "ADD" => self.copy(one, plans, place, seen),
            "ARG" => {
                for word in one.rest.split_whitespace() {
                    if let Some((name, value)) = word.split_once('=') {
                        let value = self.variables.expand(value.trim_matches(['"', '\'']));
                        self.variables.set(name, value);
                    }
                }
            }
            "ENV" => {
                for (name, value) in pairs(&one.rest, &mut self.variables) {
                    self.variables.set(&name, value.clone());
                    if self.env.len() < 5000 {
                        self.env.push((line, name, value));
                    }
                }
            }
            "WORKDIR" => {
                let folder = self
                    .variables
                    .expand(one.rest.trim().trim_matches(['"', '\'']));
                self.folder = self.absolute_path(&folder);
            }
            "ENTRYPOINT" => {
                self.entrypoint = Some(command::parse_words(one, &mut self.variables));
                self.cmd = None;
            }
            "CMD" => self.cmd = Some(command::parse_words(one, &mut self.variables)),
            "EXPOSE" if self.takes_system => {
                let ports = self.variables.expand(&one.rest);
                let why = "it can be reached as it is: the run is on the machine's own network";
                self.draft
                    .note_decision(line, &format!("port {ports}"), why.to_owned());
            }
            "VOLUME" if self.takes_system => {
                self.left_out(line, &one.rest, "give the folder with `mounts` in [run]")
            }
            "HEALTHCHECK" | "STOPSIGNAL" | "ONBUILD" if self.takes_system => {
                self.left_out(line, &one.keyword, NO_SUCH);
            }
            // The command is never root inside, and labels are for registries.
            "USER" | "LABEL" | "MAINTAINER" | "SHELL" | "FROM" => {}
            _ if self.takes_system => {
                self.left_out(line, &one.keyword, "not an instruction that is known")
            }
            _ => {}
        }
    }

    fn run(&mut self, one: &Instruction) {
        if let Some(words) = command::exec_form(&one.rest) {
            let script: Vec<String> = words.iter().map(|word| quote(word)).collect();
            self.apply_script(&script.join(" "), &|_| one.line, 0);
            return;
        }
        let Some(document) = one.heredocs.first() else {
            self.apply_script(&one.rest, &|place| one.line_at(place), 0);
            return;
        };
        // `<<EOF` and `bash -e <<EOF` are scripts, `python <<EOF` and `cat <<EOF > x` are not.
        let program = one.rest.split_whitespace().next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default();
        if program.starts_with("<<") || matches!(program, "bash" | "sh") {
            let breaks = document.text.match_indices('\n');
            let breaks: Vec<usize> = breaks.map(|(at, _)| at).collect();
            let line = |place| document.line + breaks.partition_point(|at| *at < place);
            self.apply_script(&document.text, &line, 0);
        } else {
            self.apply_script(&one.rest, &|_| one.line, 0);
        }
    }

    fn copy(
        &mut self,
        one: &Instruction,
        plans: &[StageOutline<'_>],
        place: usize,
        seen: &mut BTreeSet<usize>,
    ) {
        let line = one.line;
        let mut words = match command::exec_form(&one.rest) {
            Some(words) => words
                .iter()
                .map(|word| self.variables.expand(word))
                .collect(),
            None => {
                let text = one
                    .rest
                    .split_whitespace()
                    .filter(|word| !word.starts_with("<<"));
                text.map(|word| self.variables.expand(word))
                    .collect::<Vec<String>>()
            }
        };
        let Some(target) = words.pop() else {
            return;
        };
        if let Some(from) = one.flag_value("from") {
            let from = self.variables.expand(from);
            match named(plans, &from, place) {
                Some(other) if has_packages(&words) && !seen.contains(&other) => {
                    let before = std::mem::replace(&mut self.takes_system, false);
                    let folder = std::mem::replace(&mut self.folder, "/".to_owned());
                    let (env, copies) = (self.env.len(), self.copies.len());
                    let commands = (self.entrypoint.take(), self.cmd.take());
                    self.draft.note_decision(
                        line,
                        &format!("the stage {from}"),
                        ONLY_PYTHON.to_owned(),
                    );
                    self.apply_stage(plans, other, seen);
                    (self.entrypoint, self.cmd) = commands;
                    self.env.truncate(env);
                    self.copies.truncate(copies);
                    (self.takes_system, self.folder) = (before, folder);
                }
                // Of the same files once.
                Some(other) if seen.contains(&other) => {}
                // An installer that an image is made of, `/uv`.
                _ if words
                    .iter()
                    .all(|word| word.ends_with("/uv") || word.ends_with("/uvx")) => {}
                _ if self.takes_system => {
                    self.left_out(
                        line,
                        &format!("COPY --from={from} {}", words.join(" ")),
                        NOT_COPIED,
                    );
                }
                _ => {}
            }
            return;
        }
        if !one.heredocs.is_empty() {
            if self.takes_system {
                self.left_out(
                    line,
                    &target,
                    "a file that is written here: save it beside the spec",
                );
            }
            return;
        }
        let several = words.len() > 1;
        for source in words {
            self.copied(line, &source, &target, several);
        }
    }

    fn copied(&mut self, line: usize, source: &str, target: &str, several: bool) {
        let all = matches!(source.trim_end_matches('/'), "." | "" | "*" | "./*");
        // A pattern's files come to lie below the target as below their folder.
        let (source, pattern) = match source.find(['*', '?', '[']) {
            Some(at) => (
                source[..at]
                    .rsplit_once('/')
                    .map_or("", |(folder, _)| folder),
                true,
            ),
            None => (source, false),
        };
        let relative = source.trim_start_matches('/');
        let path = if all || relative.is_empty() {
            Some(String::new())
        } else {
            inside(relative)
        };
        let unknown = source.contains('$') || target.contains('$');
        let Some(path) = path.filter(|_| !unknown) else {
            if self.takes_system {
                self.left_out(line, &format!("{source} {target}"), NOT_COPIED);
            }
            return;
        };
        let mut at = self.absolute_path(target);
        let name = path.rsplit('/').next().unwrap_or_default();
        let into = target.ends_with('/') || target == "." || several;
        if into && is_file(name) && !pattern {
            at = format!("{}/{name}", at.trim_end_matches('/'));
        }
        if self.copies.len() < 500 {
            self.copies.push(CopyInstruction {
                line,
                source: path,
                target: at,
            });
        }
    }
}

/// The stage that a name or a number means, among those before `place`.
fn named(plans: &[StageOutline<'_>], name: &str, place: usize) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    let by_name = plans[..place]
        .iter()
        .rposition(|plan| plan.name.as_deref() == Some(&name));
    by_name.or_else(|| name.parse().ok().filter(|&number| number < place))
}

/// Whether paths look like where Python packages lie.
fn has_packages(paths: &[String]) -> bool {
    let signs = [
        "venv",
        "site-packages",
        "dist-packages",
        "conda",
        ".local",
        "wheel",
        "python",
        "/usr/local",
        "/install",
        "/app",
        "/deps",
    ];
    paths
        .iter()
        .any(|path| path == "/" || signs.iter().any(|sign| path.contains(sign)))
}

/// By its name, as the folder is not looked into.
fn is_file(name: &str) -> bool {
    name.trim_start_matches('.').contains('.')
        || matches!(name, "Makefile" | "LICENSE" | "Dockerfile" | "Pipfile")
}

/// What of `path` lies below `folder`; empty for the folder itself.
pub(super) fn strip_dir_prefix<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let folder = folder.trim_end_matches('/');
    let rest = path.strip_prefix(folder)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

/// `A=1 B="two words"`, or the older `A all the rest`.
fn pairs(rest: &str, variables: &mut ShellVariables) -> Vec<(String, String)> {
    let first = rest.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        let value = rest.trim_start()[first.len()..].trim();
        return match first {
            "" => Vec::new(),
            name => vec![(name.to_owned(), variables.expand(value))],
        };
    }
    super::shell::parse_assignments(rest, variables)
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
