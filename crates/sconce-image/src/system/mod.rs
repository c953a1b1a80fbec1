//! The root file system under the Python environment: Debian packages laid into one folder, and
//! by hand what their maintainer scripts would have done. No script of a package ever runs.

mod accounts;
mod alternatives;
mod certificates;
mod files;
mod ldcache;

use std::path::Path;

use sconce_schema::environment_layers::VENV;
use sconce_schema::{Hint, Lock, exit};
use sconce_store::deb::Alternative;
use sconce_store::scoped_root::{ScopedRootError, printable_name};

use accounts::MASTER_PASSWD;
pub use accounts::{PLAIN_HOME, PLAIN_ID, PLAIN_NAME};
use files::SystemTree;

/// Counts up whenever the same packages would give a different tree.
pub(crate) const BUILDER: u32 = 5;

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
    /// A path of the tree being made could not be worked on.
    #[error(transparent)]
    Tree(#[from] ScopedRootError),
    /// A file that a package has to bring is not there.
    #[error("the tree has no file `{path}`")]
    Missing {
        /// Its path in the tree.
        path: String,
    },
    /// A file that has to be text is not.
    #[error("the tree's file `{path}` is not UTF-8 text")]
    NotText {
        /// Its path in the tree.
        path: String,
    },
    /// A package's name that cannot be a file's.
    #[error("`{name}` is not the name of a Debian package")]
    Package {
        /// The name, made printable.
        name: String,
    },
}

impl Hint for SystemError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Tree(error) => error.hint(),
            Self::Missing { path } if path == MASTER_PASSWD => {
                Some("the lock has no base-passwd; make it anew with `sconce lock`".to_owned())
            }
            Self::Package { .. } => Some("make the lock anew with `sconce lock`".to_owned()),
            _ => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Tree(error) => error.exit_code(),
            Self::Package { .. } => exit::BAD_INPUT,
            Self::Missing { .. } | Self::NotText { .. } => exit::VERIFY,
        }
    }
}

/// What has to stand before the first package is unpacked: Debian's merged /usr. Packages of
/// bookworm still ship files under /bin and /lib, and base-files makes these links only in trixie.
pub(crate) fn create_merged_usr(root: &Path) -> Result<(), SystemError> {
    let mut tree = SystemTree::new(root);
    for name in ["bin", "sbin", "lib", "lib64"] {
        tree.make_dir(&format!("usr/{name}"))?;
        tree.symlink_if_missing(&format!("usr/{name}"), name)?;
    }
    Ok(())
}

/// Where scanners look for the packages of an image that has no package manager: one control file
/// a package, so that each lies in the layer of its package.
const STATUS: &str = "var/lib/dpkg/status.d";

/// Notes that a package was unpacked. `control` is its control file.
pub(crate) fn note_package(root: &Path, package: &str, control: &str) -> Result<(), SystemError> {
    if !is_package_name(package) {
        return Err(SystemError::Package {
            name: printable_name(package.as_bytes()),
        });
    }
    SystemTree::new(root).write_text(&format!("{STATUS}/{package}"), control, 0o644)
}

/// Links what the unpacked packages asked `update-alternatives` for.
pub(crate) fn link_alternatives(root: &Path, requests: &[Alternative]) -> Result<(), SystemError> {
    alternatives::write_links(&mut SystemTree::new(root), requests)
}

/// Debian policy, section 5.6.1; upper case, which old packages had, is let pass.
fn is_package_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.bytes().all(good)
}

