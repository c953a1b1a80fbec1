//! What compilers and build tools look for beside what packages bring: the names `cc` and `c++`,
//! which Debian's maintainer scripts would make, `python3-config`, which belongs to Debian's own
//! choice of a Python, and a CUDA toolkit where there is nvcc.
//!
//! NVIDIA's wheels of CUDA 13 put their files into one folder in a toolkit's form, but for two
//! things: libraries have no name without their version, by which a linker finds them, and the
//! folder is not where build tools look (`/usr/local/cuda`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sconce_schema::environment_layers::{LayerTree, VENV};
use sconce_schema::{EnvironmentLayers, Lock, Sha256};
use sconce_store::{Store, StoreError, TreeBuildError};
use sha2::Digest as _;

/// Kind of these trees.
const KIND: &str = "devel";
/// Counts up whenever the same trees would give others.
const FORMAT: u32 = 2;
/// Where build tools look for CUDA.
const CUDA: &str = "/usr/local/cuda";

/// Lays what compilers look for over `environment`, and gives its tree. Nothing is there where the
/// environment has no compiler.
///
/// # Errors
/// The store cannot take it.
pub fn add_devel_layer(
    environment: &mut EnvironmentLayers,
    lock: &Lock,
    store: &Store,
) -> Result<PathBuf, StoreError> {
    let trees: Vec<&Path> = environment
        .layers
        .iter()
        .map(|l| l.path.as_path())
        .collect();
    let mut hash = sha2::Sha256::new();
    hash.update(FORMAT.to_le_bytes());
    for tree in &trees {
        let name = tree.parent().and_then(Path::file_name).unwrap_or_default();
        hash.update(name.as_encoded_bytes());
        hash.update([0]);
    }
    let key = Sha256(hash.finalize().into()).to_string();
    let built = store.build_tree(KIND, &key, |root| {
        links(&trees, lock)
            .into_iter()
            .try_for_each(|(path, target)| {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap_or(root))?;
                symlink(target, path)
            })
    });
    let path = built.map_err(|error: TreeBuildError<io::Error>| match error {
        TreeBuildError::Store(error) => error,
        TreeBuildError::Build(source) => StoreError::Disk {
            what: "link in",
            path: store.root().to_owned(),
            source,
        },
    })?;
    if has(&trees, &toolkit(lock).join("bin/nvcc")) {
        environment
            .env
            .insert("CUDA_HOME".to_owned(), CUDA.to_owned());
        if let Some(path) = environment.env.get_mut("PATH") {
            *path = format!("{CUDA}/bin:{path}");
        }
    }
    environment.layers.push(LayerTree {
        name: "compilers' names".to_owned(),
        path: path.clone(),
    });
    Ok(path)
}

/// The folder of NVIDIA's wheels, relative to the root.
fn toolkit(lock: &Lock) -> PathBuf {
    let venv = VENV.trim_start_matches('/');
    Path::new(venv).join(format!(
        "lib/python{}/site-packages/nvidia/cu13",
        lock.target.python
    ))
}

fn has(trees: &[&Path], path: &Path) -> bool {
    trees.iter().any(|tree| tree.join(path).exists())
}

/// (path, what it leads to), each path once.
fn links(trees: &[&Path], lock: &Lock) -> Vec<(PathBuf, PathBuf)> {
    let mut links = Vec::new();
    let config = format!("python{}-config", lock.target.python);
    let programs = [("cc", "gcc"), ("c++", "g++"), ("python3-config", &config)];
    for (name, program) in programs {
        let bin = Path::new("usr/bin");
        let linked = |name: &str| {
            trees
                .iter()
                .any(|tree| tree.join(bin).join(name).is_symlink())
        };
        if linked(program) && !linked(name) {
            links.push((bin.join(name), program.into()));
        }
    }
    let cuda = toolkit(lock);
    if has(trees, &cuda.join("bin/nvcc")) {
        links.push((
            CUDA.trim_start_matches('/').into(),
            Path::new("/").join(&cuda),
        ));
        if !has(trees, &cuda.join("lib64")) {
            links.push((cuda.join("lib64"), "lib".into()));
        }
        let mut files = BTreeSet::new();
        for tree in trees {
            let found = fs::read_dir(tree.join(&cuda).join("lib"));
            let names = found.into_iter().flatten().flatten();
            files.extend(names.filter_map(|entry| entry.file_name().into_string().ok()));
        }
        // Sorted: of several versions the last counts.
        let plain: std::collections::BTreeMap<&str, &str> = files
            .iter()
            .filter_map(|file| Some((file.split_once(".so.")?.0, file.as_str())))
            .collect();
        for (name, file) in plain {
            let name = format!("{name}.so");
            if !files.contains(&name) {
                links.push((cuda.join("lib").join(name), file.into()));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolkit_is_completed_and_compilers_have_their_names() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store")).unwrap();
        let lock = Lock::parse(include_str!("sbom/testdata/lock.toml")).unwrap();
        let cuda = toolkit(&lock);
        let make = |name: &str, files: &[PathBuf], links: &[(&str, &str)]| {
            let build = |root: &Path| -> io::Result<()> {
                for file in files {
                    let path = root.join(file);
                    fs::create_dir_all(path.parent().unwrap())?;
                    fs::write(path, "")?;
                }
                fs::create_dir_all(root.join("usr/bin"))?;
                let mut links = links.iter();
                links
                    .try_for_each(|(name, target)| symlink(target, root.join("usr/bin").join(name)))
            };
            let path = store.build_tree("test", name, build).unwrap();
            LayerTree {
                name: name.to_owned(),
                path,
            }
        };
        let mut environment = EnvironmentLayers {
            layers: vec![
                make(
                    "system",
                    &[],
                    &[("gcc", "gcc-14"), ("g++", "g++-14"), ("c++", "clang")],
                ),
                make("nvcc", &[cuda.join("bin/nvcc")], &[]),
                make(
                    "libraries",
                    &["libcudart.so.13", "liba.so.1", "liba.so", "libb.a"]
                        .map(|name| cuda.join("lib").join(name)),
                    &[],
                ),
            ],
            env: [("PATH".to_owned(), "/usr/bin".to_owned())].into(),
        };
        let path = add_devel_layer(&mut environment, &lock, &store).unwrap();
        assert_eq!(environment.layers.last().unwrap().path, path);
        assert_eq!(environment.env["PATH"], "/usr/local/cuda/bin:/usr/bin");
        let target = |name: &Path| fs::read_link(path.join(name)).ok();
        let nvidia = Path::new("/").join(&cuda);
        assert_eq!(target(Path::new("usr/bin/cc")), Some("gcc".into()));
        assert_eq!(target(Path::new("usr/bin/c++")), None);
        assert_eq!(target(Path::new("usr/local/cuda")), Some(nvidia));
        assert_eq!(target(&cuda.join("lib64")), Some("lib".into()));
        let library = |name: &str| target(&cuda.join("lib").join(name));
        assert_eq!(library("libcudart.so"), Some("libcudart.so.13".into()));
        assert_eq!((library("liba.so"), library("libb.so")), (None, None));

        environment.layers.truncate(1);
        environment.env.clear();
        let path = add_devel_layer(&mut environment, &lock, &store).unwrap();
        assert!(!path.join("usr/local").exists() && environment.env.is_empty());
    }
}
