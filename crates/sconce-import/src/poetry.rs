//! Poetry's `[tool.poetry.dependencies]`, whose versions have a grammar of their own:
//! <https://python-poetry.org/docs/dependency-specification/>.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::draft::Draft;
use super::project_table::{MAX_GROUPS, is_for_developers, key_lines, line_of, note_choices};
use super::requirement;
use super::specifier::parse_numbers;
use super::torch_builds;

const CONSTRAINT: &str = "a version that is not understood: write it as pip has it";

const GROUPS: &str =
    "it is not asked for: what of it is needed has to be named in `[python] packages`";

/// Puts what it needs into the draft; what is said of Python only where the project is no package, since it
/// is read from there otherwise.
pub(super) fn convert_into(table: &Table, text: &str, package: bool, draft: &mut Draft) {
    if let Some(name) = table.get("name").and_then(Value::as_str) {
        draft.set_name(name);
    }
    let extras = table.get("extras").and_then(Value::as_table);
    let extras = extras.into_iter().flat_map(Table::keys);
    note_choices(
        extras.map(String::as_str),
        line_of(text, "[tool.poetry.extras]"),
        "extras",
        draft,
    );
    let groups = table.get("group").and_then(Value::as_table);
    for name in groups.into_iter().flat_map(Table::keys).take(MAX_GROUPS) {
        if !is_for_developers(name) {
            let line = line_of(text, &format!("[tool.poetry.group.{name}"));
            draft.left_out(line, &format!("the group `{name}`"), GROUPS);
        }
    }
    let dependencies = table.get("dependencies").and_then(Value::as_table);
    let mut batch = Vec::new();
    let lines = key_lines(text);
    for (name, value) in dependencies.into_iter().flatten().take(5000) {
        let line = lines.get(name.as_str()).copied();
        if name == "python" {
            if package {
                continue;
            }
            match value.as_str().and_then(specifiers) {
                Some(allowed) => draft.requires_python(line, &allowed),
                None => draft.left_out(line, name, CONSTRAINT),
            }
            continue;
        }
        if let Some(path) = path_of(value) {
            if is_optional(value) {
                continue;
            }
            draft.bring(name);
            if !package {
                draft.add_editable(line, &format!("{path}{}", extras_of(value)));
            }
            continue;
        }
        match dependency(name, value) {
            Ok(text) => match requirement::parse(&text) {
                Ok(requirement) => batch.push(requirement),
                Err(why) => draft.left_out(line, &text, why),
            },
            // What installs the package understands it.
            Err(_) if package => {}
            Err(why) => draft.left_out(line, name, why),
        }
    }
    draft.add_requirements(None, batch);
    let sources = table.get("source").and_then(Value::as_array);
    for source in sources.into_iter().flatten().take(20) {
        if let Some(url) = source.get("url").and_then(Value::as_str) {
            draft.extra_index(line_of(text, "[[tool.poetry.source]]"), url);
        }
    }
    draft.drop_plain_build();
}

/// Asks for torch as the main index has it, where that has the build of one of its sources: `init` leaves the source
/// out then.
fn drop_plain_build(table: &Table, needed: &mut [String]) {
    let sources = table.get("source").and_then(Value::as_array);
    let sources = sources.into_iter().flatten();
    let urls = sources.filter_map(|source| source.get("url")?.as_str().map(str::to_owned));
    let parsed = needed.iter().map(|text| requirement::parse(text));
    let Ok(mut requirements) = parsed.collect::<Result<Vec<_>, _>>() else {
        return;
    };
    torch_builds::drop_plain_build(&mut requirements, &mut urls.collect());
    for (text, plain) in needed.iter_mut().zip(requirements) {
        *text = plain.text;
    }
}

