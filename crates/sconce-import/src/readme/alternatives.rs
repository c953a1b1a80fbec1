//! Ways to install that exclude each other: pip's goes before conda's.

use std::collections::BTreeSet;
use std::ops::Range;

use super::ReadmeBlock;
use super::install::InstallLines;

const OTHER_WAY: &str = "conda's way to what pip installs by another command there, which is taken";

/// What a block of commands added.
pub(super) struct BlockInstalls {
    way: Option<NamedWay>,
    packages: Range<usize>,
    conda_packages: Range<usize>,
    installs_file: bool,
}

/// The tool that a block is said to be for, in words of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedWay {
    Pip,
    Conda,
}

/// How much was found before a block.
pub(super) struct InstallCounts {
    packages: usize,
    conda_packages: usize,
    files: usize,
}

impl InstallCounts {
    pub(super) fn of(found: &InstallLines) -> Self {
        Self {
            packages: found.packages.len(),
            conda_packages: found.conda_packages.len(),
            files: found.files.len(),
        }
    }

    /// What `block` added to it.
    pub(super) fn added_by(self, block: &ReadmeBlock, found: &InstallLines) -> BlockInstalls {
        BlockInstalls {
            way: NamedWay::of(block),
            packages: self.packages..found.packages.len(),
            conda_packages: self.conda_packages..found.conda_packages.len(),
            installs_file: found.files.len() > self.files,
        }
    }
}

impl NamedWay {
    fn of(block: &ReadmeBlock) -> Option<Self> {
        let heading = block.headings.last().map_or("", String::as_str);
        Self::in_words(&block.lead).or_else(|| Self::in_words(heading))
    }

    /// `With conda:`, `Option B (pip)`, `Or using pip`; steps that follow each other are no choice.
    fn in_words(words: &str) -> Option<Self> {
        let words = words.to_lowercase();
        let bare = words.trim_matches(|c: char| !c.is_alphanumeric());
        let is_step = [
            "create",
            "activate",
            "rest",
            "remaining",
            "then",
            "step",
            "other",
        ];
        let is_numbered = bare.starts_with(|c: char| c.is_ascii_digit());
        if is_numbered || bare.len() > 80 || is_step.iter().any(|word| bare.contains(word)) {
            return None;
        }
        let chosen = [
            "with",
            "using",
            "via",
            "from",
            "or",
            "option",
            "alternativ",
            "by",
            "pip",
            "conda",
            "anaconda",
        ];
        let is_choice = chosen.iter().any(|word| bare.starts_with(word))
            || bare.contains(" with ")
            || bare.contains(" using ")
            || bare.contains(" via ");
        match (is_choice, bare.contains("conda"), bare.contains("pip")) {
            (true, true, false) => Some(Self::Conda),
            (true, false, true) => Some(Self::Pip),
            _ => None,
        }
    }
}

/// Takes conda's packages out of what was found where pip installs the same by another block.
pub(super) fn drop_other_way(found: &mut InstallLines, blocks: &[BlockInstalls]) {
    let mut dropped: BTreeSet<usize> = BTreeSet::new();
    for conda in blocks
        .iter()
        .filter(|block| !block.conda_packages.is_empty())
    {
        let names: BTreeSet<&str> = found.conda_packages[conda.conda_packages.clone()]
            .iter()
            .map(|(_, one)| one.name.as_str())
            .collect();
        let is_same = |pip: &BlockInstalls| {
            let by_name = || {
                found.packages[pip.packages.clone()]
                    .iter()
                    .any(|(_, one)| names.contains(one.name.as_str()))
            };
            let by_words = conda.way == Some(NamedWay::Conda) && pip.way == Some(NamedWay::Pip);
            let is_other = pip.conda_packages.is_empty();
            let installs = pip.installs_file || !pip.packages.is_empty();
            is_other && installs && (by_words || by_name())
        };
        if blocks.iter().any(is_same) {
            dropped.extend(conda.conda_packages.clone());
        }
    }
    let mut at = 0;
    let skipped = &mut found.skipped;
    found.conda_packages.retain(|(line, one)| {
        at += 1;
        let is_dropped = dropped.contains(&(at - 1));
        if is_dropped {
            skipped.push((*line, one.text.clone(), OTHER_WAY));
        }
        !is_dropped
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_known_by_its_words() {
        for (words, expected) in [
            ("with conda:", Some(NamedWay::Conda)),
            ("option b (pip)", Some(NamedWay::Pip)),
            ("**or, with pip:**", Some(NamedWay::Pip)),
            ("installation via anaconda", Some(NamedWay::Conda)),
            ("1. create an environment with conda", None),
            ("then install the rest with pip:", None),
            ("with conda and pip:", None),
            ("conda is not supported, says the pip documentation", None),
            ("", None),
        ] {
            assert_eq!(NamedWay::in_words(words), expected, "{words}");
        }
    }
}
