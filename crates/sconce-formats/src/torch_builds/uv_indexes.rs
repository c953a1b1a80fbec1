//! The indexes of torch's builds in a `pyproject.toml` of uv's, and which of them are not needed:
//! <https://docs.astral.sh/uv/concepts/indexes/>.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::{
    FAMILY, RequirementParts, build_of_index, explain_plain_build, find_plain_build,
    find_plain_torch, without_build,
};
use crate::normalize_project_name;

/// What these need, which the main index has beside them.
const NEEDED: &str = "nvidia-";
const TRITON: &str = "triton";

/// An index of torch's builds, or a build in a version, that is not needed, since the main index has the build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnneededBuild {
    /// The index's address or the requirement, as it is written.
    pub what: String,
    /// Why, for a sentence.
    pub reason: String,
}

/// Takes the indexes of torch's builds out of a `pyproject.toml` that the main index can do without: from uv's indexes
/// and sources, and the build from versions. Where versions are open, torch is narrowed to those that the main index has
/// in the build. An index that serves anything beside torch's family stays.
pub fn drop_unneeded_builds(root: &mut Table) -> Vec<UnneededBuild> {
    let mut dropped = Vec::new();
    for index in uv_indexes(root) {
        let Some(build) = build_of_index(&index.url).map(str::to_owned) else {
            continue;
        };
        let Some(places) = index.requirement_places(root) else {
            continue;
        };
        let lists = places
            .iter()
            .filter_map(|place| place.list(root))
            .flat_map(|list| list.as_array().into_iter().flatten())
            .filter_map(Value::as_str);
        let is_torch =
            |text: &&str| RequirementParts::split(text).is_some_and(|parts| parts.name == "torch");
        let torch: Vec<_> = lists
            .filter(is_torch)
            .map(|text| find_plain_torch(text, &build))
            .collect();
        let Some(plain) = torch.into_iter().collect::<Option<Vec<_>>>() else {
            continue;
        };
        let Some(versions) = plain.first().map(|plain| plain.versions.clone()) else {
            continue;
        };
        for place in &places {
            if let Some(Value::Array(list)) = place.list_mut(root) {
                list.iter_mut().for_each(|one| make_plain(one, &build));
            }
        }
        index.remove_from(root);
        dropped.push(UnneededBuild {
            reason: explain_plain_build(&versions, &build),
            what: index.url,
        });
    }
    dropped.extend(drop_plain_pins(root));
    dropped
}

/// Takes builds out of versions that name one without its index, or with that of another tool than uv.
fn drop_plain_pins(root: &mut Table) -> Option<UnneededBuild> {
    let lists = RequirementList::all(root);
    let texts = lists.iter().filter_map(|list| list.list(root)?.as_array());
    let mut texts = texts.flatten().filter_map(Value::as_str);
    let (text, version, build) = texts.find_map(|text| {
        let parts = RequirementParts::split(text).filter(|parts| parts.name == "torch")?;
        let (version, build) = parts.pin()?;
        let is_plain = find_plain_build(version).as_deref() == build;
        Some((text.to_owned(), version.to_owned(), build?.to_owned())).filter(|_| is_plain)
    })?;
    let mut indexes = uv_indexes(root).into_iter();
    if indexes.any(|index| build_of_index(&index.url) == Some(&*build)) {
        return None;
    }
    for list in &lists {
        if let Some(Value::Array(list)) = list.list_mut(root) {
            list.iter_mut().for_each(|one| {
                if let Value::String(text) = one {
                    *text = without_build(text, &build);
                }
            });
        }
    }
    Some(UnneededBuild {
        what: text,
        reason: explain_plain_build(&version, &build),
    })
}

fn make_plain(requirement: &mut Value, build: &str) {
    if let Value::String(text) = requirement {
        *text = match find_plain_torch(text, build) {
            Some(plain) => plain.text,
            None => without_build(text, build),
        };
    }
}

/// A list of requirements in a `pyproject.toml`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RequirementList {
    Project,
    Extra(String),
    Group(String),
}

impl RequirementList {
    /// Every one that there is.
    fn all(root: &Table) -> BTreeSet<Self> {
        let keys = |table: Option<&Value>| -> Vec<String> {
            let table = table.and_then(Value::as_table);
            table.into_iter().flat_map(Table::keys).cloned().collect()
        };
        let project = root.get("project");
        let extras = keys(project.and_then(|project| project.get("optional-dependencies")));
        let groups = keys(root.get("dependency-groups"));
        let extras = extras.into_iter().map(Self::Extra);
        let lists = extras.chain(groups.into_iter().map(Self::Group));
        lists.chain([Self::Project]).collect()
    }

