//! Requirements files, as far as uv is not to read them itself.
//!
//! uv asks the build backend of an `-e` line on the host, whatever else it is told, and does not take a
//! repository that nobody named. Such lines are taken out here: folders become projects that are
//! installed from where they lie, and repositories get their name.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use sconce_formats::normalize_project_name;
use sconce_resolve::python::compile::project_of;
use sconce_resolve::python::direct_path::PathRequirement;
use sconce_resolve::python::source_package::UnnamedSource;
use sconce_resolve::python::torch_indexes::{added_index, is_build_index};
use sconce_schema::{Hint, exit};

use crate::failure::Result;
use crate::foreign_lock::{self, RequirementsText};

/// Files that one may include, all together.
const MAX_FILES: usize = 50;
/// An option that says that builds see the environment.
const NO_BUILD_ISOLATION: &str = "--no-build-isolation";
/// Characters of a file with all that it includes.
const MAX_TEXT: usize = 4 << 20;

/// Why a requirements file cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum RequirementLineError {
    /// A folder outside of the spec's, which is not there when the environment runs.
    #[error("{}:{line}: {text} lies outside of the spec's folder", file.display())]
    Outside {
        /// The file.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The folder, as it is written.
        text: String,
    },
    /// It includes too much, or itself.
    #[error("{} includes more than {MAX_FILES} files, or itself", file.display())]
    Includes {
        /// The file.
        file: PathBuf,
    },
}

impl Hint for RequirementLineError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Outside { .. } => {
                "put the spec into a folder above both, or name a wheel of it: `name @ file:///….whl`"
            }
            Self::Includes { .. } => "take the `-r` line out that leads back",
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// A requirements file with all that it includes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequirementLines {
    /// The files that it includes, each once.
    pub included: Vec<PathBuf>,
    /// Folders with their extras, as `[python] editable` has them.
    pub editable: Vec<String>,
    /// What the files say beside these, options included; paths in it are absolute.
    pub lines: Vec<RequirementLine>,
    /// Packages beside which `--no-build-isolation` stands.
    pub unisolated: Vec<String>,
    /// Whether that stands in a line of its own.
    pub is_unisolated: bool,
    /// Whether uv may read the files themselves, since all lines are kept as they are.
    pub is_plain: bool,
}

/// A line that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequirementLine {
    /// As it is.
    Kept(String),
    /// The address of sources that has no name: `git+https://…`.
    Unnamed(UnnamedSource),
}

impl RequirementLines {
    /// Reads `file`, of a spec in `folder`.
    ///
    /// # Errors
    /// It or a file that it includes cannot be read, or it names a folder outside of `folder`.
    pub fn read(file: &Path, folder: &Path) -> Result<Self> {
        let mut reader = LineReader {
            folder,
            found: Self {
                is_plain: true,
                ..Self::default()
            },
            files: 0,
            characters: 0,
        };
        reader.read_file(file)?;
        Ok(reader.found)
    }
}

/// A requirement of a spec's own, which may be an address without a name.
pub(crate) fn parse_requirement(text: &str) -> RequirementLine {
    match source_of(text.trim()) {
        RequirementAddress::Unnamed(source) => RequirementLine::Unnamed(source),
        RequirementAddress::Named(text) => RequirementLine::Kept(text),
        RequirementAddress::Requirement => RequirementLine::Kept(text.to_owned()),
    }
}

struct LineReader<'a> {
    folder: &'a Path,
    found: RequirementLines,
    files: usize,
    characters: usize,
}

