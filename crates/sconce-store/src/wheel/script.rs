//! Scripts: those that a wheel ships, and those that its entry points ask for.

use sconce_schema::environment_layers::VENV;

use super::error::WheelError;

/// A script that calls a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryPoint {
    /// The command's name.
    pub(super) name: String,
    /// The module to import.
    module: String,
    /// What to call in it, dotted.
    call: String,
}

/// Reads `entry_points.txt` (the entry points specification): what `console_scripts` and
/// `gui_scripts` ask for, sorted by name; other groups are for programs, not for installers.
///
/// # Errors
/// A script whose name is no file name, or whose target is no name of Python's.
pub(super) fn entry_points(text: &str) -> Result<Vec<EntryPoint>, WheelError> {
    let wrong = |line: &str| WheelError::Metadata {
        why: format!(
            "entry_points.txt has the script line `{}`",
            line.chars().take(200).collect::<String>()
        ),
    };
    let mut points: Vec<EntryPoint> = Vec::new();
    let mut in_scripts = false;
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(group) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            in_scripts = matches!(group.trim(), "console_scripts" | "gui_scripts");
            continue;
        }
        if !in_scripts {
            continue;
        }
        let (name, target) = line.split_once('=').ok_or_else(|| wrong(line))?;
        // Extras after the target (`module:call [extra]`) change nothing for the script.
        let target = target.split('[').next().unwrap_or_default().trim();
        let (module, call) = target.split_once(':').ok_or_else(|| wrong(line))?;
        let (name, module, call) = (name.trim(), module.trim(), call.trim());
        let plain = !name.is_empty()
            && !name.starts_with(['.', '-'])
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+'));
        if !plain || !is_dotted(module) || !is_dotted(call) {
            return Err(wrong(line));
        }
        if !points.iter().any(|p| p.name == name) {
            points.push(EntryPoint {
                name: name.to_owned(),
                module: module.to_owned(),
                call: call.to_owned(),
            });
        }
    }
    points.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(points)
}

fn is_dotted(text: &str) -> bool {
    text.split('.').all(|part| {
        part.chars().all(|c| c.is_alphanumeric() || c == '_')
            && part.chars().next().is_some_and(|c| !c.is_numeric())
    })
}

impl EntryPoint {
    /// The script's text.
    pub(super) fn render_script(&self) -> String {
        let object = self.call.split('.').next().unwrap_or(&self.call);
        format!(
            "#!{VENV}/bin/python\n\
             import sys\n\
             from {} import {object}\n\
             if __name__ == \"__main__\":\n    \
             sys.exit({}())\n",
            self.module, self.call
        )
    }
}

/// A shipped script with its first line made to name the image's interpreter; `None` when the
/// line does not begin with `#!python`, which is how the wheel format asks for it. What stands
/// directly behind (`w`, a version) is replaced with it, options stay.
pub(super) fn with_interpreter(script: &[u8]) -> Option<Vec<u8>> {
    let rest = script.strip_prefix(b"#!python")?;
    let end = rest
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(rest.len());
    let rest = &rest[end..];
    let mut out = format!("#!{VENV}/bin/python").into_bytes();
    // A carriage return would become part of the interpreter's name.
    out.extend_from_slice(rest.strip_prefix(b"\r").unwrap_or(rest));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_become_scripts() {
        let points = entry_points(
            "[console_scripts]\ntorchrun = torch.distributed.run:main\n\
             torchfrtrace=tools.fr:Main.run [extra]\n# c\n\n[gui_scripts]\ng = g:m\n\
             [other]\nx = not checked\n",
        )
        .unwrap();
        let names: Vec<_> = points.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["g", "torchfrtrace", "torchrun"]);
        assert_eq!(
            points[1].render_script(),
            "#!/opt/venv/bin/python\nimport sys\nfrom tools.fr import Main\n\
             if __name__ == \"__main__\":\n    sys.exit(Main.run())\n"
        );
    }

    #[test]
    fn entry_points_cannot_carry_code_or_paths() {
        for line in [
            "../x = a:b",
            "x = a;import os:b",
            "x = a:b();evil",
            "x = a",
            "x",
            " = a:b",
            ".hidden = a:b",
            "x = 1a:b",
        ] {
            let text = format!("[console_scripts]\n{line}\n");
            assert!(entry_points(&text).is_err(), "{line}");
        }
    }

    #[test]
    fn first_lines_are_rewritten() {
        let rewrite = |text: &str| {
            with_interpreter(text.as_bytes()).map(|out| String::from_utf8(out).unwrap())
        };
        assert_eq!(
            rewrite("#!python\nx").as_deref(),
            Some("#!/opt/venv/bin/python\nx")
        );
        assert_eq!(
            rewrite("#!pythonw -E\nx").as_deref(),
            Some("#!/opt/venv/bin/python -E\nx")
        );
        assert_eq!(rewrite("#!/bin/sh\n"), None);
        assert_eq!(
            rewrite("#!python3\r\nx").as_deref(),
            Some("#!/opt/venv/bin/python\nx")
        );
        assert_eq!(rewrite(""), None);
    }
}
