//! What a README's commands install.

use std::collections::BTreeSet;

use super::super::conda;
use super::super::conda_names;
use super::super::dockerfile::{self, Installs};
use super::super::draft::Draft;
use super::super::project_table::is_for_developers;
use super::super::requirement::{self, NO_BUILD_ISOLATION, NOT_ONE, Requirement};
use super::ReadmeBlock;
use super::alternatives::{InstallCounts, drop_other_way};
use super::purpose::{Audience, OTHER_PURPOSES, is_about_installing, is_host_package, is_tool};

/// Names of conda's that one line is told of.
const MAX_UNKNOWN: usize = 20;
/// Sconce asks the machine's index, where the project of that name can be anybody's.
const OPTIONAL: &str = "optional, as it says there: name it in `[python] packages` if it is needed";
const OTHER_INDEX: &str = "it is of an index that the line names, and that is not asked: name that as `[python] extra-index`, and it in `packages`";
const INDEX_NOT_ASKED: &str = "the index is not asked, as the packages of the line are on the usual one: `[python] extra-index` names it where its builds are needed";
const INDEX_OF_PROJECT: &str =
    "the index is not asked: `[python] extra-index` names it where the project's builds are of it";
const INDEX_OF_FILE: &str = "the index is not asked: `[python] index` or `extra-index` names it where the file's packages are of it";
const NO_DEPS: &str = "it is installed without what it requires, which a spec cannot say: name it in `[python] packages` if it is needed";
const ONE_WHEEL: &str =
    "a wheel for one Python and one torch: name it in `[python] packages` if it is needed";
/// Commands that are read of one file.
const MAX_COMMANDS: usize = 400;

/// What the commands of a file say, each with its line.
#[derive(Debug, Default)]
pub(crate) struct InstallLines {
    /// Requirements files, with the number of the block.
    pub(crate) files: Vec<(usize, String, usize)>,
    /// Files of `conda env create`.
    pub(crate) environments: Vec<(usize, String)>,
    /// What pip installs.
    pub(crate) packages: Vec<(usize, Requirement)>,
    /// What conda installs, as the index has it.
    pub(crate) conda_packages: Vec<(usize, Requirement)>,
    /// What conda installs and no index has, by the address of its sources.
    pub(crate) offers: Vec<(usize, Requirement)>,
    /// Debian packages.
    pub(crate) system: Vec<(usize, String)>,
    /// What cannot be taken as it is, with the reason.
    pub(crate) skipped: Vec<(usize, String, &'static str)>,
    /// The project itself is installed, with these extras.
    pub(crate) project: Option<(usize, Vec<String>)>,
    /// The Python that conda is asked for, `3.8`: the first.
    pub(crate) python: Option<(usize, String)>,
    /// Where a `setup.py` of the project builds an extension where it lies.
    pub(crate) builds_extension: Option<usize>,
}

impl InstallLines {
    /// Whether nothing of Python is installed.
    pub(crate) fn has_no_packages(&self) -> bool {
        self.files.is_empty()
            && self.environments.is_empty()
            && self.packages.is_empty()
            && self.conda_packages.is_empty()
            && self.project.is_none()
    }

