//! `[tool.uv]` of a pyproject.toml: uv itself reads it where the file lies in the spec's folder and is referred to.
//! Elsewhere it does not count, and what that changes is said.

use toml::{Table, Value};

use super::draft::Draft;
use super::project_table::{array_strings, line_of};

const NOT_CARRIED: &str = "uv reads it of the pyproject.toml in the spec's folder alone, where that is referred to: add the versions to `[python] packages`";
const EXCLUSIVE: &str = "each excludes the others: ask for one of them at most";
/// More are not said.
const MAX_SETS: usize = 20;

/// Notes what does not come along. `is_read` says whether uv reads the file itself.
pub(super) fn note_uv_settings(root: &Table, text: &str, is_read: bool, draft: &mut Draft) {
    let Some(uv) = root.get("tool").and_then(|tool| tool.get("uv")?.as_table()) else {
        return;
    };
    for key in ["override-dependencies", "constraint-dependencies"] {
        if let (Some(list), false) = (uv.get(key), is_read) {
            let names = array_strings(list).join(", ");
            draft.left_out(line_of(text, key), &format!("{key}: {names}"), NOT_CARRIED);
        }
    }
    let sets = uv.get("conflicts").and_then(Value::as_array);
    for set in sets.into_iter().flatten().take(MAX_SETS) {
        let named = |one: &Value| {
            let name = one.get("extra").or_else(|| one.get("group"))?;
            name.as_str().map(str::to_owned)
        };
        let names: Vec<String> = set
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(named)
            .collect();
        if !names.is_empty() {
            let line = line_of(text, "conflicts");
            draft.note_decision(line, &names.join(", "), EXCLUSIVE.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::format_notes;
    use crate::project_files::pyproject::convert;

    const TEXT: &str = "[project]\nname = \"a\"\ndependencies = [\"torch\"]\n[tool.uv]\nconflicts = [[{ extra = \"cpu\" }, { extra = \"gpu\" }]]\noverride-dependencies = [\"numpy<2\"]\n";

    #[test]
    fn what_uv_does_not_read_is_said() {
        let said = |path| format_notes(&convert(path, TEXT, &|_| None).unwrap());
        let here = said("pyproject.toml");
        assert!(
            here.contains("5 decided: cpu, gpu: each excludes"),
            "{here}"
        );
        assert!(!here.contains("override-dependencies"), "{here}");
        let below = said("sub/pyproject.toml");
        assert!(
            below.contains("6 left out: override-dependencies: numpy<2: uv reads it"),
            "{below}"
        );
    }
}
