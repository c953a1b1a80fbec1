//! Poetry's `[tool.poetry.dependencies]`, whose versions have a grammar of their own:
//! <https://python-poetry.org/docs/dependency-specification/>.

use toml::{Table, Value};

use super::draft::Draft;
use super::pyproject::{MAX_GROUPS, key_lines, line_of};
use super::requirement::{self, PROJECT, SOURCES};
use super::specifier::parse_numbers;

const CONSTRAINT: &str = "a version that is not understood: write it as pip has it";

pub(super) fn convert_into(table: &Table, text: &str, draft: &mut Draft) {
    if let Some(name) = table.get("name").and_then(Value::as_str) {
        draft.set_name(name);
    }
    draft.left_out(
        line_of(text, "[tool.poetry]"),
        "the project itself",
        PROJECT,
    );
    let groups = table.get("group").and_then(Value::as_table);
    for name in groups.into_iter().flat_map(Table::keys).take(MAX_GROUPS) {
        let line = line_of(text, &format!("[tool.poetry.group.{name}"));
        let why =
            "it is not asked for: what of it is needed has to be named in `[python] packages`";
        draft.left_out(line, &format!("the group `{name}`"), why);
    }
    let dependencies = table.get("dependencies").and_then(Value::as_table);
    let mut batch = Vec::new();
    let lines = key_lines(text);
    for (name, value) in dependencies.into_iter().flatten().take(5000) {
        let line = lines.get(name.as_str()).copied();
        if name == "python" {
            match value.as_str().and_then(specifiers) {
                Some(allowed) => draft.requires_python(line, &allowed),
                None => draft.left_out(line, name, CONSTRAINT),
            }
            continue;
        }
        match dependency(name, value) {
            Ok(text) => match requirement::parse(&text) {
                Ok(requirement) => batch.push(requirement),
                Err(why) => draft.left_out(line, &text, why),
            },
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
}

/// One dependency as a requirement.
fn dependency(name: &str, value: &Value) -> Result<String, &'static str> {
    let table = match value {
        Value::String(version) => {
            let version = specifiers(version).ok_or(CONSTRAINT)?;
            return Ok(format!("{name}{version}"));
        }
        Value::Table(table) => table,
        _ => return Err("several constraints for one package: write those for Linux"),
    };
    let text = |key: &str| table.get(key).and_then(Value::as_str);
    if table.contains_key("git") {
        return Err(SOURCES);
    }
    if table.contains_key("path") {
        return Err(PROJECT);
    }
    if table.get("optional").and_then(Value::as_bool) == Some(true) {
        return Err("it is optional");
    }
    let extras: Vec<&str> = table
        .get("extras")
        .map(super::pyproject::array_strings)
        .unwrap_or_default();
    let extras = match extras.as_slice() {
        [] => String::new(),
        some => format!("[{}]", some.join(",")),
    };
    let marker = text("markers")
        .map(|m| format!(" ; {m}"))
        .unwrap_or_default();
    if let Some(url) = text("url") {
        return Ok(format!("{name}{extras} @ {url}{marker}"));
    }
    let version = specifiers(text("version").unwrap_or("*")).ok_or(CONSTRAINT)?;
    Ok(format!("{name}{extras}{version}{marker}"))
}

/// `^1.2`, `~1.2`, `1.2.*`, `1.2`, `>=1,<2` as PEP 440 has it; `*` is any.
fn specifiers(text: &str) -> Option<String> {
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
    use super::super::pyproject::convert;
    use super::super::tests::format_notes;
    use super::*;

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
    fn poetrys_dependencies_are_translated() {
        let adopted = convert(
            "pyproject.toml",
            "[tool.poetry]\nname = \"net\"\n[tool.poetry.dependencies]\npython = \">=3.9,<3.12\"\n\
             torch = \"^2.6\"\nray = { version = \"2.9\", extras = [\"data\", \"tune\"] }\n\
             mine = { path = \"../mine\" }\nodd = [\"1\"]\n[tool.poetry.group.dev.dependencies]\nruff = \"*\"\n",
        )
        .unwrap();
        assert_eq!(
            adopted.spec.python.packages,
            ["ray[data,tune]==2.9", "torch>=2.6,<3"]
        );
        assert_eq!(adopted.spec.system.release, "debian/bookworm");
        let said = format_notes(&adopted);
        for expected in [
            "9 left out: the group `dev`",
            "7 left out: mine",
            "8 left out: odd",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }
}
