//! A `uv.toml` for one call: what the project's own settings say, and what source packages say of
//! themselves. uv is then run in the folder that has it, where the project's settings are not found.

use std::path::Path;

use sconce_base::input;
use sconce_formats::torch_builds::drop_unneeded_builds;
use sconce_schema::Bytes;
use toml::{Table, Value};

use super::source_package::SourceMetadata;

/// No settings are longer.
const MAX_SETTINGS_BYTES: Bytes = Bytes::from_mib(4);
/// What `[tool.uv]` may have and `uv.toml` may not, and what is for uv's project commands alone.
const OF_PROJECTS: [&str; 14] = [
    "build-backend",
    "cache-keys",
    "conflicts",
    "default-groups",
    "dependency-groups",
    "dev-dependencies",
    "environments",
    "managed",
    "package",
    "pip-install",
    "required-environments",
    "required-version",
    "sources",
    "workspace",
];
/// The file that uv reads settings of.
pub(super) const FILE: &str = "uv.toml";
const METADATA: &str = "dependency-metadata";

/// The settings that uv finds in `folder`: those of the nearest folder that has some.
pub(super) fn find_settings(folder: &Path) -> Option<Table> {
    folder.ancestors().find_map(settings_of)
}

/// Whether uv would find an index of torch's builds in `folder` that is not needed there.
pub(super) fn names_unneeded_index(folder: &Path) -> bool {
    let named = |read: fn(&Path) -> Option<Table>| folder.ancestors().find_map(read);
    let uncleaned = named(|folder| read_settings(folder, &mut |_| ()));
    named(settings_of) != uncleaned
}

/// The settings that uv would find in `folder`, with `sources`.
pub(crate) fn settings_with(folder: &Path, sources: &[SourceMetadata]) -> String {
    let mut table = find_settings(folder).unwrap_or_default();
    for key in OF_PROJECTS {
        table.remove(key);
    }
    let own = table.remove(METADATA);
    let own = own.as_ref().and_then(Value::as_array);
    let is_ours = |value: &Value| {
        let name = value.get("name").and_then(Value::as_str);
        let name = name.and_then(sconce_formats::normalize_project_name);
        sources
            .iter()
            .any(|source| Some(&source.name) == name.as_ref())
    };
    let mut metadata: Vec<Value> = own.cloned().unwrap_or_default();
    metadata.retain(|value| !is_ours(value));
    metadata.extend(sources.iter().map(|source| Value::Table(source.to_table())));
    table.insert(METADATA.to_owned(), Value::Array(metadata));
    table.to_string()
}

/// What a folder's `uv.toml` says, or `[tool.uv]` of its `pyproject.toml`, without indexes that its project does not
/// need; paths are absolute.
fn settings_of(folder: &Path) -> Option<Table> {
    read_settings(folder, &mut |project| drop(drop_unneeded_builds(project)))
}

/// The same of a `pyproject.toml` that is changed so.
fn read_settings(folder: &Path, change: &mut dyn FnMut(&mut Table)) -> Option<Table> {
    let read = |name: &str| {
        let bytes = input::read_regular(&folder.join(name), MAX_SETTINGS_BYTES).ok()?;
        String::from_utf8(bytes).ok()?.parse::<Table>().ok()
    };
    let mut table = match read(FILE) {
        Some(table) => table,
        None => {
            let mut project = read("pyproject.toml")?;
            change(&mut project);
            let tool = project.get_mut("tool")?.get_mut("uv")?;
            std::mem::take(tool.as_table_mut()?)
        }
    };
    make_paths_absolute(&mut table, folder);
    if let Some(Value::Table(pip)) = table.get_mut("pip") {
        make_paths_absolute(pip, folder);
    }
    Some(table)
}

/// Addresses of indexes and of links may be paths, relative to the settings.
pub(super) fn make_paths_absolute(table: &mut Table, folder: &Path) {
    let absolute = |value: &mut Value| {
        if let Value::String(text) = value
            && !text.contains("://")
            && !Path::new(text).is_absolute()
        {
            *text = folder.join(&*text).to_string_lossy().into_owned();
        }
    };
    for key in ["index-url", "extra-index-url", "find-links"] {
        match table.get_mut(key) {
            Some(Value::Array(list)) => list.iter_mut().for_each(absolute),
            Some(value) => absolute(value),
            None => {}
        }
    }
    if let Some(Value::Array(indexes)) = table.get_mut("index") {
        let urls = indexes.iter_mut().filter_map(|index| index.get_mut("url"));
        urls.for_each(absolute);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_projects_settings_count_beside_the_sources() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("examples");
        fs::create_dir(&below).unwrap();
        fs::write(
            folder.path().join("pyproject.toml"),
            "[tool.uv]\npackage = true\noverride-dependencies = ['numpy<2']\nfind-links = ['wheels']\n\
             [tool.uv.sources]\ntorch = { index = 'x' }\n[[tool.uv.index]]\nurl = 'simple'\n\
             [[tool.uv.dependency-metadata]]\nname = 'Old_One'\nrequires-dist = []\n\
             [[tool.uv.dependency-metadata]]\nname = 'gym'\nrequires-dist = ['wrong']\n",
        )
        .unwrap();
        let gym = SourceMetadata {
            name: "gym".to_owned(),
            requires_dist: vec!["numpy".to_owned()],
            ..SourceMetadata::default()
        };
        let text = settings_with(&below, &[gym]);
        let table: Table = text.parse().unwrap();
        assert!(table.get("package").is_none() && table.get("sources").is_none());
        let path = folder.path().display();
        for said in [
            format!("find-links = [\"{path}/wheels\"]"),
            format!("url = \"{path}/simple\""),
            "name = \"Old_One\"".to_owned(),
            "numpy<2".to_owned(),
        ] {
            assert!(text.contains(&said), "{said}\n{text}");
        }
        assert!(!text.contains("wrong"));
        assert_eq!(table[METADATA].as_array().unwrap().len(), 2);
    }

    #[test]
    fn an_index_of_builds_that_is_not_needed_is_no_setting() {
        let folder = tempfile::tempdir().unwrap();
        let write = |torch: &str| {
            let text = format!(
                "[project]\ndependencies = ['torch{torch}']\n[[tool.uv.index]]\nname = 'b'\nurl = 'https://i.example.org/whl/cu121'\n"
            );
            fs::write(folder.path().join("pyproject.toml"), text).unwrap();
        };
        write("==2.4.1");
        assert!(names_unneeded_index(folder.path()));
        assert!(!settings_with(folder.path(), &[]).contains("cu121"));
        write("==2.6.0");
        assert!(!names_unneeded_index(folder.path()));
        assert!(settings_with(folder.path(), &[]).contains("cu121"));
    }

    #[test]
    fn settings_of_uv_go_before_the_projects() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("pyproject.toml"),
            "[tool.uv]\nno-index = true",
        )
        .unwrap();
        fs::write(
            folder.path().join("uv.toml"),
            "index-strategy = 'first-index'",
        )
        .unwrap();
        let text = settings_with(folder.path(), &[]);
        assert!(text.contains("first-index") && !text.contains("no-index"));
    }
}
