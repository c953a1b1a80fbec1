//! What is found about environments that are broken by hand. Their shape is that of torch's wheels:
//! torch 2.4 with CUDA 12, one folder a wheel.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sconce_compat::library::{ElfLibrary, NeededVersions, symbol_hash};
use sconce_compat::loader::{
    BASE_NAMES, DRIVER_NAMES, LibraryTree, LoaderInput, LoaderReport, SystemPackage, check_imports,
};
use sconce_schema::finding::{Finding, FixAction, Severity};

const SITE: &str = "/env/site-packages";
const SYMBOL: &str =
    "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
const OLD_SYMBOL: &str = "_ZN3c105ErrorC2ENS_14SourceLocationESs";
const LINK: &str = "__nvJitLinkComplete_12_4";

/// A library that needs these.
fn library(needed: &[&str]) -> ElfLibrary {
    ElfLibrary {
        machine: 62,
        needed: needed.iter().map(|&name| name.to_owned()).collect(),
        ..ElfLibrary::default()
    }
}

fn defining(symbols: &[&str]) -> ElfLibrary {
    let mut library = library(&[]);
    library.defined = symbols
        .iter()
        .map(|symbol| symbol_hash(symbol.as_bytes()))
        .collect();
    library.defined.sort_unstable();
    library
}

/// An environment that is well: files by their path below site-packages, or whole.
struct World {
    files: Vec<(String, ElfLibrary)>,
    refused: Vec<String>,
    library_path: String,
    preload: String,
    version: (u32, u32),
    versions: BTreeMap<String, String>,
    system_packages: BTreeMap<String, SystemPackage>,
}

impl World {
    fn well() -> Self {
        let folders = ["cuda_runtime", "cublas", "cusparse", "cudnn", "nccl"];
        let rpath = folders.map(|folder| format!("$ORIGIN/../../nvidia/{folder}/lib"));
        let rpath: Vec<String> = rpath.into_iter().chain(["$ORIGIN".to_owned()]).collect();
        let torch = |needed: &[&str]| ElfLibrary {
            rpath: rpath.clone(),
            ..library(needed)
        };
        let sparse = ElfLibrary {
            runpath: Some(vec!["$ORIGIN/../../nvjitlink/lib".to_owned()]),
            undefined: vec![LINK.to_owned()],
            needs_versions: vec![NeededVersions {
                of: "libnvJitLink.so.12".to_owned(),
                versions: vec!["libnvJitLink.so.12".to_owned()],
            }],
            ..library(&["libnvJitLink.so.12"])
        };
        let mut world = Self {
            files: Vec::new(),
            refused: Vec::new(),
            library_path: String::new(),
            preload: String::new(),
            version: (2, 4),
            versions: BTreeMap::new(),
            system_packages: BTreeMap::new(),
        };
        let mut module = torch(&["libtorch_python.so"]);
        module.rpath.push("$ORIGIN/lib".to_owned());
        world.put("torch/_C.cpython-312-x86_64-linux-gnu.so", module);
        world.put(
            "torch/lib/libtorch_global_deps.so",
            torch(&["libcudart.so.12"]),
        );
        world.put(
            "torch/lib/libtorch_python.so",
            torch(&["libtorch_cuda.so", "libc10.so"]),
        );
        world.put("torch/lib/libtorch_cpu.so", torch(&["libc10.so"]));
        let needed = [
            "libc10_cuda.so",
            "libcublas.so.12",
            "libcusparse.so.12",
            "libcudnn.so.9",
        ];
        world.put(
            "torch/lib/libtorch_cuda.so",
            torch(&[&needed[..], &["libtorch_cpu.so"]].concat()),
        );
        world.put(
            "torch/lib/libtorch_cuda_linalg.so",
            torch(&["libcusolver.so.11"]),
        );
        world.put("torch/lib/libc10_cuda.so", torch(&["libcudart.so.12"]));
        let mut c10 = defining(&[OLD_SYMBOL]);
        c10.needed = vec!["libc.so.6".to_owned()];
        world.put("torch/lib/libc10.so", c10);
        world.put("nvidia/cuda_runtime/lib/libcudart.so.12", library(&[]));
        world.put("nvidia/cublas/lib/libcublas.so.12", library(&[]));
        world.put("nvidia/cusparse/lib/libcusparse.so.12", sparse);
        world.put("nvidia/cusparse/lib/libcusolver.so.11", library(&[]));
        world.put("nvidia/nvjitlink/lib/libnvJitLink.so.12", defining(&[LINK]));
        let cudnn = ElfLibrary {
            runpath: Some(vec!["$ORIGIN".to_owned()]),
            ..library(&[])
        };
        let parts = ["", "_graph", "_ops", "_cnn", "_adv", "_heuristic"];
        let engines = ["_engines_precompiled", "_engines_runtime_compiled"];
        for part in parts.iter().chain(&engines) {
            world.put(
                &format!("nvidia/cudnn/lib/libcudnn{part}.so.9"),
                cudnn.clone(),
            );
        }
        world
    }

