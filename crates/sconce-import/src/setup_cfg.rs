//! The lines of a `setup.cfg`, as configparser has them.

/// Section, key and value.
pub(super) fn config_values(text: &str) -> Vec<(&str, &str, String)> {
    let mut values: Vec<(&str, &str, String)> = Vec::new();
    let mut section = "";
    for line in text.lines().take(20_000) {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) {
            if let Some((_, _, value)) = values.last_mut().filter(|(of, ..)| *of == section) {
                value.push('\n');
                value.push_str(bare);
            }
        } else if let Some(name) = bare.strip_prefix('[').and_then(|b| b.strip_suffix(']')) {
            section = name.trim();
        } else if let Some(at) = bare.find(['=', ':']) {
            values.push((section, bare[..at].trim(), bare[at + 1..].trim().to_owned()));
        }
    }
    values
}