    fn list<'a>(&self, root: &'a Table) -> Option<&'a Value> {
        let project = || root.get("project");
        match self {
            Self::Project => project()?.get("dependencies"),
            Self::Extra(name) => project()?.get("optional-dependencies")?.get(name),
            Self::Group(name) => root.get("dependency-groups")?.get(name),
        }
    }

    fn list_mut<'a>(&self, root: &'a mut Table) -> Option<&'a mut Value> {
        match self {
            Self::Group(name) => root.get_mut("dependency-groups")?.get_mut(name),
            Self::Project => root.get_mut("project")?.get_mut("dependencies"),
            Self::Extra(name) => {
                let project = root.get_mut("project")?;
                project.get_mut("optional-dependencies")?.get_mut(name)
            }
        }
    }
}

/// One of uv's indexes.
struct UvIndex {
    /// By which sources name it; those of the older keys have none.
    name: Option<String>,
    url: String,
    is_explicit: bool,
}

/// Keys of `[tool.uv]` that name indexes without a name.
const UNNAMED_INDEXES: [&str; 2] = ["index-url", "extra-index-url"];

fn uv_indexes(root: &Table) -> Vec<UvIndex> {
    let Some(uv) = root.get("tool").and_then(|tool| tool.get("uv")) else {
        return Vec::new();
    };
    let named = uv.get("index").and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(|index| {
        Some(UvIndex {
            name: index.get("name").and_then(Value::as_str).map(str::to_owned),
            url: index.get("url")?.as_str()?.to_owned(),
            is_explicit: index.get("explicit").and_then(Value::as_bool) == Some(true),
        })
    });
    let unnamed = UNNAMED_INDEXES
        .iter()
        .filter_map(|key| uv.get(*key))
        .flat_map(|value| match value {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            one => Vec::from_iter(one.as_str()),
        });
    let unnamed = unnamed.map(|url| UvIndex {
        name: None,
        url: url.to_owned(),
        is_explicit: false,
    });
    named.chain(unnamed).collect()
}

impl UvIndex {
    fn is_named_by(&self, source: &Value) -> bool {
        let name = source.get("index").and_then(Value::as_str);
        name.is_some() && name == self.name.as_deref()
    }

    /// Where what it serves is required; `None` where it serves what the main index may have otherwise.
    fn requirement_places(&self, root: &Table) -> Option<BTreeSet<RequirementList>> {
        let sources = root.get("tool")?.get("uv")?.get("sources");
        let sources = sources.and_then(Value::as_table);
        let mut places = BTreeSet::new();
        for (project, source) in sources.into_iter().flatten() {
            for entry in entries(source).iter().filter(|one| self.is_named_by(one)) {
                let name = normalize_project_name(project)?;
                let is_plain =
                    FAMILY.contains(&name.as_str()) || name == TRITON || name.starts_with(NEEDED);
                if !is_plain {
                    return None;
                }
                let text = |key: &str| entry.get(key).and_then(Value::as_str);
                match (text("extra"), text("group")) {
                    (Some(extra), _) => {
                        places.insert(RequirementList::Extra(extra.to_owned()));
                    }
                    (None, Some(group)) => {
                        places.insert(RequirementList::Group(group.to_owned()));
                    }
                    (None, None) => places.extend(RequirementList::all(root)),
                }
            }
        }
        if places.is_empty() && !self.is_explicit {
            places = RequirementList::all(root);
        }
        Some(places)
    }

    fn remove_from(&self, root: &mut Table) {
        let Some(uv) = root.get_mut("tool").and_then(|tool| tool.get_mut("uv")) else {
            return;
        };
        let Some(uv) = uv.as_table_mut() else {
            return;
        };
        if let Some(Value::Array(indexes)) = uv.get_mut("index") {
            indexes.retain(|index| {
                index.get("url").and_then(Value::as_str) != Some(&self.url)
                    || index.get("name").and_then(Value::as_str) != self.name.as_deref()
            });
        }
        for key in UNNAMED_INDEXES {
            match uv.get_mut(key) {
                Some(Value::Array(list)) => list.retain(|url| url.as_str() != Some(&self.url)),
                Some(Value::String(url)) if *url == self.url => drop(uv.remove(key)),
                _ => {}
            }
        }
        let Some(Value::Table(sources)) = uv.get_mut("sources") else {
            return;
        };
        for (_, source) in sources.iter_mut() {
            let kept = entries(source).iter().filter(|one| !self.is_named_by(one));
            *source = Value::Array(kept.cloned().collect());
        }
        sources.retain(|_, source| source.as_array().is_some_and(|list| !list.is_empty()));
    }
}

