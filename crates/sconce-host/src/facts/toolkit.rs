//! The NVIDIA container toolkit, from files: none of its programs is run.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use sconce_schema::facts::{CdiFileFacts, ContainerToolkit};
use serde_json::Value;

use crate::cdi::{self, CdiProblemKind};
use crate::nvidia::NvidiaDriver;
use crate::roots::Roots;
use crate::small_files;

const PROGRAMS: [&str; 3] = [
    "nvidia-ctk",
    "nvidia-container-runtime",
    "nvidia-container-cli",
];
/// So many missing files say enough.
const MAX_MISSING_FILES: usize = 32;
const FOLDERS: [&str; 3] = ["usr/bin", "usr/local/bin", "usr/local/nvidia/toolkit"];

/// The toolkit is there where one of its programs is, where Docker's daemon.json names a runtime
/// of its, or where a CDI file is.
///
/// Its version is that of the Debian package `nvidia-container-toolkit-base`, else
/// `nvidia-container-toolkit`; where neither is installed (Red Hat's database is no text) it is
/// absent.
pub(super) fn read(roots: &Roots, nvidia: Option<&NvidiaDriver>) -> Option<ContainerToolkit> {
    let installed = PROGRAMS.iter().any(|program| {
        let mut folders = FOLDERS.iter();
        folders.any(|folder| roots.root.join(folder).join(program).exists())
    });
    let docker_runtimes = small_files::read_text(&roots.etc.join("docker/daemon.json"))
        .and_then(|text| runtimes(&text));
    let files = cdi::read_files(roots, None);
    let cdi: Vec<_> = files
        .iter()
        .map(|file| cdi_file(file, nvidia, roots))
        .collect();
    let mut names = docker_runtimes.iter().flatten();
    let in_docker = names.any(|name| name.contains("nvidia"));
    let toolkit = ContainerToolkit {
        version: installed.then(|| package_version(roots)).flatten(),
        docker_runtimes,
        cdi,
    };
    (installed || in_docker || !toolkit.cdi.is_empty()).then_some(toolkit)
}

/// Names of the runtimes in Docker's daemon.json.
fn runtimes(text: &str) -> Option<Vec<String>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let runtimes = value.get("runtimes").and_then(Value::as_object);
    let names = runtimes.map(|runtimes| runtimes.keys().cloned().collect());
    Some(names.unwrap_or_default())
}

fn package_version(roots: &Roots) -> Option<String> {
    /// The list of a desktop with everything installed has 10 MB.
    const MAX_PACKAGE_LIST_BYTES: u64 = 64 << 20;
    let file = File::open(roots.root.join("var/lib/dpkg/status")).ok()?;
    in_package_list(BufReader::new(file.take(MAX_PACKAGE_LIST_BYTES)))
}

/// The version in dpkg's list of packages (deb822(5)), without Debian's revision.
fn in_package_list(lines: impl BufRead) -> Option<String> {
    const BASE: &str = "nvidia-container-toolkit-base";
    let (mut ours, mut base, mut found) = (false, false, None);
    for line in lines.split(b'\n').map_while(Result::ok) {
        let Ok(line) = std::str::from_utf8(&line) else {
            continue;
        };
        match line.split_once(": ") {
            Some(("Package", name)) => {
                base = name == BASE;
                ours = base || name == "nvidia-container-toolkit";
            }
            // Removed packages may be listed.
            Some(("Status", state)) => ours &= state.ends_with(" installed"),
            Some(("Version", version)) if ours => {
                let upstream = version
                    .rsplit_once('-')
                    .map_or(version, |(version, _)| version);
                found = Some(upstream.to_owned());
                if base {
                    return found;
                }
            }
            _ => {}
        }
    }
    found
}

/// A CDI file, and what is wrong with it here. That it was written for another driver is told by that
/// driver.
fn cdi_file(file: &cdi::CdiFile, nvidia: Option<&NvidiaDriver>, roots: &Roots) -> CdiFileFacts {
    let troubles = cdi::check_file(file, nvidia, roots);
    let of = |kinds: &[CdiProblemKind]| {
        let kinds = kinds.to_vec();
        troubles.iter().filter(move |one| kinds.contains(&one.kind))
    };
    let words = |kinds: &[CdiProblemKind]| of(kinds).map(|one| one.what.clone()).collect();
    CdiFileFacts {
        path: file.path.clone(),
        kind: file.kind().map(str::to_owned),
        driver: file.driver_version(),
        missing: of(&[CdiProblemKind::Missing])
            .filter_map(|one| one.path.clone())
            .take(MAX_MISSING_FILES)
            .collect(),
        stale: words(&[
            CdiProblemKind::Invalid,
            CdiProblemKind::Renumbered,
            CdiProblemKind::CardGone,
            CdiProblemKind::CardMissing,
        ]),
        error: file.read_error().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_of_docker() {
        // What `nvidia-ctk runtime configure --runtime=docker` writes.
        let text =
            r#"{ "runtimes": { "nvidia": { "args": [], "path": "nvidia-container-runtime" } } }"#;
        assert_eq!(runtimes(text).unwrap(), ["nvidia"]);
        assert_eq!(runtimes("{}").unwrap(), [""; 0]);
        assert_eq!(runtimes(r#"{"runtimes": 3}"#).unwrap(), [""; 0]);
        assert_eq!(runtimes("{ // not JSON"), None);
    }

    /// The form of dpkg's list on Ubuntu 22.04.
    const LIST: &str = "\
Package: libnvidia-container1
Status: install ok installed
Version: 1.17.7-1

Package: nvidia-container-toolkit
Status: install ok installed
Depends: nvidia-container-toolkit-base (= 1.17.8-1)
Version: 1.17.8-1

Package: nvidia-container-toolkit-base
Status: deinstall ok config-files
Version: 1.13.5-1
";

    #[test]
    fn the_packages_version() {
        let version = |text: &str| in_package_list(text.as_bytes());
        assert_eq!(version(LIST).as_deref(), Some("1.17.8"));
        let whole = LIST.replace("deinstall ok config-files", "install ok installed");
        assert_eq!(version(&whole).as_deref(), Some("1.13.5"));
        assert_eq!(version("Package: x\nVersion: 1-1\n"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn what_tells_of_a_toolkit() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        assert_eq!(read(&roots, None), None);
        std::fs::create_dir_all(roots.etc.join("docker")).unwrap();
        std::fs::write(roots.etc.join("docker/daemon.json"), "{}").unwrap();
        assert_eq!(read(&roots, None), None, "Docker alone is no toolkit");
        std::fs::create_dir_all(folder.path().join("usr/bin")).unwrap();
        std::fs::write(folder.path().join("usr/bin/nvidia-ctk"), "").unwrap();
        let found = read(&roots, None).unwrap();
        assert_eq!((found.version, found.docker_runtimes), (None, Some(vec![])));
    }
}
