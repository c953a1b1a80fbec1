//! The text of a pip.conf. Nothing here reads a file.

use std::collections::BTreeMap;

/// The options of `[global]` and `[install]` in a pip.conf. A value goes on in indented lines.
pub fn parse_options(text: &str) -> BTreeMap<String, String> {
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let mut counts = false;
    let mut last: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = trimmed.strip_prefix('[').and_then(|s| s.strip_suffix(']')) {
            counts = matches!(section, "global" | "install");
            last = None;
        } else if line.starts_with([' ', '\t']) && last.is_some() {
            if let Some(value) = last.as_ref().and_then(|name| options.get_mut(name)) {
                if !value.is_empty() {
                    *value += " ";
                }
                *value += trimmed;
            }
        } else if let Some((name, value)) = trimmed.split_once(['=', ':']).filter(|_| counts) {
            let name = name.trim().to_ascii_lowercase().replace('_', "-");
            options.insert(name.clone(), value.trim().to_owned());
            last = Some(name);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::parse_options;

    #[test]
    fn values_go_on_in_indented_lines() {
        let text = "x = 0\n[Global]\nx = 0\n[global]\n# no\nA_b: 1\n c=2\n; no\n\nd =\n\te\n f\n";
        let found = parse_options(text);
        let pairs: Vec<_> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(pairs, [("a-b", "1 c=2"), ("d", "e f")]);
    }
}