/// What the maintainer scripts would have done, and the frame of the virtual environment.
pub(crate) fn configure_root(root: &Path, lock: &Lock) -> Result<(), SystemError> {
    let tree = &mut SystemTree::new(root);
    accounts::write_accounts(tree)?;
    defaults(tree)?;
    certificates::write_bundle(tree)?;
    if lock.interpreter.is_some() {
        certificates::link_standalone(tree)?;
    }
    virtual_environment(tree, lock)?;
    for (path, mode) in [("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700)] {
        tree.make_dir_with(path, mode)?;
    }
    folders(tree)?;
    ldcache::write_cache(tree, multiarch_triplet(&lock.target.architecture))
}

/// The folders that runs mount something on.
fn folders(tree: &mut SystemTree) -> Result<(), SystemError> {
    for path in ["proc", "sys", "dev", "run", "workspace", "home/sconce"] {
        tree.make_dir(path)?;
    }
    Ok(())
}

/// What a root needs for work of Sconce's own to be run in it: what is mounted on, and nothing else.
pub(crate) fn mount_points(root: &Path) -> Result<(), SystemError> {
    let tree = &mut SystemTree::new(root);
    tree.make_dir_with("tmp", 0o1777)?;
    placeholders(tree)?;
    folders(tree)
}

/// The name of the library folder of an architecture.
pub(crate) fn multiarch_triplet(architecture: &str) -> &'static str {
    match architecture {
        "arm64" => "aarch64-linux-gnu",
        _ => "x86_64-linux-gnu",
    }
}

/// base-files' `install_from_default` and the files that runtimes mount over.
fn defaults(tree: &mut SystemTree) -> Result<(), SystemError> {
    for (from, to) in [
        ("nsswitch.conf", "etc/nsswitch.conf"),
        ("profile", "etc/profile"),
        ("dot.profile", "root/.profile"),
        ("dot.bashrc", "root/.bashrc"),
    ] {
        let from = tree.read_if_there(&format!("usr/share/base-files/{from}"))?;
        if let (Some(text), false) = (from, tree.contains_path(to)?) {
            tree.write_text(to, &text, 0o644)?;
        }
    }
    placeholders(tree)?;
    tree.write_text("home/sconce/.bashrc", BASHRC, 0o644)
}

/// The runner mounts the host's or the run's own over them.
fn placeholders(tree: &mut SystemTree) -> Result<(), SystemError> {
    for name in ["hosts", "hostname", "resolv.conf"] {
        tree.write_text(&format!("etc/{name}"), "", 0o644)?;
    }
    Ok(())
}

