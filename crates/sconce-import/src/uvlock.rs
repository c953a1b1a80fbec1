//! `uv.lock`: the exact versions of what the project's root needs on Linux x86_64.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Table;

use super::draft::Draft;
use super::marker::evaluate_marker;
use super::pyproject::{EDITABLE, why_not_editable};
use super::release::{BaseRelease, RELEASES};
use super::requirement::{self, PROJECT, SOURCES};
use super::specifier::evaluate_specifiers;
use super::{ImportError, ImportedSpec, SiblingFiles, inside};
use sconce_base::text::without_credentials;
use sconce_formats::tags::{CpuArchitecture, WheelName, WheelTarget};

const OWN_SOURCES: &str = "it is not installed, as [tool.uv.sources] would name packages of the lock once \
     more, but is /workspace inside; for a src/ layout, set PYTHONPATH = \"/workspace/src\" in [run.env]";

/// The version of the format that is read.
const VERSION: i64 = 1;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Lock {
    version: i64,
    requires_python: Option<String>,
    #[serde(default)]
    manifest: UvManifest,
    #[serde(default)]
    package: Vec<Package>,
}

#[derive(Default, Deserialize)]
struct UvManifest {
    #[serde(default)]
    members: Vec<String>,
    /// Of a script's lock.
    #[serde(default)]
    requirements: Vec<Need>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Package {
    name: String,
    version: Option<String>,
    #[serde(default)]
    source: Table,
    #[serde(default)]
    dependencies: Vec<Need>,
    #[serde(default)]
    optional_dependencies: BTreeMap<String, Vec<Need>>,
    #[serde(default)]
    dev_dependencies: BTreeMap<String, Vec<Need>>,
    #[serde(default)]
    resolution_markers: Vec<String>,
    #[serde(default)]
    wheels: Vec<Wheel>,
}

#[derive(Deserialize)]
struct Need {
    name: String,
    version: Option<String>,
    source: Option<Table>,
    marker: Option<String>,
    #[serde(default)]
    extra: Vec<String>,
}

#[derive(Deserialize)]
struct Wheel {
    url: Option<String>,
    path: Option<String>,
    filename: Option<String>,
}

impl Package {
    fn source(&self, key: &str) -> Option<&str> {
        self.source.get(key)?.as_str()
    }

    /// It is a folder of the project.
    fn is_own(&self) -> bool {
        ["virtual", "editable", "directory"]
            .iter()
            .any(|key| self.source.contains_key(*key))
    }

    fn is_root(&self) -> bool {
        self.source("virtual") == Some(".") || self.source("editable") == Some(".")
    }

    /// The best wheel for the release.
    fn wheel(&self, release: &BaseRelease) -> Option<&Wheel> {
        let [_, python_minor, _] = release.numbers;
        let target = WheelTarget {
            python_minor,
            glibc_minor: release.glibc_minor,
            machine: CpuArchitecture::X86_64,
        };
        let files: Vec<(String, &Wheel)> = self
            .wheels
            .iter()
            .filter_map(|wheel| Some((wheel.file()?, wheel)))
            .collect();
        files
            .iter()
            .filter_map(|(file, wheel)| {
                Some((WheelName::parse(file)?.tag_priority(target)?, *wheel))
            })
            .max_by_key(|(fit, _)| *fit)
            .map(|(_, wheel)| wheel)
    }
}

impl Wheel {
    fn file(&self) -> Option<String> {
        let address = self.url.as_ref().or(self.path.as_ref());
        let address = self.filename.as_ref().or(address)?;
        let address = address.split(['?', '#']).next().unwrap_or_default();
        let file = address.rsplit('/').next().unwrap_or_default();
        Some(file.replace("%2B", "+").replace("%2b", "+"))
    }
}

/// What the roots need, and what could not be told.
#[derive(Default)]
struct Closure {
    /// Places in the lock.
    packages: BTreeSet<usize>,
    /// Dependencies that were not followed, with the reason.
    open: BTreeMap<String, &'static str>,
}

const MARKER: &str = "whether Linux needs it cannot be told from its marker: name it if so";
const FORKS: &str = "the lock has several versions of it and none is Linux's alone: name one";
const ABSENT: &str = "the lock does not have it";

fn closure(lock: &Lock, roots: &[usize], release: &BaseRelease) -> Closure {
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, package) in lock.package.iter().enumerate() {
        by_name.entry(&package.name).or_default().push(place);
    }
    let mut closure = Closure::default();
    let mut seen: BTreeSet<(usize, &str)> = BTreeSet::new();
    let mut needs: Vec<&Need> = lock.manifest.requirements.iter().collect();
    for root in roots {
        needs.extend(&lock.package[*root].dependencies);
        closure.packages.insert(*root);
    }
    while let Some(need) = needs.pop() {
        match need
            .marker
            .as_deref()
            .map(|marker| evaluate_marker(marker, release))
        {
            Some(Some(false)) => continue,
            Some(None) => {
                let marker = need.marker.as_deref().unwrap_or_default();
                closure
                    .open
                    .insert(format!("{} ; {marker}", need.name), MARKER);
                continue;
            }
            None | Some(Some(true)) => {}
        }
        let places = by_name
            .get(need.name.as_str())
            .map_or(&[][..], Vec::as_slice);
        let place = match chosen(lock, places, need, release) {
            Ok(place) => place,
            Err(why) => {
                closure.open.insert(need.name.clone(), why);
                continue;
            }
        };
        let package = &lock.package[place];
        closure.packages.insert(place);
        if seen.insert((place, "")) {
            needs.extend(&package.dependencies);
        }
        for extra in &need.extra {
            if let Some((extra, more)) = package.optional_dependencies.get_key_value(extra)
                && seen.insert((place, extra))
            {
                needs.extend(more);
            }
        }
    }
    closure
}

