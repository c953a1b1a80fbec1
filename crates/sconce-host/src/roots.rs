//! Where the machine is read.

use std::path::{Path, PathBuf};

/// The folders below which a machine's files are read: the real ones, or a recorded machine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/`: libraries, programs, firmware, sockets.
    pub root: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
}

impl Default for Roots {
    /// This machine.
    fn default() -> Self {
        Self::from_dir("/")
    }
}

impl Roots {
    /// A machine recorded in `folder`, which holds `proc`, `sys`, `dev`, `etc` and `usr` as far as
    /// they were recorded. What is absent there is absent on the machine.
    pub fn from_dir(folder: impl Into<PathBuf>) -> Self {
        let root = folder.into();
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
            dev: root.join("dev"),
            etc: root.join("etc"),
            root,
        }
    }

    /// Where a file of the machine, named as the machine names it, can be opened.
    #[must_use]
    pub fn locate(&self, absolute: &Path) -> PathBuf {
        let folders = [
            ("/proc", &self.proc),
            ("/sys", &self.sys),
            ("/dev", &self.dev),
            ("/etc", &self.etc),
            ("/", &self.root),
        ];
        for (prefix, folder) in folders {
            match absolute.strip_prefix(prefix) {
                Ok(rest) if rest.as_os_str().is_empty() => return folder.clone(),
                Ok(rest) => return folder.join(rest),
                Err(_) => {}
            }
        }
        absolute.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_names_become_paths_that_open() {
        let roots = Roots {
            sys: "/elsewhere".into(),
            ..Roots::from_dir("/tmp/m")
        };
        for (name, path) in [
            ("/proc/self", "/tmp/m/proc/self"),
            ("/sys/fs/cgroup", "/elsewhere/fs/cgroup"),
            ("/sys", "/elsewhere"),
            ("/usr/lib64", "/tmp/m/usr/lib64"),
            ("/procfs/x", "/tmp/m/procfs/x"),
        ] {
            assert_eq!(roots.locate(Path::new(name)), Path::new(path));
        }
        assert_eq!(
            Roots::default().locate(Path::new("/usr/lib")),
            Path::new("/usr/lib")
        );
    }
}
