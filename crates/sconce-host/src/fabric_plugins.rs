//! NCCL's network plugins that a node has at the usual places: what drives EFA, and clouds' and vendors' own networks.
//! They belong to the node's drivers, so that no lock has them.
//!
//! Where they lie: aws-ofi-nccl and its libfabric by the installer of EFA and by AWS's images (NVIDIA-NeMo/RL#2359 names
//! both; `/opt/amazon/ofi-nccl` is that of later installers, `/opt/aws-ofi-nccl` of its own INSTALL.md's examples), gIB by
//! Google's cluster-toolkit (#6116 there), TCPX and TCPXO by its slurm-gcp (#198, #219), NVIDIA's RDMA and SHARP plugin by
//! HPC-X ("NCCL-RDMA-SHARP Plugins" of its manual).

use std::fs;
use std::path::{Path, PathBuf};

use crate::roots::Roots;

/// A plugin at its usual places.
struct KnownPlugin {
    name: &'static str,
    /// Its directory, the first that has a plugin.
    directories: &'static [&'static str],
    /// Directories of libraries that it loads, beside its own.
    beside: &'static [&'static str],
    /// NCCL drives such a network itself, and the plugin does it in another way.
    is_optional: bool,
}

const KNOWN: [KnownPlugin; 5] = [
    KnownPlugin {
        name: "aws-ofi-nccl",
        directories: &[
            "/opt/amazon/ofi-nccl",
            "/opt/amazon/aws-ofi-nccl",
            "/opt/aws-ofi-nccl",
        ],
        beside: &["/opt/amazon/efa"],
        is_optional: false,
    },
    KnownPlugin {
        name: "gIB",
        directories: &["/usr/local/gib"],
        beside: &[],
        is_optional: true,
    },
    KnownPlugin {
        name: "GPUDirect-TCPXO",
        directories: &["/var/lib/tcpxo"],
        beside: &[],
        is_optional: false,
    },
    KnownPlugin {
        name: "GPUDirect-TCPX",
        directories: &["/var/lib/tcpx"],
        beside: &[],
        is_optional: false,
    },
    KnownPlugin {
        name: "nccl-rdma-sharp-plugins",
        directories: &["/opt/hpcx/nccl_rdma_sharp_plugin"],
        beside: &["/opt/hpcx/sharp", "/opt/hpcx/ucx"],
        is_optional: true,
    },
];

/// Where libraries lie below such a directory: of Debian and Ubuntu, of others.
const LIBRARY_DIRECTORIES: [&str; 4] = [
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
];
/// The plugin that NCCL loads where nobody names one (`src/net.cc`).
pub const NCCLS_NAME: &str = "libnccl-net.so";
/// More entries of a directory are not looked at.
const MAX_ENTRIES: usize = 4096;

/// A plugin of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricPlugin {
    /// What it is: `aws-ofi-nccl`.
    pub name: String,
    /// Its directory, and those of what it loads beside: a container has them at the same paths.
    pub directories: Vec<PathBuf>,
    /// Those below them that have libraries, in the order in which they are looked through.
    pub library_directories: Vec<PathBuf>,
    /// The plugin's own file, as the machine names it.
    pub library: PathBuf,
    /// NCCL drives this network without it, too.
    pub is_optional: bool,
    /// A libnccl that lies beside it: as one of its directories is looked through before what a library names itself, it
    /// would take the place of the lock's.
    pub own_nccl: Option<PathBuf>,
}

/// Lists the plugins of a machine.
#[must_use]
pub fn list_plugins(roots: &Roots) -> Vec<FabricPlugin> {
    KNOWN
        .iter()
        .filter_map(|known| find(known, roots))
        .collect()
}

