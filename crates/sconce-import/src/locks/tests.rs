//! What the locks of tools become: written by hand in the shape that each tool writes.

use sconce_formats::tags::CpuArchitecture;

use super::{LockSelection, PinnedLock, read_pinned_lock};
use crate::tests::format_notes;
use crate::{ImportError, ImportFormat, ImportedSpec, import_spec};

mod conda;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// `A` and `B` as digests.
fn with_digests(text: &str) -> String {
    text.replace("AAA", A).replace("BBB", B)
}

struct Case<'a> {
    format: ImportFormat,
    text: &'a str,
    project: Option<&'a str>,
}

impl Case<'_> {
    fn pins(&self, extras: &[&str], groups: &[&str]) -> PinnedLock {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let (extras, groups) = (owned(extras), owned(groups));
        let selection = LockSelection {
            extras: &extras,
            groups: &groups,
            machine: CpuArchitecture::X86_64,
        };
        let path = self.format.file_names()[0];
        let text = with_digests(self.text);
        let lock = read_pinned_lock(self.format, path, &text, &|p| self.beside(p), &selection);
        lock.unwrap_or_else(|error| panic!("{:?}: {error}", self.format))
    }

    fn lines(&self, extras: &[&str], groups: &[&str]) -> Vec<String> {
        let pins = self.pins(extras, groups).packages.into_iter();
        pins.map(|package| package.requirement).collect()
    }

    fn imported(&self) -> (ImportedSpec, String) {
        let path = self.format.file_names()[0];
        let text = with_digests(self.text);
        let imported = import_spec(self.format, path, &text, &|p| self.beside(p)).unwrap();
        let notes = format_notes(&imported);
        (imported, notes)
    }

    fn beside(&self, path: &str) -> Option<String> {
        (path == "pyproject.toml").then(|| self.project.map(str::to_owned))?
    }
}

/// In the shape that uv 0.7 writes, shortened.
const UV: Case<'_> = Case {
    format: ImportFormat::UvLock,
    project: None,
    text: r#"
version = 1
revision = 2
requires-python = ">=3.11, <3.14"
conflicts = [[{ package = "net", extra = "cpu" }, { package = "net", extra = "gpu" }]]

[[package]]
name = "net"
version = "0.1.0"
source = { editable = "." }
dependencies = [
    { name = "torch", version = "2.6.0", source = { registry = "https://builds.example.org/whl/cu124" }, marker = "sys_platform == 'linux'" },
    { name = "torch", version = "2.6.0", source = { registry = "https://index.example.org/simple" }, marker = "sys_platform != 'linux'" },
    { name = "ray", extra = ["tune"] },
    { name = "numpy" },
    { name = "pywin32", marker = "sys_platform == 'win32'" },
    { name = "odd", marker = "platform_release == '5'" },
    { name = "mine" },
    { name = "jax", marker = "extra == 'extra-3-net-cpu'" },
]

[package.optional-dependencies]
cpu = [{ name = "wandb" }]

[package.dev-dependencies]
dev = [{ name = "ruff" }]

[[package]]
name = "torch"
version = "2.6.0"
source = { registry = "https://builds.example.org/whl/cu124" }
dependencies = [{ name = "sympy" }]
wheels = [
    { url = "https://me:secret@builds.example.org/whl/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", hash = "sha256:AAA" },
    { url = "https://me:secret@builds.example.org/whl/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl", hash = "sha256:BBB" },
]

[[package]]
name = "torch"
version = "2.6.0"
source = { registry = "https://index.example.org/simple" }
wheels = [{ url = "https://index.example.org/torch-2.6.0-cp313-none-macosx_11_0_arm64.whl" }]

[[package]]
name = "numpy"
version = "1.26.4"
source = { registry = "https://index.example.org/simple" }
resolution-markers = ["python_full_version < '3.12'"]
sdist = { url = "https://index.example.org/numpy-1.26.4.tar.gz", hash = "sha256:BBB" }
wheels = [{ url = "https://index.example.org/numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl", hash = "sha256:AAA" }]

[[package]]
name = "numpy"
version = "2.2.1"
source = { registry = "https://index.example.org/simple" }
resolution-markers = ["python_full_version >= '3.12'"]
wheels = [{ url = "https://index.example.org/numpy-2.2.1-cp313-cp313-manylinux_2_17_x86_64.whl" }]

