//! Device code that some cards never run.

use std::ops::Range;

use sconce_schema::ComputeCapability;

use crate::library::{CodeKind, CodeReach, CodeTarget};

/// Finds what becomes superfluous where only these cards are used, container by container: the
/// driver takes one entry of a container for a card, machine code before PTX.
#[derive(Debug)]
pub(super) struct UnusedCodeFinder<'a> {
    pub(super) cards: &'a [ComputeCapability],
    /// Parts of the file.
    pub(super) parts: Vec<Range<u64>>,
}

impl UnusedCodeFinder<'_> {
    /// The entries of one container, each with where its code lies.
    pub(super) fn add_container(&mut self, entries: &[(CodeTarget, Range<u64>)]) {
        let targets: Vec<CodeTarget> = entries.iter().map(|(target, _)| *target).collect();
        let needed = |target: CodeTarget| {
            let mut cards = self.cards.iter();
            cards.any(|card| may_be_taken(target, *card, &targets))
        };
        let superfluous = entries.iter().filter(|(target, _)| !needed(*target));
        self.parts.extend(superfluous.map(|(_, part)| part.clone()));
    }
}

/// Whether the driver may take this entry of a container for a card. Machine code without a suffix
/// yields to such for a higher capability; whether it does to code with one (`a`, `f`) is not
/// documented, so both stay. PTX is taken where there is no machine code.
fn may_be_taken(target: CodeTarget, card: ComputeCapability, all: &[CodeTarget]) -> bool {
    let serving = || all.iter().filter(|other| other.can_run_on(card));
    let is_machine_code = |other: &&CodeTarget| other.code == CodeKind::Sass;
    if !target.can_run_on(card) {
        return false;
    }
    match (target.code, target.reach) {
        (CodeKind::Ptx { .. }, _) => !serving().any(|other| is_machine_code(&other)),
        (CodeKind::Sass, CodeReach::Onward) => !serving()
            .filter(is_machine_code)
            .any(|other| other.reach == CodeReach::Onward && other.capability > target.capability),
        (CodeKind::Sass, CodeReach::Family | CodeReach::Exact) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_may_take_stays() {
        let card = |major, minor| ComputeCapability::new(major, minor);
        let entry = |major, minor, code, reach| CodeTarget {
            capability: card(major, minor),
            code,
            reach,
        };
        let sass = |major, minor| entry(major, minor, CodeKind::Sass, CodeReach::Onward);
        const PTX: CodeKind = CodeKind::Ptx { major: 9, minor: 3 };
        let targets = [
            sass(7, 5),
            sass(8, 0),
            sass(8, 6),
            sass(9, 0),
            entry(9, 0, CodeKind::Sass, CodeReach::Exact),
            sass(10, 0),
            entry(10, 3, CodeKind::Sass, CodeReach::Family),
            entry(9, 0, PTX, CodeReach::Onward),
            entry(12, 0, PTX, CodeReach::Onward),
        ];
        let kept = |cards: &[ComputeCapability]| {
            let entries: Vec<_> = (0..)
                .zip(targets)
                .map(|(at, target)| (target, at..at + 1))
                .collect();
            let mut superfluous = UnusedCodeFinder {
                cards,
                parts: Vec::new(),
            };
            superfluous.add_container(&entries);
            let gone: Vec<u64> = superfluous.parts.iter().map(|part| part.start).collect();
            (0..9).filter(|at| !gone.contains(at)).collect::<Vec<u64>>()
        };
        assert_eq!(kept(&[card(8, 0)]), [1]);
        assert_eq!(kept(&[card(8, 9)]), [2]);
        assert_eq!(kept(&[card(9, 0)]), [3, 4]);
        assert_eq!(kept(&[card(10, 3)]), [5, 6]);
        assert_eq!(kept(&[card(8, 0), card(8, 9)]), [1, 2]);
        // No machine code for it: all PTX that serves.
        assert_eq!(kept(&[card(12, 1)]), [7, 8]);
        assert_eq!(kept(&[card(7, 0)]), [0; 0]);
    }
}
