//! What `import torch` asks the loader for.

use super::names::library_stem;
use super::process::{DlopenResult, LoaderProcess, UnresolvedLibrary, UnresolvedReason};
use super::tree::{LibraryTree, file_name};

/// A version of torch, `(2, 8)`.
pub type TorchVersion = (u32, u32);

/// What one part of `import torch` came to.
#[derive(Debug, Clone)]
pub(super) struct ImportStep {
    /// The file that Python opens.
    pub(super) path: String,
    /// What came of it.
    pub(super) opened: DlopenResult,
    /// How Python says that it failed.
    pub(super) error_kind: &'static str,
}

/// What an import of torch came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Import {
    /// What was opened and stayed, in order.
    pub(super) steps: Vec<ImportStep>,
    /// Where torch's own search for CUDA's wheels fails: the whole error.
    pub(super) preload_error: Option<String>,
}

/// How a torch of some version looks for CUDA's libraries beyond what the loader does
/// (`_load_global_deps` of `torch/__init__.py`; read in 2.4.1, 2.6.0, 2.8.0, 2.11.0 and 2.15.0, and
/// a version between two of them is taken for the older).
struct Recipe {
    /// Opened when `libtorch_global_deps.so` fails for one of them: the folder below `nvidia/` and
    /// the name up to `.so`. The first that is not there ends the import.
    rescue: &'static [(&'static str, &'static str)],
    /// Opened once it is loaded. The first that is not there ends this and not the import.
    ahead: &'static [(&'static str, &'static str)],
    /// `ahead` only if this folder gave libcudart.
    only_from: &'static str,
    /// What is not there is passed over in `ahead`.
    lenient: bool,
    /// `nvidia/cu13/lib` is searched too.
    shared_folder: bool,
}

const RESCUE_2_0: &[(&str, &str)] = &[
    ("cublas", "libcublas"),
    ("cudnn", "libcudnn"),
    ("cuda_nvrtc", "libnvrtc"),
    ("cuda_runtime", "libcudart"),
    ("cuda_cupti", "libcupti"),
    ("cufft", "libcufft"),
    ("curand", "libcurand"),
    ("cusolver", "libcusolver"),
    ("cusparse", "libcusparse"),
    ("nccl", "libnccl"),
    ("nvtx", "libnvToolsExt"),
];
const RESCUE_2_6: &[(&str, &str)] = &[
    ("cublas", "libcublas"),
    ("cudnn", "libcudnn"),
    ("cuda_nvrtc", "libnvrtc"),
    ("cuda_runtime", "libcudart"),
    ("cuda_cupti", "libcupti"),
    ("cufft", "libcufft"),
    ("curand", "libcurand"),
    ("nvjitlink", "libnvJitLink"),
    ("cusparse", "libcusparse"),
    ("cusparselt", "libcusparseLt"),
    ("cusolver", "libcusolver"),
    ("nccl", "libnccl"),
];
const RESCUE_2_11: &[(&str, &str)] = &[
    ("cublas", "libcublasLt"),
    ("cublas", "libcublas"),
    ("cudnn", "libcudnn"),
    ("cuda_nvrtc", "libnvrtc"),
    ("cuda_nvrtc", "libnvrtc-builtins"),
    ("cuda_runtime", "libcudart"),
    ("cuda_cupti", "libcupti"),
    ("cufft", "libcufft"),
    ("curand", "libcurand"),
    ("nvjitlink", "libnvJitLink"),
    ("cusparse", "libcusparse"),
    ("cusparselt", "libcusparseLt"),
    ("cusolver", "libcusolver"),
    ("nccl", "libnccl"),
    ("nvshmem", "libnvshmem_host"),
    ("cufile", "libcufile"),
];
/// As in 2.11 without libcurand, which torch no longer brings.
const RESCUE_2_15: &[(&str, &str)] = &[
    ("cublas", "libcublasLt"),
    ("cublas", "libcublas"),
    ("cudnn", "libcudnn"),
    ("cuda_nvrtc", "libnvrtc"),
    ("cuda_nvrtc", "libnvrtc-builtins"),
    ("cuda_runtime", "libcudart"),
    ("cuda_cupti", "libcupti"),
    ("cufft", "libcufft"),
    ("nvjitlink", "libnvJitLink"),
    ("cusparse", "libcusparse"),
    ("cusparselt", "libcusparseLt"),
    ("cusolver", "libcusolver"),
    ("nccl", "libnccl"),
    ("nvshmem", "libnvshmem_host"),
    ("cufile", "libcufile"),
];

fn recipe(version: TorchVersion) -> Recipe {
    let lenient = version >= (2, 15);
    if version >= (2, 11) {
        let all = if lenient { RESCUE_2_15 } else { RESCUE_2_11 };
        return Recipe {
            rescue: all,
            ahead: all,
            only_from: "libcudart.so",
            lenient,
            shared_folder: true,
        };
    }
    let newer = version >= (2, 6);
    Recipe {
        rescue: if newer { RESCUE_2_6 } else { RESCUE_2_0 },
        ahead: match newer {
            true => &[("cuda_nvrtc", "libnvrtc"), ("nvjitlink", "libnvJitLink")],
            false => &[],
        },
        only_from: "nvidia/cuda_runtime/lib/libcudart.so",
        lenient,
        shared_folder: false,
    }
}