/// A source of uv's, which may be several with markers.
fn entries(source: &Value) -> &[Value] {
    match source {
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop_from(text: &str) -> (Table, Vec<UnneededBuild>) {
        let mut table: Table = text.parse().unwrap();
        let dropped = drop_unneeded_builds(&mut table);
        (table, dropped)
    }

    const INDEX: &str =
        "[[tool.uv.index]]\nname = 'cu121'\nurl = 'https://i.example.org/whl/cu121'\n";

    #[test]
    fn an_index_that_the_main_one_makes_unneeded_is_dropped() {
        let sources = "[tool.uv.sources]\ntorch = { index = 'cu121' }\ntorchvision = [{ index = 'cu121', marker = \"sys_platform == 'linux'\" }, { index = 'other' }]\n";
        for (project, sources, versions) in [
            (
                "dependencies = ['torch==2.4.1', 'torchvision==0.19.1+cu121']",
                sources,
                "torch 2.4.1 of",
            ),
            (
                "dependencies = ['torch>=2.2', 'numpy']",
                sources,
                "torch >=2.1,<2.5 of",
            ),
            // It is asked for all packages.
            ("dependencies = ['torch==2.4.1']", "", "torch 2.4.1 of"),
        ] {
            let (table, dropped) = drop_from(&format!("[project]\n{project}\n{INDEX}{sources}"));
            assert_eq!(dropped.len(), 1, "{project}");
            assert!(dropped[0].reason.contains(versions), "{dropped:?}");
            let text = table.to_string();
            assert!(!text.contains("cu121"), "{text}");
            assert_eq!(text.contains("other"), !sources.is_empty(), "{text}");
        }
    }

    #[test]
    fn an_index_that_is_needed_stays() {
        let source = |name: &str| format!("[tool.uv.sources]\n{name} = {{ index = 'cu121' }}\n");
        let project = |list: &str| format!("[project]\ndependencies = [{list}]\n");
        for text in [
            project("'torch==2.5.1'") + INDEX + &source("torch"),
            project("'torch==2.4.1'") + INDEX + &source("xformers"),
            project("'torchvision'") + INDEX + &source("torchvision"),
            project("'torch==2.4.1'") + INDEX + "explicit = true\n",
            project("'torch==2.4.1'") + &INDEX.replace("cu121", "cpu") + &source("torch"),
            project("'torch==2.4.1', \"torch==2.5.1; python_version > '3.12'\"") + INDEX,
        ] {
            let (table, dropped) = drop_from(&text);
            assert_eq!(
                (table, dropped),
                (text.parse().unwrap(), Vec::new()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_build_in_a_version_goes_without_an_index_too() {
        let (table, dropped) = drop_from(
            "[project]\ndependencies = ['torch==2.4.1+cu121', 'torchvision==0.19.1+cu121']\n",
        );
        assert_eq!(dropped[0].what, "torch==2.4.1+cu121");
        assert!(!table.to_string().contains("cu121"));
        let (_, dropped) = drop_from("[project]\ndependencies = ['torch==2.4.1+cu118']\n");
        assert_eq!(dropped, []);
    }

    #[test]
    fn each_extra_has_its_build() {
        let (table, dropped) = drop_from(&format!(
            "[project]\n[project.optional-dependencies]\ncpu = ['torch==2.4.1']\ngpu = ['torch==2.4.1+cu121']\n{INDEX}explicit = true\n\
             [[tool.uv.index]]\nname = 'cpu'\nurl = 'https://i.example.org/whl/cpu'\nexplicit = true\n\
             [tool.uv.sources]\ntorch = [{{ index = 'cpu', extra = 'cpu' }}, {{ index = 'cu121', extra = 'gpu' }}]\n"
        ));
        assert_eq!(dropped.len(), 1);
        let text = table.to_string();
        assert!(text.contains("gpu = [\"torch==2.4.1\"]"), "{text}");
        assert!(
            text.contains("whl/cpu") && !text.contains("cu121"),
            "{text}"
        );
    }
}