    fn put(&mut self, path: &str, mut library: ElfLibrary) {
        let name = path.rsplit('/').next().unwrap_or(path);
        if library.soname.is_none() && name.starts_with("lib") {
            library.soname = Some(name.to_owned());
        }
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{SITE}/{path}"),
        };
        self.files.push((path, library));
    }

    fn without(mut self, name: &str) -> Self {
        self.files.retain(|(path, _)| !path.ends_with(name));
        self
    }

    fn with(mut self, path: &str, library: ElfLibrary) -> Self {
        self.put(path, library);
        self
    }

    fn library_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.library_path);
        self
    }

    fn judge(&self) -> LoaderReport {
        let mut tree = LibraryTree::new(62);
        let base = BASE_NAMES.iter().filter(|name| **name != "libstdc++.so.6");
        for name in base {
            tree.add_provided_name(name);
        }
        for (path, library) in &self.files {
            tree.add_library(path, library);
        }
        for path in &self.refused {
            tree.add_refused_file(path, true);
        }
        tree.library_path.clone_from(&self.library_path);
        tree.preload.clone_from(&self.preload);
        check_imports(&LoaderInput {
            tree: &tree,
            site_packages: vec![SITE.to_owned()],
            torch: Some(self.version),
            versions: self.versions.clone(),
            system_packages: self.system_packages.clone(),
        })
    }

    fn findings(&self) -> Vec<Finding> {
        self.judge().findings
    }

    /// The only finding of this code.
    #[track_caller]
    fn finding(&self, code: &str) -> Finding {
        let findings = self.findings();
        let mut found = findings.iter().filter(|finding| finding.code == code);
        match (found.next(), found.next()) {
            (Some(one), None) => one.clone(),
            _ => panic!("not one {code}: {findings:#?}"),
        }
    }
}

