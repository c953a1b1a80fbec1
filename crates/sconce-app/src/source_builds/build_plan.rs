//! How sources are built: what their `pyproject.toml` says (PEP 517 and 518), and what it leaves out.

use std::collections::BTreeMap;

use sconce_resolve::python::source_package::SourceOrigin;
use sconce_schema::lock::Wheel;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// What a look at sources told.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct SourceFacts {
    /// Whether a compiler is wanted.
    pub(super) native: bool,
    /// Whether there are sources of Cython without the C that it makes of them.
    pub(super) cython: bool,
    /// When the newest file changed, seconds since 1970.
    pub(super) newest: i64,
    /// Texts by the files' names.
    pub(super) files: BTreeMap<String, Option<String>>,
}

/// What the build in a container is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct BuildPlan {
    /// `setuptools.build_meta`
    pub(super) backend: String,
    /// Folders of the sources that the backend is imported from.
    pub(super) backend_path: Vec<String>,
    /// What it is built with (PEP 508).
    pub(super) requires: Vec<String>,
    /// Whether that is all: a lock has what the backend's hook asked for, too, which is not asked again.
    pub(super) complete: bool,
    /// The longest that it may take.
    pub(super) seconds: u64,
    /// Variables that it has besides those of every build.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) env: BTreeMap<String, String>,
    /// Texts of files that are put beside its sources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) write: BTreeMap<String, String>,
}

/// What a package of Python alone may take to be built, and one that is compiled.
const PLAIN_SECONDS: u64 = 10 * 60;
const NATIVE_SECONDS: u64 = 60 * 60;

impl BuildPlan {
    /// A project without `[build-system]` is setuptools' (PEP 517, "Source trees").
    pub(super) fn read(facts: &SourceFacts) -> Self {
        let text = facts.files.get("pyproject.toml").cloned().flatten();
        let root: Table = text.and_then(|text| text.parse().ok()).unwrap_or_default();
        let system = root.get("build-system").and_then(Value::as_table);
        let list = |key: &str| {
            let values = system.and_then(|table| table.get(key)?.as_array());
            let texts = values.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect::<Vec<String>>()
        };
        let backend = system.and_then(|table| table.get("build-backend")?.as_str());
        let mut requires = list("requires");
        if requires.is_empty() && backend.is_none() {
            requires = vec!["setuptools".to_owned(), "wheel".to_owned()];
            // setuptools takes the C beside them where Cython is not there, and fails where that is not.
            requires.extend(facts.cython.then(|| "cython".to_owned()));
        }
        Self {
            backend: backend
                .unwrap_or("setuptools.build_meta:__legacy__")
                .to_owned(),
            backend_path: list("backend-path"),
            requires,
            complete: false,
            seconds: match facts.native {
                true => NATIVE_SECONDS,
                false => PLAIN_SECONDS,
            },
            env: BTreeMap::new(),
            write: BTreeMap::new(),
        }
    }

    /// With all that a lock says.
    pub(super) fn of_lock(facts: &SourceFacts) -> Self {
        Self {
            complete: true,
            ..Self::read(facts)
        }
    }

    /// With these requirements.
    pub(super) fn with(&self, requires: &[String]) -> Self {
        Self {
            requires: requires.to_vec(),
            ..self.clone()
        }
    }
}

/// The day whose tools a build is first tried with: that of the sources, but none before the Python that
/// it is for was there. `None`: today's. `written` is the commit's time, or that of the newest file.
pub(super) fn day_of_tools(origin: &SourceOrigin, written: i64, minor: u32) -> Option<String> {
    let day = day_of_sources(origin, written);
    let of_python = day_of_python(minor);
    let now = i64::try_from(crate::run_id::unix_ms() / 1000).unwrap_or(i64::MAX);
    Some(day.max(of_python)).filter(|day| *day < day_of(now))
}

/// The day of sources: that of their upload, else of the time that is given.
pub(super) fn day_of_sources(origin: &SourceOrigin, written: i64) -> String {
    let uploaded = match origin {
        SourceOrigin::Archive { uploaded, .. } => uploaded.clone(),
        SourceOrigin::Git { .. } => None,
    };
    uploaded.unwrap_or_else(|| day_of(written))
}

/// The day by which a Python was there: one is released each October (PEP 602), 3.9 in 2020.
pub(super) fn day_of_python(minor: u32) -> String {
    format!("{}-10-31", 2011 + minor)
}

/// `2021-03-25`, in UTC.
fn day_of(seconds: i64) -> String {
    let mut text = sconce_image::build::format_rfc3339(seconds);
    text.truncate("2021-03-25".len());
    text
}

/// Modules whose package has another name, and packages that setups are known to import without
/// asking for them.
const MODULES: [(&str, &str); 14] = [
    ("Cython", "cython"),
    ("cython", "cython"),
    ("distutils", "setuptools"),
    ("jinja2", "jinja2"),
    ("ninja", "ninja"),
    ("numpy", "numpy"),
    ("oldest_supported_numpy", "oldest-supported-numpy"),
    ("packaging", "packaging"),
    ("pip", "pip"),
    ("pkg_resources", "setuptools<81"),
    ("pybind11", "pybind11"),
    ("setuptools", "setuptools"),
    ("six", "six"),
    ("wheel", "wheel"),
];

