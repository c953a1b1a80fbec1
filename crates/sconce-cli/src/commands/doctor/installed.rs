//! The Python, torch and compilers that a shell of this user finds. They are read from names and
//! small files; nothing is run, as a broken one may hang.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sconce_base::Env;
use sconce_compat::rules::TorchBackend;
use serde::Serialize;

use super::pyenv::PyenvSelector;
use crate::output;

/// Entries of a folder that are looked at.
const MAX_DIR_ENTRIES: usize = 20_000;
/// A larger file is none of those that are read here.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// What is found on the `PATH` and by the variables of activated environments.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct InstalledTools {
    /// The first on the `PATH`, or an activated environment's.
    python: Option<Python>,
    /// Compilers and build tools by name; their versions where a name or a file says them.
    tools: BTreeMap<&'static str, Tool>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Python {
    path: PathBuf,
    version: Option<String>,
    /// The variable that activated it.
    active: Option<&'static str>,
    /// The folder that holds `bin` and `lib`.
    prefix: Option<PathBuf>,
    /// Packages that matter for training, and their versions.
    packages: BTreeMap<String, String>,
    /// The same of what conda installed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    conda: BTreeMap<String, String>,
    /// What its torch was built for: `CUDA 13.2`, `CPUs`, `ROCm`.
    torch_for: Option<String>,
    /// What its torch says of itself: `debug`, `cuda`, `hip`, `rocm`, `xpu`, `git_version`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    torch_says: BTreeMap<String, String>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Tool {
    path: PathBuf,
    version: Option<String>,
}

/// Where to look.
#[derive(Debug, Default)]
struct Shell {
    /// `PATH`.
    path: Vec<PathBuf>,
    /// Folders of activated environments with the variables that name them, the strongest first.
    active: Vec<(&'static str, PathBuf)>,
    /// Folders of CUDA toolkits beside the `PATH`.
    toolkits: Vec<PathBuf>,
    /// What pyenv's shims obey.
    pyenv: PyenvSelector,
}

impl InstalledTools {
    /// As this process's variables lead to it.
    pub(super) fn detect_from_env(env: &Env) -> Self {
        let named = |name| env.path_var(name);
        let active = ["VIRTUAL_ENV", "CONDA_PREFIX"];
        let active = active
            .into_iter()
            .filter_map(|name| Some((name, named(name)?)));
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(named);
        Self::of(&Shell {
            path: env.search_path(),
            active: active.collect(),
            toolkits: toolkits.chain(["/usr/local/cuda".into()]).collect(),
            pyenv: PyenvSelector {
                variable: (env.var("PYENV_VERSION"))
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned),
                folder: std::env::current_dir().ok(),
            },
        })
    }

    fn of(shell: &Shell) -> Self {
        let tool = |name: &'static str| {
            let path = first(&shell.path, name).or_else(|| match name {
                "nvcc" => first(
                    &shell
                        .toolkits
                        .iter()
                        .map(|it| it.join("bin"))
                        .collect::<Vec<_>>(),
                    name,
                ),
                _ => None,
            })?;
            let version = match name {
                "nvcc" => toolkit_version(&path),
                "cmake" => cmake_version(&path),
                _ => version_in_name(&path),
            };
            Some((name, Tool { path, version }))
        };
        let names = ["nvcc", "gcc", "g++", "clang", "cmake", "ninja"];
        Self {
            python: Python::of(shell),
            tools: names.into_iter().filter_map(tool).collect(),
        }
    }

    /// Lines for people; whether they say how to have the environment judged.
    pub(super) fn summary_lines(&self, offer: bool) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        match &self.python {
            None => lines.push(("python", "none on the PATH".to_owned())),
            Some(python) => lines.extend(python.lines(offer)),
        }
        let shown = |(name, tool): (&&str, &Tool)| match (&tool.version, *name) {
            (Some(version), "nvcc") => {
                format!("nvcc {version} ({})", output::format_path(&tool.path))
            }
            (Some(version), name) => format!("{name} {version}"),
            (None, name) => (*name).to_owned(),
        };
        let tools: Vec<String> = self.tools.iter().map(shown).collect();
        lines.push((
            "compilers",
            match tools.is_empty() {
                true => "none".to_owned(),
                false => tools.join(", "),
            },
        ));
        lines
    }
}

