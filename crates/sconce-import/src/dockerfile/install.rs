//! The commands of a `RUN` that install something.

use super::super::conda;
use super::super::draft::Draft;
use super::super::note::redacted_line;
use super::super::project_table::{is_package_text, toml_table};
use super::super::requirement::{self, FOLDER, NO_BUILD_ISOLATION, Requirement};
use super::shell::{self, ShellCommand};
use super::stage::StageState;
use crate::project_files::pyproject::ProjectTable;
use crate::project_files::requirements::RequirementsScan;

const NOT_RUN: &str = "an environment is made without running commands: do it in the run's own command, or once outside and mount the result";
const CONDITIONAL: &str = "it is installed under a condition only: add it if it is needed";
const DEPENDS: &str = "what it installs depends on a variable: write it out";
const MISSING: &str = "the file is not beside the spec: what it names is not known";
const ARCHIVES: &str = "it only serves to install other packages";
const BASE: &str = "every environment has its Python";
const DEBIANS: &str = "Debian's own version is taken";
const LOCKED: &str =
    "give the file that it installs from to `sconce init` instead: uv.lock, pyproject.toml";

/// Commands that leave nothing that an environment would need.
const HOUSEKEEPING: &[&str] = &[
    "[",
    ":",
    "adduser",
    "addgroup",
    "apt-key",
    "apt-mark",
    "chmod",
    "chown",
    "dpkg-reconfigure",
    "echo",
    "exit",
    "false",
    "find",
    "groupadd",
    "install",
    "ldconfig",
    "locale-gen",
    "ls",
    "mkdir",
    "nvidia-smi",
    "printf",
    "rm",
    "set",
    "sync",
    "test",
    "touch",
    "true",
    "update-alternatives",
    "update-ca-certificates",
    "update-locale",
    "useradd",
    "usermod",
    "which",
];

