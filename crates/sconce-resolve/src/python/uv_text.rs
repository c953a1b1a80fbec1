//! What uv's texts name: requirements, and what they are asked for by. The phrases are those of uv 0.13.

use sconce_formats::normalize_project_name;

/// No name or requirement that is longer is read.
const MAX_NAME_BYTES: usize = 120;
/// The most names that are read.
const MAX_NAMES: usize = 20;

/// The word before a phrase, if it may be a requirement: `torch==1.13.1`.
pub(super) fn pin_before(text: &str, phrase: &str) -> Option<String> {
    let (before, _) = text.split_once(phrase)?;
    let word = before.split_whitespace().next_back()?;
    is_requirement(word).then(|| word.to_owned())
}

/// The names behind a phrase, each once: `` Wheels are required for `pudb` ``.
pub(super) fn all_quoted_after(text: &str, phrase: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in text.split(phrase).skip(1) {
        if let Some((name, _)) = rest.split_once('`')
            && (1..=MAX_NAME_BYTES).contains(&name.len())
            && names.len() < MAX_NAMES
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// The projects of which no version has a wheel: `all versions of urwid-readline have no usable wheels`.
pub(super) fn projects_without_wheels(text: &str) -> Vec<String> {
    let text = join_lines(text);
    let sentences = text.split("all versions of ").skip(1);
    let names = sentences.filter_map(|rest| {
        let (name, rest) = rest.split_once(' ')?;
        rest.starts_with("have no usable wheels")
            .then(|| name.to_owned())
    });
    names.take(MAX_NAMES).collect()
}

/// The normalised name of the project that a requirement is of.
pub(super) fn project_of(requirement: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = requirement.find(|c: char| !plain(c));
    normalize_project_name(&requirement[..end.unwrap_or(requirement.len())])
}

/// What is asked for: `you require torch<2 and torchvision`, `dpr depends on torch>=1.5.0`.
pub(super) fn requirements_of(text: &str) -> Vec<String> {
    let text = join_lines(text);
    let mut all = own_requirements_of(&text);
    for rest in text.split("depends on ").skip(1) {
        let word = rest.split_whitespace().next().unwrap_or_default();
        add_requirement(&mut all, word.trim_end_matches(','));
    }
    all
}

/// What the project itself asks for.
pub(super) fn own_requirements_of(text: &str) -> Vec<String> {
    let text = join_lines(text);
    let mut own = Vec::new();
    for rest in text.split("you require ").skip(1) {
        for (number, part) in rest.split(" and ").enumerate() {
            let word = part.split(' ').next().unwrap_or_default();
            // `and torch==1 depends on` begins something else.
            let ends_list = word.ends_with(',');
            let is_whole = word == part;
            if number == 0 || ends_list || is_whole {
                add_requirement(&mut own, word.trim_end_matches(','));
            }
            if !is_whole {
                break;
            }
        }
    }
    own
}

fn add_requirement(all: &mut Vec<String>, word: &str) {
    if is_requirement(word) && all.len() < MAX_NAMES && !all.iter().any(|known| known == word) {
        all.push(word.to_owned());
    }
}

/// uv's text without what it says of its own flags, which are none of this program's.
pub(super) fn without_flags(stderr: &str) -> String {
    let mut text = stderr.to_owned();
    for begin in [" (i.e., with `--", " (try: `--"] {
        while let Some(at) = text.find(begin)
            && let Some(end) = text[at..].find(')')
        {
            text.replace_range(at..=at + end, "");
        }
    }
    let is_of_flags = |paragraph: &str| {
        let phrases = [
            "`--",
            "building from source is disabled",
            "using pre-built wheels is disabled",
        ];
        let joined = join_lines(paragraph);
        paragraph.starts_with("hint: ") && phrases.iter().any(|phrase| joined.contains(phrase))
    };
    let paragraphs = text
        .split("\n\n")
        .filter(|paragraph| !is_of_flags(paragraph));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

fn is_requirement(word: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.=<>!~,+[]*".contains(&b);
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic());
    begins && word.len() <= MAX_NAME_BYTES && word.bytes().all(good)
}

/// uv breaks its sentences where they are long.
fn join_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read() {
        let text = "Because torchvision>=0.29.1 depends on torch>=2.14.0, we can conclude that all versions\n \
            of torchvision depend on torch>=2.0.0.\n And because you require torch<2 and torchvision, we can \
            conclude that your requirements are unsatisfiable.\n\nhint: x";
        assert_eq!(
            requirements_of(text),
            ["torch<2", "torchvision", "torch>=2.14.0"]
        );
        assert_eq!(own_requirements_of(text), ["torch<2", "torchvision"]);
        for odd in [
            "",
            "you require ",
            "you require é and 'x'",
            "depends on -e .",
        ] {
            assert_eq!(requirements_of(odd), [""; 0], "{odd}");
        }
        let many: String = (0..100).map(|n| format!("you require a{n}, ")).collect();
        assert_eq!(requirements_of(&many).len(), MAX_NAMES);
    }

    #[test]
    fn flags_of_uv_are_not_shown() {
        let text = "error: a\n  cause: b (i.e., with `--no-build`)\n\nhint: Pre-releases are available (try: `--prerelease=allow`)\n\n\
            hint: Wheels are required for `x` because building from source is\n disabled for all packages\n\n\
            hint: use `--index-strategy unsafe-best-match`\n\nhint: only found wheels";
        assert_eq!(
            without_flags(text),
            "error: a\n  cause: b\n\nhint: Pre-releases are available\n\nhint: only found wheels"
        );
        assert_eq!(without_flags("x (try: `--y"), "x (try: `--y");
    }

    #[test]
    fn names_are_read() {
        let text = "Because all versions\n of a-b have no usable wheels and all versions of c depend on d.\n\n\
            hint: Wheels are required for `a-b` because\n\nhint: Wheels are required for `c` because";
        assert_eq!(projects_without_wheels(text), ["a-b"]);
        let phrase = "Wheels are required for `";
        assert_eq!(all_quoted_after(text, phrase), ["a-b", "c"]);
        assert_eq!(
            all_quoted_after("Wheels are required for `x", phrase),
            [""; 0]
        );
        assert_eq!(pin_before("a==1 has no", "has no").as_deref(), Some("a==1"));
        assert_eq!(pin_before("a: has no", "has no"), None);
    }
}