/// `/opt/venv` with no package in it: every wheel brings its own files as a layer above.
fn virtual_environment(tree: &mut SystemTree, lock: &Lock) -> Result<(), SystemError> {
    let venv = VENV.trim_start_matches('/');
    let (python, prefix) = (&lock.target.python, lock.python_prefix());
    let interpreter = lock.python_program();
    tree.write_text(
        &format!("{venv}/pyvenv.cfg"),
        &format!(
            "home = {prefix}/bin\ninclude-system-site-packages = false\nversion = {python}\n\
             executable = {interpreter}\n"
        ),
        0o644,
    )?;
    for name in ["python", "python3", &format!("python{python}")] {
        tree.symlink_if_missing(&interpreter, &format!("{venv}/bin/{name}"))?;
    }
    if lock.interpreter.is_some() {
        // Debian's lies on PATH, in a package of its own. This one takes the prefix from the path that
        // it is called by, so a link would not do.
        let script = format!("#!/bin/sh\nexec {interpreter}-config \"$@\"\n");
        for name in ["python3-config", &format!("python{python}-config")] {
            tree.write_text(&format!("{venv}/bin/{name}"), &script, 0o755)?;
        }
    }
    tree.make_dir(&format!("{venv}/lib/python{python}/site-packages"))?;
    tree.symlink_if_missing("lib", &format!("{venv}/lib64"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::process::Command;

    /// A folder beside a tree, and all files that configuring a tree could reach through links.
    struct Outside(tempfile::TempDir);

    impl Outside {
        const KEPT: &str = "the machine's own";
        const FILES: [&str; 7] = [
            "passwd",
            "group",
            "ld.so.cache",
            "x.crt",
            "bash",
            "pyvenv.cfg",
            ".bashrc",
        ];

        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("tree/usr/share/base-passwd")).unwrap();
            fs::create_dir_all(folder.path().join("outside")).unwrap();
            for name in Self::FILES {
                fs::write(folder.path().join("outside").join(name), Self::KEPT).unwrap();
            }
            let made = Self(folder);
            let masters = made.tree().join("usr/share/base-passwd");
            fs::write(masters.join("passwd.master"), "root:*:0:0::/root:/bin/sh\n").unwrap();
            fs::write(masters.join("group.master"), "root:*:0:\n").unwrap();
            made
        }

        fn tree(&self) -> PathBuf {
            self.0.path().join("tree")
        }

        fn outside(&self) -> PathBuf {
            self.0.path().join("outside")
        }

        fn is_untouched(&self) {
            let mut names: Vec<_> = fs::read_dir(self.outside())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            let mut files = Self::FILES.map(str::to_owned);
            files.sort();
            assert_eq!(names, files);
            for name in names {
                let text = fs::read_to_string(self.outside().join(&name)).unwrap();
                assert_eq!(text, Self::KEPT, "{name}");
            }
        }
    }

    /// A package may put a link anywhere. Configuring the tree follows it inside the tree, and
    /// neither writes nor reads outside.
    #[test]
    fn links_of_packages_lead_nowhere_outside() {
        let lock = Lock::parse(include_str!("../sbom/testdata/lock.toml")).unwrap();
        let requests = ["/etc/hosts", "/root/x", "/usr/bin/x"].map(|link| Alternative {
            name: "x".to_owned(),
            link: link.to_owned(),
            target: "/usr/share/base-passwd/passwd.master".to_owned(),
            priority: 1,
            followers: Vec::new(),
        });
        for (link, target) in [
            ("etc", ""),
            ("etc", "/../../../.."),
            ("etc/alternatives", ""),
            ("etc/passwd", "/passwd"),
            ("etc/ld.so.cache", "/ld.so.cache"),
            ("etc/hosts", "/new"),
            ("tmp", ""),
            ("var", ""),
            ("root", ""),
            ("home", ""),
            ("home/sconce/.bashrc", "/.bashrc"),
            ("opt", ""),
            ("opt/venv/pyvenv.cfg", "/pyvenv.cfg"),
            ("usr/bin", ""),
            ("usr/lib", ""),
            ("usr/lib/x86_64-linux-gnu", ""),
            ("usr/local", ""),
            ("var/lib/dpkg/status.d", ""),
            ("var/lib/dpkg/status.d/bash", "/bash"),
            ("usr/share/ca-certificates", ""),
            ("usr/share/ca-certificates/x.crt", "/x.crt"),
        ] {
            let made = Outside::new();
            let tree = made.tree();
            let path = tree.join(link);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(format!("{}{target}", made.outside().display()), &path).unwrap();
            // What cannot be done inside may fail; nothing may happen outside.
            let _ = create_merged_usr(&tree)
                .and_then(|()| note_package(&tree, "bash", "Package: bash\n"))
                .and_then(|()| link_alternatives(&tree, &requests))
                .and_then(|()| configure_root(&tree, &lock));
            made.is_untouched();
            let bundle = fs::read_to_string(tree.join("etc/ssl/certs/ca-certificates.crt"));
            assert!(
                !bundle.is_ok_and(|text| text.contains(Outside::KEPT)),
                "{link}"
            );
        }
    }

    #[test]
    fn a_packages_name_is_one_part_of_a_path() {
        let made = Outside::new();
        for name in [
            "../../../../../outside/bash",
            "a/b",
            "/etc/x",
            "..",
            ".",
            "",
        ] {
            assert!(note_package(&made.tree(), name, "").is_err(), "{name}");
        }
        made.is_untouched();
        note_package(&made.tree(), "libstdc++6", "x").unwrap();
        let note = made.tree().join(STATUS).join("libstdc++6");
        assert_eq!(fs::read_to_string(note).unwrap(), "x");
    }

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