impl StageState<'_> {
    /// All commands of a script; `line` gives the line of a place in it.
    pub(super) fn apply_script(
        &mut self,
        script: &str,
        line: &dyn Fn(usize) -> usize,
        depth: usize,
    ) {
        let commands = shell::parse_commands(script, &mut self.variables);
        let before = self.folder.clone();
        for command in commands {
            self.command(&command, line(command.place), depth);
        }
        self.folder = before;
    }

    fn command(&mut self, command: &ShellCommand, line: usize, depth: usize) {
        let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
        let words = without_prefix(&words);
        let Some((first, rest)) = words.split_first() else {
            for (name, value) in &command.assignments {
                self.variables.set(name, value.clone());
            }
            return;
        };
        let program = first.rsplit('/').next().unwrap_or_default();
        let told = |program: &str, arguments: &[&str]| {
            redacted_line(&format!("{program} {}", arguments.join(" ")))
        };
        let installs = Installs::of(program, rest);
        if command.conditional && !matches!(installs, Installs::Nothing | Installs::Other) {
            self.left_out(line, &told(program, rest), CONDITIONAL);
            return;
        }
        match installs {
            Installs::Pip(arguments) => self.pip(arguments, line),
            Installs::Apt(arguments) if self.takes_system => self.apt(arguments, line),
            Installs::Conda(arguments) => self.conda(arguments, line),
            Installs::Environment(arguments) => self.conda_file(arguments, line),
            Installs::Locked => self.left_out(line, &told(program, rest), LOCKED),
            Installs::Setup => self.project(".", line),
            Installs::Apt(_) | Installs::Nothing => {}
            Installs::Other => match (program, rest) {
                ("cd", [folder]) => self.folder = self.absolute_path(folder),
                ("export", pairs) => {
                    for (name, value) in pairs.iter().filter_map(|pair| pair.split_once('=')) {
                        self.variables.set(name, value.to_owned());
                    }
                }
                ("bash" | "sh", [options @ .., script])
                    if depth < 3
                        && options
                            .last()
                            .is_some_and(|o| o.starts_with('-') && o.ends_with('c')) =>
                {
                    self.apply_script(script, &|_| line, depth + 1);
                }
                _ if self.takes_system => self.left_out(line, &told(program, rest), NOT_RUN),
                _ => {}
            },
        }
    }

    fn pip(&mut self, arguments: &[&str], line: usize) {
        let mut batch = Vec::new();
        let mut own_index = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let (option, value) = match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((option, value)) => (option, Some(value)),
                None => (*word, None),
            };
            let mut value = || value.or_else(|| words.next().copied()).unwrap_or_default();
            match option {
                "-r" | "--requirement" | "--requirements" => {
                    let path = value();
                    self.requirements(path, line);
                }
                "-e" | "--editable" => {
                    let path = value();
                    self.project(path, line);
                }
                "-i" | "--index-url" | "--default-index" => own_index = Some(value()),
                "--extra-index-url" | "--index" => {
                    let url = value();
                    self.draft.extra_index(Some(line), url);
                }
                "-c" | "--constraint" | "-f" | "--find-links" | "--override"
                | "--torch-backend" => {
                    let what = format!("{option} {}", value());
                    self.left_out(line, &what, "a spec has no such option: name versions and wheels in `[python] packages`");
                }
                _ if PIP_VALUES.contains(&option) => drop(value()),
                _ if option.starts_with('-') => {}
                _ => batch.push(*word),
            }
        }
        if let Some(url) = own_index {
            self.own_index(url, line);
        } else {
            self.usual_index = true;
        }
        let unisolated = arguments.contains(&NO_BUILD_ISOLATION);
        let mut requirements = Vec::new();
        for word in batch {
            match requirement::parse(word) {
                // Installers are no part of an environment.
                Ok(r)
                    if matches!(
                        r.name.as_str(),
                        "pip" | "setuptools" | "wheel" | "uv" | "poetry" | "pipx"
                    ) => {}
                Ok(requirement) => requirements.push(Requirement {
                    unisolated,
                    ..requirement
                }),
                Err(FOLDER) => self.project(word, line),
                Err(why) => self.left_out(line, word, why),
            }
        }
        self.draft.add_requirements(Some(line), requirements);
    }

    /// `--index-url` of one command.
    fn own_index(&mut self, url: &str, line: usize) {
        // The address of one kind of builds has little beside them.
        if url.contains("/whl") {
            self.draft.extra_index(Some(line), url);
            self.usual_index = true;
        } else {
            self.indexes.push((line, url.to_owned()));
        }
    }

    /// `-r FILE`.
    fn requirements(&mut self, path: &str, line: usize) {
        let Some((beside, text)) = self.read_copied_file(path) else {
            self.left_out(line, &format!("-r {path}"), MISSING);
            return;
        };
        let scan = RequirementsScan::scan_file(&beside, &text, self.beside);
        let whole = scan.refused.is_empty();
        let texts = scan
            .requirements
            .iter()
            .map(|(_, r)| r.text.clone())
            .collect();
        self.files.push((line, beside, whole.then_some(texts)));
        scan.copy_into(&mut self.draft, Some(line));
    }

    /// `pip install .`: the project, or a folder of it.
    fn project(&mut self, path: &str, line: usize) {
        let (folder, extras) = match path.split_once('[') {
            Some((folder, extras)) => (folder, format!("[{extras}")),
            None => (path, String::new()),
        };
        // Where the folder lies beside the spec, as far as its files were copied.
        let file = |name: &str| format!("{}/{name}", folder.trim_end_matches('/'));
        let found = ["pyproject.toml", "setup.py"]
            .iter()
            .find_map(|name| Some((*name, self.read_copied_file(&file(name))?)));
        let Some((name, (path, text))) = found else {
            self.left_out(line, path, MISSING);
            return;
        };
        let here = path.strip_suffix(name).unwrap_or_default();
        let here = match here.trim_end_matches('/') {
            "" => ".",
            here => here,
        };
        let package = name == "setup.py" || is_package_text(&text);
        if package {
            self.draft
                .add_editable(Some(line), &format!("{here}{extras}"));
            return;
        }
        let table = toml_table(&text).ok();
        let Some(project) = table.as_ref().and_then(ProjectTable::from_root) else {
            return;
        };
        let extras: Vec<&str> = extras.trim_matches(['[', ']']).split(',').collect();
        let (good, bad) = project.classify_dependencies(&extras);
        for (what, why) in bad {
            self.left_out(line, &what, why);
        }
        if !good.is_empty() {
            let why = "its dependencies are copied into the spec; later changes of it do not count";
            self.draft
                .note_decision(line, "pyproject.toml", why.to_owned());
        }
        self.draft.add_requirements(Some(line), good);
    }

    fn apt(&mut self, arguments: &[&str], line: usize) {
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match *word {
                "-o" | "-t" | "--target-release" | "-c" => drop(words.next()),
                _ if word.starts_with('-') => {}
                _ if word.contains('$') => self.left_out(line, word, DEPENDS),
                _ if word.contains('/') && word.ends_with(".deb") => {
                    self.left_out(line, word, NOT_RUN)
                }
                _ => add_debian_package(&mut self.draft, word, line),
            }
        }
    }

    fn conda(&mut self, arguments: &[&str], line: usize) {
        let mut words = arguments.iter();
        let mut unneeded = Vec::new();
        while let Some(word) = words.next() {
            match *word {
                "-c" | "--channel" | "-n" | "--name" | "-p" | "--prefix" => drop(words.next()),
                "-f" | "--file" => {
                    let path = words.next().copied().unwrap_or_default();
                    self.conda_file(&["-f", path], line);
                }
                _ if word.starts_with('-') => {}
                _ => conda::add_dependency(word, Some(line), &mut self.draft, &mut unneeded),
            }
        }
        conda::note_unneeded(Some(line), &unneeded, &mut self.draft);
    }

    /// `conda env update -f environment.yml`.
    fn conda_file(&mut self, arguments: &[&str], line: usize) {
        let named = arguments.iter().enumerate().find_map(|(at, word)| {
            let next = || arguments.get(at + 1).copied();
            match *word {
                "-f" | "--file" => next(),
                word => word.strip_prefix("--file=").or(word.strip_prefix("-f=")),
            }
        });
        let path = named.unwrap_or("environment.yml");
        let read = self.read_copied_file(path);
        let done = read.map(|(_, text)| {
            conda::convert_into(&text, self.beside, Some(line), &mut self.draft).is_ok()
        });
        if done != Some(true) {
            self.left_out(line, path, MISSING);
        }
    }
}