/// What it needs, what each of its extras asks for, and whether some of it is not understood. A folder of
/// this machine is named: where it is, is said by what reads the sources.
pub(super) fn read_requirements(
    table: &Table,
) -> (Vec<String>, BTreeMap<String, Vec<String>>, bool) {
    let dependencies = table.get("dependencies").and_then(Value::as_table);
    let (mut needed, mut optional, mut is_partial) = (Vec::new(), BTreeMap::new(), false);
    let mut named = BTreeMap::new();
    for (name, value) in dependencies.into_iter().flatten().take(5000) {
        if name == "python" {
            continue;
        }
        let is_optional = is_optional(value);
        let mut value = value.clone();
        if let Some(table) = value.as_table_mut() {
            table.remove("optional");
        }
        let text = match path_of(&value) {
            Some(_) => Ok(format!("{name}{}{}", extras_of(&value), marker_of(&value))),
            None => dependency(name, &value),
        };
        let requirement =
            text.and_then(|text| requirement::parse(&text).map(|requirement| requirement.text));
        match requirement {
            Ok(text) if is_optional => drop(named.insert(name.to_ascii_lowercase(), text)),
            Ok(text) => needed.push(text),
            Err(_) => is_partial = true,
        }
    }
    drop_plain_build(table, &mut needed);
    let extras = table.get("extras").and_then(Value::as_table);
    for (extra, names) in extras.into_iter().flatten().take(MAX_GROUPS) {
        let names = super::project_table::array_strings(names).into_iter();
        let texts = names.filter_map(|name| named.get(&name.to_ascii_lowercase()).cloned());
        optional.insert(extra.clone(), texts.collect());
    }
    (needed, optional, is_partial)
}

/// The folder or the file of a dependency of this machine, of several places the first.
fn path_of(value: &Value) -> Option<&str> {
    let entries = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    entries.iter().find_map(|entry| entry.get("path")?.as_str())
}

fn is_optional(value: &Value) -> bool {
    value.get("optional").and_then(Value::as_bool) == Some(true)
}

/// `[gpu,fast]`; nothing where none is asked for.
pub(super) fn extras_of(value: &Value) -> String {
    let extras = value.get("extras").map(super::project_table::array_strings);
    match extras.unwrap_or_default().as_slice() {
        [] => String::new(),
        some => format!("[{}]", some.join(",")),
    }
}

/// ` ; python_version > "3"`
fn marker_of(value: &Value) -> String {
    let marker = value.get("markers").and_then(Value::as_str);
    marker
        .map(|marker| format!(" ; {marker}"))
        .unwrap_or_default()
}

/// One dependency as a requirement.
pub(super) fn dependency(name: &str, value: &Value) -> Result<String, &'static str> {
    let table = match value {
        Value::String(version) => {
            let version = specifiers(version).ok_or(CONSTRAINT)?;
            return Ok(format!("{name}{version}"));
        }
        Value::Table(table) => table,
        _ => return Err("several constraints for one package: write those for Linux"),
    };
    if is_optional(value) {
        return Err("it is optional");
    }
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    let (extras, marker) = (extras_of(value), marker_of(value));
    if let Some(address) = text("git") {
        let version = ["rev", "tag", "branch"].iter().find_map(|key| text(key));
        let version = version.map(|version| format!("@{version}"));
        let below = text("subdirectory").map(|folder| format!("#subdirectory={folder}"));
        return Ok(format!(
            "{name}{extras} @ git+{address}{}{}{marker}",
            version.unwrap_or_default(),
            below.unwrap_or_default()
        ));
    }
    if let Some(url) = text("url") {
        return Ok(format!("{name}{extras} @ {url}{marker}"));
    }
    let version = specifiers(text("version").unwrap_or("*")).ok_or(CONSTRAINT)?;
    Ok(format!("{name}{extras}{version}{marker}"))
}

/// `^1.2`, `~1.2`, `1.2.*`, `1.2`, `>=1,<2` as PEP 440 has it; `*` is any.
pub(super) fn specifiers(text: &str) -> Option<String> {
    let clauses: Option<Vec<String>> = text
        .split(',')
        .map(str::trim)
        .filter(|clause| !clause.is_empty() && *clause != "*")
        .map(clause)
        .collect();
    Some(clauses?.join(","))
}

