//! What well-known conda packages are called elsewhere. A name that is not here is not guessed: a project of the
//! same name on the Python package index can be another one.

mod name_tables;

use sconce_formats::normalize_project_name;

use self::name_tables::{COMPILERS, CUDA, DEBIAN, DEPENDENCIES, PROVIDED, RENAMED, SAME_NAMES};

/// Of a name that no table has.
pub(crate) const UNKNOWN: &str = "not known under this name outside conda: add its project, or the address of its wheel or repository, to `[python] packages`, or Debian's package to `[system] packages`; what conda alone has runs from an image made with conda, `sconce run IMAGE`";
/// Of a name that is known to be nowhere else.
pub(crate) const ALONE: &str = "conda alone has it: it runs from an image made with conda, `sconce run IMAGE` (a file of `docker save`, or what `sconce pull` fetched)";

/// What is said of a package with sources alone, where no code of the project imports it.
pub(crate) fn describe_sources(requirement: &str) -> String {
    format!(
        "no index has it, and nothing here imports it; where it is needed, its sources are built: `{requirement}` in `[python] packages`"
    )
}

/// What a conda package is for an environment of Sconce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CondaMapping {
    /// A project of the Python package index.
    Python(String),
    /// A project of that index which others require, and hardly any person asks for.
    Dependency(String),
    /// NVIDIA's libraries, of which that index has a wheel for each major version of CUDA: the projects' names
    /// without their end `-cu12`.
    CudaWheels(&'static [&'static str]),
    /// A project that publishes its sources alone, in a repository.
    Sources(&'static SourceRepository),
    /// A Debian package.
    Debian(&'static str),
    /// What nothing but conda has, as far as is known.
    CondaAlone,
    /// Something that wheels bring, that every environment has, or that serves conda.
    Unneeded,
    /// A part of CUDA.
    Cuda,
    /// A compiler, or what only compiling needs.
    Compiler,
}

/// Where a project that has no wheels has its sources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceRepository {
    /// As conda and the project's own metadata have it.
    name: &'static str,
    /// Of the repository.
    address: &'static str,
    /// Tags that are not `v` and the version, as they stand in the repository.
    other_tags: &'static [&'static str],
}

impl SourceRepository {
    /// The requirement for a version, or for what the default branch has.
    pub(crate) fn requirement(&self, version: Option<&str>) -> String {
        let Self { name, address, .. } = self;
        let Some(version) = version else {
            return format!("{name} @ git+{address}");
        };
        let is_of_version = |tag: &&&str| tag.trim_start_matches(['v', 'V']) == version;
        match self.other_tags.iter().find(is_of_version) {
            Some(tag) => format!("{name} @ git+{address}@{tag}"),
            None => format!("{name} @ git+{address}@v{version}"),
        }
    }
}

/// What the projects' own instructions to install from sources name.
static SOURCES: [SourceRepository; 2] = [
    SourceRepository {
        name: "detectron2",
        address: "https://github.com/facebookresearch/detectron2",
        other_tags: &[],
    },
    SourceRepository {
        name: "pytorch3d",
        address: "https://github.com/facebookresearch/pytorch3d",
        other_tags: &["V0.7.8"],
    },
];

/// RAPIDS' libraries with wheels on the index.
const CUDA_WHEELS: &[&[&str]] = &[
    &["cucim"],
    &["cudf"],
    &["cugraph"],
    &["cuml"],
    &["cuvs"],
    &["cuxfilter"],
    &["dask-cudf"],
    &["nx-cugraph"],
    &["pylibcudf"],
    &["pylibcugraph"],
    &["pylibraft"],
    &["raft-dask"],
    &["rmm"],
];

/// What conda's package `rapids` brings.
const RAPIDS: &[&str] = &["cudf", "cugraph", "cuml"];

/// Programs and libraries with neither wheels nor sources that an environment builds, nor a Debian package.
const CONDA_ALONE: &[&str] = &[
    "ambertools",
    "cp2k",
    "cyipopt",
    "esmpy",
    "fenics",
    "fenics-dolfinx",
    "fpocket",
    "gdal",
    "gnina",
    "graph-tool",
    "ipopt",
    "kaldi",
    "montreal-forced-aligner",
    "openff-toolkit",
    "openmmforcefields",
    "pcl",
    "petsc4py",
    "psi4",
    "pykaldi",
    "pyrosetta",
    "pythonocc-core",
    "qmcpack",
    "root",
    "sagemath",
    "slepc4py",
    "smina",
];

/// Whether the Python package index is known to have a project of that name, normalised.
pub(crate) fn is_of_index(project: &str) -> bool {
    let library = project
        .rsplit_once("-cu")
        .map_or("", |(library, _)| library);
    SAME_NAMES.split(' ').any(|word| word == project)
        || CUDA_WHEELS.iter().any(|projects| projects[0] == library)
}