impl Python {
    fn of(shell: &Shell) -> Option<Self> {
        let bins = |(name, prefix): &(&'static str, PathBuf)| {
            let path = first(&[prefix.join("bin")], "python")?;
            Some((Some(*name), path))
        };
        let on_path = || {
            let found = ["python3", "python"]
                .iter()
                .find_map(|name| first(&shell.path, name));
            found.map(|path| (None, path))
        };
        let (active, path) = shell.active.iter().find_map(bins).or_else(on_path)?;
        let path = shell.pyenv.resolve_shim(&path).unwrap_or(path);
        let prefix = prefix(&path);
        let version = prefix
            .as_deref()
            .and_then(|prefix| python_version(prefix, &path));
        let mut python = Self {
            version,
            active,
            ..Self::default()
        };
        for site in prefix.iter().flat_map(|prefix| sites(prefix)) {
            python.look(&site);
        }
        python.conda = prefix.as_deref().map(conda).unwrap_or_default();
        Some(Self {
            path,
            prefix,
            ..python
        })
    }

    /// Notes what matters of a folder of packages.
    fn look(&mut self, site: &Path) {
        for name in list_dir_names(site) {
            let Some((name, version)) = name
                .strip_suffix(".dist-info")
                .and_then(|name| name.rsplit_once('-'))
            else {
                continue;
            };
            let name = name.to_ascii_lowercase().replace('_', "-");
            if tells(&name) {
                self.packages
                    .entry(name)
                    .or_insert_with(|| version.to_owned());
            }
        }
        if self.torch_for.is_none() {
            let text = read_small_file(&site.join("torch/version.py"));
            let build = text.as_deref().and_then(TorchBackend::of_version_py);
            self.torch_says = text.as_deref().map(said).unwrap_or_default();
            self.torch_for = build.map(|build| match build {
                TorchBackend::Cpu => "CPUs".to_owned(),
                TorchBackend::Rocm => "ROCm".to_owned(),
                TorchBackend::Xpu => "Intel cards".to_owned(),
                TorchBackend::Cuda(cuda) => format!("CUDA {cuda}"),
            });
        }
    }

    fn lines(&self, offer: bool) -> Vec<(&'static str, String)> {
        let version = self.version.as_deref().unwrap_or("version unknown");
        let active = self
            .active
            .map_or(String::new(), |name| format!(", active by {name}"));
        let mut lines = vec![(
            "python",
            format!("{version}, {}{active}", output::format_path(&self.path)),
        )];
        let shown = |name: &str| {
            let version = self.packages.get(name)?;
            Some(match (name, &self.torch_for) {
                ("torch", Some(what)) => format!("torch {version} for {what}"),
                _ => format!("{name} {version}"),
            })
        };
        let names = ["torch", "torchvision", "torchaudio", "triton", "numpy"];
        let packages: Vec<String> = names.into_iter().filter_map(shown).collect();
        let prefix = self.prefix.as_deref().unwrap_or(Path::new(""));
        let text = match (packages.is_empty(), &self.version) {
            // A script that chooses among several, such as pyenv's.
            (true, None) => "where its packages lie is not known".to_owned(),
            (true, Some(_)) => "no torch in it".to_owned(),
            (false, _) => packages.join(", "),
        };
        lines.push(("", text));
        if offer && self.packages.contains_key("torch") {
            lines.push((
                "",
                format!(
                    "`sconce doctor {}` judges it too",
                    output::format_path(prefix)
                ),
            ));
        }
        lines
    }
}

/// Whether a package tells something about a training that fails: PyTorch's own and what is built for
/// it, what it computes with, and the checkers that bug reports of PyTorch name.
fn tells(name: &str) -> bool {
    const PARTS: [&str; 22] = [
        "accelerate",
        "apex",
        "bitsandbytes",
        "cuda",
        "cupy",
        "deepspeed",
        "flake8",
        "flash-attn",
        "flash-linear",
        "jax",
        "lightning",
        "mypy",
        "numpy",
        "onnx",
        "optree",
        "tensorflow",
        "torch",
        "transformer",
        "triton",
        "tvm",
        "vllm",
        "xformers",
    ];
    const BEGIN: [&str; 13] = [
        "cudnn", "dpcpp", "impi", "intel-", "libcu", "libnv", "magma", "mkl", "nccl", "nvidia-",
        "oneccl", "onemkl", "tbb",
    ];
    PARTS.iter().any(|part| name.contains(part))
        || BEGIN.iter().any(|begin| name.starts_with(begin))
}

/// What conda installed below a prefix: `conda-meta/NAME-VERSION-BUILD.json`.
fn conda(prefix: &Path) -> BTreeMap<String, String> {
    let names = list_dir_names(&prefix.join("conda-meta")).into_iter();
    let package = |name: String| {
        let mut parts = name.strip_suffix(".json")?.rsplitn(3, '-').skip(1);
        let (version, name) = (parts.next()?, parts.next()?);
        tells(name).then(|| (name.to_owned(), version.to_owned()))
    };
    names.filter_map(package).collect()
}

