//! The root file system under the Python environment: Debian packages laid into one folder, and
//! by hand what their maintainer scripts would have done. No script of a package ever runs.

mod accounts;
mod certificates;
mod files;
mod ldcache;

use std::io;
use std::path::{Path, PathBuf};

use sconce_schema::manifest::VENV;
use sconce_schema::{Hint, exit};

pub use accounts::{PLAIN_HOME, PLAIN_ID, PLAIN_NAME};
use files::{link, make_dir, read, set_mode, write};

/// Counts up whenever the same packages would give a different tree.
pub(crate) const BUILDER: u32 = 3;

/// The plain user's: a shell that says where it is, and nothing else. Colours as everywhere in
/// Sconce: not with `NO_COLOR` (no-color.org), not on a dumb terminal.
const BASHRC: &str = r#"if [ -n "$NO_COLOR" ] || [ "$TERM" = dumb ]; then
  PS1='\h \w \$ '
else
  PS1='\[\e[2m\]\h\[\e[0m\] \w \$ '
  alias ls='ls --color=auto'
fi
"#;

/// Why a root file system could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A file of the tree being made could not be worked on.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl SystemError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

impl Hint for SystemError {
    fn hint(&self) -> Option<String> {
        let Self::Io { source, path, .. } = self;
        match source.kind() {
            io::ErrorKind::StorageFull => Some("free space where the store is".to_owned()),
            io::ErrorKind::NotFound if path.ends_with("passwd.master") => {
                Some("the lock has no base-passwd; make it anew with `sconce lock`".to_owned())
            }
            _ => None,
        }
    }

    fn exit_code(&self) -> u8 {
        exit::STORE
    }
}

/// What has to stand before the first package is unpacked: Debian's merged /usr. Packages of
/// bookworm still ship files under /bin and /lib, and base-files makes these links only in trixie.
pub(crate) fn prepare(root: &Path) -> Result<(), SystemError> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        make_dir(&root.join("usr").join(name))?;
        link(&format!("usr/{name}"), &root.join(name))?;
    }
    Ok(())
}

/// Where scanners look for the packages of an image that has no package manager: one control file
/// a package, so that each lies in the layer of its package.
const STATUS: &str = "var/lib/dpkg/status.d";

/// Notes that a package was unpacked. `control` is its control file.
pub(crate) fn note_package(root: &Path, package: &str, control: &str) -> Result<(), SystemError> {
    // The name is one path part: the lock's packages are resolved by Debian's grammar of names.
    write(&root.join(STATUS).join(package), control, 0o644)
}

/// What the maintainer scripts would have done, and the frame of the virtual environment.
/// `python` is `3.13`, `architecture` Debian's name of it.
pub(crate) fn configure(root: &Path, python: &str, architecture: &str) -> Result<(), SystemError> {
    accounts::write_accounts(root)?;
    defaults(root)?;
    certificates::write_bundle(root)?;
    virtual_environment(root, python)?;
    for (path, mode) in [("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700)] {
        make_dir(&root.join(path))?;
        set_mode(&root.join(path), mode)?;
    }
    for path in ["proc", "sys", "dev", "run", "workspace", "home/sconce"] {
        make_dir(&root.join(path))?;
    }
    ldcache::write_cache(root, multiarch(architecture))
}

/// The name of the library folder of an architecture.
fn multiarch(architecture: &str) -> &'static str {
    match architecture {
        "arm64" => "aarch64-linux-gnu",
        _ => "x86_64-linux-gnu",
    }
}

/// base-files' `install_from_default` and the files that runtimes mount over.
fn defaults(root: &Path) -> Result<(), SystemError> {
    let share = root.join("usr/share/base-files");
    for (from, to) in [
        ("nsswitch.conf", "etc/nsswitch.conf"),
        ("profile", "etc/profile"),
        ("dot.profile", "root/.profile"),
        ("dot.bashrc", "root/.bashrc"),
    ] {
        let from = share.join(from);
        if from.is_file() && !root.join(to).exists() {
            write(&root.join(to), &read(&from)?, 0o644)?;
        }
    }
    // Placeholders: the runner mounts the host's or the run's own over them.
    for name in ["hosts", "hostname", "resolv.conf"] {
        write(&root.join("etc").join(name), "", 0o644)?;
    }
    write(&root.join("home/sconce/.bashrc"), BASHRC, 0o644)
}

/// `/opt/venv` with no package in it: every wheel brings its own files as a layer above.
fn virtual_environment(root: &Path, python: &str) -> Result<(), SystemError> {
    let venv = root.join(VENV.trim_start_matches('/'));
    let interpreter = format!("/usr/bin/python{python}");
    write(
        &venv.join("pyvenv.cfg"),
        &format!(
            "home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n\
             executable = {interpreter}\n"
        ),
        0o644,
    )?;
    for name in ["python", "python3", &format!("python{python}")] {
        link(&interpreter, &venv.join("bin").join(name))?;
    }
    make_dir(&venv.join(format!("lib/python{python}/site-packages")))?;
    link("lib", &venv.join("lib64"))
}

#[cfg(test)]
mod tests {
    use super::BASHRC;
    use std::process::Command;

    #[test]
    fn the_prompt_has_colour_unless_it_is_not_wanted() {
        let prompt = |name: &str, value: &str| {
            let script = format!("{BASHRC}\nprintf %s \"$PS1\"; alias");
            let mut bash = Command::new("bash");
            bash.args(["--norc", "-c", &script]);
            let bash = bash.env_clear().env("TERM", "xterm").env(name, value);
            String::from_utf8(bash.output().unwrap().stdout).unwrap()
        };
        for (name, value, colour) in [
            ("NO_COLOR", "", true),
            ("NO_COLOR", "1", false),
            ("TERM", "dumb", false),
            ("TERM", "xterm-256color", true),
        ] {
            let text = prompt(name, value);
            assert!(text.starts_with(r"\"), "{text}");
            assert_eq!(text.contains(r"\e["), colour, "{name}={value}: {text}");
            assert_eq!(text.contains("--color"), colour, "{name}={value}: {text}");
        }
    }
}