/// Imports torch as Python would, and goes on where it would stop, so that what comes later can be
/// judged too.
pub(super) fn simulate_import(
    process: &mut LoaderProcess<'_, '_>,
    site_packages: &[String],
    version: TorchVersion,
) -> Option<Import> {
    let tree = process.tree;
    let torch = site_packages.iter().find_map(|site| {
        let torch = tree.resolve(&format!("{site}/torch"))?;
        let module = tree.files(&torch).find(|path| {
            let name = file_name(path);
            name.starts_with("_C.") && name.ends_with(".so")
        });
        module.map(|module| (format!("{site}/torch"), file_name(module).to_owned()))
    });
    let (torch, module) = torch?;
    let mut import = Import::default();
    let recipe = recipe(version);
    let global_deps = format!("{torch}/lib/libtorch_global_deps.so");
    let there = tree
        .resolve(&global_deps)
        .is_some_and(|real| tree.entry_at(&real).is_some());
    if there {
        let mut opened = process.open(&global_deps, None, true);
        let rescue = opened.missing.first().is_some_and(|first| {
            let text = missing_text(first);
            recipe.rescue.iter().any(|(_, stem)| text.contains(stem))
        });
        if rescue {
            process.unload_new_objects(&opened);
            import.preload_error =
                open_wheels(process, site_packages, &recipe, true, &mut import.steps);
            opened = process.open(&global_deps, None, true);
        } else if opened.missing.is_empty() {
            let from = |object: &super::LoadedObject<'_>| object.real.contains(recipe.only_from);
            if process.objects().iter().any(from) {
                open_wheels(process, site_packages, &recipe, false, &mut import.steps);
            }
        }
        import.steps.push(ImportStep {
            path: global_deps,
            opened,
            error_kind: "OSError",
        });
    }
    let path = format!("{torch}/{module}");
    let opened = process.open(&path, None, false);
    import.steps.push(ImportStep {
        path,
        opened,
        error_kind: "ImportError",
    });
    Some(import)
}

/// Opens CUDA's wheels by their paths; the error of the first that is not there.
fn open_wheels(
    process: &mut LoaderProcess<'_, '_>,
    site_packages: &[String],
    recipe: &Recipe,
    rescue: bool,
    steps: &mut Vec<ImportStep>,
) -> Option<String> {
    let list = if rescue { recipe.rescue } else { recipe.ahead };
    let shared = match recipe.shared_folder {
        true => cuda_folder(process.tree, site_packages),
        false => None,
    };
    for (folder, name) in list {
        let mut folders = vec![format!("nvidia/{folder}/lib")];
        folders.extend(shared.clone());
        folders.push(format!("{folder}/lib"));
        let found = site_packages.iter().find_map(|site| {
            let mut found = folders.iter().map(|folder| format!("{site}/{folder}"));
            found.find_map(|folder| numbered(process.tree, &folder, name))
        });
        let Some(path) = found else {
            if rescue || !recipe.lenient {
                let paths = site_packages.join("', '");
                let pattern = format!("{name}.so.*[0-9]");
                let text =
                    format!("ValueError: {pattern} not found in the system path ['{paths}']");
                return Some(text);
            }
            continue;
        };
        let opened = process.open(&path, None, false);
        if !opened.missing.is_empty() {
            // Ahead of the import this is caught, and what was not opened is not loaded.
            if !rescue {
                process.unload_new_objects(&opened);
                return None;
            }
        }
        steps.push(ImportStep {
            path,
            opened,
            error_kind: "OSError",
        });
    }
    None
}

/// `nvidia/cu13/lib`, where the wheels of one toolkit share a folder.
fn cuda_folder(tree: &LibraryTree<'_>, site_packages: &[String]) -> Option<String> {
    (13..=20)
        .rev()
        .map(|major| format!("nvidia/cu{major}/lib"))
        .find(|folder| {
            site_packages.iter().any(|site| {
                let real = tree.resolve(&format!("{site}/{folder}"));
                real.is_some_and(|real| tree.files(&real).next().is_some())
            })
        })
}

/// The first file `NAME.so.…` of a folder that ends in a digit.
fn numbered(tree: &LibraryTree<'_>, folder: &str, name: &str) -> Option<String> {
    let real = tree.resolve(folder)?;
    let mut files = tree.files(&real).map(file_name);
    let file = files.find(|file| {
        let rest = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(".so."));
        rest.is_some_and(|rest| rest.ends_with(|last: char| last.is_ascii_digit()))
    })?;
    Some(format!("{folder}/{file}"))
}

/// The major version of CUDA that torch is built for, read from what its libraries need.
pub(super) fn cuda_major(tree: &LibraryTree<'_>, site_packages: &[String]) -> Option<u32> {
    let libraries = [
        "libc10_cuda.so",
        "libtorch_global_deps.so",
        "libtorch_cuda.so",
    ];
    site_packages.iter().find_map(|site| {
        libraries.iter().find_map(|name| {
            let real = tree.resolve(&format!("{site}/torch/lib/{name}"))?;
            let Some(super::tree::TreeEntry::Library(library)) = tree.entry_at(&real) else {
                return None;
            };
            let cudart = library
                .needed
                .iter()
                .find(|name| library_stem(name) == "libcudart")?;
            super::names::cuda_major(cudart)
        })
    })
}

/// The loader's words for a library that is missing.
pub(super) fn missing_text(missing: &UnresolvedLibrary) -> String {
    match &missing.absent {
        UnresolvedReason::NotFound => format!(
            "{}: cannot open shared object file: No such file or directory",
            missing.name
        ),
        UnresolvedReason::Refused { path, text } => format!("{path}: {text}"),
    }
}