impl LineReader<'_> {
    fn read_file(&mut self, file: &Path) -> Result<()> {
        let RequirementsText { text, is_utf8 } = foreign_lock::read_requirements(file)?;
        self.found.is_plain &= is_utf8;
        self.files += 1;
        if self.files > 1 && !self.found.included.iter().any(|other| other == file) {
            self.found.included.push(file.to_owned());
        }
        self.characters += text.len();
        if self.files > MAX_FILES || self.characters > MAX_TEXT {
            let file = file.to_owned();
            return Err(RequirementLineError::Includes { file }.into());
        }
        for (number, line) in logical_lines(&text) {
            self.read_line(file, number, &line)?;
        }
        Ok(())
    }

    fn read_line(&mut self, file: &Path, number: usize, line: &str) -> Result<()> {
        let beside = file.parent().unwrap_or(Path::new("."));
        let line = &*self.without_isolation(line);
        let (option, value) = split_option(line);
        match option {
            "" if line.is_empty() => {}
            "-r" | "--requirement" if !value.contains("://") => {
                return self.read_file(&beside.join(value));
            }
            "-c" | "--constraint" | "-f" | "--find-links" if is_path(value) => {
                self.keep(format!("{option} {}", beside.join(value).display()));
            }
            "-e" | "--editable" => {
                self.found.is_plain = false;
                match source_of(value) {
                    RequirementAddress::Unnamed(source) => {
                        self.found.lines.push(RequirementLine::Unnamed(source));
                    }
                    RequirementAddress::Named(text) => self.keep(text),
                    // `-e name @ git+https://…`
                    RequirementAddress::Requirement if value.contains("git+") => {
                        self.keep(value.to_owned())
                    }
                    RequirementAddress::Requirement if self.read_path(file, number, value)? => {}
                    RequirementAddress::Requirement => self.add_folder(file, number, value)?,
                }
            }
            "" => match source_of(line) {
                RequirementAddress::Unnamed(source) => {
                    self.found.is_plain = false;
                    self.found.lines.push(RequirementLine::Unnamed(source));
                }
                RequirementAddress::Named(text) => {
                    self.found.is_plain = false;
                    self.keep(text);
                }
                RequirementAddress::Requirement if self.read_path(file, number, line)? => {}
                RequirementAddress::Requirement if is_local(line) => {
                    self.found.is_plain = false;
                    let (path, _) = split_extras(line);
                    let path = beside.join(path.strip_prefix("file:").unwrap_or(path));
                    match path.is_dir() {
                        true => self.add_folder(file, number, line)?,
                        false => self.keep(named_archive(&path)),
                    }
                }
                RequirementAddress::Requirement => self.keep(line.to_owned()),
            },
            _ => {
                // What such an index serves is limited, which uv has no line for.
                let index = added_index(line).is_some_and(is_build_index);
                self.found.is_plain &= !index;
                self.keep(line.to_owned());
            }
        }
        Ok(())
    }

    /// A line without `--no-build-isolation`, which pip has on its command line and uv in no file.
    fn without_isolation<'l>(&mut self, line: &'l str) -> Cow<'l, str> {
        let words = || line.split_ascii_whitespace();
        if !words().any(|word| word == NO_BUILD_ISOLATION) {
            return Cow::Borrowed(line);
        }
        self.found.is_plain = false;
        let rest: Vec<&str> = words().filter(|word| *word != NO_BUILD_ISOLATION).collect();
        let rest = rest.join(" ");
        let name = match parse_requirement(&rest) {
            RequirementLine::Unnamed(source) => Some(source.guess_name()),
            RequirementLine::Kept(text) => project_of(&text),
        };
        match name {
            _ if rest.is_empty() => self.found.is_unisolated = true,
            name => self.found.unisolated.extend(name),
        }
        Cow::Owned(rest)
    }

    fn keep(&mut self, line: String) {
        self.found.lines.push(RequirementLine::Kept(line));
    }

    /// A requirement whose address is a path, `name @ file:./libs/name`. Gives whether it is one.
    fn read_path(&mut self, file: &Path, number: usize, line: &str) -> Result<bool> {
        let beside = file.parent().unwrap_or(Path::new("."));
        let Some(direct) = PathRequirement::parse(line, beside) else {
            return Ok(false);
        };
        if direct.path.is_file() {
            let whole = direct.with_whole_path();
            self.found.is_plain &= whole == line;
            self.keep(whole);
        } else {
            self.found.is_plain = false;
            let (_, extras) = split_extras(direct.name);
            self.add_path(file, number, line, &direct.path, extras)?;
        }
        Ok(true)
    }

    fn add_folder(&mut self, file: &Path, number: usize, value: &str) -> Result<()> {
        let (path, extras) = split_extras(value);
        let path = path.strip_prefix("file:").unwrap_or(path);
        let path = path.strip_prefix("//").unwrap_or(path);
        self.add_path(file, number, value, Path::new(path), extras)
    }

    /// A folder of a project, as the line names it. `extras` is `[gpu]`.
    fn add_path(
        &mut self,
        file: &Path,
        number: usize,
        text: &str,
        path: &Path,
        extras: &str,
    ) -> Result<()> {
        let outside = || RequirementLineError::Outside {
            file: file.to_owned(),
            line: number,
            text: text.to_owned(),
        };
        let beside = file.parent().unwrap_or(Path::new("."));
        let whole = without_dots(&beside.join(path)).ok_or_else(outside)?;
        let inside = whole.strip_prefix(self.folder).map_err(|_| outside())?;
        let inside = inside.to_str().ok_or_else(outside)?;
        let inside = match inside {
            "" => ".",
            inside => inside,
        };
        self.found.editable.push(format!("{inside}{extras}"));
        Ok(())
    }
}

