//! The types of a crate that serde writes, read from its source as rustfmt lays it out: so that a
//! test can tell that none was forgotten.

use std::path::Path;

/// A type that derives `Serialize`.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceType {
    /// `folder/file::Type`, from `src` on.
    pub name: String,
    /// Its fields and variants as serde names them.
    pub written_names: Vec<String>,
}

/// Reads every `.rs` file below `src`, in the order of their names.
///
/// # Panics
/// If one cannot be read.
#[must_use]
pub fn read(src: &Path) -> Vec<SourceType> {
    let mut types = Vec::new();
    add(src, "", &mut types);
    types
}

fn add(folder: &Path, prefix: &str, types: &mut Vec<SourceType>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            add(&path, &format!("{prefix}{name}/"), types);
        } else if let Some(stem) = name.strip_suffix(".rs") {
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            types.extend(parse(&text).into_iter().map(|one| SourceType {
                name: format!("{prefix}{stem}::{}", one.name),
                ..one
            }));
        }
    }
}

/// Reads the types of one file, without those of its tests; names are without the file's.
#[must_use]
pub fn parse(text: &str) -> Vec<SourceType> {
    let mut types = Vec::new();
    let mut attributes = String::new();
    let mut lines = text.lines();
    let mut cfg_test = false;
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        if cfg_test && line.starts_with("mod ") && line.ends_with('{') {
            break;
        }
        cfg_test = line == "#[cfg(test)]";
        if item.starts_with("#[") {
            push_attribute(item, &mut lines, &mut attributes);
            continue;
        }
        if item.starts_with("//") {
            continue;
        }
        let attributes = std::mem::take(&mut attributes);
        let indent = line.len() - item.len();
        let Some((name, is_enum)) = item_name(item).filter(|_| derives_serialize(&attributes))
        else {
            continue;
        };
        let end = format!("{}}}", " ".repeat(indent));
        let body: Vec<_> = match item.ends_with('{') {
            true => lines.by_ref().take_while(|line| *line != end).collect(),
            false => Vec::new(),
        };
        types.push(SourceType {
            name: name.to_owned(),
            written_names: written_names(&body, indent + 4, &attributes, is_enum),
        });
    }
    types
}

/// Adds an attribute that may go on over lines.
fn push_attribute<'a>(
    first: &'a str,
    lines: &mut impl Iterator<Item = &'a str>,
    into: &mut String,
) {
    let start = into.len();
    into.push_str(first);
    let open = |text: &str| text.matches('[').count() > text.matches(']').count();
    while open(&into[start..]) {
        let Some(line) = lines.next() else { break };
        into.push_str(line.trim());
    }
    into.push('\n');
}

fn derives_serialize(attributes: &str) -> bool {
    let derives = attributes
        .lines()
        .filter(|line| line.starts_with("#[derive("));
    derives
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric()))
        .any(|word| word == "Serialize")
}

/// The name of a struct or an enum, and whether it is an enum.
fn item_name(item: &str) -> Option<(&str, bool)> {
    let item = without_visibility(item);
    let (rest, is_enum) = match item.strip_prefix("enum ") {
        Some(rest) => (rest, true),
        None => (item.strip_prefix("struct ")?, false),
    };
    Some((word(rest), is_enum))
}

fn without_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else {
        return item;
    };
    match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(") ").map_or(item, |(_, rest)| rest),
        None => rest.strip_prefix(' ').unwrap_or(item),
    }
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

