//! A CDI file's text.

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
        Some("yaml") => Ok(yaml::to_string(file)),
        _ => Err(CdiError::Ending {
            path: path.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ending_tells_the_form() {
        let file = json!({ "kind": "a.com/b" });
        for (name, text) in [
            ("a.json", "{\n  \"kind\": \"a.com/b\"\n}\n"),
            ("a.yaml", "\"kind\": \"a.com/b\"\n"),
        ] {
            assert_eq!(text_for(Path::new(name), &file).unwrap(), text);
        }
        for name in ["a", "a.yml", "a.json.bak"] {
            let error = text_for(Path::new(name), &file).unwrap_err();
            assert!(matches!(error, CdiError::Ending { .. }), "{error}");
        }
    }
}
