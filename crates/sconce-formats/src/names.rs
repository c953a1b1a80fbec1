//! Names of Python projects.

/// A project name in its normal form (PEP 503); `None` when it is none (PEP 508).
#[must_use]
pub fn normalize_project_name(name: &str) -> Option<String> {
    let end_is_fine = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_name = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && end_is_fine(name.chars().next())
        && end_is_fine(name.chars().next_back());
    if !is_name {
        return None;
    }
    let parts: Vec<&str> = name
        .split(['-', '_', '.'])
        .filter(|part| !part.is_empty())
        .collect();
    Some(parts.join("-").to_ascii_lowercase())
}
