//! The editable wheel of a project (PEP 660): its metadata and entry points, and a `.pth` file that
//! has Python read its modules from where they lie. Nothing of the project runs for it.

use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rawzip::{CompressionMethod, ZipArchiveWriter};
use sconce_formats::normalize_project_name;
use sconce_formats::pyproject::PyprojectMetadata;
use sconce_schema::Sha256;
use sconce_schema::lock::Wheel;
use sha2::Digest as _;

/// The version of a project that only its build backend knows: the lowest one that can be told from
/// a real one.
pub const UNKNOWN_VERSION: &str = "0+unknown";

/// A wheel, and its bytes, which are a function of the project's metadata and of where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditableWheel {
    /// As a lock would have it, but for its address, which is empty.
    pub wheel: Wheel,
    /// The file.
    pub bytes: Vec<u8>,
}

/// A module that a build would write into the project's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedModule {
    /// `my_net._version`
    pub name: String,
    /// Its source.
    pub text: String,
}

impl GeneratedModule {
    /// A package whose files lie in a folder of another name, an absolute path inside.
    #[must_use]
    pub fn of_folder(name: &str, folder: &str) -> Self {
        let (folder, start) = (
            python_literal(folder),
            python_literal(&format!("{folder}/__init__.py")),
        );
        let text = format!(
            "__path__ = [{folder}]\n__spec__.submodule_search_locations = __path__\n__package__ = __name__\n\
             __file__ = {start}\n\
             import os\n\
             if os.path.exists(__file__):\n    \
                 with open(__file__, 'rb') as __file:\n        \
                     exec(compile(__file.read(), __file__, 'exec'))\n"
        );
        Self {
            name: name.to_owned(),
            text,
        }
    }
}

/// A program that a project ships as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFile {
    /// Its absolute path inside.
    pub path: String,
    /// Its first line, `#!/usr/bin/env python`.
    pub first_line: String,
}

impl ScriptFile {
    /// The name of the program, and the text that starts the file from where it lies. `None` for a name or a path with
    /// other characters than such have.
    fn to_program(&self) -> Option<(&str, String)> {
        let plain = |text: &str, more: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
            !text.is_empty() && text.chars().all(known)
        };
        let name = self.path.rsplit('/').next()?;
        let is_name = plain(name, "._-") && !name.starts_with(['.', '-', '_']);
        // The environment's own.
        if !is_name || !plain(&self.path, "._-/") || name.starts_with("python") {
            return None;
        }
        let interpreter = self
            .first_line
            .strip_prefix("#!")
            .unwrap_or_default()
            .trim();
        let is_python =
            interpreter.contains("python") || interpreter.is_empty() && name.ends_with(".py");
        let path = &self.path;
        let text = match is_python {
            true => format!(
                "#!python\n__file__ = '{path}'\nwith open(__file__, 'rb') as __script:\n    \
                 exec(compile(__script.read(), __file__, 'exec'))\n"
            ),
            false => {
                let known = plain(interpreter, "/._- ");
                let interpreter = if known { interpreter } else { "/bin/sh" };
                format!("#!/bin/sh\nexec {interpreter} {path} \"$@\"\n")
            }
        };
        Some((name, text))
    }
}

impl EditableWheel {
    /// The wheel of a project whose modules are imported from `module_root`, an absolute path inside. The `generated`
    /// can be imported where the project's folder has no such modules.
    ///
    /// # Errors
    /// None that a writer into memory can give.
    pub fn build(
        metadata: &PyprojectMetadata,
        module_root: &str,
        generated: &[GeneratedModule],
        scripts: &[ScriptFile],
    ) -> io::Result<Self> {
        let name = normalize_project_name(&metadata.name).unwrap_or_default();
        let version = metadata.version.as_deref().filter(|v| is_version(v));
        let version = version.unwrap_or(UNKNOWN_VERSION);
        let stem = format!("{}-{}", name.replace('-', "_"), version.replace('-', "_"));
        let info = format!("{stem}.dist-info");
        let mut files = vec![
            (
                format!("__editable__.{}.pth", name.replace('-', "_")),
                format!(
                    "{module_root}\n{}",
                    generated.iter().map(import_line).collect::<String>()
                ),
            ),
            (format!("{info}/METADATA"), metadata_text(metadata, version)),
            (
                format!("{info}/WHEEL"),
                "Wheel-Version: 1.0\nGenerator: sconce\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
                    .to_owned(),
            ),
        ];
        if !metadata.entry_points.is_empty() {
            let text = entry_points_text(metadata);
            files.push((format!("{info}/entry_points.txt"), text));
        }
        for (name, text) in scripts.iter().filter_map(ScriptFile::to_program) {
            let path = format!("{stem}.data/scripts/{name}");
            if files.iter().all(|(known, _)| *known != path) {
                files.push((path, text));
            }
        }
        let record = format!("{info}/RECORD");
        let mut lines = String::new();
        for (path, text) in &files {
            let hash = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(text.as_bytes()));
            lines += &format!("{path},sha256={hash},{}\n", text.len());
        }
        lines += &format!("{record},,\n");
        files.push((record, lines));
        let bytes = zip_stored(&files)?;
        Ok(Self {
            wheel: Wheel {
                name,
                version: version.to_owned(),
                file: format!("{stem}-py3-none-any.whl"),
                url: String::new(),
                size: Some(bytes.len() as u64),
                sha256: Sha256(sha2::Sha256::digest(&bytes).into()),
                build: None,
            },
            bytes,
        })
    }
}

