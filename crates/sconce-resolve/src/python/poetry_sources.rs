//! Where Poetry's table says that requirements of `[project]` come from: Poetry 2 keeps names in the one and
//! folders and repositories in the other.
//!
//! <https://python-poetry.org/docs/dependency-specification/#projectdependencies-and-toolpoetrydependencies>

use toml::{Table, Value};

/// Dependencies that are looked at.
const MAX_DEPENDENCIES: usize = 5000;

/// `[tool.poetry.dependencies]` as `[tool.uv.sources]` has it: folders, and beside a `[project]` repositories and
/// addresses. Without one they stand in the requirements that the table becomes.
pub(super) fn poetry_sources(table: &Table) -> Table {
    let has_project = table.contains_key("project");
    let dependencies = table
        .get("tool")
        .and_then(|tool| tool.get("poetry")?.get("dependencies")?.as_table());
    let dependencies = dependencies.into_iter().flatten().take(MAX_DEPENDENCIES);
    let sources = dependencies.filter_map(|(name, value)| {
        let source = match value {
            Value::Array(list) => {
                let entries = list.iter().filter_map(|entry| {
                    let mut source = uv_source(entry.as_table()?, has_project)?;
                    if let Some(marker) = entry.get("markers") {
                        source.insert("marker".to_owned(), marker.clone());
                    }
                    Some(Value::Table(source))
                });
                Some(Value::Array(entries.collect())).filter(|list| list != &Value::Array(vec![]))
            }
            one => uv_source(one.as_table()?, has_project).map(Value::Table),
        };
        Some((name.clone(), source?))
    });
    sources.collect()
}

/// One place; `None` for an index.
fn uv_source(entry: &Table, has_project: bool) -> Option<Table> {
    let kind = ["path", "git", "url"]
        .into_iter()
        .find(|kind| entry.get(*kind).is_some_and(Value::is_str))?;
    let keys: &[&str] = match kind {
        "path" => &["path"],
        _ if !has_project => return None,
        "git" => &["git", "rev", "tag", "branch", "subdirectory"],
        _ => &["url", "subdirectory"],
    };
    let taken = keys
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), entry.get(*key)?.clone())));
    Some(taken.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_poetrys_dependencies_are_those_of_uv() {
        let text = "[tool.poetry.dependencies]\npython = '^3.9'\nsix = '^1'\n\
            a = { path = 'libs/a', develop = true }\n\
            b = { git = 'https://example.org/b.git', tag = 'v1', subdirectory = 'py', extras = ['x'] }\n\
            c = [{ version = '1', markers = \"sys_platform == 'win32'\" }, \
            { url = 'https://example.org/c-1.tar.gz', markers = \"sys_platform != 'win32'\" }]\n\
            d = [{ version = '1' }]\n";
        let sources = |text: &str| poetry_sources(&text.parse().unwrap()).to_string();
        let project = format!("[project]\nname = 'p'\n{text}");
        assert_eq!(
            sources(&project),
            "[a]\npath = \"libs/a\"\n\n\
             [b]\ngit = \"https://example.org/b.git\"\nsubdirectory = \"py\"\ntag = \"v1\"\n\n\
             [[c]]\nmarker = \"sys_platform != 'win32'\"\nurl = \"https://example.org/c-1.tar.gz\"\n"
        );
        assert_eq!(sources(text), "[a]\npath = \"libs/a\"\n");
        assert_eq!(sources("[tool]\npoetry = 1\n"), "");
    }
}