[[package]]
name = "sympy"
version = "1.13.1"
source = { registry = "https://index.example.org/simple" }

[[package]]
name = "ray"
version = "2.40.0"
source = { registry = "https://index.example.org/simple" }
[package.optional-dependencies]
tune = [{ name = "pandas" }]
serve = [{ name = "uvicorn" }]

[[package]]
name = "pandas"
version = "2.2.3"
source = { registry = "https://index.example.org/simple" }

[[package]]
name = "mine"
version = "0.1"
source = { git = "https://git.example.org/mine?subdirectory=a%2Fb&rev=v1#0123abc" }

[[package]]
name = "ruff"
version = "0.9"
source = { registry = "https://index.example.org/simple" }

[[package]]
name = "jax"
version = "0.5"
source = { registry = "https://index.example.org/simple" }

[[package]]
name = "wandb"
version = "0.19"
source = { registry = "https://index.example.org/simple" }
"#,
};

#[test]
fn uv_lock_is_what_the_root_needs() {
    let lines = UV.lines(&[], &[]);
    let torch = |tag: &str, digest: &str, python: &str| {
        format!(
            "torch @ https://builds.example.org/whl/torch-2.6.0%2Bcu124-{tag}-linux_x86_64.whl#sha256={digest} ; python_version {python}"
        )
    };
    let expected = [
        "mine @ git+https://git.example.org/mine@0123abc#subdirectory=a/b".to_owned(),
        "numpy==1.26.4 ; python_version < '3.12'".to_owned(),
        "numpy==2.2.1 ; python_version >= '3.12'".to_owned(),
        "pandas==2.2.3".to_owned(),
        "ray==2.40.0".to_owned(),
        "sympy==1.13.1".to_owned(),
        // Where the lock has no wheel, the index is to say so.
        torch("cp311-cp311", A, "< '3.12'"),
        torch("cp313-cp313", B, ">= '3.13'"),
        "torch==2.6.0 ; python_version == '3.12'".to_owned(),
    ];
    let mut sorted = lines.clone();
    sorted.sort();
    assert_eq!(sorted, expected);
    let pins = UV.pins(&[], &[]).packages;
    let numpy = pins
        .iter()
        .find(|p| p.requirement.starts_with("numpy==1"))
        .unwrap();
    let digests: Vec<&str> = numpy
        .files
        .iter()
        .map(|file| file.sha256.as_str())
        .collect();
    assert_eq!(digests, [A, B]);
    let more = UV.lines(&["cpu"], &["dev"]);
    for one in ["wandb==0.19", "ruff==0.9", "jax==0.5"] {
        assert!(
            more.contains(&one.to_owned()) && !lines.contains(&one.to_owned()),
            "{one}"
        );
    }
}

#[test]
fn uv_lock_is_referred_to() {
    let (imported, notes) = UV.imported();
    let python = &imported.spec.python;
    assert_eq!(python.lock.as_deref(), Some("uv.lock"));
    assert_eq!(python.editable, ["."]);
    assert!(python.packages.is_empty());
    assert_eq!(imported.spec.name.as_deref(), Some("net"));
    for expected in [
        "left out: the extra `cpu`: not asked for: `[python] extras` names what is wanted",
        "left out: the group `dev`",
        "decided: cpu, gpu: each excludes the others",
        "left out: odd ; platform_release == '5': whether",
        "decided: sympy: the lock has no SHA-256",
        "decided: uv.lock: it is referred to: `lock` takes the versions and files of it, 6 packages",
    ] {
        assert!(notes.contains(expected), "{expected}\n{notes}");
    }
    assert!(
        !notes.contains("secret") && !notes.contains("pywin32"),
        "{notes}"
    );
}

#[test]
fn names_that_a_lock_does_not_have_are_told() {
    let unknown = |extras: &[&str], groups: &[&str]| {
        let notes = UV.pins(extras, groups).notes.into_iter();
        let unknown = notes.filter(|note| note.why == super::NOTHING);
        unknown.map(|note| note.what).collect::<Vec<_>>()
    };
    assert_eq!(unknown(&["cpu"], &["dev"]), [""; 0]);
    assert_eq!(
        unknown(&["cpi"], &["docs"]),
        ["the extra `cpi`", "the group `docs`"]
    );
}