fn find(known: &KnownPlugin, roots: &Roots) -> Option<FabricPlugin> {
    let (directory, library) = known.directories.iter().find_map(|directory| {
        let directory = Path::new(directory);
        let library = find_library(directory, roots, |name| {
            name.starts_with("libnccl-net") && is_library(name)
        })?;
        Some((directory, library))
    })?;
    let beside = known.beside.iter().map(Path::new);
    let directories: Vec<PathBuf> = (std::iter::once(directory).chain(beside))
        .filter(|directory| roots.locate(directory).is_dir())
        .map(Path::to_owned)
        .collect();
    let below = directories.iter().flat_map(|directory| {
        let below = LIBRARY_DIRECTORIES.iter();
        below.map(move |below| directory.join(below))
    });
    let library_directories = below
        .filter(|directory| list_names(directory, roots).any(|name| is_library(&name)))
        .collect();
    let is_nccl = |name: &str| name == "libnccl.so" || name.starts_with("libnccl.so.");
    let mut own = directories.iter();
    Some(FabricPlugin {
        name: known.name.to_owned(),
        own_nccl: own.find_map(|directory| find_library(directory, roots, is_nccl)),
        directories,
        library_directories,
        library,
        is_optional: known.is_optional,
    })
}

/// The first file below a plugin's directory whose name fits.
fn find_library(directory: &Path, roots: &Roots, fits: impl Fn(&str) -> bool) -> Option<PathBuf> {
    LIBRARY_DIRECTORIES.iter().find_map(|below| {
        let directory = directory.join(below);
        let mut names: Vec<String> = list_names(&directory, roots)
            .filter(|name| fits(name))
            .collect();
        // The name that NCCL looks for by itself comes first.
        names.sort_by_key(|name| (name != NCCLS_NAME, name.clone()));
        let files = names.into_iter().map(|name| directory.join(name));
        // A link whose target is not there is none.
        files.into_iter().find(|file| roots.locate(file).is_file())
    })
}

fn list_names(directory: &Path, roots: &Roots) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(roots.locate(directory)).into_iter().flatten();
    let entries = entries.take(MAX_ENTRIES).flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn is_library(name: &str) -> bool {
    name.ends_with(".so") || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[&str]) -> (tempfile::TempDir, Vec<FabricPlugin>) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = list_plugins(&Roots::from_dir(dir.path()));
        (dir, found)
    }

    #[test]
    fn efas_plugin_comes_with_its_libfabric() {
        let (_dir, found) = machine(&[
            "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so",
            "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so",
            "opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p5.48xl-topo.xml",
            "opt/amazon/aws-ofi-nccl/lib/libnccl-net.so",
            "opt/amazon/efa/lib/libfabric.so.1",
            "opt/amazon/efa/bin/fi_info",
        ]);
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            found,
            [FabricPlugin {
                name: "aws-ofi-nccl".to_owned(),
                directories: paths(&["/opt/amazon/ofi-nccl", "/opt/amazon/efa"]),
                library_directories: paths(&[
                    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
                    "/opt/amazon/efa/lib"
                ]),
                library: "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so".into(),
                is_optional: false,
                own_nccl: None,
            }]
        );
    }

    #[test]
    fn a_libnccl_beside_a_plugin_is_named() {
        let (_dir, found) = machine(&[
            "usr/local/gib/lib64/libnccl-net_internal.so",
            "usr/local/gib/lib64/libnccl.so.2",
            "var/lib/tcpx/lib64/libnccl-net.so",
        ]);
        let names: Vec<&str> = found.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["gIB", "GPUDirect-TCPX"]);
        let own = Path::new("/usr/local/gib/lib64/libnccl.so.2");
        assert_eq!(found[0].own_nccl.as_deref(), Some(own));
        assert_eq!(found[1].own_nccl, None);
    }

    #[test]
    fn what_has_no_plugin_is_none() {
        let (dir, found) = machine(&["opt/amazon/efa/lib/libfabric.so.1", "opt/hpcx/ucx/lib/x"]);
        assert!(found.is_empty());
        // Neither a directory of that name nor a link that leads nowhere.
        let lib = dir.path().join("usr/local/gib/lib64");
        fs::create_dir_all(lib.join("libnccl-net.so")).unwrap();
        let tcpx = dir.path().join("var/lib/tcpx/lib64");
        fs::create_dir_all(&tcpx).unwrap();
        std::os::unix::fs::symlink("nowhere", tcpx.join("libnccl-net.so")).unwrap();
        assert!(list_plugins(&Roots::from_dir(dir.path())).is_empty());
        assert!(list_plugins(&Roots::from_dir("/nowhere")).is_empty());
    }
}
