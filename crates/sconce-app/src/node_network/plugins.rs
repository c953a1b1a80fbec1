//! NCCL's network plugins of the node in the container: mounted for reading where the node has them, behind everything
//! that the environment and the spec have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sconce_compat::library::ElfLibrary;
use sconce_host::fabric_plugins::{FabricPlugin, NCCLS_NAME};
use sconce_schema::EnvironmentLayers;
use sconce_schema::network::HostPlugin;
use sconce_schema::request::{Mount, RunRequest};

use crate::inspect::read_library;

/// Directories of an environment in which ld.so looks by itself, or by Debian's `/etc/ld.so.conf.d`.
const ENVIRONMENT_LIBRARIES: [&str; 8] = [
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/lib",
];
/// Libraries of CUDA and its driver are loaded before NCCL is, from wheels and by the container.
const CUDA: &str = "libcu";
/// The driver's management library, too.
const NVML: &str = "libnvidia-ml.so";
/// More libraries than a plugin loads are not followed.
const MAX_LIBRARIES: usize = 64;

/// Which of a node's plugins a job has: `asked` is what its target says. Those that NCCL can do without change how it
/// sends, so that they come only where somebody asks for them.
pub(crate) fn select_plugins(found: Vec<FabricPlugin>, asked: Option<bool>) -> Vec<FabricPlugin> {
    let is_selected = |plugin: &FabricPlugin| asked.unwrap_or(!plugin.is_optional);
    found.into_iter().filter(is_selected).collect()
}

/// Brings plugins into a container of `image`, whose C library has the version `glibc`; says of each what came, and what
/// keeps it from being loaded.
pub(super) fn bring_plugins(
    plugins: &[FabricPlugin],
    image: &EnvironmentLayers,
    glibc: Option<&str>,
    request: &mut RunRequest,
) -> Vec<HostPlugin> {
    let mut brought = Vec::new();
    for plugin in plugins {
        // What the spec mounts there counts, and what the environment has.
        let is_taken = |directory: &PathBuf| {
            let in_image = directory.strip_prefix("/").unwrap_or(directory);
            request
                .mounts
                .iter()
                .any(|mount| mount.target == *directory)
                || image
                    .layers
                    .iter()
                    .any(|layer| layer.path.join(in_image).exists())
        };
        if plugin.directories.iter().any(is_taken) {
            continue;
        }
        let obstacle = match &plugin.own_nccl {
            Some(nccl) => Some(format!(
                "{} lies beside it and would take the place of the lock's NCCL: \
                 `LD_LIBRARY_PATH = \"{}\"` in `[run.env]` says that it is to",
                nccl.display(),
                nccl.parent().unwrap_or(Path::new("/")).display()
            )),
            None => find_obstacle(plugin, image, glibc),
        };
        request
            .mounts
            .extend(plugin.directories.iter().map(|directory| Mount {
                source: directory.clone(),
                target: directory.clone(),
                read_only: true,
            }));
        if plugin.own_nccl.is_none() {
            add_variables(plugin, request);
        }
        brought.push(HostPlugin {
            name: plugin.name.clone(),
            directory: plugin
                .directories
                .first()
                .map_or_else(String::new, |directory| {
                    directory.to_string_lossy().into_owned()
                }),
            obstacle,
        });
    }
    brought
}

/// Has ld.so look in the plugin's directories last of `LD_LIBRARY_PATH`, and NCCL for its name where that is not the one
/// that it looks for by itself.
fn add_variables(plugin: &FabricPlugin, request: &mut RunRequest) {
    let path = request.env.entry("LD_LIBRARY_PATH".to_owned()).or_default();
    for directory in &plugin.library_directories {
        // An empty word would be the working directory.
        if !path.is_empty() {
            path.push(':');
        }
        path.push_str(&directory.to_string_lossy());
    }
    let name = plugin
        .library
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let suffix = name
        .strip_prefix("libnccl-net-")
        .and_then(|name| name.strip_suffix(".so"));
    if let Some(suffix) = suffix.filter(|_| name != NCCLS_NAME) {
        let variable = request.env.entry("NCCL_NET_PLUGIN".to_owned());
        variable.or_insert_with(|| suffix.to_owned());
    }
}

/// What keeps a plugin from being loaded: a library that neither its directories nor the environment have, or a C
/// library that is older than it needs.
fn find_obstacle(
    plugin: &FabricPlugin,
    image: &EnvironmentLayers,
    glibc: Option<&str>,
) -> Option<String> {
    let mut waiting = vec![plugin.library.clone()];
    let mut seen = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if seen.len() == MAX_LIBRARIES || !seen.insert(path.clone()) {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(library) = read_library(&path) else {
            return Some(format!("{} is no library that can be read", path.display()));
        };
        if let Some(needed) = newer_glibc(&library, glibc) {
            let has = glibc.unwrap_or_default();
            return Some(format!(
                "{name} needs glibc {needed}, and the environment has {has}"
            ));
        }
        for needed in &library.needed {
            let beside = plugin.library_directories.iter();
            let beside = beside.map(|directory| directory.join(needed));
            if let Some(file) = beside.into_iter().find(|file| file.is_file()) {
                waiting.push(file);
            } else if !has_library(image, needed)
                && !needed.starts_with(CUDA)
                && !needed.starts_with(NVML)
            {
                return Some(format!(
                    "the environment has no {needed}, which {name} needs"
                ));
            }
        }
    }
    None
}

fn has_library(image: &EnvironmentLayers, name: &str) -> bool {
    // A link of an image leads to a path inside, which is none of this machine's.
    let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
    image.layers.iter().any(|layer| {
        let mut directories = ENVIRONMENT_LIBRARIES.iter();
        directories.any(|directory| is_there(layer.path.join(directory).join(name)))
    })
}

/// The version of glibc that a library needs, where that is newer than `glibc` (`2.41-12`).
fn newer_glibc(library: &ElfLibrary, glibc: Option<&str>) -> Option<String> {
    let version = |text: &str| {
        let (major, rest) = text.split_once('.')?;
        let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    let has = version(glibc?)?;
    let all = library
        .needs_versions
        .iter()
        .flat_map(|needed| &needed.versions);
    let needed = all.filter_map(|name| version(name.strip_prefix("GLIBC_")?));
    let (major, minor) = needed.max().filter(|needed| *needed > has)?;
    Some(format!("{major}.{minor}"))
}

#[cfg(test)]
#[path = "plugins_tests.rs"]
mod tests;