/// What a requirement says of where its sources are.
enum RequirementAddress {
    /// An address without a name.
    Unnamed(UnnamedSource),
    /// An address whose fragment has the name, which now stands before it.
    Named(String),
    /// Anything else.
    Requirement,
}

/// A line that begins with the address of a repository, or of a source archive.
fn source_of(line: &str) -> RequirementAddress {
    let (address, marker) = match line.split_once([' ', '\t']) {
        Some((address, rest)) => (address, rest.trim()),
        None => (line, ""),
    };
    let is_git = address.starts_with("git+");
    let is_remote = address.starts_with("https://") || address.starts_with("http://");
    if !is_git && !is_remote {
        return RequirementAddress::Requirement;
    }
    let marker = match marker.starts_with(';') {
        true => format!(" {marker}"),
        false => String::new(),
    };
    let (url, fragment) = address.split_once('#').unwrap_or((address, ""));
    let (mut egg, mut rest) = (None, Vec::new());
    for part in fragment.split('&').filter(|part| !part.is_empty()) {
        match part.strip_prefix("egg=") {
            Some(name) => egg = Some(name),
            None => rest.push(part),
        }
    }
    let file = url.rsplit('/').next().unwrap_or_default();
    let url = match rest.is_empty() {
        true => url.to_owned(),
        false => format!("{url}#{}", rest.join("&")),
    };
    let named = |name: &str| RequirementAddress::Named(format!("{name} @ {url}{marker}"));
    let archive = archive_project(file);
    match (egg, archive) {
        // `#egg=name-1.0`, as setuptools once had it, is not valid any more.
        (Some(egg), _) if normalize_project_name(split_extras(egg).0).is_some() => named(egg),
        (_, Some(project)) if is_remote => named(&project),
        _ if is_git => RequirementAddress::Unnamed(UnnamedSource { url, marker }),
        _ => RequirementAddress::Requirement,
    }
}

/// What a source archive is called without the end of its name.
fn archive_stem(file: &str) -> Option<&str> {
    [".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip"]
        .into_iter()
        .find_map(|end| file.strip_suffix(end))
}

/// The project of a source archive, by its file's name (PEP 625).
fn archive_project(file: &str) -> Option<String> {
    let stem = archive_stem(file)?;
    let (name, version) = stem.rsplit_once('-')?;
    let is_version = version.starts_with(|c: char| c.is_ascii_digit());
    normalize_project_name(name).filter(|_| is_version)
}

/// A file of this machine as a requirement: a wheel has its name itself. Of an archive that has no version in its name
/// the whole name is the project's; a wrong one is an error when it is built.
fn named_archive(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let project = archive_project(&file).or_else(|| normalize_project_name(archive_stem(&file)?));
    match project {
        Some(project) => format!("{project} @ {}", sconce_fetch::file_url(path)),
        None => path.display().to_string(),
    }
}

/// Whether a line is a path, and no requirement: pip takes what has a slash for one.
fn is_local(line: &str) -> bool {
    let first = line.split([' ', '\t', ';', '[']).next().unwrap_or_default();
    let is_archive = first.ends_with(".whl") || archive_project(first).is_some();
    let is_path = first == "." || first.contains('/') || is_archive;
    let is_address = line.contains('@') || first.contains("://");
    is_path && !is_address || line.starts_with("file:")
}

/// Whether an option's value is a path that is relative to its file.
fn is_path(value: &str) -> bool {
    !value.contains("://") && !value.starts_with("file:")
}

/// `libs/mine[gpu]`: the path, and `[gpu]`.
fn split_extras(text: &str) -> (&str, &str) {
    let text = text.split(" ;").next().unwrap_or_default().trim_end();
    match text.find('[') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    }
}