/// A package as `apt-get install` names it.
pub(crate) fn add_debian_package(draft: &mut Draft, word: &str, line: usize) {
    let name = word.split(['=', '/', ':']).next().unwrap_or_default();
    if word.contains('=') {
        draft.note_decision(line, word, DEBIANS.to_owned());
    }
    let begins = |list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
    if let Some(minor) = name.strip_prefix("python3.") {
        let minor = minor.split('-').next().unwrap_or_default();
        if !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()) && minor.len() < 4 {
            draft.set_python(Some(line), &format!("3.{minor}"));
            return;
        }
    }
    match name {
        "python" | "python3" | "python3-pip" | "python3-dev" | "python3-venv"
        | "python-is-python3" | "python3-distutils" | "python3-setuptools" | "python3-wheel"
        | "python3-virtualenv" => {
            draft.note_decision(line, name, BASE.to_owned());
        }
        "software-properties-common"
        | "apt-transport-https"
        | "apt-utils"
        | "gnupg"
        | "gnupg2"
        | "lsb-release"
        | "dirmngr" => draft.note_decision(line, name, ARCHIVES.to_owned()),
        _ if begins(&[
            "cuda-",
            "libcudnn",
            "libcublas",
            "libnccl",
            "nvidia-",
            "tensorrt",
            "libnvinfer",
        ]) || name == "cuda" =>
        {
            draft.left_out(line, name, conda::CUDA);
        }
        _ => {
            let debian = DEBIAN.iter().find(|(ubuntu, _)| *ubuntu == name);
            draft.add_system_package(Some(line), debian.map_or(name, |(_, debian)| debian));
        }
    }
}

/// pip's and uv's options that are followed by a value.
pub(crate) const PIP_VALUES: &[&str] = &[
    "-t",
    "--target",
    "--prefix",
    "--root",
    "--timeout",
    "--retries",
    "--trusted-host",
    "--platform",
    "--python-version",
    "--implementation",
    "--abi",
    "--only-binary",
    "--no-binary",
    "--progress-bar",
    "--cache-dir",
    "--src",
    "--upgrade-strategy",
    "--config-settings",
    "-C",
    "--global-option",
    "--build-option",
    "--log",
    "--proxy",
    "--cert",
    "--python",
    "-p",
    "--index-strategy",
    "--link-mode",
    "--exists-action",
    "--report",
    "--use-feature",
    "--no-build-isolation-package",
    "-P",
    "--upgrade-package",
    "--resolution",
    "--prerelease",
    "--group",
    "--extra",
    "--exclude-newer",
];