/// Which of the packages of one name is meant.
fn chosen(
    lock: &Lock,
    places: &[usize],
    need: &Need,
    release: &BaseRelease,
) -> Result<usize, &'static str> {
    if places.len() > 64 {
        return Err(FORKS);
    }
    let mut fit: Vec<usize> = places
        .iter()
        .copied()
        .filter(|&place| {
            let package = &lock.package[place];
            need.version.is_none() || need.version == package.version
        })
        .filter(|&place| {
            let same = |source: &Table| *source == lock.package[place].source;
            need.source.as_ref().is_none_or(same)
        })
        .collect();
    if fit.len() > 1 {
        fit.retain(|&place| {
            let markers = &lock.package[place].resolution_markers;
            markers
                .iter()
                .any(|m| evaluate_marker(m, release) == Some(true))
        });
    }
    match fit.as_slice() {
        [place] => Ok(*place),
        [] if places.is_empty() => Err(ABSENT),
        _ => Err(FORKS),
    }
}

pub(super) fn convert(text: &str, beside: SiblingFiles<'_>) -> Result<ImportedSpec, ImportError> {
    let lock: Lock = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let breaks = text.as_bytes()[..start].iter().filter(|&&b| b == b'\n');
        ImportError::Toml {
            line: breaks.count() + 1,
            message: super::note::redacted_line(error.message()),
        }
    })?;
    if lock.version != VERSION {
        return Err(ImportError::LockVersion {
            file: "uv.lock",
            found: lock.version,
            read: VERSION,
        });
    }
    let roots = roots(&lock);
    if roots.is_empty() && lock.manifest.requirements.is_empty() {
        let missing = "no root project";
        return Err(ImportError::Nothing { missing });
    }
    let mut draft = Draft::default();
    if let [root] = roots[..] {
        draft.set_name(&lock.package[root].name);
    }
    let release = release(&lock, &roots, &mut draft);
    for &root in &roots {
        asked_by_name(&lock.package[root], &mut draft);
    }
    let closure = closure(&lock, &roots, release);
    packages(&lock, &closure, release, beside, &mut draft);
    for (what, why) in closure.open {
        draft.left_out(None, &what, why);
    }
    Ok(draft.finish())
}

/// The project; all of a workspace that has no project of its own.
fn roots(lock: &Lock) -> Vec<usize> {
    let places = |is: &dyn Fn(&Package) -> bool| -> Vec<usize> {
        let all = lock.package.iter().enumerate();
        all.filter(|(_, p)| is(p)).map(|(place, _)| place).collect()
    };
    let root = places(&Package::is_root);
    if root.is_empty() {
        places(&|package| lock.manifest.members.contains(&package.name))
    } else {
        root
    }
}

/// The release whose Python the lock allows and that most of its wheels suit.
fn release(lock: &Lock, roots: &[usize], draft: &mut Draft) -> &'static BaseRelease {
    let requires = lock.requires_python.as_deref().unwrap_or_default();
    let allowed =
        |release: &&BaseRelease| evaluate_specifiers(&release.numbers, requires) == Some(true);
    let unfit = |release: &&BaseRelease| {
        let closure = closure(lock, roots, release);
        let unfit = |place: &&usize| {
            let package = &lock.package[**place];
            !package.wheels.is_empty() && package.wheel(release).is_none()
        };
        closure.packages.iter().filter(unfit).count() + closure.open.len()
    };
    let best = RELEASES.iter().filter(allowed).min_by_key(unfit);
    let Some(best) = best else {
        draft.requires_python(None, requires);
        return &RELEASES[0];
    };
    let why = format!(
        "the versions are those for Linux on x86_64 and Python {}",
        best.python
    );
    draft.note_decision(None, "uv.lock", why);
    draft.set_release(best);
    best
}