    /// Where pip first has something to do, the project itself included.
    pub(crate) fn first_pip_line(&self) -> Option<usize> {
        let files = self.files.iter().map(|(line, ..)| *line);
        let packages = self.packages.iter().map(|(line, _)| *line);
        let project = self.project.iter().map(|(line, _)| *line);
        files.chain(packages).chain(project).min()
    }
}

/// The commands of the blocks that stand where installing is spoken of. `own` has the names that the project
/// goes by, normalised.
pub(crate) fn read_install_lines(blocks: &[ReadmeBlock], own: &BTreeSet<String>) -> InstallLines {
    let about = blocks.iter().enumerate();
    let about = about.filter(|(_, block)| is_about_installing(&block.headings));
    read_blocks(about, own, true)
}

/// The same of a page that is about installing as a whole.
pub(crate) fn read_install_page(blocks: &[ReadmeBlock], own: &BTreeSet<String>) -> InstallLines {
    let about = blocks.iter().enumerate().filter(|(_, block)| {
        let other = |heading: &String| OTHER_PURPOSES.iter().any(|word| heading.contains(word));
        !block.headings.iter().any(other)
    });
    read_blocks(about, own, true)
}

/// The same of commands that need no heading, and of what is optional, too: a notebook's, or all of a README's.
pub(crate) fn read_scripts(blocks: &[ReadmeBlock], own: &BTreeSet<String>) -> InstallLines {
    read_blocks(blocks.iter().enumerate(), own, false)
}

fn read_blocks<'a>(
    blocks: impl Iterator<Item = (usize, &'a ReadmeBlock)>,
    own: &BTreeSet<String>,
    for_everyone: bool,
) -> InstallLines {
    let mut reader = InstallReader {
        found: InstallLines::default(),
        own,
        block: 0,
        elsewhere: false,
        cloned: None,
        commands: 0,
        optional: false,
    };
    let mut added = Vec::new();
    for (number, block) in blocks {
        let before = InstallCounts::of(&reader.found);
        reader.block = number;
        reader.elsewhere = false;
        reader.cloned = None;
        let script = plain_script(&block.text);
        let of_lines = audiences(block);
        for (place, words) in dockerfile::script_words(&script) {
            if reader.commands >= MAX_COMMANDS {
                return reader.found;
            }
            reader.commands += 1;
            let before = &script.as_bytes()[..place.min(script.len())];
            let row = before.iter().filter(|&&b| b == b'\n').count();
            let audience = of_lines.get(row).copied();
            let audience = audience.unwrap_or(Audience::Everyone);
            if audience != Audience::OtherSystem {
                reader.optional = for_everyone && audience == Audience::Some;
                reader.command(&words, block.line + row);
            }
        }
        added.push(before.added_by(block, &reader.found));
    }
    if for_everyone {
        drop_other_way(&mut reader.found, &added);
    }
    reader.found
}

/// Whom each line of a block is for: what stands before the block, in a comment above it up to the next empty line, or
/// in one behind it.
fn audiences(block: &ReadmeBlock) -> Vec<Audience> {
    let nearest = block.headings.last().map_or("", String::as_str);
    let of_block = match Audience::of_words(nearest) {
        Audience::OtherSystem => Audience::OtherSystem,
        _ => Audience::of_lead(&block.lead),
    };
    let mut current = of_block;
    let of_line = |line: &str| {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            current = match Audience::of_words(comment) {
                Audience::Everyone => of_block,
                audience => audience,
            };
        } else if line.is_empty() {
            current = of_block;
        }
        let behind = line
            .split_once(" #")
            .map(|(_, comment)| Audience::of_words(comment));
        match behind {
            Some(audience) if audience != Audience::Everyone => audience,
            _ => current,
        }
    };
    block.text.lines().map(of_line).collect()
}

/// What a command says of all that it installs.
#[derive(Clone, Copy)]
struct PipFlags {
    no_deps: bool,
    unisolated: bool,
    /// It names an index, as pip's own or beside it.
    indexed: bool,
}

struct InstallReader<'a> {
    found: InstallLines,
    own: &'a BTreeSet<String>,
    block: usize,
    /// The commands are about another repository.
    elsewhere: bool,
    /// The repository that was cloned last.
    cloned: Option<String>,
    commands: usize,
    /// The command is not for everyone.
    optional: bool,
}

