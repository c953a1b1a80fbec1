//! The files of the loaded driver: libraries, programs, firmware, sockets.

use std::path::{Path, PathBuf};

use sconce_schema::request::ContainerEdits;

use super::{CdiError, bind, elf, ld_cache};
use crate::nvidia::is_version;
use crate::roots::Roots;

/// Libraries of the capabilities `compute` and `utility`, named as libnvidia-container and
/// nvidia-container-toolkit name them; each file is `NAME.so.DRIVER`.
const LIBRARIES: [&str; 16] = [
    "libcuda",
    "libcudadebugger",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-compiler",
    "libnvidia-fatbinaryloader",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nscq",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler",
    "libnvidia-sandboxutils",
    "libnvidia-tileiras",
];

/// The one library of the driver whose file does not end in the driver's version.
const UNVERSIONED: &str = "libnvidia-nvvm70.so.";

const PROGRAMS: [&str; 5] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
];

const PROGRAM_FOLDERS: [&str; 5] = [
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/nvidia/bin",
    "/opt/bin",
    "/usr/sbin",
];

/// Daemons of the driver that its libraries talk to, and the folder of the multi-process service.
const SOCKETS: [&str; 3] = [
    "/run/nvidia-persistenced/socket",
    "/run/nvidia-fabricmanager/socket",
    "/tmp/nvidia-mps",
];

/// A library of the host.
#[derive(Debug, PartialEq, Eq)]
struct DriverLibrary {
    path: PathBuf,
    name: String,
    soname: Option<String>,
}

/// What was found, each with its name inside.
#[derive(Debug, Default)]
pub(super) struct DriverFiles {
    libraries: Vec<DriverLibrary>,
    programs: Vec<(PathBuf, String)>,
    firmware: Vec<(PathBuf, String)>,
    sockets: Vec<(PathBuf, String)>,
}

/// Debian's triplet of this machine, in whose folder the loader looks by itself.
fn triplet() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// The folder inside that gets the libraries: the loader searches it without `ld.so.cache`.
pub(super) fn container_folder() -> String {
    format!("/usr/lib/{}", triplet())
}

impl DriverFiles {
    /// Finds the files of driver version `driver`.
    ///
    /// Libraries are looked for in the folders that `/etc/ld.so.cache` names for the driver's
    /// libraries (and those that its entries link to), then in the standard folders; of each the
    /// first is taken that is a library for this machine.
    pub(super) fn find(driver: &str, roots: &Roots) -> Result<Self, CdiError> {
        let searched = library_folders(roots);
        let libraries = libraries(driver, &searched, roots);
        // The version comes from the kernel; still, nothing but a version may become a file name.
        if !is_version(driver) || !libraries.iter().any(|l| l.name.starts_with("libcuda.so")) {
            return Err(CdiError::NoLibrary {
                driver: driver.to_owned(),
                searched,
            });
        }
        let same_name = |path: String| {
            let found = roots.locate(Path::new(&path));
            found.exists().then_some((found, path))
        };
        Ok(Self {
            libraries,
            programs: PROGRAMS
                .iter()
                .filter_map(|name| {
                    PROGRAM_FOLDERS
                        .iter()
                        .map(|folder| roots.locate(&Path::new(folder).join(name)))
                        .find(|path| path.is_file())
                        .map(|path| (path, format!("/usr/bin/{name}")))
                })
                .collect(),
            firmware: firmware(driver, roots),
            sockets: SOCKETS
                .iter()
                .filter_map(|&path| same_name(path.to_owned()))
                .filter(|(found, path)| {
                    let caller = rustix::process::geteuid().as_raw();
                    !path.starts_with("/tmp/") || is_made_by(found, &[0, caller])
                })
                .collect(),
        })
    }

    /// Without what is there only as long as a daemon runs.
    pub(super) fn without_sockets(mut self) -> Self {
        self.sockets.clear();
        self
    }

