//! The tag of an image: what is inside, in one word.

use crate::lock::Lock;
use crate::spec::{Removal, Variant};
use crate::units::ComputeCapability;

/// The longest tag (OCI distribution specification, "Pulling manifests":
/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`).
pub const MAX_TAG_CHARS: usize = 128;

/// The tag that says what an environment holds: `2.15.0-cuda13.2-cudnn9-py3.13-trixie`, torch
/// first, then CUDA, cuDNN's major version, Python and the release. What the lock does not have is
/// left out. The architecture is not named: one tag serves several.
///
/// A tag cannot hold the `+` of a local version. Where the local part is the CUDA version
/// (`2.8.0+cu126`), it is left out, as `cuda12.6` follows; any other is kept behind `_`
/// (`2.8.0_cpu`), which no Python version holds in its normal form, so that it can be told apart.
///
/// A variant other than the usual one, what a slim image keeps of that which others leave out, and the cards that it
/// is made for, stand at the end: `…-trixie-slim-with-compiler-sm90`. Else it would take the place of the image
/// without, or for every card.
#[must_use]
pub fn image_tag(
    lock: &Lock,
    variant: Variant,
    keep: &[Removal],
    cards: &[ComputeCapability],
) -> String {
    let versions = &lock.versions;
    let major = |version: &String| version.split('.').next().unwrap_or_default().to_owned();
    let release = lock.target.release.rsplit('/').next().unwrap_or_default();
    let parts = [
        versions
            .torch
            .as_deref()
            .map(|torch| torch_part(torch, lock)),
        versions.cuda.map(|cuda| format!("cuda{cuda}")),
        versions
            .cudnn
            .as_ref()
            .map(|v| format!("cudnn{}", major(v))),
        Some(format!("py{}", lock.target.python)),
        Some(release.to_owned()),
        match variant {
            Variant::Runtime => None,
            Variant::Slim => Some("slim".to_owned()),
            Variant::Devel => Some("devel".to_owned()),
        },
    ];
    // In one order, whatever the spec's is.
    let kept = Removal::ALL.into_iter().filter(|kept| keep.contains(kept));
    let kept: Vec<String> = kept.map(|kept| kept.name().to_owned()).collect();
    let is_kept = variant == Variant::Slim && !kept.is_empty();
    let kept = is_kept.then(|| format!("with-{}", kept.join("-")));
    let cards = cards
        .iter()
        .map(|card| format!("sm{}{}", card.major, card.minor));
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .chain(kept)
        .chain(cards)
        .collect();
    allowed(&parts.join("-"))
}

fn torch_part(torch: &str, lock: &Lock) -> String {
    let Some((public, local)) = torch.split_once('+') else {
        return torch.to_owned();
    };
    let cuda = lock
        .versions
        .cuda
        .map(|cuda| format!("cu{}", cuda.to_string().replace('.', "")));
    if cuda.as_deref() == Some(local) {
        public.to_owned()
    } else {
        format!("{public}_{local}")
    }
}

/// Within the grammar, whatever the lock holds.
fn allowed(text: &str) -> String {
    let fit = |(at, c): (usize, char)| match c {
        c if c.is_ascii_alphanumeric() || c == '_' => c,
        '.' | '-' if at > 0 => c,
        _ => '_',
    };
    let fitted = text.chars().enumerate().map(fit);
    fitted.take(MAX_TAG_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{FORMAT, LockTarget, LockedVersions};
    use crate::units::Sha256;
    use proptest::prelude::*;

    fn lock(torch: Option<&str>, cuda: Option<&str>, cudnn: Option<&str>) -> Lock {
        Lock {
            version: FORMAT,
            inputs: Sha256([0; 32]),
            target: LockTarget {
                release: "debian/trixie".into(),
                architecture: "amd64".into(),
                python: "3.13".into(),
            },
            versions: LockedVersions {
                torch: torch.map(Into::into),
                cuda: cuda.map(|v| v.parse().unwrap()),
                cudnn: cudnn.map(Into::into),
                ..LockedVersions::default()
            },
            wheels: Vec::new(),
            debs: Vec::new(),
            stages: Vec::new(),
            interpreter: None,
        }
    }

    #[test]
    fn it_says_what_is_inside() {
        for (torch, cuda, cudnn, wanted) in [
            (
                Some("2.15.0"),
                Some("13.2"),
                Some("9.26.0.51"),
                "2.15.0-cuda13.2-cudnn9-py3.13-trixie",
            ),
            (
                Some("2.8.0+cu126"),
                Some("12.6"),
                Some("9.10.2.21"),
                "2.8.0-cuda12.6-cudnn9-py3.13-trixie",
            ),
            (
                Some("2.8.0+cu126"),
                Some("12.8"),
                None,
                "2.8.0_cu126-cuda12.8-py3.13-trixie",
            ),
            (Some("2.8.0+cpu"), None, None, "2.8.0_cpu-py3.13-trixie"),
            (Some("1!2.0.dev1"), None, None, "1_2.0.dev1-py3.13-trixie"),
            (None, Some("13.2"), None, "cuda13.2-py3.13-trixie"),
            (None, None, None, "py3.13-trixie"),
        ] {
            assert_eq!(
                image_tag(&lock(torch, cuda, cudnn), Variant::Runtime, &[], &[]),
                wanted
            );
        }
        let lock = lock(None, None, None);
        assert_eq!(
            image_tag(&lock, Variant::Devel, &[Removal::Compiler], &[]),
            "py3.13-trixie-devel"
        );
        let cards = [ComputeCapability::new(8, 9), ComputeCapability::new(12, 0)];
        assert_eq!(
            image_tag(&lock, Variant::Slim, &[], &cards),
            "py3.13-trixie-slim-sm89-sm120"
        );
        for keep in [
            [Removal::Headers, Removal::Compiler],
            [Removal::Compiler, Removal::Headers],
        ] {
            assert_eq!(
                image_tag(&lock, Variant::Slim, &keep, &cards),
                "py3.13-trixie-slim-with-compiler-headers-sm89-sm120"
            );
        }
    }

    proptest! {
        #[test]
        fn every_lock_has_a_tag(torch in "\\PC{0,200}", release in "\\PC{0,20}", python in "\\PC{0,9}") {
            let mut lock = lock(Some(&torch), None, None);
            lock.target.release = release;
            lock.target.python = python;
            let tag = image_tag(&lock, Variant::Slim, &Removal::ALL, &[]);
            let mut bytes = tag.bytes();
            let first = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            prop_assert!(bytes.next().is_some_and(first));
            prop_assert!(bytes.all(|b| first(b) || b == b'.' || b == b'-'));
            prop_assert!(tag.len() <= MAX_TAG_CHARS);
        }
    }
}