#[test]
fn uv_workspaces_and_scripts_have_roots_too() {
    let package = |name: &str, source: &str, needs: &str| {
        format!(
            "[[package]]\nname = \"{name}\"\nversion = \"1\"\nsource = {{ {source} }}\ndependencies = [{needs}]\n"
        )
    };
    let registry = "registry = \"https://i.example.org/simple\"";
    let rest = package("a", registry, "") + &package("b", registry, "");
    let workspace = format!(
        "version = 1\n[manifest]\nmembers = [\"x\", \"y\"]\n{}{}{rest}",
        package(
            "x",
            "editable = \"x\"",
            "{ name = \"a\" }, { name = \"y\" }"
        ),
        package("y", "editable = \"libs/y\"", "{ name = \"b\" }")
    );
    let case = |text| Case {
        format: ImportFormat::UvLock,
        text,
        project: None,
    };
    assert_eq!(case(&workspace).lines(&[], &[]), ["a==1", "b==1"]);
    assert_eq!(
        case(&workspace).imported().0.spec.python.editable,
        ["libs/y", "x"]
    );
    let script = format!(
        "version = 1\n[manifest]\nrequirements = [{{ name = \"b\", specifier = \">=1\" }}]\n{rest}"
    );
    assert_eq!(case(&script).lines(&[], &[]), ["b==1"]);
}

const POETRY_PROJECT: &str = r#"
[build-system]
requires = []
[tool.poetry]
name = "net"
[tool.poetry.dependencies]
python = "^3.10"
torch = [
    { version = "^2.6", python = ">=3.12" },
    { version = "~2.4", python = "<3.12" },
]
ray = { version = "2.*", extras = ["tune"] }
wandb = { version = "*", optional = true }
[tool.poetry.extras]
log = ["wandb"]
[tool.poetry.group.dev.dependencies]
ruff = "*"
"#;

/// As Poetry 1.8 writes it, but that `numpy` has its files where 1.1 had them.
const POETRY: Case<'_> = Case {
    format: ImportFormat::PoetryLock,
    project: Some(POETRY_PROJECT),
    text: r#"
[[package]]
name = "torch"
version = "2.4.1"
optional = false
python-versions = ">=3.8"
files = [{ file = "torch-2.4.1-cp311-cp311-manylinux1_x86_64.whl", hash = "sha256:AAA" }]
[package.dependencies]
numpy = { version = ">=1", markers = "platform_system == \"Linux\"" }
colorama = { version = "*", markers = "platform_system == \"Windows\"" }
[package.extras]
opt = ["pandas (>=1)"]

[[package]]
name = "torch"
version = "2.6.0"
optional = false
python-versions = ">=3.9"

[[package]]
name = "numpy"
version = "1.26.4"
optional = false
python-versions = ">=3.9"

[[package]]
name = "ray"
version = "2.40.0"
optional = false
python-versions = ">=3.9"
[package.dependencies]
pandas = { version = "*", optional = true }
[package.extras]
tune = ["pandas (>=1) ; sys_platform == \"linux\""]
[package.source]
type = "legacy"
url = "https://me:pw@more.example.org/simple"
reference = "more"

[[package]]
name = "pandas"
version = "2.2.3"
optional = true
python-versions = ">=3.9"

[[package]]
name = "wandb"
version = "0.19"
optional = true
python-versions = ">=3.9"

[[package]]
name = "ruff"
version = "0.9"
optional = false
python-versions = ">=3.9"

[extras]
log = ["wandb"]

[metadata]
lock-version = "2.0"
python-versions = "^3.10"

[metadata.files]
numpy = [{ file = "numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl", hash = "sha256:BBB" }]
"#,
};