/// `-r other.txt`, `--requirement=other.txt`, `-rother.txt`: the option and its value; of a requirement
/// the option is empty.
fn split_option(line: &str) -> (&str, &str) {
    let value =
        |rest: &str| -> usize { line.len() - rest.trim_start_matches(['=', ' ', '\t']).len() };
    if line.starts_with("--") {
        let end = line.find(['=', ' ', '\t']).unwrap_or(line.len());
        let from = value(&line[end..]);
        return (&line[..end], unquoted(&line[from..]));
    }
    if line.starts_with('-') && line.is_char_boundary(2) && line.len() >= 2 {
        let from = value(&line[2..]);
        return (&line[..2], unquoted(&line[from..]));
    }
    ("", line)
}

fn unquoted(value: &str) -> &str {
    value.trim().trim_matches(['"', '\''])
}

/// Lines with their numbers, without comments, joined where a backslash ends one.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let bare = match line.trim_start().starts_with('#') {
            true => "",
            false => line.split(" #").next().unwrap_or_default().trim(),
        };
        let (bare, goes_on) = match bare.strip_suffix('\\') {
            Some(bare) => (bare, true),
            None => (bare, false),
        };
        match lines.last_mut().filter(|_| is_open) {
            Some((_, open)) => open.push_str(bare),
            None => lines.push((number + 1, bare.to_owned())),
        }
        is_open = goes_on;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// A path without `.` and `..`, by its text alone. `None` above the root.