impl InstallReader<'_> {
    fn command(&mut self, words: &[String], line: usize) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = dockerfile::without_prefix(&words);
        let Some((first, rest)) = words.split_first() else {
            return;
        };
        let program = first.rsplit('/').next().unwrap_or_default();
        match (program, rest) {
            ("git", ["clone", rest @ ..]) => {
                let address = rest
                    .iter()
                    .find(|word| word.contains('/') || word.contains(':'));
                let name = address.and_then(|address| {
                    let last = address.trim_end_matches('/').rsplit('/').next()?;
                    sconce_formats::normalize_project_name(last.trim_end_matches(".git"))
                });
                self.cloned = name.filter(|name| !self.own.contains(name));
            }
            ("cd", [folder, ..]) => {
                // Into what was cloned, and out again.
                self.elsewhere = self.cloned.is_some() && !folder.starts_with("..");
            }
            (_, ["setup.py", "build_ext", ..])
                if program.starts_with("python") && !self.optional =>
            {
                let own = !self.elsewhere;
                self.found.builds_extension = self.found.builds_extension.or(own.then_some(line));
            }
            _ if self.optional => {
                if let Installs::Pip(arguments) = Installs::of(program, rest) {
                    self.pip(arguments, line);
                }
            }
            _ => match Installs::of(program, rest) {
                Installs::Pip(arguments) => self.pip(arguments, line),
                Installs::Apt(arguments) => self.apt(arguments, line),
                Installs::Conda(arguments) => self.conda(arguments, line),
                Installs::Environment(arguments) => self.environment(arguments, line),
                Installs::Setup => self.project("", line),
                Installs::Locked | Installs::Nothing | Installs::Other => {}
            },
        }
    }

    fn pip(&mut self, arguments: &[&str], line: usize) {
        let mut flags = PipFlags {
            no_deps: arguments.contains(&"--no-deps"),
            unisolated: arguments.contains(&NO_BUILD_ISOLATION),
            indexed: false,
        };
        let mut named = Vec::new();
        let mut indexes = Vec::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let (option, value) = match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((option, value)) => (option, Some(value)),
                None => (*word, None),
            };
            let mut value = || value.or_else(|| words.next().copied()).unwrap_or_default();
            match option {
                "-r" | "--requirement" | "--requirements" | "-qr" | "-Ur" => {
                    let path = value();
                    if let Some(path) = super::super::inside(path).filter(|_| !self.elsewhere)
                        && !is_for_developers(&path)
                    {
                        // The only file has all that is needed; a further one conflicts with what is there.
                        if self.optional {
                            self.found.skipped.push((line, path, OPTIONAL));
                        } else if flags.no_deps && !self.found.files.is_empty() {
                            self.found.skipped.push((line, path, NO_DEPS));
                        } else {
                            self.found.files.push((line, path, self.block));
                        }
                    }
                }
                "-e" | "--editable" => named.push(value()),
                "-i" | "--index-url" | "--extra-index-url" | "--index" | "--default-index" => {
                    indexes.push((option, value()));
                }
                "-c" | "--constraint" | "-f" | "--find-links" | "--override"
                | "--torch-backend" => {
                    let _ = value();
                }
                _ if dockerfile::PIP_VALUES.contains(&option) => drop(value()),
                _ if option.starts_with('-') => {}
                _ => named.push(word),
            }
        }
        // A part of it is a choice of the reader's.
        let open = |word: &str| {
            let named = word.split('<').nth(1);
            let placeholder = named.is_some_and(|rest| rest.starts_with(char::is_alphabetic));
            let parts = word.split(['/', '@', ' ', ':']);
            let lower = parts.map(str::to_ascii_lowercase);
            let example = |part: &String| part.starts_with("your") || part == "username";
            word.contains(['$', '{', '…'])
                || word.contains("path/to")
                || placeholder
                || lower.into_iter().any(|part| example(&part))
        };
        if self.elsewhere || arguments.iter().any(|word| open(word)) {
            return;
        }
        flags.indexed = !indexes.is_empty();
        for word in named {
            self.pip_word(word, flags, line);
        }
        let mut files = self.found.files.iter();
        let has_file = files.any(|(of, ..)| *of == line);
        let mut packages = self.found.packages.iter();
        let has_package = packages.any(|(of, _)| *of == line);
        let has_project = self
            .found
            .project
            .as_ref()
            .is_some_and(|(of, _)| *of == line);
        if has_file || has_package || has_project {
            let why = match (has_file, has_package) {
                (true, _) => INDEX_OF_FILE,
                (false, true) => INDEX_NOT_ASKED,
                (false, false) => INDEX_OF_PROJECT,
            };
            let shown = indexes.iter().take(5);
            let shown = shown.map(|(option, url)| (line, format!("{option} {url}"), why));
            self.found.skipped.extend(shown);
        }
    }

    fn pip_word(&mut self, word: &str, flags: PipFlags, line: usize) {
        let (name, extras) = match word.split_once('[') {
            Some((name, rest)) if !word.contains("://") => {
                (name, rest.split(']').next().unwrap_or_default())
            }
            _ => (word, ""),
        };
        if self.optional {
            self.skip_optional(word, line);
            return;
        }
        if matches!(name.trim_end_matches('/'), "." | "./") {
            self.project(extras, line);
            return;
        }
        let parsed = match requirement::parse(word) {
            Ok(requirement) => requirement,
            // `mmcv-full==latest+torch1.5.0`
            Err(why) => {
                if why == NOT_ONE && word.contains("==") {
                    self.found.skipped.push((line, word.to_owned(), why));
                }
                return;
            }
        };
        if self.own.contains(&parsed.name) {
            self.project(extras, line);
        } else if flags.no_deps {
            self.found.skipped.push((line, parsed.text, NO_DEPS));
        } else if parsed.text.contains("://") && parsed.text.contains(".whl") {
            self.found.skipped.push((line, parsed.text, ONE_WHEEL));
        } else if flags.indexed && !is_on_usual_index(&parsed) {
            self.found.skipped.push((line, parsed.text, OTHER_INDEX));
        } else if !is_tool(&parsed.name) {
            let parsed = Requirement {
                unisolated: flags.unisolated,
                ..without_local_version(parsed)
            };
            self.found.packages.push((line, parsed));
        }
    }

    fn skip_optional(&mut self, word: &str, line: usize) {
        if let Ok(one) = requirement::parse(word)
            && !self.own.contains(&one.name)
            && !is_tool(&one.name)
        {
            self.found.skipped.push((line, one.text, OPTIONAL));
        }
    }

    /// The first line that installs the project says with which extras.
    fn project(&mut self, extras: &str, line: usize) {
        if self.elsewhere || self.found.project.is_some() {
            return;
        }
        let extras: Vec<String> = extras
            .split(',')
            .map(str::trim)
            .filter(|extra| !extra.is_empty() && !is_for_developers(extra))
            .map(str::to_owned)
            .collect();
        self.found.project = Some((line, extras));
    }

    fn conda(&mut self, arguments: &[&str], line: usize) {
        let mut words = arguments.iter();
        let mut draft = Draft::default();
        let mut unneeded = Vec::new();
        while let Some(word) = words.next() {
            match *word {
                "-c" | "--channel" | "-n" | "--name" | "-p" | "--prefix" => drop(words.next()),
                "-f" | "--file" => drop(words.next()),
                _ if word.starts_with('-') || word.contains(['$', '{', '/']) => {}
                // Which Python, `lock` chooses.
                _ if word.starts_with("python") => {
                    let version = word.split_once('=').map(|(_, rest)| rest.trim_matches('='));
                    let is_number = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
                    let wish = version
                        .filter(is_number)
                        .map(|text| (line, text.to_owned()));
                    self.found.python = self.found.python.take().or(wish);
                }
                _ => conda::add_dependency(word, None, &mut draft, &mut unneeded),
            }
        }
        for one in draft.requirements() {
            if !is_tool(&one.name) {
                self.found.conda_packages.push((line, one.clone()));
            }
        }
        if !self.elsewhere && !self.optional {
            let unknown = draft.unknown_names().take(MAX_UNKNOWN);
            let unknown = unknown.map(|name| (line, name.to_owned(), conda_names::UNKNOWN));
            self.found.skipped.extend(unknown);
        }
        let offers = draft.offers().map(|one| (line, one.clone()));
        self.found.offers.extend(offers);
        for package in draft.spec.system.packages {
            self.found.system.push((line, package));
        }
    }

    fn environment(&mut self, arguments: &[&str], line: usize) {
        let named = arguments
            .iter()
            .enumerate()
            .find_map(|(at, word)| match *word {
                "-f" | "--file" => arguments.get(at + 1).copied(),
                word => word.strip_prefix("--file=").or(word.strip_prefix("-f=")),
            });
        let path = named.unwrap_or("environment.yml");
        if let Some(path) = super::super::inside(path).filter(|_| !self.elsewhere) {
            self.found.environments.push((line, path));
        }
    }

    fn apt(&mut self, arguments: &[&str], line: usize) {
        let mut draft = Draft::default();
        let names = arguments.iter().filter(|word| !word.starts_with('-'));
        for word in names.filter(|word| !word.contains(['$', '/', '<', '{'])) {
            dockerfile::add_debian_package(&mut draft, word, line);
        }
        for package in draft.spec.system.packages {
            if !is_host_package(&package) {
                self.found.system.push((line, package));
            }
        }
    }
}