/// What brings a module that a setup imports: the environment's own package of that name, at its
/// version, or one of a few. Others are not guessed.
pub(crate) fn requirement_of_module(module: &str, installed: &[Wheel]) -> Option<String> {
    let top = module.split('.').next().unwrap_or_default();
    let listed = MODULES.iter().find(|(name, _)| *name == top);
    let name = listed.map_or(top, |(_, package)| package);
    let normal = sconce_formats::normalize_project_name(name);
    let own = installed
        .iter()
        .find(|wheel| Some(&wheel.name) == normal.as_ref());
    match own {
        Some(wheel) => Some(format!("{}=={}", wheel.name, wheel.version)),
        None => listed.map(|(_, package)| (*package).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;

    fn facts(pyproject: Option<&str>) -> SourceFacts {
        SourceFacts {
            files: BTreeMap::from([("pyproject.toml".to_owned(), pyproject.map(str::to_owned))]),
            ..SourceFacts::default()
        }
    }

    #[test]
    fn what_says_nothing_is_built_by_setuptools() {
        for text in [
            None,
            Some("[tool.x]"),
            Some("not toml"),
            Some("build-system = 3"),
        ] {
            let plan = BuildPlan::read(&facts(text));
            assert_eq!(plan.backend, "setuptools.build_meta:__legacy__");
            assert_eq!(plan.requires, ["setuptools", "wheel"]);
            assert_eq!(plan.seconds, PLAIN_SECONDS);
        }
    }

    #[test]
    fn a_build_system_is_followed() {
        let text = "[build-system]\nrequires = ['hatchling', 3]\nbuild-backend = 'own:x'\n\
                    backend-path = ['tools']\n";
        let plan = BuildPlan::read(&SourceFacts {
            native: true,
            ..facts(Some(text))
        });
        assert_eq!((plan.backend.as_str(), plan.requires.len()), ("own:x", 1));
        assert_eq!(plan.backend_path, ["tools"]);
        assert_eq!(plan.seconds, NATIVE_SECONDS);
        let cython = SourceFacts {
            cython: true,
            ..facts(None)
        };
        assert!(
            BuildPlan::read(&cython)
                .requires
                .contains(&"cython".to_owned())
        );
        let in_tree = facts(Some("[build-system]\nrequires = []\nbuild-backend = 'own'"));
        assert!(BuildPlan::read(&in_tree).requires.is_empty());
    }

    #[test]
    fn a_plan_is_written_as_held() {
        let plan = BuildPlan::read(&facts(None));
        let told = |name: &str, text: &str| BTreeMap::from([(name.to_owned(), text.to_owned())]);
        let own = BuildPlan {
            env: told("SETUPTOOLS_SCM_PRETEND_VERSION", "1.2"),
            write: told(".git_archival.txt", "node: 0123\n"),
            ..plan.clone()
        };
        crate::golden::goldens().assert_values("build-plan.json", &[&plan, &own]);
    }

    #[test]
    fn tools_are_no_older_than_their_python() {
        let commit = SourceOrigin::Git {
            url: String::new(),
            commit: String::new(),
            subdirectory: None,
        };
        let day = day_of_tools(&commit, 1_621_036_800, 8);
        assert_eq!(day.as_deref(), Some("2021-05-15"));
        let origin = |uploaded: Option<&str>| SourceOrigin::Archive {
            url: String::new(),
            sha256: Sha256([0; 32]),
            subdirectory: None,
            uploaded: uploaded.map(str::to_owned),
        };
        let day = |uploaded, newest, minor| day_of_tools(&origin(uploaded), newest, minor);
        assert_eq!(day(Some("2022-03-14"), 0, 8).as_deref(), Some("2022-03-14"));
        assert_eq!(
            day(Some("2019-12-18"), 0, 13).as_deref(),
            Some("2024-10-31")
        );
        assert_eq!(day(None, 1_647_216_000, 8).as_deref(), Some("2022-03-14"));
        assert_eq!(day(Some("2999-01-01"), 0, 8), None);
    }

    #[test]
    fn modules_are_the_environments_or_of_a_list() {
        let numpy = Wheel {
            name: "numpy".to_owned(),
            version: "1.26.4".to_owned(),
            file: String::new(),
            url: String::new(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        };
        let found = |module| requirement_of_module(module, std::slice::from_ref(&numpy));
        assert_eq!(found("numpy.distutils").as_deref(), Some("numpy==1.26.4"));
        assert_eq!(found("pkg_resources").as_deref(), Some("setuptools<81"));
        assert_eq!(found("Cython").as_deref(), Some("cython"));
        assert_eq!(found("torch"), None);
        assert_eq!(found("reqeusts"), None);
    }
}
