//! Where a README says that installing is described elsewhere in its repository.

use std::collections::BTreeSet;

/// Links that are read of one file.
const MAX_LINKS: usize = 2000;

/// Pages of the repository that links to installing lead to, each once, in their order. `own` has the names that the
/// project goes by, normalised, for links that name the repository by its address.
pub(crate) fn find_install_pages(text: &str, own: &BTreeSet<String>) -> Vec<String> {
    let mut pages = Vec::new();
    for (label, target) in links(text).take(MAX_LINKS) {
        let Some(path) = page_path(target, own) else {
            continue;
        };
        if (is_about_installing(label) || is_about_installing(&path)) && !pages.contains(&path) {
            pages.push(path);
        }
    }
    pages
}

/// Links as Markdown (`[text](target)`), HTML (`<a href="target">text</a>`) and reStructuredText
/// (`` `text <target>`_ ``) have them.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let markdown = text.match_indices("](").filter_map(|(at, _)| {
        let label = text[..at].rsplit('[').next()?;
        let target = text[at + 2..].split([')', '\n']).next()?;
        Some((label, target.split_whitespace().next()?))
    });
    let html = text.match_indices("href=").filter_map(|(at, sign)| {
        let rest = &text[at + sign.len()..];
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (target, rest) = rest[1..].split_once(quote)?;
        let label = rest.split_once('>')?.1.split('<').next()?;
        Some((label, target))
    });
    let rst = text.match_indices(">`_").filter_map(|(at, _)| {
        let (before, target) = text[..at].rsplit_once('<')?;
        let label = before.rsplit('`').next()?;
        Some((label, target))
    });
    markdown.chain(html).chain(rst)
}

/// The path of a page of this repository, without its anchor.
fn page_path(target: &str, own: &BTreeSet<String>) -> Option<String> {
    let target = target.trim_matches(['<', '>']);
    let target = target.split(['#', '?']).next()?;
    let path = match target.split_once("://") {
        None => target,
        // `HOST/OWNER/REPOSITORY/blob/BRANCH/PATH`
        Some((_, rest)) => {
            let (repository, page) = rest.split_once("/blob/")?;
            let name = repository.rsplit('/').next()?;
            own.contains(&sconce_formats::normalize_project_name(name)?)
                .then(|| page.split_once('/').map(|(_, path)| path))??
        }
    };
    let is_page = [".md", ".rst", ".txt"]
        .iter()
        .any(|end| path.to_ascii_lowercase().ends_with(end));
    let is_requirements = path.contains("requirement");
    super::super::inside(path).filter(|_| is_page && !is_requirements)
}

fn is_about_installing(text: &str) -> bool {
    let words: String = text
        .chars()
        .map(|c| match c {
            '_' | '-' => ' ',
            c => c.to_ascii_lowercase(),
        })
        .collect();
    [
        "install",
        "get started",
        "getting started",
        "setup",
        "set up",
    ]
    .iter()
    .any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pages(text: &str) -> Vec<String> {
        let own = ["net"].map(str::to_owned).into();
        find_install_pages(text, &own)
    }

    #[test]
    fn pages_of_the_repository_are_found() {
        for (text, expected) in [
            (
                "See [INSTALL.md](INSTALL.md) and [it](./INSTALL.md#linux).",
                &["INSTALL.md"][..],
            ),
            ("[how to install it](docs/a.md \"title\")", &["docs/a.md"]),
            (
                "[here](docs/en/get_started.md)",
                &["docs/en/get_started.md"],
            ),
            ("<a href=\"docs/b.md\">Installation</a>", &["docs/b.md"]),
            ("see `Installation <docs/c.rst>`_", &["docs/c.rst"]),
            (
                "[Install](https://git.example.org/me/net/blob/main/docs/install.md)",
                &["docs/install.md"],
            ),
            (
                "[Install](https://git.example.org/me/other/blob/main/install.md)",
                &[],
            ),
            ("[Install](https://net.example.org/install.html)", &[]),
            ("[Install](../install.md) [install](/etc/install.md)", &[]),
            (
                "[setup](setup.py) [install](requirements.txt) [train](TRAIN.md)",
                &[],
            ),
        ] {
            assert_eq!(pages(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\[|\\]\\(|\\)|href=|\"|'|>`_|<|>|é|install|\\.md|/blob/|://|net|/| ){0,40}") {
            pages(&text);
        }
    }
}