/// A line of a `.pth` file that has Python find a module which lies nowhere: it is asked after all folders were, so a
/// file of the project goes before it. It is no module of its own, as that would be compiled anew for each commit.
fn import_line(module: &GeneratedModule) -> String {
    let finder = format!(
        "class Finder:\n    \
             def find_spec(self, name, path=None, target=None):\n        \
                 return type(sys.__spec__)(name, self) if name == {} else None\n    \
             def create_module(self, spec):\n        \
                 return None\n    \
             def exec_module(self, module):\n        \
                 exec({}, module.__dict__)\n\
         sys.meta_path.append(Finder())\n",
        python_literal(&module.name),
        python_literal(&module.text)
    );
    format!(
        "import sys; exec({}, {{'sys': sys}})\n",
        python_literal(&finder)
    )
}

/// A text as Python's source has it, in one line of ASCII.
fn python_literal(text: &str) -> String {
    let mut literal = "'".to_owned();
    for c in text.chars() {
        match c {
            '\\' => literal += r"\\",
            '\'' => literal += r"\'",
            '\n' => literal += r"\n",
            ' '..='~' => literal.push(c),
            c => literal += &format!(r"\U{:08x}", u32::from(c)),
        }
    }
    literal.push('\'');
    literal
}

/// The characters of a version (PEP 440), of which file names are made.
fn is_version(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".+!-_".contains(&b);
    !text.is_empty() && text.len() <= 100 && text.bytes().all(plain) && text.as_bytes()[0] != b'-'
}

/// The core metadata: what `importlib.metadata` and `pip` read. A value that has more than one line
/// would be a further field, so it is left out.
fn metadata_text(metadata: &PyprojectMetadata, version: &str) -> String {
    let mut text = format!(
        "Metadata-Version: 2.1\nName: {}\nVersion: {version}\n",
        metadata.name
    );
    let python = metadata.requires_python.iter();
    let fields = python.map(|value| ("Requires-Python", value));
    let requires = metadata.dependencies.iter();
    for (field, value) in fields.chain(requires.map(|value| ("Requires-Dist", value))) {
        if is_line(value) {
            text += &format!("{field}: {value}\n");
        }
    }
    for (extra, requirements) in &metadata.optional {
        let Some(extra) = normalize_project_name(extra) else {
            continue;
        };
        text += &format!("Provides-Extra: {extra}\n");
        for requirement in requirements.iter().filter(|text| is_line(text)) {
            text += &format!(
                "Requires-Dist: {}\n",
                requirement_of_extra(requirement, &extra)
            );
        }
    }
    text
}

/// A requirement that counts with an extra alone: `wandb; extra == "train"`.
fn requirement_of_extra(requirement: &str, extra: &str) -> String {
    // An address may have a semicolon itself (PEP 508).
    let end = match requirement.contains('@') {
        true => " ;",
        false => ";",
    };
    let (what, marker) = match requirement.split_once(end) {
        Some((what, marker)) => (what.trim_end(), marker.trim()),
        None => (requirement.trim_end(), ""),
    };
    let space = if what.contains('@') { " " } else { "" };
    match marker {
        "" => format!("{what}{space}; extra == \"{extra}\""),
        marker => format!("{what}{space}; ({marker}) and extra == \"{extra}\""),
    }
}

/// `entry_points.txt`. What would not be one line of its group is left out.
fn entry_points_text(metadata: &PyprojectMetadata) -> String {
    let mut text = String::new();
    for (group, points) in &metadata.entry_points {
        if !is_line(group) || group.contains(['[', ']']) {
            continue;
        }
        text += &format!("[{group}]\n");
        for (name, target) in points {
            if is_line(name) && is_line(target) && !name.contains('=') && !name.starts_with('[') {
                text += &format!("{name} = {target}\n");
            }
        }
    }
    text
}

fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// A zip archive of files that are not compressed and have no time: the same files give the same bytes.
fn zip_stored(files: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut bytes);
    for (path, text) in files {
        let (mut entry, config) = archive
            .new_file(path)
            .compression_method(CompressionMethod::STORE)
            .start()
            .map_err(io::Error::other)?;
        let mut writer = config.wrap(&mut entry);
        writer.write_all(text.as_bytes())?;
        let (_, descriptor) = writer.finish().map_err(io::Error::other)?;
        entry.finish(descriptor).map_err(io::Error::other)?;
    }
    archive.finish().map_err(io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> PyprojectMetadata {
        PyprojectMetadata::parse(text).unwrap()
    }

    #[test]
    fn the_same_project_gives_the_same_wheel() {
        let project = metadata("[project]\nname = \"My.Net\"\nversion = \"1.2\"");
        let wheel = EditableWheel::build(&project, "/workspace", &[], &[]).unwrap();
        assert_eq!(wheel.wheel.file, "my_net-1.2-py3-none-any.whl");
        assert_eq!(
            wheel,
            EditableWheel::build(&project, "/workspace", &[], &[]).unwrap()
        );
        let elsewhere = EditableWheel::build(&project, "/workspace/src", &[], &[]).unwrap();
        assert_ne!(wheel.wheel.sha256, elsewhere.wheel.sha256);
    }

    #[test]
    fn what_the_backend_alone_knows_is_not_made_up() {
        let project = metadata("[project]\nname = \"a\"\ndynamic = [\"version\"]");
        let wheel = EditableWheel::build(&project, "/workspace", &[], &[]).unwrap();
        assert_eq!(wheel.wheel.version, UNKNOWN_VERSION);
    }

    #[test]
    fn extras_are_told_with_what_they_ask_for() {
        let project = metadata(
            "[project]\nname = \"a\"\ndependencies = [\"numpy\"]\n[project.optional-dependencies]\nnone = []\n\
             Train_It = [\"wandb>=1\", \"x; python_version < '3.11' or os_name == 'nt'\", \"a[none]\", \
             \"b @ https://example.org/b;v=1.tar.gz\", \"c @ https://example.org/c.whl ; os_name == 'nt'\"]\n",
        );
        assert_eq!(
            metadata_text(&project, "1"),
            "Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: numpy\n\
             Provides-Extra: train-it\n\
             Requires-Dist: wandb>=1; extra == \"train-it\"\n\
             Requires-Dist: x; (python_version < '3.11' or os_name == 'nt') and extra == \"train-it\"\n\
             Requires-Dist: a[none]; extra == \"train-it\"\n\
             Requires-Dist: b @ https://example.org/b;v=1.tar.gz ; extra == \"train-it\"\n\
             Requires-Dist: c @ https://example.org/c.whl ; (os_name == 'nt') and extra == \"train-it\"\n\
             Provides-Extra: none\n"
        );
    }

    #[test]
    fn a_generated_module_stands_in_one_line() {
        let module = GeneratedModule {
            name: "a._version".to_owned(),
            text: "v = '1'\n# \u{fc}\r\\\n".to_owned(),
        };
        let line = import_line(&module);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.is_ascii() && line.starts_with("import sys; exec('class Finder:\\n"));
        assert_eq!(
            python_literal("a'\\\n\r\u{fc}"),
            r"'a\'\\\n\U0000000d\U000000fc'"
        );
    }

    #[test]
    fn scripts_are_started_from_where_they_lie() {
        let program = |path: &str, first_line: &str| {
            let script = ScriptFile {
                path: path.to_owned(),
                first_line: first_line.to_owned(),
            };
            script
                .to_program()
                .map(|(name, text)| format!("{name}: {text}"))
        };
        assert_eq!(
            program("/workspace/bin/x", "#!/usr/bin/env python3").unwrap(),
            "x: #!python\n__file__ = '/workspace/bin/x'\nwith open(__file__, 'rb') as __script:\n    \
             exec(compile(__script.read(), __file__, 'exec'))\n"
        );
        for (first_line, interpreter) in [
            ("#!/usr/bin/env bash", "/usr/bin/env bash"),
            ("#!/bin/sh; rm x", "/bin/sh"),
            ("", "/bin/sh"),
        ] {
            let expected = format!("x: #!/bin/sh\nexec {interpreter} /workspace/x \"$@\"\n");
            assert_eq!(program("/workspace/x", first_line).unwrap(), expected);
        }
        for path in [
            "/workspace/a b",
            "/workspace/python",
            "/workspace/x'",
            "/workspace/-x",
        ] {
            assert_eq!(program(path, ""), None, "{path}");
        }
    }

    #[test]
    fn a_value_of_two_lines_is_no_further_field() {
        let project = metadata(
            "[project]\nname = \"a\"\nversion = \"1/../2\"\n\
             dependencies = [\"numpy\", \"x\\nRequires-Dist: evil\"]\n\
             [project.scripts]\nrun = \"a:main\"\n\"b = c:d\\n[console_scripts]\\nevil\" = \"e:f\"\n",
        );
        assert_eq!(
            metadata_text(&project, "1"),
            "Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: numpy\n"
        );
        assert_eq!(
            entry_points_text(&project),
            "[console_scripts]\nrun = a:main\n"
        );
        let wheel = EditableWheel::build(&project, "/workspace", &[], &[]).unwrap();
        assert_eq!(wheel.wheel.version, UNKNOWN_VERSION);
    }
}