fn without_dots(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            part => plain.push(part),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<RequirementLines>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let lines = RequirementLines::read(&dir.path().join(files[0].0), dir.path());
        (dir, lines)
    }

    fn kept(lines: &RequirementLines) -> Vec<&str> {
        let kept = lines.lines.iter().map(|line| match line {
            RequirementLine::Kept(text) => text.as_str(),
            RequirementLine::Unnamed(source) => source.url.as_str(),
        });
        kept.collect()
    }

    #[test]
    fn a_file_of_requirements_alone_is_left_to_uv() {
        let text = "# of us\ntorch==2.15.0 \\\n  --hash=sha256:aa\nnumpy # newest\n\n-r more.txt\nx @ git+https://example.org/x\n";
        let (_dir, lines) = read(&[("r.txt", text), ("more.txt", "six")]);
        let lines = lines.unwrap();
        assert!(lines.is_plain && lines.editable.is_empty());
        assert_eq!(lines.lines.len(), 4);
    }

    #[test]
    fn a_file_of_powershell_is_written_anew_for_uv() {
        let (dir, _) = read(&[("r.txt", "")]);
        let file = dir.path().join("r.txt");
        let encode: [fn(u16) -> [u8; 2]; 2] = [u16::to_le_bytes, u16::to_be_bytes];
        for encode in encode {
            let units = "\u{feff}idna==3.4\r\nsix\r\n".encode_utf16();
            std::fs::write(&file, units.flat_map(encode).collect::<Vec<u8>>()).unwrap();
            let lines = RequirementLines::read(&file, dir.path()).unwrap();
            assert!(!lines.is_plain);
            assert_eq!(kept(&lines), ["idna==3.4", "six"]);
        }
        std::fs::write(&file, b"\xff\xfea").unwrap();
        let said = RequirementLines::read(&file, dir.path()).unwrap_err();
        assert!(said.to_plain_text().contains("not UTF-8"));
    }

    #[test]
    fn folders_become_editable_projects() {
        let text = "-e .\n-e ./libs/a[gpu]\n--editable=libs/b\n./libs/c\n-r dev/r.txt\n.[test]\n";
        let (_dir, lines) = read(&[
            ("r.txt", text),
            ("dev/r.txt", "-e ../libs/d\n"),
            ("libs/c/setup.py", ""),
        ]);
        let lines = lines.unwrap();
        let expected = [".", "libs/a[gpu]", "libs/b", "libs/c", "libs/d", ".[test]"];
        assert_eq!(lines.editable, expected);
        assert!(!lines.is_plain && lines.lines.is_empty());
    }

    #[test]
    fn names_with_a_path_are_folders_and_files() {
        let text = "dep[gpu] @ file:./libs/dep\nsix @ file:w/six-1-py3-none-any.whl ; python_version > '3'\n\
            -r dev/r.txt\nout @ https://example.org/out-1-py3-none-any.whl\n";
        let (dir, lines) = read(&[
            ("r.txt", text),
            ("dev/r.txt", "idna @ ../libs/idna\n"),
            ("libs/dep/setup.py", ""),
            ("w/six-1-py3-none-any.whl", ""),
        ]);
        let lines = lines.unwrap();
        assert_eq!(lines.editable, ["libs/dep[gpu]", "libs/idna"]);
        let wheel = format!(
            "six @ file://{}/w/six-1-py3-none-any.whl ; python_version > '3'",
            dir.path().display()
        );
        let remote = "out @ https://example.org/out-1-py3-none-any.whl";
        assert_eq!(kept(&lines), [wheel.as_str(), remote]);
        assert!(!lines.is_plain);
        let (_dir, lines) = read(&[("r.txt", "x @ file:///croot/x_1/work\n")]);
        let said = lines.unwrap_err().to_plain_text();
        assert!(
            said.contains("r.txt:1: x @ file:///croot/x_1/work lies outside"),
            "{said}"
        );
    }

    #[test]
    fn builds_in_sight_of_the_environment_are_known_by_their_lines() {
        let text = "torch\nflash_attn==2.5 --no-build-isolation\n\
                    --no-build-isolation git+https://example.org/a/Deep.git@v1\n";
        let (_dir, lines) = read(&[("r.txt", text)]);
        let lines = lines.unwrap();
        assert_eq!(lines.unisolated, ["flash-attn", "deep"]);
        assert!(!lines.is_unisolated && !lines.is_plain);
        assert_eq!(
            kept(&lines),
            [
                "torch",
                "flash_attn==2.5",
                "git+https://example.org/a/Deep.git@v1"
            ]
        );
        let (_dir, lines) = read(&[("r.txt", "--no-build-isolation\ntorch\n")]);
        let lines = lines.unwrap();
        assert!(lines.is_unisolated && lines.unisolated.is_empty());
        assert_eq!(kept(&lines), ["torch"]);
    }

    #[test]
    fn a_folder_outside_is_named_with_its_line() {
        let (_dir, lines) = read(&[("r.txt", "six\n-e ../other\n")]);
        let said = lines.unwrap_err().to_plain_text();
        assert!(said.contains("r.txt:2: ../other lies outside"), "{said}");
    }

    #[test]
    fn a_file_that_includes_itself_is_refused() {
        let (_dir, lines) = read(&[("r.txt", "-r r.txt\n")]);
        assert!(lines.unwrap_err().to_plain_text().contains("or itself"));
    }

    #[test]
    fn repositories_and_archives_get_their_name() {
        let text = "git+https://example.org/CLIP.git\n\
            -e git+https://example.org/taming.git@master#egg=taming-transformers\n\
            git+https://example.org/c.git#subdirectory=PythonAPI&egg=coco ; python_version < '3.11'\n\
            https://example.org/dl/mine-1.0.tar.gz\nhttps://example.org/dl/mine-1.0-py3-none-any.whl\n";
        let (_dir, lines) = read(&[("r.txt", text)]);
        let lines = lines.unwrap();
        assert_eq!(
            kept(&lines),
            [
                "git+https://example.org/CLIP.git",
                "taming-transformers @ git+https://example.org/taming.git@master",
                "coco @ git+https://example.org/c.git#subdirectory=PythonAPI ; python_version < '3.11'",
                "mine @ https://example.org/dl/mine-1.0.tar.gz",
                "https://example.org/dl/mine-1.0-py3-none-any.whl",
            ]
        );
        assert!(matches!(lines.lines[0], RequirementLine::Unnamed(_)));
    }

    #[test]
    fn paths_stay_those_of_their_file() {
        let text = "-e .\n-c sub/limits.txt\n-f wheels\n--find-links https://example.org/w\n./w/a-1.0.tar.gz\n./b.zip\n";
        let (dir, lines) = read(&[("r.txt", text)]);
        let at = dir.path().display();
        assert_eq!(
            kept(&lines.unwrap()),
            [
                format!("-c {at}/sub/limits.txt"),
                format!("-f {at}/wheels"),
                "--find-links https://example.org/w".to_owned(),
                format!("a @ file://{at}/./w/a-1.0.tar.gz"),
                format!("b @ file://{at}/./b.zip"),
            ]
        );
    }

    #[test]
    fn options_of_any_spelling() {
        for (line, expected) in [
            ("-e .", ("-e", ".")),
            ("-e.", ("-e", ".")),
            ("--editable=.", ("--editable", ".")),
            ("--editable '.'", ("--editable", ".")),
            ("-", ("", "-")),
            ("-é", ("", "-é")),
            ("six", ("", "six")),
        ] {
            assert_eq!(split_option(line), expected, "{line}");
        }
    }
}