#[test]
fn poetry_lock_of_1_has_what_pyproject_asks_for() {
    let lines = POETRY.lines(&[], &[]);
    assert_eq!(
        lines,
        [
            // Only the older torch needs it.
            "numpy==1.26.4 ; python_version < '3.12'",
            "pandas==2.2.3",
            "ray==2.40.0",
            "torch==2.4.1 ; python_version < '3.12'",
            "torch==2.6.0 ; python_version >= '3.12'",
        ]
    );
    let more = POETRY.lines(&["log"], &["dev"]);
    assert!(more.contains(&"wandb==0.19".to_owned()) && more.contains(&"ruff==0.9".to_owned()));
    let pins = POETRY.pins(&[], &[]);
    assert_eq!(pins.packages[0].files[0].sha256, B);
    assert_eq!(pins.requires_python.as_deref(), Some(">=3.10,<4"));
    let (imported, notes) = POETRY.imported();
    assert_eq!(
        imported.spec.python.extra_index,
        ["https://more.example.org/simple"]
    );
    assert_eq!(imported.spec.python.editable, ["."]);
    assert!(notes.contains("left out: the group `dev`"), "{notes}");
    let alone = Case {
        project: None,
        ..POETRY
    };
    assert!(alone.lines(&[], &[]).contains(&"ruff==0.9".to_owned()));
    assert!(
        alone
            .imported()
            .1
            .contains("decided: pyproject.toml: it is not there")
    );
}

#[test]
fn poetry_lock_of_2_says_itself_what_is_wanted() {
    let case = Case {
        format: ImportFormat::PoetryLock,
        project: None,
        text: r#"
[[package]]
name = "numpy"
version = "2.2.1"
optional = false
python-versions = ">=3.10"
groups = ["main", "dev"]
markers = { main = "python_version >= \"3.11\"", dev = "python_version >= \"3.10\"" }
files = [{ file = "numpy-2.2.1-cp313-cp313-manylinux_2_17_x86_64.whl", hash = "sha256:AAA" }]

[[package]]
name = "wandb"
version = "0.19"
optional = true
python-versions = ">=3.9"
groups = ["main"]
markers = "extra == \"log\""

[[package]]
name = "ruff"
version = "0.9"
optional = false
python-versions = ">=3.9"
groups = ["dev"]

[[package]]
name = "core"
version = "2.0"
optional = false
python-versions = ">=3.9"
groups = ["main"]
[package.source]
type = "git"
url = "https://git.example.org/core.git"
reference = "HEAD"
resolved_reference = "0123abc"

[extras]
log = ["wandb"]

[metadata]
lock-version = "2.1"
python-versions = ">=3.10,<4.0"
"#,
    };
    let git = "core @ git+https://git.example.org/core.git@0123abc";
    assert_eq!(
        case.lines(&[], &[]),
        [git, "numpy==2.2.1 ; python_version >= '3.11'"]
    );
    assert_eq!(
        case.lines(&["log"], &["dev"]),
        [git, "numpy==2.2.1", "ruff==0.9", "wandb==0.19"]
    );
}