/// The commands as a shell has them: without prompts and a notebook's signs, and with versions in quotes.
pub(super) fn plain_script(text: &str) -> String {
    let mut script = String::new();
    for line in text.lines() {
        let mut bare = line.trim();
        // `(env) $ pip …`, `!pip …`, `%pip …`
        if let Some(rest) = bare.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            bare = rest.1.trim();
        }
        bare = bare.trim_start_matches(['$', '!', '%', ' ']);
        let words: Vec<String> = bare
            .split(' ')
            .map(|word| {
                let plain = !word.contains(['"', '\'', '`', '\\']);
                let version = word.find(['<', '>']).is_some_and(|at| {
                    let before = word[..at].chars().next_back();
                    before.is_some_and(|c| c.is_ascii_alphabetic() || c == ']')
                        && word[at + 1..].starts_with(|c: char| c == '=' || c.is_ascii_digit())
                });
                match plain && version {
                    true => format!("'{word}'"),
                    false => word.to_owned(),
                }
            })
            .collect();
        script += &words.join(" ");
        script.push('\n');
    }
    script
}

/// Whether it is known to be of the index that Sconce asks, or has an address of its own.
fn is_on_usual_index(one: &Requirement) -> bool {
    one.text.contains("://")
        || sconce_formats::is_known_project(&one.name)
        || conda_names::is_of_index(&one.name)
}