fn clause(text: &str) -> Option<String> {
    let plain = |version: &str| {
        let of_version = |c: char| c.is_ascii_alphanumeric() || "._+*".contains(c);
        !version.is_empty() && version.len() < 60 && version.chars().all(of_version)
    };
    let below = |version: &str, keep: usize| {
        let mut numbers = parse_numbers(version)?;
        numbers.truncate(keep);
        let last = numbers.last_mut()?;
        *last = last.checked_add(1)?;
        let parts: Vec<String> = numbers.iter().map(u32::to_string).collect();
        Some(format!(">={version},<{}", parts.join(".")))
    };
    if let Some(version) = text.strip_prefix('^').map(str::trim).filter(|v| plain(v)) {
        // Up to the leftmost number that is not 0.
        let parts = parse_numbers(version)?;
        let first = parts.iter().position(|&n| n > 0);
        return below(version, first.map_or(parts.len(), |at| at + 1));
    }
    if let Some(version) = text.strip_prefix("~=").map(str::trim) {
        return plain(version).then(|| format!("~={version}"));
    }
    if let Some(version) = text.strip_prefix('~').map(str::trim).filter(|v| plain(v)) {
        return below(version, 2);
    }
    let end = text.find(|c: char| !"<>=!".contains(c))?;
    let (operator, version) = text.split_at(end);
    let version = version.trim();
    let known = ["", "==", "!=", ">=", "<=", ">", "<"].contains(&operator);
    let operator = if operator.is_empty() { "==" } else { operator };
    (known && plain(version)).then(|| format!("{operator}{version}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::format_notes;
    use super::*;
    use crate::project_files::pyproject;

    #[test]
    fn versions_become_those_of_pep_440() {
        for (poetry, pip) in [
            ("^2.1", ">=2.1,<3"),
            ("^0.3.1", ">=0.3.1,<0.4"),
            ("^0.0.3", ">=0.0.3,<0.0.4"),
            ("^0.0", ">=0.0,<0.1"),
            ("~2.1.3", ">=2.1.3,<2.2"),
            ("~2", ">=2,<3"),
            ("2.1.*", "==2.1.*"),
            ("2.1", "==2.1"),
            ("*", ""),
            (">=2, <3", ">=2,<3"),
            ("~=2.1", "~=2.1"),
        ] {
            assert_eq!(specifiers(poetry).as_deref(), Some(pip), "{poetry}");
        }
        for text in ["^", "^x", "2 || 3", "=>2", "^4294967295"] {
            assert_eq!(specifiers(text), None, "{text}");
        }
    }

    #[test]
    fn a_source_of_the_build_that_the_main_index_has_is_not_needed() {
        let text = "[tool.poetry]\nname = \"net\"\n[tool.poetry.dependencies]\n\
             torch = { version = \"^2.2\", source = \"builds\" }\n\
             [[tool.poetry.source]]\nname = \"builds\"\nurl = \"https://i.example.org/whl/cu121\"\npriority = \"explicit\"\n";
        let adopted = pyproject::convert("pyproject.toml", text, &|_| None).unwrap();
        let python = &adopted.spec.python;
        assert_eq!(python.packages, ["torch>=2.2,<3,>=2.1,<2.5"]);
        assert!(python.extra_index.is_empty());
        let said = format_notes(&adopted);
        assert!(
            said.contains("whl/cu121: torch >=2.1,<2.5 of the main index is this build"),
            "{said}"
        );
        // A package is read where it lies.
        let package = format!("[build-system]\nrequires = []\n{text}");
        let adopted = pyproject::convert("pyproject.toml", &package, &|_| None).unwrap();
        assert!(adopted.spec.python.extra_index.is_empty());
        let root: Table = package.parse().unwrap();
        let (needed, ..) = read_requirements(root["tool"]["poetry"].as_table().unwrap());
        assert_eq!(needed, ["torch>=2.2,<3,>=2.1,<2.5"]);
        let other = text.replace("cu121", "cu118");
        let adopted = pyproject::convert("pyproject.toml", &other, &|_| None).unwrap();
        assert_eq!(adopted.spec.python.packages, ["torch>=2.2,<3"]);
        assert_eq!(adopted.spec.python.extra_index.len(), 1);
    }

    #[test]
    fn poetrys_dependencies_are_translated() {
        let adopted = pyproject::convert(
            "pyproject.toml",
            "[tool.poetry]\nname = \"net\"\n[tool.poetry.dependencies]\npython = \">=3.9,<3.12\"\n\
             torch = \"^2.6\"\nray = { version = \"2.9\", extras = [\"data\", \"tune\"] }\n\
             mine = { path = \"libs/mine\" }\nx = { git = \"https://git.example.org/x\", tag = \"v1\", subdirectory = \"py\", extras = [\"a\"] }\n\
             later = { path = \"later\", optional = true }\nodd = [\"1\"]\n[tool.poetry.group.dev.dependencies]\nruff = \"*\"\n\
             [tool.poetry.group.train.dependencies]\nwandb = \"*\"\n",
            &|_| None,
        )
        .unwrap();
        assert_eq!(
            adopted.spec.python.packages,
            [
                "ray[data,tune]==2.9",
                "torch>=2.6,<3",
                "x[a] @ git+https://git.example.org/x@v1#subdirectory=py"
            ]
        );
        assert_eq!(adopted.spec.python.editable, ["libs/mine"]);
        assert_eq!(adopted.spec.python.version.as_deref(), Some(">=3.9,<3.12"));
        let said = format_notes(&adopted);
        for expected in ["13 left out: the group `train`", "10 left out: odd"] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }
}