#[test]
fn pdm_lock_has_groups_or_is_followed() {
    let text = r#"
[metadata]
groups = ["default", "dev", "log"]
strategy = ["inherit_metadata"]
lock_version = "4.5.0"
[[metadata.targets]]
requires_python = ">=3.9"

[[package]]
name = "numpy"
version = "2.2.1"
requires_python = ">=3.10"
groups = ["default"]
files = [{ file = "numpy-2.2.1-cp313-cp313-manylinux_2_17_x86_64.whl", hash = "sha256:AAA" }]

[[package]]
name = "ray"
version = "2.40.0"
groups = ["default"]
marker = "sys_platform == \"linux\""
dependencies = ["numpy>=1"]

[[package]]
name = "ray"
version = "2.40.0"
extras = ["tune"]
groups = ["default"]
dependencies = ["ray==2.40.0", "pandas"]

[[package]]
name = "pandas"
version = "2.2.3"
groups = ["default", "log"]

[[package]]
name = "pywin32"
version = "1"
groups = ["default"]
marker = "sys_platform == \"win32\""

[[package]]
name = "ruff"
version = "0.9"
groups = ["dev"]
"#;
    let project = "[project]\ndependencies = [\"ray[tune]>=2\"]\n[tool.pdm.dev-dependencies]\ndev = [\"ruff\"]\n";
    let case = |text| Case {
        format: ImportFormat::PdmLock,
        text,
        project: Some(project),
    };
    let expected = [
        "numpy==2.2.1 ; python_version >= '3.10'",
        "pandas==2.2.3",
        "ray==2.40.0",
    ];
    assert_eq!(case(text).lines(&[], &[]), expected);
    assert_eq!(case(text).lines(&[], &["dev"])[3], "ruff==0.9");
    let (_, notes) = case(text).imported();
    assert!(notes.contains("left out: the groups "), "{notes}");
    // As before 4.4: no groups.
    let older: String = text
        .lines()
        .filter(|line| !line.starts_with("groups = [\"d") || line.contains("\"log\"]\nst"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(case(&older).lines(&[], &[]), expected);
    assert_eq!(case(&older).lines(&[], &["dev"])[3], "ruff==0.9");
}

#[test]
fn pipfile_lock_has_sections() {
    let case = Case {
        format: ImportFormat::PipfileLock,
        project: None,
        text: r#"{
    "_meta": {
        "hash": {"sha256": "00"},
        "pipfile-spec": 6,
        "requires": {"python_version": "3.11"},
        "sources": [
            {"name": "pypi", "url": "https://index.example.org/simple", "verify_ssl": true},
            {"name": "torch", "url": "https://builds.example.org/whl/cu124", "verify_ssl": true},
            {"name": "other", "url": "https://other.example.org/simple", "verify_ssl": true}
        ]
    },
    "default": {
        "torch": {"hashes": ["sha256:AAA", "sha256:BBB"], "index": "torch", "version": "==2.6.0+cu124"},
        "numpy": {"hashes": ["sha256:AAA"], "markers": "python_version >= '3.10'", "version": "==2.2.1"},
        "lib": {"git": "https://git.example.org/lib.git", "ref": "0123abc"},
        "net": {"editable": true, "path": "."}
    },
    "develop": {"ruff": {"hashes": ["sha256:BBB"], "version": "==0.9"}}
}"#,
    };
    let expected = [
        "lib @ git+https://git.example.org/lib.git@0123abc",
        "numpy==2.2.1 ; python_version >= '3.10'",
        "torch==2.6.0+cu124",
    ];
    assert_eq!(case.lines(&[], &[]), expected);
    assert!(case.lines(&[], &["dev"]).contains(&"ruff==0.9".to_owned()));
    let (imported, notes) = case.imported();
    let python = &imported.spec.python;
    assert_eq!(python.version.as_deref(), Some("3.11"));
    assert_eq!(python.extra_index, ["https://builds.example.org/whl/cu124"]);
    assert_eq!(python.editable, ["."]);
    assert!(notes.contains("left out: the group `develop`"), "{notes}");
}

#[test]
fn pylock_has_markers() {
    let case = Case {
        format: ImportFormat::Pylock,
        project: None,
        text: r#"
lock-version = "1.0"
requires-python = ">=3.10"
extras = ["gpu"]
dependency-groups = ["dev", "base"]
default-groups = ["base"]
created-by = "by hand"

[[packages]]
name = "numpy"
version = "2.2.1"
marker = "python_full_version >= '3.11'"
index = "https://index.example.org/simple"
wheels = [{ name = "numpy-2.2.1-cp313-cp313-manylinux_2_17_x86_64.whl", url = "https://files.example.org/numpy-2.2.1-cp313-cp313-manylinux_2_17_x86_64.whl", hashes = { sha256 = "AAA" } }]

[[packages]]
name = "sympy"
version = "1.13"
sdist = { url = "https://files.example.org/sympy-1.13.tar.gz", hashes = { sha256 = "BBB" } }

[[packages]]
name = "torch"
version = "2.6.0"
marker = "'gpu' in extras"
wheels = [{ url = "https://builds.example.org/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl", hashes = { sha256 = "BBB" } }]

[[packages]]
name = "ruff"
version = "0.9"
marker = "'dev' in dependency_groups"

[[packages]]
name = "basis"
version = "1"
marker = "'base' in dependency_groups"

[[packages]]
name = "core"
vcs = { type = "git", url = "https://git.example.org/core", commit-id = "0123abc", subdirectory = "py" }

[[packages]]
name = "net"
directory = { path = ".", editable = true }

[[packages]]
name = "file"
archive = { path = "file-1.tar.gz", hashes = { sha256 = "AAA" } }
"#,
    };
    let expected = [
        "basis==1",
        "core @ git+https://git.example.org/core@0123abc#subdirectory=py",
        "numpy==2.2.1 ; python_version >= '3.11'",
        "sympy==1.13",
    ];
    assert_eq!(case.lines(&[], &[]), expected);
    let more = case.lines(&["gpu"], &["dev"]);
    assert!(more.contains(&"ruff==0.9".to_owned()));
    let torch = "torch @ https://builds.example.org/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl#sha256=";
    assert!(more.iter().any(|line| line.starts_with(torch)), "{more:?}");
    let (imported, notes) = case.imported();
    assert_eq!(imported.spec.python.editable, ["."]);
    for expected in [
        "left out: the extra `gpu`",
        "left out: the group `dev`",
        "left out: file: a file that lies",
    ] {
        assert!(notes.contains(expected), "{expected}\n{notes}");
    }
    assert_eq!(
        ImportFormat::from_file_name("pylock.gpu.toml"),
        Some(ImportFormat::Pylock)
    );
}

#[test]
fn what_is_no_lock_is_refused() {
    let read = |format: ImportFormat, text: &str| import_spec(format, "x", text, &|_| None);
    for (format, text, found) in [
        (ImportFormat::UvLock, "version = 2\n", 2),
        (ImportFormat::Pylock, "lock-version = \"3.0\"\n", 3),
        (
            ImportFormat::PoetryLock,
            "[metadata]\nlock-version = \"3.0\"\n",
            3,
        ),
        (
            ImportFormat::PdmLock,
            "[metadata]\nlock_version = \"5.0\"\n",
            5,
        ),
        (
            ImportFormat::PipfileLock,
            "{\"_meta\": {\"pipfile-spec\": 5}}",
            5,
        ),
        (ImportFormat::PixiLock, "version: 3\n", 3),
        (ImportFormat::CondaLock, "version: 2\npackage: []\n", 2),
    ] {
        match read(format, text) {
            Err(ImportError::LockVersion { found: told, .. }) => assert_eq!(told, found),
            other => panic!("{format:?}: {other:?}"),
        }
    }
    for (format, text) in [
        (ImportFormat::UvLock, "version = 1\n"),
        (ImportFormat::Pylock, "lock-version = \"1.0\"\n"),
        (ImportFormat::PoetryLock, "package = []\n"),
        (
            ImportFormat::PixiLock,
            "version: 6\nenvironments:\n  default: {}\n",
        ),
    ] {
        let error = read(format, text).unwrap_err();
        assert!(
            matches!(error, ImportError::Nothing { .. }),
            "{format:?}: {error}"
        );
    }
    assert!(matches!(
        read(ImportFormat::UvLock, "version = 1\nx"),
        Err(ImportError::Toml { line: 2, .. })
    ));
    assert!(matches!(
        read(ImportFormat::PipfileLock, "{\n\"a\": [}"),
        Err(ImportError::Json { line: 2, .. })
    ));
    let deep = "[".repeat(100_000);
    assert!(read(ImportFormat::PipfileLock, &deep).is_err());
    // Names itself, and what is not there.
    let text = "version = 1\n[[package]]\nname = \"a\"\nversion = \"1\"\nsource = { editable = \".\" }\n\
         dependencies = [{ name = \"a\" }, { name = \"gone\" }]\n";
    let notes = format_notes(&read(ImportFormat::UvLock, text).unwrap());
    assert!(
        notes.contains("decided: gone: the lock does not have it: it is resolved beside it"),
        "{notes}"
    );
}

#[test]
fn files_that_disagree_are_found() {
    let taken = with_digests(UV.text);
    let freeze = "numpy==1.25.0\nsympy==1.13.1+local\nRay==2.39.0\nother==1\npandas>=1\n";
    let found = crate::find_version_differences(
        (ImportFormat::UvLock, "uv.lock", &taken),
        (ImportFormat::Requirements, "requirements.txt", freeze),
        &|_| None,
    );
    let note = crate::describe_differences("uv.lock", "requirements.txt", &found).unwrap();
    assert_eq!(note.what, "requirements.txt");
    assert_eq!(
        note.why,
        "uv.lock is taken, whose versions differ: numpy 1.26.4 or 2.2.1 (1.25.0), ray 2.40.0 (2.39.0)"
    );
    assert_eq!(crate::describe_differences("a", "b", &[]), None);
    let found: Vec<(&str, String, String)> = found
        .iter()
        .map(|one| (one.name.as_str(), one.taken.join(" "), one.other.join(" ")))
        .collect();
    assert_eq!(
        found,
        [
            ("numpy", "1.26.4 2.2.1".to_owned(), "1.25.0".to_owned()),
            ("ray", "2.40.0".to_owned(), "2.39.0".to_owned()),
        ]
    );
}
