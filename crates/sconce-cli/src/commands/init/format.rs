//! The text of the file, and what is said about it.

use std::fmt::Write as _;
use std::path::Path;

use sconce_import::{ImportFormat, NoteKind, PackageOrigin, group_by_reason};
use sconce_schema::Spec;
use sconce_schema::spec::WORKSPACE;

use super::import_candidates::ImportCandidate;
use crate::style::OutputStyle;

/// A spec to begin with, which runs as it is.
pub(super) fn render_minimal_spec(name: &str) -> String {
    format!(
        r#"# What the environment is made of, and what runs in it: `sconce run`.
name = "{name}"

[python]
# As in a requirements.txt. Or instead: requirements = "requirements.txt", or pyproject = "pyproject.toml"
packages = ["torch", "numpy"]

[system]
# Debian packages, such as "git" and "ffmpeg".
packages = []

[run]
command = ["python", "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"]
# gpus = 1                         # all of the machine's where nothing is said
# memory = "16GiB"
# shm = "2GiB"                     # /dev/shm, which data loaders use
# mounts = ["/data:/data:ro"]
"#
    )
}

/// The adopted spec, with what was left out above it.
pub(super) fn render_imported_spec(found: &ImportCandidate) -> String {
    let mut text = format!("# Made by `sconce init` from {}.\n", plain(&found.path));
    let left: Vec<String> = group_by_reason(&found.adopted.notes)
        .iter()
        .filter(|group| group.outcome == NoteKind::LeftOut)
        .map(|group| format!("#   {}: {}\n", things(&group.things), group.why))
        .collect();
    if !left.is_empty() {
        text += "# Left out of it:\n";
        text += &left.concat();
    }
    let spec = annotate_python(&found.adopted.spec.to_text(), found);
    if !spec.is_empty() {
        text.push('\n');
        text += &spec;
    }
    text
}

/// The text of a spec with a comment for each package that is not from its source, and the newest commit's day
/// for who wants the versions of then.
fn annotate_python(text: &str, found: &ImportCandidate) -> String {
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    let mut inside = false;
    while let Some(line) = lines.next() {
        if line.starts_with('[') {
            inside = line == "[python]";
        }
        if inside && line.starts_with("packages = [") && !found.adopted.origins.is_empty() {
            if line == "packages = [" {
                lines.by_ref().find(|line| *line == "]");
            }
            out += &annotated_packages(found);
        } else {
            if inside && line.starts_with("missing = ") {
                out += MISSING;
            }
            out += line;
            out.push('\n');
        }
        let ends = lines.peek().is_none_or(|next| next.is_empty());
        if inside && ends {
            inside = false;
            if let Some(commit) = &found.commit {
                let _ = writeln!(
                    out,
                    "# as-of = \"{}\"  # the newest commit's day: versions that are open become those of then",
                    commit.day
                );
            }
        }
    }
    out
}

/// What is to be done about `missing`.
const MISSING: &str = "# The code imports it, and nothing brings it: `sconce lock` says so and ends, until a package does and this line has gone.\n";

fn annotated_packages(found: &ImportCandidate) -> String {
    let mut out = "packages = [\n".to_owned();
    for package in &found.adopted.spec.python.packages {
        let origins = &found.adopted.origins;
        let origin = origins.iter().find(|origin| origin.package == *package);
        let quoted = toml::Value::String(package.clone()).to_string();
        let comment = origin.map(|origin| format!("  # {}", plain(&origin.describe())));
        let _ = writeln!(out, "    {quoted},{}", comment.unwrap_or_default());
    }
    out + "]\n"
}

/// `-e . (line 3), PATH (lines 4, 8)`.
fn things(things: &[(Option<usize>, &str)]) -> String {
    let named: Vec<String> = things
        .iter()
        .map(|(line, what)| match line {
            Some(line) => format!("{what} (line {line})"),
            None => (*what).to_owned(),
        })
        .collect();
    named.join(", ")
}

/// A path in a comment or a message: on one line.
fn plain(path: &str) -> String {
    path.chars()
        .map(|c| {
            if sconce_base::text::is_unprintable(c) {
                '?'
            } else {
                c
            }
        })
        .collect()
}

/// What is said on the terminal.
pub(super) fn render_summary(
    found: Option<&ImportCandidate>,
    target: &Path,
    spec: &Spec,
    dry_run: bool,
    style: &OutputStyle,
) -> String {
    let wrote = if dry_run { "not written:" } else { "wrote" };
    let mut text = format!("{wrote} {}", plain(&target.to_string_lossy()));
    let Some(found) = found else {
        text += ", a small one to begin with";
        return text;
    };
    let _ = write!(text, " from {}", plain(&found.path));
    if !found.others.is_empty() {
        let _ = write!(text, " (also here: {})", found.others.join(", "));
    }
    for group in group_by_reason(&found.adopted.notes) {
        let what = things(&group.things);
        let label = match group.outcome {
            NoteKind::LeftOut => style.warn("left out:"),
            NoteKind::Decided => style.dim("decided:"),
        };
        let _ = write!(text, "\n{label} {what}\n  {}", group.why);
    }
    let added: Vec<String> = found
        .adopted
        .origins
        .iter()
        .filter(|origin| origin.removed.is_none())
        .map(|origin| format!("{} ({})", plain(&origin.package), plain(&origin.place)))
        .collect();
    if !added.is_empty() {
        let _ = write!(
            text,
            "\n{} {}\n  {} them",
            style.dim("added:"),
            added.join(", "),
            match ImportFormat::from_file_name(&found.path) {
                Some(_) => format!("{} does not name", plain(&found.path)),
                None => "no file of packages names".to_owned(),
            }
        );
    }
    for origin in &found.adopted.origins {
        if let Some(removed) = origin.removed {
            let _ = write!(
                text,
                "\n{} {} ({})\n  later versions do not have {removed}, which is used there",
                style.dim("added:"),
                plain(&origin.package),
                plain(&origin.place)
            );
        }
    }
    if let Some(commit) = found.commit.as_ref().filter(|commit| commit.is_old) {
        let _ = write!(
            text,
            "\n{} the newest commit is of {}: with `as-of` in [python], which the spec has as a comment, versions that are open become those of then",
            style.hint("hint:"),
            commit.day
        );
    }
    if let Some(script) = found.script {
        let _ = write!(
            text,
            "\n{} the command is `python {script}`",
            style.dim("decided:")
        );
    } else if spec.run.command.is_empty() {
        let _ = write!(
            text,
            "\n{} no command yet: give [run] one, or say `sconce run -- COMMAND`; this folder is {WORKSPACE} inside",
            style.hint("hint:")
        );
    }
    text
}

/// Where packages come from that the source does not name.
fn origins(found: &ImportCandidate) -> Vec<serde_json::Value> {
    let origins = found.adopted.origins.iter();
    let pair = |origin: &PackageOrigin| serde_json::json!({"package": origin.package, "place": origin.place, "removed": origin.removed});
    origins.map(pair).collect()
}

/// The same as data.
pub(super) fn as_json(
    found: Option<&ImportCandidate>,
    target: &Path,
    spec: &Spec,
    text: &str,
    written: bool,
) -> serde_json::Value {
    serde_json::json!({
        "file": target.to_string_lossy(),
        "written": written,
        "source": found.map(|found| &found.path),
        "also_here": found.map(|found| &found.others),
        "notes": found.map(|found| &found.adopted.notes),
        "origins": found.map(origins),
        "as_of": found.and_then(|found| found.commit.as_ref()).map(|commit| &commit.day),
        "spec": spec,
        "text": text,
    })
}