/// What of the root is installed only when it is asked for.
fn asked_by_name(root: &Package, draft: &mut Draft) {
    let why = "it is not asked for: what of it is needed has to be added to `[python] packages`";
    for extra in root.optional_dependencies.keys() {
        draft.left_out(None, &format!("the extra `{extra}`"), why);
    }
    for group in root.dev_dependencies.keys() {
        draft.left_out(None, &format!("the group `{group}`"), why);
    }
}

/// The index that most packages come from. One whose address ends as a whole index does comes
/// before one that has the builds of a few projects.
fn main_index<'a>(lock: &'a Lock, closure: &Closure) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for place in &closure.packages {
        if let Some(index) = lock.package[*place].source("registry") {
            *counts.entry(index).or_default() += 1;
        }
    }
    let whole = |index: &str| index.trim_end_matches('/').ends_with("/simple");
    let best = counts
        .into_iter()
        .max_by_key(|(index, count)| (whole(index), *count));
    best.map(|(index, _)| index)
}

/// A project of the repository itself, which is installed from where it lies where its pyproject.toml
/// tells enough of it. Sources that uv alone knows would be asked for beside those of the lock.
fn own_project(package: &Package, beside: SiblingFiles<'_>, draft: &mut Draft) {
    let path = package.source("editable").and_then(|path| match path {
        "." => Some(".".to_owned()),
        path => inside(path),
    });
    let text = path.as_ref().and_then(|path| match path.as_str() {
        "." => beside("pyproject.toml"),
        path => beside(&format!("{path}/pyproject.toml")),
    });
    let why_not = |text: String| match text.contains("[tool.uv.sources") {
        true => Some(OWN_SOURCES),
        false => why_not_editable(&text),
    };
    match (path, text.map(why_not)) {
        (Some(path), Some(None)) => {
            draft.note_decision(None, &package.name, EDITABLE.to_owned());
            draft.spec.python.editable.push(path);
        }
        (_, Some(Some(why))) => draft.left_out(None, &package.name, why),
        _ => draft.left_out(None, &package.name, PROJECT),
    }
}

fn packages(
    lock: &Lock,
    closure: &Closure,
    release: &BaseRelease,
    beside: SiblingFiles<'_>,
    draft: &mut Draft,
) {
    let main = main_index(lock, closure);
    let mut batch = Vec::new();
    for place in &closure.packages {
        let package = &lock.package[*place];
        if package.is_own() {
            if !package.source.contains_key("virtual") {
                own_project(package, beside, draft);
            }
            continue;
        }
        let line = match entry(package, main, release) {
            Ok(line) => line,
            Err(why) => {
                draft.left_out(None, &package.name, why);
                continue;
            }
        };
        match requirement::parse(&line) {
            Ok(requirement) => batch.push(requirement),
            Err(why) => draft.left_out(None, &line, why),
        }
    }
    draft.add_requirements(None, batch);
    // Its wheels are named one by one where another index has them.
    draft.indexed = true;
}