    /// Adds mounts and links to `edits`.
    pub(super) fn into_edits(self, edits: &mut ContainerEdits) {
        let folder = container_folder();
        for library in &self.libraries {
            let inside = format!("{folder}/{}", library.name);
            edits.mounts.push(bind(&library.path, &inside, true));
            if let Some(soname) = library.soname.as_ref().filter(|&s| *s != library.name) {
                let link = (library.name.clone(), format!("{folder}/{soname}"));
                edits.links.push(link);
            }
        }
        // What `-lcuda` asks for at link time (Triton compiles its launcher on first use).
        edits
            .links
            .push(("libcuda.so.1".to_owned(), format!("{folder}/libcuda.so")));
        for (path, inside) in self.programs.iter().chain(&self.firmware) {
            edits.mounts.push(bind(path, inside, true));
        }
        for (path, inside) in &self.sockets {
            edits.mounts.push(bind(path, inside, false));
        }
    }
}

/// Whether it is a folder that one of these users made. Anyone can make one below /tmp, or a link that
/// leads to another's files.
fn is_made_by(path: &Path, users: &[u32]) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata()
        .is_ok_and(|made| made.is_dir() && users.contains(&made.uid()))
}

/// Folders to search, as the machine names them.
pub(crate) fn library_folders(roots: &Roots) -> Vec<PathBuf> {
    let cache = std::fs::read(roots.etc.join("ld.so.cache")).unwrap_or_default();
    let of_driver = |name: &str| ["libcuda.so.1", "libnvidia-ml.so.1"].contains(&name);
    let mut folders = ld_cache::find_library_dirs(&cache, of_driver);
    // Debian keeps links to links there; the files lie where they end.
    let ends: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| {
            let end = roots.locate(&folder.join("libcuda.so.1")).canonicalize();
            let end = end.ok()?.parent()?.to_owned();
            // As the machine names it.
            Some(match end.strip_prefix(&roots.root) {
                Ok(rest) => Path::new("/").join(rest),
                Err(_) => end,
            })
        })
        .collect();
    folders.extend(ends);
    let triplet = triplet();
    folders.extend(
        [
            format!("/usr/lib/{triplet}"),
            format!("/usr/lib/{triplet}/nvidia/current"),
            "/usr/lib64".to_owned(),
            "/usr/lib".to_owned(),
            format!("/lib/{triplet}"),
            "/lib64".to_owned(),
            "/usr/local/nvidia/lib64".to_owned(),
            "/run/opengl-driver/lib".to_owned(),
        ]
        .map(PathBuf::from),
    );
    let mut unique: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !unique.contains(&folder) {
            unique.push(folder);
        }
    }
    unique
}

fn libraries(driver: &str, folders: &[PathBuf], roots: &Roots) -> Vec<DriverLibrary> {
    let mut found: Vec<DriverLibrary> = Vec::new();
    let mut take = |folder: &Path, name: String| {
        if found.iter().any(|known| known.name == name) {
            return;
        }
        let path = roots.locate(&folder.join(&name));
        if let Some(library) = elf::read_library(&path) {
            found.push(DriverLibrary {
                path,
                name,
                soname: library.soname,
            });
        }
    };
    for folder in folders {
        for name in LIBRARIES {
            take(folder, format!("{name}.so.{driver}"));
        }
        let Ok(entries) = roots.locate(folder).read_dir() else {
            continue;
        };
        for entry in entries.flatten() {
            if let Ok(name) = entry.file_name().into_string()
                && name.starts_with(UNVERSIONED)
            {
                take(folder, name);
            }
        }
    }
    found
}

/// The system processors' firmware, which NVIDIA's tools give to containers as well.
fn firmware(driver: &str, roots: &Roots) -> Vec<(PathBuf, String)> {
    let folder = format!("/lib/firmware/nvidia/{driver}");
    let Ok(entries) = roots.locate(Path::new(&folder)).read_dir() else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            (name.starts_with("gsp") && name.ends_with(".bin"))
                .then(|| (entry.path(), format!("{folder}/{name}")))
        })
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::is_made_by;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_folder_of_a_stranger_or_a_link_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().metadata().unwrap().uid();
        assert!(is_made_by(dir.path(), &[own]));
        assert!(!is_made_by(dir.path(), &[own + 1]));
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        assert!(!is_made_by(&link, &[own]));
        assert!(!is_made_by(&dir.path().join("none"), &[own]));
    }
}
