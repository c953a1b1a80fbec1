//! The small files by which enroot, pyxis and apptainer know an image's variables and command.
//!
//! Enroot (and pyxis, which starts it) reads `/etc/environment` and runs `/etc/rc` with a shell
//! (enroot's doc/image-format.md; src/common.sh for what it does to the lines). Apptainer sources
//! `/.singularity.d/env/*.sh` and runs `/.singularity.d/runscript` (its
//! internal/pkg/util/fs/files/action_script.sh). Both shells get every value in single quotes.

use std::path::{Component, Path, PathBuf};

use sconce_schema::{Hint, exit};

use super::ExtraEntry;
use sconce_oci::ExecutionDefaults;

/// Why a configuration cannot be handed on.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A variable that a shell cannot set.
    #[error("`{name}` cannot be the name of a shell's variable")]
    Variable {
        /// Its name.
        name: String,
    },
    /// A zero byte, which no program can get as an argument or in a variable.
    #[error("{what} has a zero byte in it")]
    Zero {
        /// Which text.
        what: String,
    },
}

impl Hint for LaunchError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Variable { .. } => {
                Some("letters, digits and `_`, with no digit at the beginning".to_owned())
            }
            Self::Zero { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The files for an image with this configuration.
///
/// # Errors
/// [`LaunchError`].
pub fn render_files(config: &ExecutionDefaults) -> Result<Vec<ExtraEntry>, LaunchError> {
    let env = variables(config.env.as_deref().unwrap_or_default())?;
    let none = Vec::new();
    let entry = words(
        "the entry point",
        config.entrypoint.as_ref().unwrap_or(&none),
    )?;
    let mut command = words("the command", config.cmd.as_ref().unwrap_or(&none))?;
    if entry.is_empty() && command.is_empty() {
        command = " /bin/sh".to_owned();
    }
    let run = format!("if [ $# -gt 0 ]; then\n  exec{entry} \"$@\"\nfi\nexec{entry}{command}\n");
    let workdir = config.working_dir.as_deref().filter(|dir| !dir.is_empty());
    let workdir = workdir.unwrap_or("/");
    let cd = quoted("the working directory", workdir)?;

    let mut environment = String::new();
    let mut rest = String::new();
    let mut exports = String::new();
    for (name, value) in env {
        let quoted = quoted(name, value)?;
        exports += &format!("export {name}={quoted}\n");
        match line(value) {
            Some(value) => environment += &format!("{name}={value}\n"),
            None => rest += &format!("[ -n \"${{{name}+x}}\" ] || export {name}={quoted}\n"),
        }
    }
    let rc = format!(
        "# Run by enroot with the command as its arguments.\n{rest}\
         cd -- {cd} && unset OLDPWD || exit 1\n\
         # Pyxis writes its own command here.\n\
         if [ -s /etc/rc.local ]; then\n  . /etc/rc.local\nfi\n{run}"
    );
    let mut made = vec![
        text("etc/environment", 0o644, &environment),
        text("etc/rc", 0o755, &rc),
        // Named as apptainer names what it takes from an OCI image's configuration.
        text(
            ".singularity.d/env/10-docker2singularity.sh",
            0o755,
            &format!("#!/bin/sh\n{exports}"),
        ),
        // After a file of this name apptainer sets what its user asks for.
        text(".singularity.d/env/99-base.sh", 0o755, LIBRARIES),
        text(
            ".singularity.d/runscript",
            0o755,
            &format!("#!/bin/sh\n{run}"),
        ),
        folder(PathBuf::from(".singularity.d/libs")),
    ];
    made.extend(inside(workdir).map(folder));
    Ok(made)
}

/// Apptainer puts the driver's libraries there.
const LIBRARIES: &str = r#"#!/bin/sh
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"
"#;

fn text(path: &str, mode: u16, text: &str) -> ExtraEntry {
    ExtraEntry {
        path: path.into(),
        mode,
        bytes: Some(text.as_bytes().into()),
    }
}

fn folder(path: PathBuf) -> ExtraEntry {
    ExtraEntry {
        path,
        mode: 0o755,
        bytes: None,
    }
}

/// An absolute path without its slash, if it leads nowhere else.
fn inside(path: &str) -> Option<PathBuf> {
    let path = Path::new(path).strip_prefix("/").ok()?;
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    let good = path.components().next().is_some() && path.components().all(normal);
    good.then(|| path.components().collect())
}

/// Names and values; only names that a shell takes for one.
fn variables<'e>(env: &'e [String]) -> Result<Vec<(&'e str, &'e str)>, LaunchError> {
    let one = |variable: &'e String| match variable.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name, value)),
        _ => Err(LaunchError::Variable {
            name: variable.split('=').take(1).collect::<String>(),
        }),
    };
    env.iter().map(one).collect()
}