fn command(finding: &Finding) -> String {
    let lines = finding.mends.iter().filter_map(|mend| match &mend.action {
        Some(FixAction::Command { line, .. }) => Some(line.clone()),
        _ => None,
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[test]
fn nothing_is_said_of_what_is_well() {
    let judgement = World::well().judge();
    assert_eq!(judgement.findings, []);
    assert_eq!(judgement.torch.len(), 12);
    assert_eq!(
        judgement.torch[1].how,
        format!(
            "DT_RPATH of {SITE}/torch/lib/libtorch_global_deps.so: \
         {SITE}/torch/lib/../../nvidia/cuda_runtime/lib"
        )
    );
}

#[test]
fn a_wheel_that_is_gone() {
    let finding = World::well()
        .without("libcublas.so.12")
        .finding("library-not-found");
    assert_eq!(finding.weight, Severity::Fails);
    assert_eq!(finding.subject.as_deref(), Some("libcublas.so.12"));
    assert_eq!(
        finding.error_text.as_deref(),
        Some(
            "ImportError: libcublas.so.12: cannot open shared object file: No such file or directory"
        )
    );
    assert!(
        command(&finding).ends_with("nvidia-cublas-cu12"),
        "{finding:?}"
    );
}

#[test]
fn mends_name_packages_and_versions_that_are_installed() {
    let mut world = World::well().without("libcublas.so.12");
    let packages = [("nvidia-cublas-cu12", "12.1.3.1"), ("torch", "2.4.1")];
    world.versions = packages
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .into();
    let finding = world.finding("library-not-found");
    assert_eq!(
        command(&finding),
        "python -m pip install --force-reinstall --no-deps nvidia-cublas-cu12==12.1.3.1"
    );
    assert_eq!(finding.mends.len(), 1, "it is among the packages");
    // Which version torch pins is for torch to say.
    world.versions.remove("nvidia-cublas-cu12");
    let finding = world.finding("library-not-found");
    assert_eq!(command(&finding), "python -m pip install torch==2.4.1");
    // A folder's name need not be a package's.
    let module = library(&["libcudart.so.11.0", "libc10.so"]);
    world.put("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", module);
    let finding = world.finding("cuda-major-mismatch");
    assert_eq!(command(&finding), "");
}

#[test]
fn torch_s_own_search_fails_with_its_own_words() {
    let finding = World::well()
        .without("libcudart.so.12")
        .finding("library-not-found");
    // It looks for all of them in order: libcublas and libcudnn are there.
    assert_eq!(
        finding.error_text.as_deref(),
        Some("ValueError: libnvrtc.so.*[0-9] not found in the system path ['/env/site-packages']")
    );
    let mut newer = World::well().without("libcudart.so.12");
    newer.version = (2, 15);
    for name in [
        "cublas/lib/libcublasLt.so.12",
        "cuda_nvrtc/lib/libnvrtc.so.12",
    ] {
        newer.put(&format!("nvidia/{name}"), library(&[]));
    }
    newer.put(
        "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8",
        library(&[]),
    );
    let finding = newer.finding("library-not-found");
    assert_eq!(
        finding.error_text.as_deref(),
        Some("ValueError: libcudart.so.*[0-9] not found in the system path ['/env/site-packages']")
    );
}

#[test]
fn an_extension_of_another_cuda() {
    let module = library(&["libcudart.so.11.0", "libc10.so"]);
    let world = World::well().with("flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so", module);
    let finding = world.finding("cuda-major-mismatch");
    assert_eq!(
        finding.error_text.as_deref(),
        Some(
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"
        )
    );
    assert!(
        finding.what.contains("built for CUDA 11"),
        "{}",
        finding.what
    );
    assert!(
        command(&finding).ends_with("flash_attn_2_cuda"),
        "{finding:?}"
    );
}

#[test]
fn a_torchvision_of_another_cuda_fails_when_it_is_used() {
    let module = library(&["libcudart.so.11.0", "libc10.so"]);
    let finding = World::well()
        .with("torchvision/_C.so", module)
        .finding("cuda-major-mismatch");
    assert_eq!(
        finding.error_text.as_deref(),
        Some("RuntimeError: operator torchvision::nms does not exist")
    );
}

#[test]
fn an_extension_for_cuda_and_a_torch_without() {
    let module = library(&["libtorch_cuda.so"]);
    let mut world = World::well()
        .without("libtorch_cuda.so")
        .with("ext/_C.so", module);
    for (_, library) in &mut world.files {
        library
            .needed
            .retain(|name| name != "libtorch_cuda.so" || library.rpath.is_empty());
    }
    let finding = world.finding("torch-without-cuda");
    assert!(command(&finding).ends_with(" torch"), "{finding:?}");
}

#[test]
fn a_stolen_nvjitlink() {
    let old = "/opt/cuda-12.1/lib64/libnvJitLink.so.12";
    let world = World::well().with(old, defining(&["__nvJitLinkComplete_12_1"]));
    assert_eq!(
        world.findings().len(),
        1,
        "a copy that nobody gets is only noted"
    );
    let world = world.library_path("/opt/cuda-12.1/lib64");
    let finding = world.finding("cuda-symbol-undefined");
    assert_eq!(finding.weight, Severity::Fails);
    assert_eq!(
        finding.error_text.as_deref(),
        Some(
            "ImportError: /env/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: \
             undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12"
        )
    );
    let unset = FixAction::Variable {
        name: "LD_LIBRARY_PATH".to_owned(),
        value: None,
    };
    assert_eq!(finding.mends[0].action, Some(unset));
    assert_eq!(finding.mends.len(), 1, "torch's own is in its place");
    assert_eq!(
        world.finding("library-shadowed").subject.as_deref(),
        Some("libnvJitLink.so.12")
    );
    // From 2.6 on torch opens its own before.
    let mut newer = world;
    newer.version = (2, 6);
    newer.put("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", library(&[]));
    let codes: Vec<_> = newer
        .findings()
        .into_iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(codes, ["library-copies"]);
}

#[test]
fn two_copies_and_who_gets_which() {
    let own = ElfLibrary {
        soname: Some("libcudart.so.12".to_owned()),
        ..library(&[])
    };
    let module = ElfLibrary {
        rpath: vec!["$ORIGIN/../vision.libs".to_owned()],
        ..library(&["libcudart-1234.so.12", "libc10.so"])
    };
    let world = World::well()
        .with("vision.libs/libcudart-1234.so.12", own)
        .with("vision/image.so", module);
    let finding = world.finding("library-copies");
    assert_eq!(finding.weight, Severity::Notes);
    let seen: Vec<_> = finding
        .evidence
        .iter()
        .map(|one| one.value.as_str())
        .collect();
    assert_eq!(
        seen,
        [
            "loaded for /env/site-packages/torch/lib/libtorch_global_deps.so",
            "loaded for /env/site-packages/vision/image.so",
        ]
    );
}

#[test]
fn what_one_command_brings_back_is_one_finding() {
    // `pip install --no-deps torch`, or a folder that somebody deleted.
    let mut world = World::well();
    world.files.retain(|(path, _)| !path.contains("/nvidia/"));
    let finding = world.finding("library-not-found");
    assert_eq!(
        finding.what,
        format!(
            "{SITE}/torch/lib/libtorch_global_deps.so (and 1 more) needs libcudart.so.12, which the \
             loader does not find; nor does it find libcublas.so.12, libcusparse.so.12, \
             libcudnn.so.9 and 1 more"
        )
    );
    assert!(
        command(&finding).ends_with("--no-deps nvidia-cublas-cu12 nvidia-cuda-runtime-cu12 nvidia-cudnn-cu12 nvidia-cusolver-cu12 nvidia-cusparse-cu12"),
        "{finding:?}"
    );
    // What else is missing is another matter.
    let module = library(&["libGL.so.1", "libc10.so"]);
    let world = World::well()
        .without("libcublas.so.12")
        .with("cv2/cv2.abi3.so", module);
    assert_eq!(world.findings().len(), 2);
}

#[test]
fn libraries_of_one_package_are_one_finding() {
    let module = |needed: &[&str]| ElfLibrary {
        undefined: vec![SYMBOL.to_owned()],
        ..library(&[needed, &["libc10.so"]].concat())
    };
    let world = World::well()
        .with("flash_attn/a.abi3.so", module(&[]))
        .with("flash_attn/b.abi3.so", module(&[]));
    let finding = world.finding("torch-abi-mismatch");
    assert_eq!(
        finding.what,
        format!(
            "{SITE}/flash_attn/a.abi3.so (and 1 more) are built for another torch: 1 of the symbols \
             that they need are not in the torch here"
        )
    );
    let world = World::well()
        .with("flash_attn/a.abi3.so", module(&["libcudart.so.11.0"]))
        .with("flash_attn/b.abi3.so", module(&["libcublas.so.11"]));
    let finding = world.finding("cuda-major-mismatch");
    assert!(
        finding
            .what
            .ends_with("; the same holds for libcublas.so.11"),
        "{}",
        finding.what
    );
    assert_eq!(finding.subject.as_deref(), Some("flash_attn"));
}

#[test]
fn what_a_package_opens_itself_is_not_missing() {
    // torchaudio loads it by its path before the module.
    let world = World::well()
        .with("torchaudio/lib/libtorchaudio.so", library(&["libc10.so"]))
        .with(
            "torchaudio/lib/_torchaudio.so",
            library(&["libtorchaudio.so", "libc10.so"]),
        );
    assert!(
        world
            .findings()
            .iter()
            .all(|one| one.weight == Severity::Notes)
    );
    // Whichever FFmpeg there is: each is tried.
    let ffmpeg = |number: u32| library(&[&format!("libavcodec.so.{number}"), "libc10.so"]);
    let world = World::well()
        .with("torio/lib/_torio_ffmpeg4.so", ffmpeg(58))
        .with("torio/lib/_torio_ffmpeg5.so", ffmpeg(59));
    assert_eq!(
        world.finding("optional-library-not-found").weight,
        Severity::Notes
    );
    let world = World::well().with("torio/lib/_torio_ffmpeg4.so", ffmpeg(58));
    assert_eq!(world.finding("library-not-found").weight, Severity::Fails);
}

#[test]
fn two_majors_of_cuda() {
    let module = ElfLibrary {
        rpath: vec!["$ORIGIN".to_owned()],
        ..library(&["libcudart.so.13"])
    };
    let world = World::well()
        .with("other/_C.so", module)
        .with("other/libcudart.so.13", library(&[]));
    assert_eq!(world.finding("cuda-majors-mixed").weight, Severity::Warns);
}

#[test]
fn a_module_for_another_torch() {
    let module = ElfLibrary {
        undefined: vec![SYMBOL.to_owned()],
        ..library(&["libc10.so", "libtorch_cpu.so"])
    };
    let finding = World::well()
        .with("ext/_C.so", module.clone())
        .finding("torch-abi-mismatch");
    let text = format!("ImportError: {SITE}/ext/_C.so: undefined symbol: {SYMBOL}");
    assert_eq!(finding.error_text.as_deref(), Some(text.as_str()));
    let last = &finding.evidence[1];
    assert_eq!(last.source, format!("{SITE}/torch/lib/libc10.so"));
    assert!(last.value.contains("std::string"), "{}", last.value);
    let finding = World::well()
        .with("torchvision/_C.so", module)
        .finding("torch-abi-mismatch");
    assert_eq!(
        finding.error_text.as_deref(),
        Some("RuntimeError: operator torchvision::nms does not exist")
    );
    assert!(command(&finding).ends_with("torch torchvision"));
}

#[test]
fn a_system_that_is_too_old() {
    let versions = |of: &str, version: &str| NeededVersions {
        of: of.to_owned(),
        versions: vec![version.to_owned()],
    };
    let module = ElfLibrary {
        needs_versions: vec![
            versions("libc.so.6", "GLIBC_2.38"),
            versions("libstdc++.so.6", "GLIBCXX_3.4.32"),
        ],
        ..library(&["libc.so.6", "libstdc++.so.6"])
    };
    let system = |versions: &[&str]| ElfLibrary {
        defines_versions: versions.iter().map(|&version| version.to_owned()).collect(),
        ..library(&[])
    };
    let world = World::well()
        .with("ext/_C.abi3.so", module)
        .with(
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            system(&["GLIBC_2.9", "GLIBC_2.31"]),
        )
        .with(
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            system(&["GLIBCXX_3.4.28"]),
        );
    let finding = world.finding("glibc-too-old");
    assert_eq!(
        finding.error_text.as_deref(),
        Some(
            "ImportError: /usr/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found \
             (required by /env/site-packages/ext/_C.abi3.so)"
        )
    );
    assert!(
        finding.what.contains("ends at GLIBC_2.31"),
        "{}",
        finding.what
    );
    assert!(
        world
            .finding("libstdcxx-too-old")
            .what
            .contains("GLIBCXX_3.4.32")
    );
}

#[test]
fn parts_of_cudnn() {
    let world = World::well().without("libcudnn_cnn.so.9");
    let finding = world.finding("cudnn-sublibrary-missing");
    assert!(
        finding.what.ends_with("lacks libcudnn_cnn.so.9"),
        "{}",
        finding.what
    );
    assert!(command(&finding).ends_with("nvidia-cudnn-cu12"));
    assert_eq!(
        finding.error_text.as_deref(),
        Some("Invalid handle. Cannot load symbol cudnnCreateConvolutionDescriptor")
    );
    // What another part of it needs is the same finding.
    let mut world = World::well().without("libcudnn_graph.so.9");
    for (path, part) in &mut world.files {
        if path.ends_with("libcudnn_ops.so.9") {
            part.needed.push("libcudnn_graph.so.9".to_owned());
        }
    }
    let codes: Vec<_> = world.findings().into_iter().map(|one| one.code).collect();
    assert_eq!(codes, ["cudnn-sublibrary-missing"]);
    let world = World::well().without("libcudnn_heuristic.so.9");
    let finding = world.finding("cudnn-sublibrary-missing");
    assert_eq!(
        finding.error_text.as_deref(),
        Some("Unable to load any of {..., libcudnn_heuristic.so.9, libcudnn_heuristic.so}")
    );
    let world = World::well()
        .with("/opt/cudnn/libcudnn_ops.so.9", library(&[]))
        .library_path("/opt/cudnn");
    let finding = world.finding("cudnn-sublibraries-mixed");
    assert_eq!(
        finding.error_text.as_deref(),
        Some("CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH")
    );
    assert_eq!(finding.evidence[1].value, "LD_LIBRARY_PATH: /opt/cudnn");
}

#[test]
fn files_that_are_no_libraries() {
    let mut world = World::well().without("libcublas.so.12");
    world
        .refused
        .push(format!("{SITE}/nvidia/cublas/lib/libcublas.so.12"));
    let finding = world.finding("library-unreadable");
    let path = format!("{SITE}/torch/lib/../../nvidia/cublas/lib/libcublas.so.12");
    assert_eq!(
        finding.error_text,
        Some(format!("ImportError: {path}: file too short"))
    );
}

#[test]
fn what_only_an_archive_knows_is_asked_for_and_then_named() {
    let mut world = World::well()
        .with(
            "audio/_a.abi3.so",
            library(&["libportaudio.so.2", "libjack.so.0"]),
        )
        .with(
            "audio/_b.abi3.so",
            library(&["libportaudiocpp.so.0", "libGL.so.1"]),
        )
        // Of no system: CUDA's, the driver's, torch's own, what auditwheel renamed.
        .with(
            "audio/_c.abi3.so",
            library(&["libcublas.so.13", "libcuda.so.1"]),
        )
        .with(
            "audio/_d.abi3.so",
            library(&["libtorch_none.so", "libgomp-a34b3233.so.1"]),
        );
    let unknown = world.judge().unknown_libraries;
    let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
    assert_eq!(
        unknown,
        ["libjack.so.0", "libportaudio.so.2", "libportaudiocpp.so.0"]
    );
    let package = |name: &str, remark: Option<&str>| SystemPackage {
        name: name.to_owned(),
        remark: remark.map(str::to_owned),
    };
    world.system_packages = BTreeMap::from([
        (
            "libportaudio.so.2".to_owned(),
            package("libportaudio2", None),
        ),
        (
            "libportaudiocpp.so.0".to_owned(),
            package("libportaudio2", None),
        ),
        (
            "libjack.so.0".to_owned(),
            package("libjack0", Some("so does libjack1")),
        ),
    ]);
    let asked: Vec<(String, String)> = world
        .findings()
        .into_iter()
        .filter(|finding| finding.code == "library-not-found")
        .filter_map(|finding| match finding.mends.first()?.action.clone()? {
            FixAction::Spec { key, value } if key == "system.packages" => {
                Some((value, finding.mends[0].what.clone()))
            }
            _ => None,
        })
        .collect();
    let values: Vec<&str> = asked.iter().map(|(value, _)| value.as_str()).collect();
    // Two libraries of one package are one finding.
    assert_eq!(
        values,
        ["[\"libportaudio2\"]", "[\"libjack0\"]", "[\"libgl1\"]"]
    );
    assert!(
        asked[1]
            .1
            .ends_with("ships libjack.so.0 (so does libjack1)."),
        "{}",
        asked[1].1
    );
}

#[test]
fn what_the_system_and_the_driver_should_bring() {
    let module = library(&["libGL.so.1"]);
    let finding = World::well()
        .with("cv2/cv2.abi3.so", module)
        .finding("library-not-found");
    assert_eq!(finding.weight, Severity::Warns);
    assert_eq!(
        finding.mends[0].action,
        Some(FixAction::Spec {
            key: "system.packages".to_owned(),
            value: "[\"libgl1\"]".to_owned(),
        })
    );
    let module = library(&["libcuda.so.1", "libc10.so"]);
    assert!(DRIVER_NAMES.contains(&"libcuda.so.1"));
    World::well()
        .with("vllm/_C.abi3.so", module)
        .finding("driver-library-not-found");
    // Nobody opens it by itself.
    let plugin = library(&["libmlx5.so.1"]);
    let world = World::well().with("nvidia/nccl/lib/libnccl-net.so", plugin);
    assert_eq!(
        world.finding("optional-library-not-found").weight,
        Severity::Notes
    );
}

#[test]
fn variables_that_lead_astray() {
    let mut world = World::well().library_path("/none:");
    world.preload = "libjemalloc.so.2".to_owned();
    let finding = world.finding("preload-not-found");
    assert_eq!(
        finding.error_text.as_deref(),
        Some(
            "ERROR: ld.so: object 'libjemalloc.so.2' from LD_PRELOAD cannot be preloaded (cannot \
             open shared object file): ignored."
        )
    );
    assert_eq!(
        world.finding("search-in-working-directory").weight,
        Severity::Warns
    );
}

/// A text that may be a name, a path or nothing of the sort.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z$/.{}:é]{0,12}",
        Just("$ORIGIN/../lib".to_owned()),
        Just("libc10.so".to_owned()),
        Just("libcudnn.so.9".to_owned()),
        Just("libcudart.so.12".to_owned()),
        Just("/env/site-packages/torch".to_owned()),
        Just("_ZN3c10Ss".to_owned()),
    ]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_libraries_say_there_is_a_judgement(
        files in prop::collection::vec((text(), texts(), texts(), prop::option::of(texts()), texts()), 0..8),
        links in prop::collection::vec((text(), text()), 0..4),
        library_path in text(),
        version in (0..4_u32, 0..20_u32),
    ) {
        let mut world = World::well();
        for (path, needed, rpath, runpath, undefined) in files {
            let library = ElfLibrary {
                machine: 62,
                soname: needed.first().cloned(),
                needs_versions: vec![NeededVersions { of: path.clone(), versions: rpath.clone() }],
                defines_versions: undefined.clone(),
                needed,
                rpath,
                runpath,
                undefined,
                ..ElfLibrary::default()
            };
            world.put(&path, library);
        }
        let mut tree = LibraryTree::new(62);
        for (path, library) in &world.files {
            tree.add_library(path, library);
        }
        for (path, target) in links {
            tree.add_link(&format!("/{path}"), &target);
        }
        tree.library_path = library_path;
        let site_packages = vec![SITE.to_owned(), "/".to_owned(), String::new()];
        let environment = LoaderInput {
            tree: &tree,
            site_packages,
            torch: Some(version),
            versions: BTreeMap::from([("torch".to_owned(), "2.8.0".to_owned())]),
            system_packages: BTreeMap::new(),
        };
        let findings = check_imports(&environment).findings;
        prop_assert!(findings.iter().all(|finding| !finding.what.is_empty()));
    }
}