/// By its conda name.
pub(crate) fn find_mapping(name: &str) -> Option<CondaMapping> {
    let begins = |list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
    if begins(&[
        "_",
        "ld_impl_",
        "xorg-",
        "aws-c-",
        "libgcc",
        "libstdcxx",
        "m2w64-",
    ]) {
        return Some(CondaMapping::Unneeded);
    }
    if begins(&["gcc_", "gxx_", "binutils_", "sysroot_", "gfortran"]) {
        return Some(CondaMapping::Compiler);
    }
    let name = normalize_project_name(name)?;
    let name = name.as_str();
    let is_in = |table: &str| table.split(' ').any(|word| word == name);
    let other_name = |table: &'static str| {
        let mut pairs = table.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(conda, other)| (conda == name).then_some(other))
    };
    if name.starts_with("dgl-cuda") {
        return Some(CondaMapping::Python("dgl".to_owned()));
    }
    if is_in(SAME_NAMES) {
        return Some(CondaMapping::Python(name.to_owned()));
    }
    if is_in(DEPENDENCIES) {
        return Some(CondaMapping::Dependency(name.to_owned()));
    }
    if let Some(project) = other_name(RENAMED) {
        return Some(CondaMapping::Python(project.to_owned()));
    }
    if let Some(package) = other_name(DEBIAN) {
        return Some(CondaMapping::Debian(package));
    }
    if name == "rapids" {
        return Some(CondaMapping::CudaWheels(RAPIDS));
    }
    if let Some(projects) = CUDA_WHEELS.iter().find(|projects| projects[0] == name) {
        return Some(CondaMapping::CudaWheels(projects));
    }
    if let Some(source) = SOURCES.iter().find(|source| source.name == name) {
        return Some(CondaMapping::Sources(source));
    }
    if CONDA_ALONE.contains(&name) {
        return Some(CondaMapping::CondaAlone);
    }
    if is_in(PROVIDED) {
        return Some(CondaMapping::Unneeded);
    }
    if is_in(COMPILERS) {
        return Some(CondaMapping::Compiler);
    }
    let cuda = is_in(CUDA) || begins(&["cuda-", "libcu", "libnv", "libnpp"]);
    cuda.then_some(CondaMapping::Cuda)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn well_known_names() {
        let python = |name: &str| CondaMapping::Python(name.to_owned());
        for (conda, meaning) in [
            ("pytorch", python("torch")),
            ("opencv", python("opencv-python-headless")),
            ("matplotlib-base", python("matplotlib")),
            ("numpy", python("numpy")),
            ("pytorch-scatter", python("torch-scatter")),
            ("ray-default", python("ray[default]")),
            ("scikit_image", python("scikit-image")),
            ("typing_extensions", python("typing-extensions")),
            ("cuda-python", python("cuda-python")),
            (
                "jupyter_client",
                CondaMapping::Dependency("jupyter-client".to_owned()),
            ),
            ("ffmpeg", CondaMapping::Debian("ffmpeg")),
            ("blast", CondaMapping::Debian("ncbi-blast+")),
            ("cudf", CondaMapping::CudaWheels(&["cudf"])),
            ("psi4", CondaMapping::CondaAlone),
            ("pytorch-cuda", CondaMapping::Cuda),
            ("cuda-nvcc", CondaMapping::Cuda),
            ("libcublas-dev", CondaMapping::Cuda),
            ("gxx_linux-64", CondaMapping::Compiler),
            ("_libgcc_mutex", CondaMapping::Unneeded),
            ("libgcc-ng", CondaMapping::Unneeded),
            ("libcurl", CondaMapping::Unneeded),
            ("m2w64-gcc-libs", CondaMapping::Unneeded),
        ] {
            assert_eq!(find_mapping(conda), Some(meaning), "{conda}");
        }
        assert_eq!(find_mapping("nosuchpackage"), None);
    }

    #[test]
    fn a_version_is_a_tag_of_the_sources() {
        let Some(CondaMapping::Sources(pytorch3d)) = find_mapping("pytorch3d") else {
            panic!("it has sources");
        };
        for (version, end) in [
            (Some("0.7.4"), "/pytorch3d@v0.7.4"),
            (Some("0.7.8"), "/pytorch3d@V0.7.8"),
            (None, "/pytorch3d"),
        ] {
            let requirement = pytorch3d.requirement(version);
            assert!(
                requirement.starts_with("pytorch3d @ git+https://"),
                "{requirement}"
            );
            assert!(requirement.ends_with(end), "{requirement}");
        }
    }

    #[test]
    fn every_name_is_one_and_stands_once() {
        let normal = |name: &str| normalize_project_name(name).as_deref() == Some(name);
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for table in [
            SAME_NAMES,
            DEPENDENCIES,
            RENAMED,
            DEBIAN,
            CUDA,
            COMPILERS,
            PROVIDED,
        ] {
            for word in table.split(' ') {
                let (conda, other) = word.split_once('=').unwrap_or((word, ""));
                assert!(normal(conda), "{word}");
                assert!(known.insert(conda), "{word} stands twice");
                let allowed =
                    |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-+[]".contains(&b);
                assert!(other.bytes().all(allowed), "{word}");
            }
        }
        let alone = SOURCES.iter().map(|source| source.name);
        let wheels = CUDA_WHEELS.iter().map(|projects| projects[0]);
        for name in CONDA_ALONE.iter().copied().chain(alone).chain(wheels) {
            assert!(normal(name) && known.insert(name), "{name}");
        }
    }
}
