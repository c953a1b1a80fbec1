//! A CDI file, written.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::Value;

use super::{CdiError, yaml};

/// The file's text, in the form that the ending of its name asks for. Engines read no other ending
/// than these two.
///
/// # Errors
/// [`CdiError::Ending`].
pub fn text_for(path: &Path, file: &Value) -> Result<String, CdiError> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => Ok(format!("{file:#}\n")),
        Some("yaml") => Ok(yaml::text(file)),
        _ => Err(CdiError::Ending {
            path: path.to_owned(),
        }),
    }
}

/// Writes `file` to `path`, whole or not at all, readable by everybody whatever the umask is.
///
/// # Errors
/// [`CdiError::Ending`]; [`CdiError::Write`] when it cannot be written.
pub fn write_cdi(path: &Path, file: &Value) -> Result<(), CdiError> {
    let text = text_for(path, file)?;
    let failed = |source| CdiError::Write {
        path: path.to_owned(),
        source,
    };
    // No name that an engine reads.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = Path::new(&name);
    let _ = std::fs::remove_file(part);
    let written = whole(part, &text).and_then(|()| std::fs::rename(part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(part);
    }
    written.map_err(failed)
}

fn whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ending_tells_the_form() {
        let dir = tempfile::tempdir().unwrap();
        let file = json!({ "kind": "a.com/b" });
        for (name, text) in [
            ("a.json", "{\n  \"kind\": \"a.com/b\"\n}\n"),
            ("a.yaml", "\"kind\": \"a.com/b\"\n"),
        ] {
            let path = dir.path().join(name);
            write_cdi(&path, &file).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        }
        for name in ["a", "a.yml", "a.json.bak"] {
            let error = write_cdi(&dir.path().join(name), &file).unwrap_err();
            assert!(matches!(error, CdiError::Ending { .. }), "{error}");
        }
        let error = write_cdi(&dir.path().join("none/a.json"), &file).unwrap_err();
        assert!(matches!(error, CdiError::Write { .. }), "{error}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 2);
    }
}