/// What a `torch/version.py` says; `None` is left out.
fn said(text: &str) -> BTreeMap<String, String> {
    let names = ["debug", "cuda", "hip", "rocm", "xpu", "git_version"];
    let line = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = name.split(':').next()?.trim();
        let value = value.trim().trim_matches(['\'', '"']);
        let is_said = names.contains(&name) && value != "None";
        is_said.then(|| (name.to_owned(), value.chars().take(80).collect()))
    };
    text.lines().filter_map(line).collect()
}

/// The first file of a name in some folders.
fn first(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    let absolute = folders.iter().filter(|folder| folder.is_absolute());
    absolute
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The folder that an interpreter's `lib` lies in: a virtual environment's own, else where its links
/// lead.
fn prefix(python: &Path) -> Option<PathBuf> {
    let above = |path: &Path| path.parent()?.parent().map(Path::to_owned);
    let own = above(python)?;
    if own.join("pyvenv.cfg").is_file() || own.join("conda-meta").is_dir() {
        return Some(own);
    }
    above(&python.canonicalize().ok()?)
}

/// As `pyvenv.cfg` says it, or else the file's name, or the only `lib/python3.x`.
fn python_version(prefix: &Path, python: &Path) -> Option<String> {
    let config = read_small_file(&prefix.join("pyvenv.cfg")).unwrap_or_default();
    let said = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        // virtualenv writes `version_info = 3.13.1.final.0`, and uv too.
        let value = value.trim().split(".final").next()?;
        matches!(key.trim(), "version" | "version_info").then(|| value.to_owned())
    });
    let named = || {
        let real = python.canonicalize().ok()?;
        let name = real
            .file_name()?
            .to_str()?
            .strip_prefix("python")?
            .to_owned();
        name.contains('.').then_some(name)
    };
    let folder = || {
        let mut names = list_dir_names(&prefix.join("lib")).into_iter();
        let found = names.find_map(|name| name.strip_prefix("python").map(str::to_owned))?;
        found.contains('.').then_some(found)
    };
    said.or_else(named).or_else(folder)
}

/// Folders of packages below a prefix, Debian's too.
fn sites(prefix: &Path) -> Vec<PathBuf> {
    let mut sites = Vec::new();
    for folder in ["lib", "lib64", "local/lib"] {
        let folder = prefix.join(folder);
        for name in list_dir_names(&folder) {
            if name.starts_with("python3") {
                let packages = ["site-packages", "dist-packages"];
                sites.extend(packages.map(|last| folder.join(&name).join(last)));
            }
        }
    }
    sites
}