fn written_names(body: &[&str], indent: usize, of_type: &str, is_enum: bool) -> Vec<String> {
    let mut names: Vec<String> = serde_value(of_type, "tag").into_iter().collect();
    names.extend(serde_value(of_type, "content"));
    let untagged = is_enum && serde_has(of_type, "untagged");
    let rule = serde_value(of_type, "rename_all");
    let of_fields = serde_value(of_type, "rename_all_fields");
    let mut of_variant = of_fields.clone();
    let mut attributes = String::new();
    let mut lines = body.iter().copied();
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        if item.starts_with("#[") {
            push_attribute(item, &mut lines, &mut attributes);
            continue;
        }
        if item.starts_with("//") {
            continue;
        }
        let attributes = std::mem::take(&mut attributes);
        let skipped = ["skip", "skip_serializing", "flatten"];
        let skipped = skipped.iter().any(|word| serde_has(&attributes, word));
        let renamed = serde_value(&attributes, "rename");
        let depth = line.len() - item.len();
        let item = without_visibility(item);
        let name = word(item.strip_prefix("r#").unwrap_or(item));
        let is_field = item.contains(&format!("{name}: "));
        if name.is_empty() || skipped {
            continue;
        }
        if is_enum && depth == indent {
            of_variant = serde_value(&attributes, "rename_all").or(of_fields.clone());
            let cased = || in_case(&variant_words(name), rule.as_deref(), name);
            names.extend((!untagged).then(|| renamed.unwrap_or_else(cased)));
        } else if is_field && depth == indent + if is_enum { 4 } else { 0 } {
            let rule = if is_enum { &of_variant } else { &rule };
            let words: Vec<_> = name.split('_').map(str::to_owned).collect();
            names.push(renamed.unwrap_or_else(|| in_case(&words, rule.as_deref(), name)));
        }
    }
    names
}

/// What stands in quotes after `key =` in a serde attribute.
fn serde_value(attributes: &str, key: &str) -> Option<String> {
    serde_parts(attributes).find_map(|part| {
        let value = part.strip_prefix(key)?.strip_prefix(" = \"")?;
        Some(value.split('"').next().unwrap_or_default().to_owned())
    })
}

fn serde_has(attributes: &str, key: &str) -> bool {
    serde_parts(attributes).any(|part| part == key)
}

fn serde_parts(attributes: &str) -> impl Iterator<Item = &str> {
    let serde = attributes.lines().filter_map(|line| {
        let line = line.strip_prefix("#[serde(")?;
        line.strip_suffix(")]")
    });
    serde.flat_map(|line| line.split(',')).map(str::trim)
}

/// As serde does it: each capital begins a word.
fn variant_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        match words.last_mut() {
            Some(word) if !c.is_uppercase() => word.push(c),
            _ => words.push(c.to_lowercase().collect()),
        }
    }
    words
}

fn in_case(words: &[String], rule: Option<&str>, name: &str) -> String {
    let capital = |word: &String| {
        let mut rest = word.chars();
        let first = rest.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(rest).collect::<String>()
    };
    match rule {
        Some("kebab-case") => words.join("-"),
        Some("snake_case") => words.join("_"),
        Some("lowercase") => words.concat(),
        Some("UPPERCASE") => words.concat().to_uppercase(),
        Some("SCREAMING_SNAKE_CASE") => words.join("_").to_uppercase(),
        Some("PascalCase") => words.iter().map(capital).collect(),
        Some("camelCase") => {
            let (first, rest) = words.split_at(words.len().min(1));
            let rest = rest.iter().map(capital);
            first.iter().cloned().chain(rest).collect()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
//! Text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(crate) enum Event {
    /// Unit.
    CameHome,
    #[serde(rename = "gone")]
    Left {
        /// Who.
        by_whom: Option<String>,
    },
    Two(u32, u32),
    #[serde(skip)]
    Unwritten,
}

#[derive(Deserialize)]
struct ReadAlone {
    a: u32,
}

#[derive(
    Debug, Serialize, PartialEq,
)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    pub user_id: u32,
    #[serde(
        skip_serializing_if = "Option::is_none",
        rename = "type"
    )]
    pub(super) kind: Option<String>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Serialize)]
struct Number(u32);

fn inner() {
    #[derive(serde::Serialize)]
    struct Inner<'a> {
        text: &'a str,
    }
}

#[cfg(test)]
mod tests {
    #[derive(Serialize)]
    struct OfTests {}
}
"#;

    #[test]
    fn types_and_their_written_names_are_read() {
        let found = parse(SOURCE);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.written_names.join(" ")))
            .collect();
        let expected = [
            ("Event", "kind came-home gone by_whom two"),
            ("Person", "userId type"),
            ("Number", ""),
            ("Inner", "text"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, names)| (name, names.to_owned()))
        );
    }
}