/// `torch==1.7.1+cu110` is on an index of its own, which a README names for one of several machines.
fn without_local_version(mut one: Requirement) -> Requirement {
    if let Some(pin) = one.pinned_version().map(str::to_owned)
        && let Some((public, _)) = pin.split_once('+')
    {
        one.text = one.text.replace(&pin, public);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::find_blocks;
    use super::*;

    fn show(text: &str) -> Vec<String> {
        let own = ["net", "my-net"].map(str::to_owned).into();
        let found = read_install_lines(&find_blocks("README.md", text), &own);
        let mut shown: Vec<String> = Vec::new();
        shown.extend(
            found
                .files
                .iter()
                .map(|(line, path, _)| format!("{line} -r {path}")),
        );
        shown.extend(
            found
                .environments
                .iter()
                .map(|(line, path)| format!("{line} env {path}")),
        );
        shown.extend(
            found
                .packages
                .iter()
                .map(|(line, one)| format!("{line} {}", one.text)),
        );
        shown.extend(
            found
                .conda_packages
                .iter()
                .map(|(line, one)| format!("{line} conda {}", one.text)),
        );
        shown.extend(
            found
                .system
                .iter()
                .map(|(line, name)| format!("{line} apt {name}")),
        );
        shown.extend(
            found
                .project
                .iter()
                .map(|(line, extras)| format!("{line} . {}", extras.join(","))),
        );
        shown
    }

    fn installs(commands: &str) -> Vec<String> {
        show(&format!("# Net\n## Installation\n```\n{commands}\n```\n"))
    }

    #[test]
    fn builds_in_sight_of_the_environment_are_known() {
        let text = "# Net\n## Installation\n```\npip install torch\n\
                    pip install flash-attn --no-build-isolation\n```\n";
        let found = read_install_lines(&find_blocks("README.md", text), &BTreeSet::new());
        let all = found.packages.iter();
        let unisolated: Vec<&str> = all
            .filter(|(_, one)| one.unisolated)
            .map(|(_, one)| one.name.as_str())
            .collect();
        assert_eq!((found.packages.len(), unisolated), (2, vec!["flash-attn"]));
    }

    #[test]
    fn every_way_to_install_is_read() {
        for (commands, expected) in [
            (
                "pip install -U torch numpy>=1.2 'tqdm<5' # why",
                &["4 torch", "4 numpy>=1.2", "4 tqdm<5"][..],
            ),
            (
                "$ python -m pip install a\n(env) $ pip3 install b",
                &["4 a", "5 b"],
            ),
            ("!pip -q install a\n%pip install b", &["4 a", "5 b"]),
            (
                "uv pip install a && pip install -r r.txt",
                &["4 -r r.txt", "4 a"],
            ),
            (
                "conda install -c pytorch pytorch=1.12 cudatoolkit=11.3 -y",
                &["4 conda torch==1.12.*"],
            ),
            (
                "conda create -n x python=3.8\nconda env create -f e.yaml",
                &["5 env e.yaml"],
            ),
            (
                "sudo apt-get update && sudo apt-get install -y ffmpeg git python3-dev",
                &["4 apt ffmpeg"],
            ),
            (
                "pip install torch==1.7.1+cu110 -f https://x.example.org/whl",
                &["4 torch==1.7.1"],
            ),
            (
                "pip install git+https://git.example.org/me/clip.git",
                &["4 git+https://git.example.org/me/clip.git"],
            ),
            (
                "pip install torch -i https://x.example.org/simple mine==1.0",
                &["4 torch"],
            ),
            (
                "pip install mine --extra-index-url=https://x.example.org/simple",
                &[],
            ),
            ("pip install a-${CUDA}.html b", &[]),
            ("pip install <name>", &[]),
            (
                "pip install git+https://git.example.org/YourName/your-repo.git",
                &[],
            ),
            ("pip install path/to/x.whl", &[]),
            ("pip install pytest black wheel net-nightly", &[]),
            ("docker run x", &[]),
        ] {
            assert_eq!(installs(commands), expected, "{commands}");
        }
    }

    #[test]
    fn the_python_of_condas_commands_is_known() {
        let text =
            "# Net\n```\nconda create -n x python=3.6.7 pip\nconda install python==3.9\n```\n";
        let found = read_install_lines(&find_blocks("README.md", text), &BTreeSet::new());
        assert_eq!(found.python, Some((3, "3.6.7".to_owned())));
    }

    #[test]
    fn of_two_ways_pips_is_taken() {
        let block = |lead: &str, command: &str| format!("{lead}\n```\n{command}\n```\n");
        let ways =
            |first: String, second: String| show(&format!("# Net\n## Install\n{first}{second}"));
        let conda = "conda install numpy=1.20 scipy pandas";
        let pip = "pip install numpy==1.26.4 scipy";
        let expected = ["9 numpy==1.26.4", "9 scipy"];
        assert_eq!(ways(block("", conda), block("", pip)), expected);
        let ways = |conda: &str, pip: &str| {
            let first = block(conda, "conda install pytorch opencv");
            ways(first, block(pip, "pip install -r r.txt"))
        };
        assert_eq!(ways("Option A (conda)", "Option B (pip)"), ["9 -r r.txt"]);
        assert_eq!(ways("### With conda", "### With pip"), ["9 -r r.txt"]);
        let steps = ways(
            "1. Create an environment with conda:",
            "2. Install the rest with pip:",
        );
        assert_eq!(steps.len(), 3, "{steps:?}");
        assert_eq!(ways("", "").len(), 3);
    }

    #[test]
    fn what_is_not_for_everyone_is_not_taken() {
        for (lead, expected) in [
            ("If you use Windows, run:", false),
            ("**To install on Windows**:", false),
            ("On Windows:", false),
            ("**Windows**", false),
            ("Optional:", false),
            ("2. (Optional) Faster attention", false),
            ("It works. If you want to draw, say:", false),
            ("Linux and Windows:", true),
            ("It is tested on Windows.", true),
            ("If in doubt, ask. Install it:", true),
            ("If you have a GPU:", true),
            ("If you do not have numpy already:", true),
            ("Diff and install:", true),
        ] {
            let text = format!("# Net\n## Install\n{lead}\n\n```\npip install a\n```\n");
            let expected: &[&str] = if expected { &["6 a"] } else { &[] };
            assert_eq!(show(&text), expected, "{lead}");
        }
        for (commands, expected) in [
            ("pip install net 'a<1'  # optional", &[][..]),
            (
                "pip install a\n# optional\npip install b\n\npip install c",
                &["4 a", "8 c"],
            ),
            ("# Windows\npip install a\n# Linux\npip install b", &["7 b"]),
        ] {
            assert_eq!(installs(commands), expected, "{commands}");
        }
        let text = "Net\n===\n\nInstall\n-------\n\nOptional::\n\n  pip install a\n\nThen\n\n.. code:: bash\n\n  pip install b\n";
        let own = BTreeSet::new();
        let found = read_install_lines(&find_blocks("README.rst", text), &own);
        assert_eq!(found.packages.len(), 1);
        assert_eq!(found.skipped, [(9, "a".to_owned(), OPTIONAL)]);
        // Versions that a README names count for what is imported, but not those of another system.
        let text =
            "```\npip install a==1  # optional\n```\nOn Windows:\n```\npip install b==1\n```\n";
        let found = read_scripts(&find_blocks("README.md", text), &own);
        assert_eq!(found.packages.len(), 1);
    }

    #[test]
    fn an_index_that_is_not_asked_is_said() {
        let skipped = |commands: &str| {
            let text = format!("# Net\n```\n{commands}\n```\n");
            let found = read_install_lines(&find_blocks("README.md", &text), &BTreeSet::new());
            let skipped = found.skipped.into_iter();
            skipped
                .map(|(_, what, why)| (what, why))
                .collect::<Vec<_>>()
        };
        let index = "-i https://x.example.org/simple";
        assert_eq!(
            skipped(&format!("pip install mine==1.0 {index}")),
            [("mine==1.0".to_owned(), OTHER_INDEX)]
        );
        assert_eq!(
            skipped(&format!("pip install --pre torch {index}")),
            [(index.to_owned(), INDEX_NOT_ASKED)]
        );
        assert_eq!(
            skipped(&format!("pip install -e .[gpu] {index}")),
            [(index.to_owned(), INDEX_OF_PROJECT)]
        );
        assert_eq!(
            skipped("conda install -c conda-forge gym-atari numpy"),
            [("gym-atari".to_owned(), conda_names::UNKNOWN)]
        );
        assert_eq!(
            skipped(&format!("pip install -r r.txt {index}")),
            [(index.to_owned(), INDEX_OF_FILE)]
        );
        assert_eq!(skipped("pip install torch"), []);
    }

    #[test]
    fn the_project_itself_is_the_checkout() {
        for commands in [
            "pip install net",
            "pip install -U My_Net",
            "pip install git+https://git.example.org/me/net.git",
            "git clone https://git.example.org/me/net\ncd net\npip install -e .",
            "python setup.py develop",
            "pip install '.[dev]'",
        ] {
            let found = installs(commands);
            assert_eq!(found.len(), 1, "{commands}: {found:?}");
            assert!(found[0].ends_with(" . "), "{commands}: {found:?}");
        }
        assert_eq!(
            installs("pip install 'net[all,test]'\npip install net[x]"),
            ["4 . all"]
        );
        let other = "git clone https://git.example.org/you/apex && cd apex\npip install -r r.txt\npip install .\ncd ..\npip install a";
        assert_eq!(installs(other), ["8 a"]);
    }

    #[test]
    fn only_what_is_about_installing_counts() {
        let text = "# Net\n```\npip install a\n```\n## Tests\n```\npip install b\n```\n## Install\n### Docker\n```\npip install c\n```\n\
                    ### From source\n```\npip install d\n```\n## Results\n```\npip install e\n```\n";
        assert_eq!(show(text), ["3 a", "16 d"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((pip|conda|apt|install|git clone|cd|-r|-e|\\.|x\\[a\\]|>=1|<|\\$|'|\"|&&|!|\\(|\\)|é|\n) ?){0,40}") {
            installs(&text);
        }
    }
}