/// `gcc-12` or `x86_64-linux-gnu-g++-12` that a link leads to is of version 12.
fn version_in_name(path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let (_, version) = real.file_name()?.to_str()?.rsplit_once('-')?;
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

/// As the folder `share/cmake-3.25` beside its `bin` has it.
fn cmake_version(cmake: &Path) -> Option<String> {
    let real = cmake.canonicalize().ok()?;
    let names = list_dir_names(&real.parent()?.parent()?.join("share")).into_iter();
    let mut versions = names.filter_map(|name| name.strip_prefix("cmake-").map(str::to_owned));
    versions.find(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// A CUDA toolkit's `version.json` beside its `bin`.
fn toolkit_version(nvcc: &Path) -> Option<String> {
    let real = nvcc.canonicalize().ok()?;
    let text = read_small_file(&real.parent()?.parent()?.join("version.json"))?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    let version = json.get("cuda_nvcc").or_else(|| json.get("cuda"))?;
    version.get("version")?.as_str().map(str::to_owned)
}

/// Names in a folder, sorted; none where it cannot be read.
pub(super) fn list_dir_names(folder: &Path) -> Vec<String> {
    let Ok(read) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = read.take(MAX_DIR_ENTRIES).flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// A small file's text.
pub(super) fn read_small_file(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    (metadata.is_file() && metadata.len() <= MAX_FILE_BYTES)
        .then(|| fs::read_to_string(path).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn an_active_environment_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (venv, usr) = (root.join("venv"), root.join("usr"));
        write(&usr.join("bin/python3.12"), "");
        write(&usr.join("bin/x86_64-linux-gnu-gcc-12"), "");
        symlink("x86_64-linux-gnu-gcc-12", usr.join("bin/gcc")).unwrap();
        symlink("python3.12", usr.join("bin/python3")).unwrap();
        write(
            &venv.join("pyvenv.cfg"),
            "home = /usr/bin\nversion_info = 3.12.3.final.0\n",
        );
        fs::create_dir_all(venv.join("bin")).unwrap();
        symlink(usr.join("bin/python3"), venv.join("bin/python")).unwrap();
        let site = venv.join("lib/python3.12/site-packages");
        for name in [
            "torch-2.8.0+cu128.dist-info",
            "Triton-3.4.0.dist-info",
            "six-1.0.dist-info",
            "onnxruntime_gpu-1.26.0.dist-info",
        ] {
            fs::create_dir_all(site.join(name)).unwrap();
        }
        write(
            &site.join("torch/version.py"),
            "debug = False\ncuda: Optional[str] = '12.8'\nhip = None\n",
        );
        write(&venv.join("conda-meta/cuda-nvcc-12.4.131-0.json"), "");
        write(&venv.join("conda-meta/zlib-1.3-h0.json"), "");
        write(&venv.join("conda-meta/history"), "");
        write(&usr.join("bin/cmake"), "");
        fs::create_dir_all(usr.join("share/cmake-3.25")).unwrap();
        write(&root.join("cuda/bin/nvcc"), "");
        write(
            &root.join("cuda/version.json"),
            r#"{"cuda_nvcc": {"version": "12.4.131"}}"#,
        );
        let shell = Shell {
            path: vec!["relative".into(), usr.join("bin")],
            active: vec![("VIRTUAL_ENV", venv.clone())],
            toolkits: vec![root.join("nowhere"), root.join("cuda")],
            pyenv: PyenvSelector::default(),
        };
        let shown = |installed: &InstalledTools| {
            let lines = installed.summary_lines(true).into_iter();
            let lines = lines.map(|(name, text)| format!("{name}: {text}"));
            lines
                .collect::<Vec<_>>()
                .join("\n")
                .replace(root.to_str().unwrap(), "")
        };
        assert_eq!(
            shown(&InstalledTools::of(&shell)),
            "python: 3.12.3, /venv/bin/python, active by VIRTUAL_ENV\n\
             : torch 2.8.0+cu128 for CUDA 12.8, triton 3.4.0\n\
             : `sconce doctor /venv` judges it too\n\
             compilers: cmake 3.25, gcc 12, nvcc 12.4.131 (/cuda/bin/nvcc)"
        );
        let python = InstalledTools::of(&shell).python.unwrap();
        let told = |all: &BTreeMap<String, String>| -> Vec<String> {
            all.iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect()
        };
        assert_eq!(
            told(&python.packages),
            [
                "onnxruntime-gpu 1.26.0",
                "torch 2.8.0+cu128",
                "triton 3.4.0"
            ]
        );
        assert_eq!(told(&python.conda), ["cuda-nvcc 12.4.131"]);
        assert_eq!(told(&python.torch_says), ["cuda 12.8", "debug False"]);
        let shell = Shell {
            active: Vec::new(),
            toolkits: Vec::new(),
            ..shell
        };
        assert_eq!(
            shown(&InstalledTools::of(&shell)),
            "python: 3.12, /usr/bin/python3\n: no torch in it\ncompilers: cmake 3.25, gcc 12"
        );
        assert_eq!(
            shown(&InstalledTools::of(&Shell::default())),
            "python: none on the PATH\ncompilers: none"
        );
    }

    #[test]
    fn what_is_no_environment_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        write(&root.join("bin/python"), "");
        write(&root.join("bin/nvcc"), "");
        write(&root.join("version.json"), "[[[");
        write(&root.join("pyvenv.cfg"), "version\n=\n");
        // Large, and a folder where a file should be.
        let site = root.join("lib/python3.9/site-packages");
        fs::create_dir_all(site.join("torch/version.py")).unwrap();
        write(
            &root.join("lib64/python3.9/site-packages/torch/version.py"),
            &" ".repeat(1 << 17),
        );
        fs::create_dir_all(site.join("-.dist-info")).unwrap();
        let shell = Shell {
            path: vec![root.join("bin")],
            ..Shell::default()
        };
        let found = InstalledTools::of(&shell);
        assert_eq!(found.tools["nvcc"].version, None);
        let python = found.python.unwrap();
        assert_eq!(python.version.as_deref(), Some("3.9"));
        assert!(python.packages.is_empty() && python.torch_for.is_none());
    }

    #[test]
    fn json_is_as_before() {
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let python = Python {
            path: "/venv/bin/python".into(),
            version: Some("3.13".to_owned()),
            active: Some("VIRTUAL_ENV"),
            prefix: Some("/venv".into()),
            packages: one("torch", "2.8.0"),
            conda: one("cudatoolkit", "11.8"),
            torch_for: Some("CUDA 12.6".to_owned()),
            torch_says: one("cuda", "12.6"),
        };
        let tool = Tool {
            path: "/usr/bin/gcc".into(),
            version: Some("12".to_owned()),
        };
        let installed = InstalledTools {
            python: Some(python),
            tools: BTreeMap::from([("gcc", tool)]),
        };
        crate::golden::goldens().assert_values("installed.json", &[&installed]);
    }
}
