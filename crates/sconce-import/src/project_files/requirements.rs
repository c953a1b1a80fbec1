//! pip's requirements files: <https://pip.pypa.io/en/stable/reference/requirements-file-format/>.

use sconce_formats::PinnedPackage;

use super::local_paths;
use crate::conda_names;
use crate::draft::Draft;
use crate::freeze::{self, FrozenLine, read_frozen_line};
use crate::hashes::{UnusableHash, read_hashes};
use crate::requirement::{self, FOLDER, NO_BUILD_ISOLATION, Requirement};
use crate::{ImportedSpec, SiblingFiles, inside, torch_builds};

/// Files that a requirements file may include, all together.
const MAX_FILES: usize = 50;
/// Lines that are read, all together.
const MAX_LINES: usize = 20_000;

/// A requirements file with all that it includes, as far as it matters for a lock.
#[derive(Debug, Default)]
pub(crate) struct RequirementsScan {
    /// What can be locked, each with its line in the first file.
    pub(crate) requirements: Vec<(Option<usize>, Requirement)>,
    /// Folders of projects, with extras or not.
    pub(crate) projects: Vec<(Option<usize>, String)>,
    /// Wheels and source archives below the folder, which only the file itself can name.
    files_below: Vec<(Option<usize>, String)>,
    /// Projects that these and the folders bring.
    brought: Vec<String>,
    /// What cannot be locked, with the reason.
    pub(crate) refused: Vec<(Option<usize>, String, String)>,
    /// Of these, the packages that conda alone has.
    unknown: Vec<String>,
    /// Of those, requirements by the address of their sources.
    offers: Vec<(Option<usize>, String)>,
    /// Files that it includes.
    pub(crate) includes: Vec<String>,
    /// `--index-url`.
    pub(crate) index: Option<(Option<usize>, String)>,
    /// `--extra-index-url`.
    pub(crate) extra_index: Vec<(Option<usize>, String)>,
    /// Options that the spec cannot say, and that the file keeps where it is referred to.
    options: Vec<(Option<usize>, String, &'static str)>,
    /// Lines that neither pip nor uv can read elsewhere, with what became of them.
    rewritten: Vec<(Option<usize>, String, &'static str)>,
    /// The interpreter that a list of conda's has.
    python: Option<(Option<usize>, String)>,
    /// Includes that lie outside the spec's folder.
    unseen: Vec<(Option<usize>, String)>,
    /// `--no-build-isolation` stands in a line of its own.
    unisolated: bool,
    /// `--find-links` stands in it.
    links: bool,
    /// The first requirement with `--hash`.
    hashed: Option<(Option<usize>, String)>,
    /// The projects that have digests.
    pub(crate) digests: Vec<PinnedPackage>,
    /// Those that do not count.
    pub(crate) unusable_hashes: Vec<UnusableHash>,
    files: usize,
    lines: usize,
}

const OTHER_OPTION: &str = "an option that a spec does not have";
const MISSING: &str = "the file is not there, or not text";
const OUTSIDE: &str = "a file outside the spec's folder, which was not looked into";
const CONSTRAINTS: &str = "a spec has no constraints: add the versions to the requirements";
const LINKS: &str = "a spec has no find-links: name each wheel as `name @ https://…`";
const UNNEEDED_LINKS: &str = "the main index has the build of torch, so it is not needed";
const PRE: &str =
    "pre-releases are taken where a requirement names one, as in `torch>=2.16.0.dev0`";
const DIGESTS: &str =
    "its digests, and those of what follows it: they count where the file is referred to";

impl RequirementsScan {
    /// Reads `text`, the file at `path`.
    pub(crate) fn scan_file(path: &str, text: &str, beside: SiblingFiles<'_>) -> Self {
        let mut scan = Self::default();
        scan.file(path, text, beside, 0);
        scan
    }

    fn file(&mut self, path: &str, text: &str, beside: SiblingFiles<'_>, depth: usize) {
        self.files += 1;
        for (number, line) in logical_lines(text) {
            self.lines += 1;
            if self.lines > MAX_LINES {
                let why = "more lines than are read".to_owned();
                self.refused.push((None, path.to_owned(), why));
                return;
            }
            let place = (depth == 0).then_some(number);
            let name = |what: &str| match depth {
                0 => what.to_owned(),
                _ => format!("{path}: {what}"),
            };
            if line.starts_with('-') {
                self.option(path, &line, place, &name(&line), beside, depth);
                continue;
            }
            let (text, options) = split_options(&line);
            if self.read_path(text, place, beside) {
                continue;
            }
            let rewritten = match read_frozen_line(text) {
                Some(FrozenLine::Nothing) => {
                    self.rewritten.push((place, name(text), freeze::NOTHING));
                    continue;
                }
                Some(FrozenLine::Unneeded) => {
                    self.rewritten.push((place, name(text), freeze::NOT_NEEDED));
                    continue;
                }
                Some(FrozenLine::UnknownOfConda(why)) => {
                    self.refused.push((place, name(text), why.to_owned()));
                    self.unknown
                        .extend(text.split('=').next().map(str::to_owned));
                    continue;
                }
                Some(FrozenLine::Sources(requirement)) => {
                    let why = conda_names::describe_sources(&requirement);
                    self.refused.push((place, name(text), why));
                    self.unknown
                        .extend(text.split('=').next().map(str::to_owned));
                    self.offers.push((place, requirement));
                    continue;
                }
                Some(FrozenLine::Elsewhere) => {
                    let why = freeze::ELSEWHERE.to_owned();
                    self.refused.push((place, name(text), why));
                    self.unknown.extend(
                        text.split(['@', '['])
                            .next()
                            .map(|name| name.trim().to_owned()),
                    );
                    continue;
                }
                Some(FrozenLine::OfFolder(requirement)) => {
                    self.rewritten.push((place, name(text), freeze::OF_FOLDER));
                    Some(requirement)
                }
                Some(FrozenLine::Python(version)) => {
                    self.python = self.python.take().or(Some((place, version)));
                    continue;
                }
                Some(FrozenLine::OfCondaList(requirement)) => {
                    self.rewritten
                        .push((place, name(text), freeze::OF_CONDA_LIST));
                    Some(requirement)
                }
                Some(FrozenLine::OfConda(requirement)) => {
                    self.rewritten.push((place, name(text), freeze::OF_CONDA));
                    Some(requirement)
                }
                None => None,
            };
            match requirement::parse(rewritten.as_deref().unwrap_or(text)) {
                Ok(requirement) => {
                    if options.contains("--hash") && self.hashed.is_none() {
                        self.hashed = Some((place, name(text)));
                    }
                    let (pinned, unusable) = read_hashes(&requirement, options);
                    self.digests.extend(pinned);
                    if let Some((digest, problem)) = unusable {
                        let place = format!("{path}:{number}");
                        self.unusable_hashes.push(UnusableHash {
                            place,
                            digest,
                            problem,
                        });
                    }
                    if options.contains("--global-option") || options.contains("--config-setting") {
                        self.options.push((place, name(&line), OTHER_OPTION));
                    }
                    let unisolated = options.contains(NO_BUILD_ISOLATION) || self.unisolated;
                    self.requirements.push((
                        place,
                        Requirement {
                            unisolated,
                            ..requirement
                        },
                    ));
                }
                Err(FOLDER) => self.add_project(place, text.to_owned(), beside),
                Err(why) => self.refused.push((place, name(text), why.to_owned())),
            }
        }
    }

    /// A requirement by a path of the folder. Gives whether it is one.
    fn read_path(&mut self, text: &str, place: Option<usize>, beside: SiblingFiles<'_>) -> bool {
        if let Some(local) = local_paths::read_local_path(text, beside) {
            if local.is_moved {
                self.rewritten
                    .push((place, text.to_owned(), local_paths::HERE));
            }
            self.brought.push(local.name);
            match local_paths::is_file_below(&local.path) {
                true => self.files_below.push((place, text.to_owned())),
                false => self.add_project(place, local.path, beside),
            }
            return true;
        }
        let is_file = local_paths::is_file_below(text);
        if is_file {
            self.brought.extend(local_paths::find_brought(text, beside));
            self.files_below.push((place, text.to_owned()));
        }
        is_file
    }

    fn add_project(&mut self, place: Option<usize>, path: String, beside: SiblingFiles<'_>) {
        self.brought
            .extend(local_paths::find_brought(&path, beside));
        self.projects.push((place, path));
    }

    fn option(
        &mut self,
        path: &str,
        line: &str,
        place: Option<usize>,
        shown: &str,
        beside: SiblingFiles<'_>,
        depth: usize,
    ) {
        let (option, value) = split_option(line);
        let value = value.trim().trim_matches(['"', '\'']);
        match option {
            "-r" | "--requirement" => self.include(path, value, place, shown, beside, depth),
            "-c" | "--constraint" => self.options.push((place, shown.to_owned(), CONSTRAINTS)),
            "-e" | "--editable" => match requirement::parse(value) {
                Ok(requirement) => self.requirements.push((place, requirement)),
                Err(FOLDER) => self.add_project(place, value.to_owned(), beside),
                Err(why) => self.refused.push((place, shown.to_owned(), why.to_owned())),
            },
            "-i" | "--index-url" => self.index = Some((place, value.to_owned())),
            "--extra-index-url" => self.extra_index.push((place, value.to_owned())),
            "-f" | "--find-links" => {
                self.links = true;
                self.options.push((place, shown.to_owned(), LINKS));
            }
            NO_BUILD_ISOLATION => {
                self.unisolated = true;
                let all = self.requirements.iter_mut();
                all.for_each(|(_, one)| one.unisolated = true);
            }
            "--pre" => self.options.push((place, shown.to_owned(), PRE)),
            // What a lock does anyway, or decides itself.
            "--only-binary" | "--no-binary" | "--prefer-binary" | "--require-hashes"
            | "--use-feature" => {}
            _ => self.options.push((place, shown.to_owned(), OTHER_OPTION)),
        }
    }

    fn include(
        &mut self,
        path: &str,
        value: &str,
        place: Option<usize>,
        shown: &str,
        beside: SiblingFiles<'_>,
        depth: usize,
    ) {
        // Relative to the file that names it.
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let joined = match folder {
            "" => value.to_owned(),
            _ => format!("{folder}/{value}"),
        };
        let Some(target) = inside(&joined).filter(|_| !value.starts_with('/')) else {
            self.unseen.push((place, shown.to_owned()));
            return;
        };
        let found = (depth < 8 && self.files < MAX_FILES)
            .then(|| beside(&target))
            .flatten();
        match found {
            Some(text) => {
                self.file(&target, &text, beside, depth + 1);
                self.includes.push(target);
            }
            None => {
                let why = MISSING.to_owned();
                self.refused.push((place, shown.to_owned(), why));
            }
        }
    }

    /// The first file's lines stand on these of another.
    pub(crate) fn lines_are(&mut self, lines: &[usize]) {
        let there = |place: &mut Option<usize>| {
            *place = place.and_then(|number| lines.get(number - 1).copied());
        };
        self.requirements.iter_mut().for_each(|r| there(&mut r.0));
        self.projects.iter_mut().for_each(|r| there(&mut r.0));
        self.refused.iter_mut().for_each(|r| there(&mut r.0));
        self.options.iter_mut().for_each(|r| there(&mut r.0));
        self.rewritten.iter_mut().for_each(|r| there(&mut r.0));
        self.unseen.iter_mut().for_each(|r| there(&mut r.0));
        self.extra_index.iter_mut().for_each(|r| there(&mut r.0));
        self.index.iter_mut().for_each(|r| there(&mut r.0));
    }

    /// Puts it into the draft as requirements of the spec's own.
    pub(crate) fn copy_into(self, draft: &mut Draft, line: Option<usize>) {
        let place = |own: Option<usize>| line.or(own);
        for name in &self.unknown {
            draft.note_unknown(name);
        }
        for (own, requirement) in &self.offers {
            draft.offer(place(*own), requirement);
        }
        for (own, what, why) in self.refused {
            draft.left_out(place(own), &what, why);
        }
        for (own, file) in self.files_below {
            draft.left_out(place(own), &file, requirement::LOCAL);
        }
        self.brought.iter().for_each(|name| draft.bring(name));
        for (own, folder) in self.projects {
            draft.add_editable(place(own), &folder);
        }
        for (own, what, why) in self.rewritten {
            draft.note_decision(place(own), &what, why.to_owned());
        }
        if let Some((own, version)) = self.python {
            draft.set_python(place(own), &version);
        }
        for (own, what, why) in self.options {
            draft.left_out(place(own), &what, why);
        }
        for (own, what) in self.unseen {
            draft.left_out(place(own), &what, OUTSIDE);
        }
        if let Some((own, what)) = self.hashed {
            draft.left_out(place(own), &what, DIGESTS);
        }
        if let Some((own, url)) = self.index {
            draft.set_index(place(own), &url);
        }
        for (own, url) in self.extra_index {
            draft.extra_index(place(own), &url);
        }
        let batch = self.requirements.into_iter().map(|(_, r)| r).collect();
        draft.add_requirements(line, batch);
    }
}

/// A requirements file is referred to where all of it can be locked, and copied where not.
pub(crate) fn convert(path: &str, text: &str, beside: SiblingFiles<'_>) -> ImportedSpec {
    let mut scan = RequirementsScan::scan_file(path, text, beside);
    let mut draft = Draft::default();
    let is_of_builds = |line: &str| index_of_build_links(line).is_some();
    let links = scan.options.iter();
    let links = links.filter_map(|(_, line, _)| index_of_build_links(line));
    let indexes = scan.extra_index.iter().chain(&scan.index);
    let indexes: Vec<String> = indexes
        .map(|(_, url)| url.as_str())
        .chain(links)
        .map(str::to_owned)
        .collect();
    let requirements: Vec<Requirement> = scan.requirements.iter().map(|(_, r)| r.clone()).collect();
    // A copy says no more than requirements and indexes.
    let mut options = scan.options.iter();
    let is_simple = options.all(|(_, line, _)| is_of_builds(line))
        && scan.unseen.is_empty()
        && scan.hashed.is_none();
    let is_plain = is_simple && torch_builds::asks_for_plain_build(&requirements, &indexes);
    if is_plain || !scan.refused.is_empty() || !scan.rewritten.is_empty() || scan.python.is_some() {
        let why = format!(
            "its requirements are copied into the spec, as not all of {path} can be locked as it stands; later changes of it do not count"
        );
        draft.note_decision(None, path, why);
        if is_plain {
            for (line, link, _) in std::mem::take(&mut scan.options) {
                draft.note_decision(line, &link, UNNEEDED_LINKS.to_owned());
            }
        }
        scan.copy_into(&mut draft, None);
        return draft.finish();
    }
    for include in &scan.includes {
        let why = "it is read too; after a change of it alone, say `sconce lock`";
        draft.note_decision(None, include, why.to_owned());
    }
    for (line, what) in scan.unseen {
        draft.note_decision(line, &what, OUTSIDE.to_owned());
    }
    draft.indexed = scan.index.is_some() || !scan.extra_index.is_empty() || scan.links;
    draft.spec.python.requirements = Some(path.to_owned());
    scan.brought.iter().for_each(|name| draft.bring(name));
    let batch = scan.requirements.into_iter().map(|(_, r)| r).collect();
    draft.add_requirements(None, batch);
    draft.finish_referring()
}

/// The address below which the builds lie that a line links to, where it is PyTorch's own page of links:
/// `-f …/whl/cu117/torch_stable.html`, `-f …/whl/torch_stable.html`.
fn index_of_build_links(line: &str) -> Option<&str> {
    let (option, value) = split_option(line);
    let is_links = matches!(option, "-f" | "--find-links");
    let value = value.trim().trim_matches(['"', '\'']);
    value
        .strip_suffix("/torch_stable.html")
        .filter(|_| is_links)
}

/// Lines without comments, joined where a backslash ends one; each with its number.
pub(crate) fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, line) in text.lines().enumerate() {
        let (number, mut whole) = open.take().unwrap_or((at + 1, String::new()));
        let comment = line.trim_start().starts_with('#');
        let (part, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(part) if !comment => (part, true),
            _ => (line, false),
        };
        whole.push_str(part);
        if goes_on {
            open = Some((number, whole));
        } else {
            lines.push((number, whole));
        }
    }
    lines.extend(open);
    lines
        .into_iter()
        .map(|(number, line)| (number, without_comment(&line).trim().to_owned()))
        .filter(|(_, line)| !line.is_empty())
        .collect()
}