/// The package as a requirement: its version, or its wheel where it is not of the main index.
fn entry(
    package: &Package,
    main: Option<&str>,
    release: &BaseRelease,
) -> Result<String, &'static str> {
    let name = &package.name;
    if package.source.contains_key("git") || package.wheels.is_empty() {
        return Err(SOURCES);
    }
    let wheel = package.wheel(release);
    match (package.source("registry"), &package.version) {
        (Some(index), Some(version)) if Some(index) == main => Ok(format!("{name}=={version}")),
        _ => {
            let wheel = wheel.ok_or("it has no wheel for the Python that was chosen")?;
            let url = wheel.url.as_deref().or(package.source("url"));
            let url = url.ok_or(requirement::LOCAL)?;
            Ok(format!("{name} @ {}", without_credentials(url)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::format_notes;
    use super::*;

    /// In the shape that uv 0.7 writes, shortened.
    const LOCK: &str = r#"
version = 1
revision = 2
requires-python = ">=3.11"

[[package]]
name = "net"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "torch", version = "2.6.0", source = { registry = "https://builds.example.org/whl/cu124" }, marker = "sys_platform == 'linux'" },
    { name = "torch", version = "2.6.0", source = { registry = "https://index.example.org/simple" }, marker = "sys_platform != 'linux'" },
    { name = "ray", extra = ["tune"] },
    { name = "numpy" },
    { name = "pywin32", marker = "sys_platform == 'win32'" },
    { name = "odd", marker = "platform_release == '5'" },
    { name = "mine" },
]

[package.optional-dependencies]
train = [{ name = "wandb" }]

[package.dev-dependencies]
dev = [{ name = "ruff" }]

[[package]]
name = "torch"
version = "2.6.0"
source = { registry = "https://builds.example.org/whl/cu124" }
dependencies = [{ name = "sympy" }]
wheels = [
    { url = "https://me:secret@builds.example.org/whl/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl", hash = "sha256:aa" },
    { url = "https://me:secret@builds.example.org/whl/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl", hash = "sha256:bb" },
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
wheels = [{ url = "https://index.example.org/numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl" }]

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
wheels = [{ url = "https://index.example.org/sympy-1.13.1-py3-none-any.whl" }]

[[package]]
name = "ray"
version = "2.40.0"
source = { registry = "https://index.example.org/simple" }
wheels = [{ url = "https://index.example.org/ray-2.40.0-cp313-cp313-manylinux_2_17_x86_64.whl" }]

[package.optional-dependencies]
tune = [{ name = "pandas" }]
serve = [{ name = "uvicorn" }]

[[package]]
name = "pandas"
version = "2.2.3"
source = { registry = "https://index.example.org/simple" }
wheels = [{ url = "https://index.example.org/pandas-2.2.3-cp313-cp313-manylinux_2_17_x86_64.whl" }]

[[package]]
name = "mine"
version = "0.1"
source = { git = "https://git.example.org/mine?rev=v1#abc" }
"#;

    #[test]
    fn the_closure_on_linux_is_pinned() {
        let adopted = convert(LOCK, &|_| None).unwrap();
        assert_eq!(
            adopted.spec.python.packages,
            [
                "torch @ https://builds.example.org/whl/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl",
                "numpy==2.2.1",
                "sympy==1.13.1",
                "ray==2.40.0",
                "pandas==2.2.3",
            ]
        );
        assert_eq!(adopted.spec.python.version.as_deref(), Some("3.13"));
        assert_eq!(adopted.spec.name.as_deref(), Some("net"));
        let said = format_notes(&adopted);
        for expected in [
            "decided: uv.lock: the versions are those for Linux on x86_64 and Python 3.13",
            "left out: the extra `train`",
            "left out: the group `dev`",
            "left out: mine: only wheels",
            "left out: odd ; platform_release == '5': whether",
        ] {
            assert!(
                said.contains(expected),
                "{expected}
{said}"
            );
        }
        assert!(
            !said.contains("secret") && !said.contains("pywin32"),
            "{said}"
        );
    }

    #[test]
    fn the_python_is_one_that_the_wheels_suit() {
        let text = LOCK.replace("ray-2.40.0-cp313-cp313", "ray-2.40.0-cp311-cp311");
        let text = text.replace("pandas-2.2.3-cp313-cp313", "pandas-2.2.3-cp311-cp311");
        let adopted = convert(&text, &|_| None).unwrap();
        assert_eq!(adopted.spec.system.release, "debian/bookworm");
        assert!(
            adopted
                .spec
                .python
                .packages
                .contains(&"numpy==1.26.4".to_owned())
        );
    }

    #[test]
    fn a_workspace_and_a_script_have_roots_too() {
        let package = |name: &str, source: &str, needs: &str| {
            format!(
                "[[package]]\nname = \"{name}\"\nversion = \"1\"\nsource = {{ {source} }}\ndependencies = [{needs}]\n\
                 wheels = [{{ url = \"https://i.example.org/{name}-1-py3-none-any.whl\" }}]\n"
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
            package("y", "editable = \"y\"", "{ name = \"b\" }")
        );
        let adopted = convert(&workspace, &|_| None).unwrap();
        assert_eq!(adopted.spec.python.packages, ["a==1", "b==1"]);
        assert!(format_notes(&adopted).contains("left out: x: the project's own folder"));
        let script = format!(
            "version = 1\n[manifest]\nrequirements = [{{ name = \"b\", specifier = \">=1\" }}]\n{rest}"
        );
        assert_eq!(
            convert(&script, &|_| None).unwrap().spec.python.packages,
            ["b==1"]
        );
    }

    #[test]
    fn what_is_no_lock_is_refused() {
        assert_eq!(
            convert("version = 2\n", &|_| None).err(),
            Some(ImportError::LockVersion {
                file: "uv.lock",
                found: 2,
                read: 1
            })
        );
        assert!(matches!(
            convert("version = 1\n", &|_| None),
            Err(ImportError::Nothing { .. })
        ));
        assert!(matches!(
            convert("version = 1\nx", &|_| None),
            Err(ImportError::Toml { line: 2, .. })
        ));
        // Names itself, and what is not there.
        let adopted = convert(
            "version = 1\n[[package]]\nname = \"a\"\nsource = { virtual = \".\" }\n\
             dependencies = [{ name = \"a\" }, { name = \"gone\" }]\n",
            &|_| None,
        )
        .unwrap();
        assert!(format_notes(&adopted).contains("left out: gone: the lock does not have it"));
    }
}