/// Whether a shell takes `text` for the name of a variable.
fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Words of a command, each after a blank.
fn words(what: &str, words: &[String]) -> Result<String, LaunchError> {
    let word = |word: &String| Ok(format!(" {}", quoted(what, word)?));
    words.iter().map(word).collect()
}

/// A word that a POSIX shell takes as it is (Shell Command Language, section 2.2.2).
fn quoted(what: &str, word: &str) -> Result<String, LaunchError> {
    if word.contains('\0') {
        return Err(LaunchError::Zero {
            what: what.to_owned(),
        });
    }
    Ok(format!("'{}'", word.replace('\'', r"'\''")))
}

/// A value as enroot's `/etc/environment` can hold it: on one line, without a `${NAME}` that would
/// be replaced by the host's variable, and in quotes where a pair of them would be taken away.
fn line(value: &str) -> Option<String> {
    let named = |rest: &str| rest.split_once('}').is_some_and(|(name, _)| is_name(name));
    if value.contains('\n') || value.split("${").skip(1).any(named) {
        return None;
    }
    Some(match value.starts_with(['"', '\'']) {
        true => format!("\"{value}\""),
        false => value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::process::Command;

    const HOSTILE: &[&str] = &[
        "",
        "plain",
        "two words",
        " blanks at both ends ",
        "$(touch pwned) `id` $HOME \\ \\n",
        "it's",
        "'; exit 7; '",
        "'",
        "\"in quotes\"",
        "\"in quotes and a blank\" ",
        "'half\"",
        "\"open",
        "${HOME} and ${PATH}",
        "${not a name} ${1} ${} $ {A}",
        "two\nlines\n",
        "\n",
        "# no comment",
        "a=b=c",
        "tab\there\r",
        "Grüße ☕ \u{1b}[31m",
        "* ? [a] ~ & | ; < > ( ) { } !",
    ];

    fn config(env: &[(String, &str)], command: &[&str]) -> ExecutionDefaults {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        ExecutionDefaults {
            env: Some(env.iter().map(|(n, v)| format!("{n}={v}")).collect()),
            cmd: Some(owned(command)),
            ..ExecutionDefaults::default()
        }
    }

    fn hostile() -> Vec<(String, &'static str)> {
        let name = |(at, value): (usize, &&'static str)| (format!("V{at}"), *value);
        HOSTILE.iter().enumerate().map(name).collect()
    }

    fn of<'m>(made: &'m [ExtraEntry], path: &str) -> &'m str {
        let file = made.iter().find(|file| file.path == Path::new(path));
        std::str::from_utf8(file.unwrap().bytes.as_deref().unwrap()).unwrap()
    }

    /// What `env -0` says at the end of a script that is run with these variables alone.
    fn ran(script: &str, env: &BTreeMap<String, String>, args: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script");
        std::fs::write(&file, script).unwrap();
        let mut sh = Command::new("sh");
        sh.arg(&file).args(args).env_clear();
        sh.env("PATH", std::env::var_os("PATH").unwrap()).envs(env);
        let out = sh.output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    fn said(env: &[(String, &str)]) -> Vec<String> {
        let mut all: Vec<String> = env.iter().map(|(n, v)| format!("{n}={v}")).collect();
        all.sort();
        all
    }

    fn only_v(mut found: Vec<String>) -> Vec<String> {
        found.retain(|variable| variable.starts_with('V'));
        found.sort();
        found
    }

    #[test]
    fn apptainer_gets_every_value_as_it_is() {
        let made = render_files(&config(&hostile(), &[])).unwrap();
        let script = of(&made, ".singularity.d/env/10-docker2singularity.sh");
        let found = ran(&format!("{script}env -0\n"), &BTreeMap::new(), &[]);
        assert_eq!(only_v(found), said(&hostile()));
    }

    /// What enroot makes of `/etc/environment`: `common::envsubst` and `common::envfmt` of its
    /// src/common.sh as rules, with a host on which every variable is `HOST`.
    fn enroot(environment: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for text in environment.split_terminator('\n') {
            let mut value = String::new();
            let mut rest = text;
            while let Some((before, after)) = rest.split_once("${") {
                value += before;
                match after.split_once('}') {
                    Some((name, after))
                        if !name.is_empty()
                            && !name.as_bytes()[0].is_ascii_digit()
                            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') =>
                    {
                        value += "HOST";
                        rest = after;
                    }
                    _ => {
                        value += "${";
                        rest = after;
                    }
                }
            }
            value += rest;
            let Some((name, value)) = value.split_once('=') else {
                continue;
            };
            let quotes = ['"', '\''];
            let trimmed = value.trim_end();
            let bare = trimmed
                .strip_prefix(quotes)
                .and_then(|v| v.strip_suffix(quotes));
            found.insert(name.to_owned(), bare.unwrap_or(value).to_owned());
        }
        found
    }

    #[test]
    fn enroot_gets_every_value_as_it_is() {
        let made = render_files(&config(&hostile(), &["env", "-0"])).unwrap();
        let env = enroot(of(&made, "etc/environment"));
        // The file has what it can hold, and the script the rest.
        assert_eq!(env.len(), HOSTILE.len() - 3);
        let found = ran(of(&made, "etc/rc"), &env, &[]);
        assert_eq!(only_v(found), said(&hostile()));
    }

    #[test]
    fn what_the_user_sets_counts_before_the_script() {
        let made = render_files(&config(&[("V".to_owned(), "a\nb")], &["env", "-0"])).unwrap();
        let set = BTreeMap::from([("V".to_owned(), "mine".to_owned())]);
        assert_eq!(only_v(ran(of(&made, "etc/rc"), &set, &[])), ["V=mine"]);
    }

    #[test]
    fn a_command_is_run_with_its_words() {
        let mut config = config(&[], HOSTILE);
        config.entrypoint = Some(["printf", "%s\\0"].map(str::to_owned).into());
        let made = render_files(&config).unwrap();
        for path in ["etc/rc", ".singularity.d/runscript"] {
            let script = of(&made, path);
            assert_eq!(ran(script, &BTreeMap::new(), &[]), HOSTILE, "{path}");
            let args = ["it's", "$HOME", ""];
            assert_eq!(ran(script, &BTreeMap::new(), &args), args, "{path}");
        }
    }

    #[test]
    fn the_working_directory_is_made_and_entered() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("it's $HOME");
        std::fs::create_dir(&folder).unwrap();
        let mut config = config(&[], &["pwd"]);
        config.working_dir = Some(folder.to_str().unwrap().to_owned());
        let made = render_files(&config).unwrap();
        let path = folder.strip_prefix("/").unwrap();
        assert!(
            made.iter()
                .any(|made| made.path == path && made.bytes.is_none())
        );
        let found = ran(of(&made, "etc/rc"), &BTreeMap::new(), &[]);
        assert_eq!(found, [format!("{}\n", folder.display())]);
        for outside in ["/", "relative", "/a/../../b", ""] {
            assert_eq!(inside(outside), None, "{outside}");
        }
    }

    #[test]
    fn names_that_would_be_commands_are_refused() {
        for name in ["", "A-B", "A;id", "1A", "A B", "$(id)", "A\n", "Ä"] {
            let refused = render_files(&config(&[(name.to_owned(), "x")], &[]));
            assert!(
                matches!(refused, Err(LaunchError::Variable { .. })),
                "{name}"
            );
        }
        let zero = render_files(&config(&[("A".to_owned(), "\0")], &[]));
        assert!(matches!(zero, Err(LaunchError::Zero { .. })));
    }
}