/// A `#` begins a comment at the line's start and after a space.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    let spaced = line
        .match_indices('#')
        .find(|(at, _)| line[..*at].ends_with(char::is_whitespace));
    spaced.map_or(line, |(at, _)| &line[..at])
}

/// A requirement and the options behind it (`--hash=…`).
pub(crate) fn split_options(line: &str) -> (&str, &str) {
    match line.find(" --") {
        Some(at) => (line[..at].trim(), &line[at..]),
        None => (line, ""),
    }
}

/// `-r a.txt`, `--requirement=a.txt`, `-ra.txt`.
pub(crate) fn split_option(line: &str) -> (&str, &str) {
    if let Some(at) = line
        .find(['=', ' ', '\t'])
        .filter(|_| line.starts_with("--"))
    {
        return (&line[..at], &line[at + 1..]);
    }
    match line.get(..2) {
        Some(short) if !line.starts_with("--") => (short, line[2..].trim_start_matches('=')),
        _ => (line, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::format_notes;

    #[test]
    fn builds_in_sight_of_the_environment_are_copied_by_name() {
        let names = |text: &str| {
            let scan = RequirementsScan::scan_file("r.txt", text, &|_| None);
            let mut draft = Draft::default();
            scan.copy_into(&mut draft, None);
            draft.finish().spec.python.no_build_isolation
        };
        assert_eq!(
            names("torch\nFlash_Attn --no-build-isolation\n"),
            ["flash-attn"]
        );
        assert_eq!(names("torch\n--no-build-isolation\nx\n"), ["torch", "x"]);
        assert!(names("torch\n").is_empty());
    }

    fn read(text: &str) -> (ImportedSpec, String) {
        let beside = |path: &str| match path {
            "reqs/more.txt" => Some("-r ../base.txt\n-r deep/x.txt\npandas\n".to_owned()),
            "reqs/deep/x.txt" => Some("-e .\n".to_owned()),
            "base.txt" => Some("scipy".to_owned()),
            "reqs/self.txt" => Some("-r self.txt\ntqdm\n".to_owned()),
            _ => None,
        };
        let adopted = convert("reqs/a.txt", text, &beside);
        let said = format_notes(&adopted);
        (adopted, said)
    }

    #[test]
    fn what_can_be_locked_is_referred_to() {
        let (adopted, said) = read(
            "# all\n--extra-index-url https://i.example.org/whl/cu124\n-c limits.txt\n\
             torch==2.6.0+cu124 --hash=sha256:aa \\\n  --hash=sha256:bb\nnumpy>=1.26 # why\n",
        );
        let python = &adopted.spec.python;
        assert_eq!(python.requirements.as_deref(), Some("reqs/a.txt"));
        assert!(python.packages.is_empty() && python.extra_index.is_empty());
        assert_eq!(said, "");
    }

    #[test]
    fn what_cannot_makes_a_copy() {
        let (adopted, said) = read(
            "-i https://me:pw@i.example.org/simple\n-r more.txt\n--pre\nnumpy\\\n>=1.26\nx @ file:///croot/x\n\n-e git+https://git.example.org/y#egg=y\n--no-binary :all:\n",
        );
        let python = &adopted.spec.python;
        assert_eq!(
            python.packages,
            [
                "scipy",
                "pandas",
                "numpy>=1.26",
                "x",
                "y @ git+https://git.example.org/y"
            ]
        );
        assert_eq!(python.editable, ["."]);
        assert_eq!(
            python.index.as_deref(),
            Some("https://i.example.org/simple")
        );
        for expected in [
            "reqs/a.txt: its requirements are copied",
            "1 decided: https://i.example.org/simple: the login",
            "3 left out: --pre",
            "6 decided: x @ file:///croot/x: conda built it",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }

    #[test]
    fn what_pip_freeze_writes_is_read() {
        let (adopted, said) =
            read("numpy @ file:///croot/numpy_1/work\npkg-resources==0.0.0\ntqdm==4.66\n");
        assert_eq!(adopted.spec.python.packages, ["numpy", "tqdm==4.66"]);
        for expected in [
            "1 decided: numpy @ file:///croot/numpy_1/work: conda built it",
            "2 decided: pkg-resources==0.0.0: no package",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }

    #[test]
    fn an_index_of_the_build_that_the_main_one_has_is_not_needed() {
        let (adopted, said) =
            read("--extra-index-url https://i.example.org/whl/cu117\ntorch==2.0.0\nnumpy\n");
        let python = &adopted.spec.python;
        assert_eq!(python.packages, ["torch==2.0.0", "numpy"]);
        assert!(python.extra_index.is_empty());
        assert!(
            said.contains("whl/cu117: torch 2.0.0 of the main index is this build"),
            "{said}"
        );
    }

    #[test]
    fn links_to_the_build_that_the_main_index_has_are_not_needed() {
        let links = "https://i.example.org/whl";
        for (text, packages) in [
            (
                format!("-f {links}/cu117/torch_stable.html\ntorch==1.13.1\n"),
                "torch==1.13.1",
            ),
            (
                format!("--find-links {links}/torch_stable.html\ntorch==1.13.1+cu117\n"),
                "torch==1.13.1",
            ),
            (
                format!("--index-url {links}/cu121\ntorch\n"),
                "torch>=2.1,<2.5",
            ),
        ] {
            let (adopted, said) = read(&text);
            let python = &adopted.spec.python;
            assert_eq!(python.packages, [packages], "{text}");
            assert!(
                python.index.is_none() && python.extra_index.is_empty(),
                "{text}"
            );
            assert!(
                said.contains("so it is not needed") && !said.contains("left out"),
                "{said}"
            );
        }
        for text in [
            format!("-f {links}/torch_stable.html\ntorch==1.12.1+cu113\n"),
            format!("-f {links}/torch_stable.html\ntorch==1.12.1\n"),
            format!("-f {links}/cu113/torch_stable.html\ntorch==1.12.1\n"),
            "-f https://i.example.org/wheels\ntorch==1.13.1+cu117\n".to_owned(),
        ] {
            let (adopted, _) = read(&text);
            assert!(adopted.spec.python.requirements.is_some(), "{text}");
        }
    }

    #[test]
    fn files_that_include_each_other_end() {
        let (adopted, said) = read("-r self.txt\n-r ../../out.txt\n");
        // Too deep to be locked, so it is a copy.
        assert_eq!(adopted.spec.python.packages, ["tqdm"]);
        assert!(
            said.contains("2 left out: -r ../../out.txt: a file outside"),
            "{said}"
        );
    }

    #[test]
    fn sources_and_folders_are_referred_to() {
        let (adopted, said) = read(
            "-e .[train]\n-e git+https://git.example.org/y#egg=y\n./libs/x\n\
             git+https://git.example.org/z\nhttps://a.example.org/w-1.0.tar.gz\n--no-binary :all:\n",
        );
        assert_eq!(
            adopted.spec.python.requirements.as_deref(),
            Some("reqs/a.txt")
        );
        let provided: Vec<&str> = adopted.provided.iter().map(String::as_str).collect();
        assert_eq!(provided, ["w", "y", "z"]);
        assert_eq!(said, "");
    }

    #[test]
    fn paths_of_the_folder_are_no_obstacle() {
        let beside = |path: &str| match path {
            "libs/six/setup.py" => Some("setup(name='six', install_requires=['idna'])".to_owned()),
            _ => None,
        };
        let text = "dep @ file:./libs/dep\n./w/x-1.0-py3-none-any.whl\ny @ file:w/y-1.tar.gz\n./libs/six\n";
        let adopted = convert("requirements.txt", text, &beside);
        let python = &adopted.spec.python;
        assert_eq!(python.requirements.as_deref(), Some("requirements.txt"));
        let provided: Vec<&str> = adopted.provided.iter().map(String::as_str).collect();
        assert_eq!(provided, ["dep", "idna", "six", "x", "y"]);
        assert_eq!(format_notes(&adopted), "");

        let text = "six @ file:///home/me/here/libs/six\nnumpy @ file:///croot/numpy_1/work\n\
            mine @ file:///C:/Users/me/mine\n";
        let adopted = convert("requirements.txt", text, &beside);
        let python = &adopted.spec.python;
        assert_eq!(
            (python.editable.as_slice(), python.packages.as_slice()),
            (&["libs/six".to_owned()][..], &["numpy".to_owned()][..])
        );
        let said = format_notes(&adopted);
        assert!(
            said.contains(
                "1 decided: six @ file:///home/me/here/libs/six: its folder of this project"
            ),
            "{said}"
        );
        let other = "3 left out: mine @ file:///C:/Users/me/mine: a folder of another";
        assert!(said.contains(other), "{said}");
        assert!(adopted.unknown.contains("mine"));
    }

    #[test]
    fn torch_asks_for_its_index() {
        let (adopted, said) = read("torch==2.4.1+cu118\n");
        assert_eq!(adopted.spec.python.version, None);
        assert!(said.contains("decided: torch 2.4.1+cu118: `+cu118` is on PyTorch's own index"));
        assert_eq!(read("torch==1.12\n").1, "");
    }
}