/// Ubuntu's names, or older ones, of what Debian calls otherwise.
const DEBIAN: &[(&str, &str)] = &[
    ("default-libmysqlclient-dev", "libmariadb-dev"),
    ("libatlas-base-dev", "libopenblas-dev"),
    ("libgl1-mesa-glx", "libgl1"),
    ("libjpeg-turbo8", "libjpeg62-turbo"),
    ("libjpeg-turbo8-dev", "libjpeg62-turbo-dev"),
    ("libncurses5", "libncurses6"),
    ("libncurses5-dev", "libncurses-dev"),
    ("libopenblas-base", "libopenblas0"),
    ("libtiff5", "libtiff6"),
    ("libtiff5-dev", "libtiff-dev"),
    ("libtinfo5", "libtinfo6"),
    ("mysql-client", "default-mysql-client"),
    ("netcat", "netcat-openbsd"),
    ("openjdk-11-jdk", "default-jdk"),
    ("openjdk-11-jre", "default-jre"),
    ("openjdk-8-jdk", "default-jdk"),
    ("openjdk-8-jre", "default-jre"),
];

/// What a command installs, with the words that say it.
pub(crate) enum Installs<'a> {
    Pip(&'a [&'a str]),
    Apt(&'a [&'a str]),
    Conda(&'a [&'a str]),
    Environment(&'a [&'a str]),
    /// From a lock file of another tool.
    Locked,
    /// `setup.py`.
    Setup,
    /// Nothing that matters.
    Nothing,
    /// Not known.
    Other,
}

impl<'a> Installs<'a> {
    pub(crate) fn of(program: &str, arguments: &'a [&'a str]) -> Self {
        // The first words that are no options.
        let after = |word: &str| {
            let at = arguments.iter().position(|argument| *argument == word)?;
            let before = &arguments[..at];
            before
                .iter()
                .all(|argument| argument.starts_with('-'))
                .then(|| &arguments[at + 1..])
        };
        let verb = arguments
            .iter()
            .find(|word| !word.starts_with('-'))
            .copied();
        let numbered = |name: &str| {
            program
                .strip_prefix(name)
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        };
        if numbered("pip") {
            return after("install").map_or(Self::Nothing, Self::Pip);
        }
        if numbered("python") {
            return match arguments {
                ["-m", module, rest @ ..] if *module == "pip" || *module == "uv" => {
                    Self::of(module, rest)
                }
                ["-m", "venv" | "virtualenv" | "ensurepip" | "compileall", ..] => Self::Nothing,
                ["-V" | "--version"] => Self::Nothing,
                ["setup.py", "install" | "develop", ..] => Self::Setup,
                _ => Self::Other,
            };
        }
        match (program, verb) {
            ("uv", Some("pip")) => Self::of("pip", after("pip").unwrap_or_default()),
            ("uv", Some("sync" | "add"))
            | ("poetry" | "pipenv" | "pdm", Some("install" | "sync")) => Self::Locked,
            ("uv" | "poetry" | "pipenv" | "pdm" | "pipx", _) => Self::Nothing,
            ("apt" | "apt-get" | "aptitude", Some("install")) => {
                after("install").map_or(Self::Nothing, Self::Apt)
            }
            ("apt" | "apt-get" | "aptitude", _) => Self::Nothing,
            ("conda" | "mamba" | "micromamba", Some("install" | "create")) => {
                let verb = verb.unwrap_or_default();
                after(verb).map_or(Self::Nothing, Self::Conda)
            }
            ("conda" | "mamba" | "micromamba", Some("env")) => {
                let rest = after("env").unwrap_or_default();
                match rest.first() {
                    Some(&("create" | "update")) => Self::Environment(&rest[1..]),
                    _ => Self::Nothing,
                }
            }
            ("conda" | "mamba" | "micromamba", verb) if verb != Some("run") => Self::Nothing,
            _ if HOUSEKEEPING.contains(&program) => Self::Nothing,
            _ => Self::Other,
        }
    }
}

/// Without `sudo`, `env A=b`, `exec` and the like.
pub(crate) fn without_prefix<'a>(words: &'a [&'a str]) -> &'a [&'a str] {
    let mut words = words;
    while let [first, rest @ ..] = words {
        let prefix = matches!(
            *first,
            "sudo" | "exec" | "command" | "nohup" | "env" | "eval" | "yes"
        );
        let of_env = first.contains('=') || *first == "-E";
        if !prefix && !of_env {
            break;
        }
        words = rest;
    }
    words
}
