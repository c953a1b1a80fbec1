//! For which CUDA torch is built: the main package index has one build of each version, and an index of such builds
//! (`…/whl/cu121`) is not needed where that is the one.

use std::str::FromStr as _;

use pep440_rs::{Version, VersionSpecifiers};

use crate::normalize_project_name;

mod uv_indexes;

pub use uv_indexes::{UnneededBuild, drop_unneeded_builds};

/// What is built together, and has the build in its version.
const FAMILY: [&str; 5] = [
    "torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "torchdata",
];

/// CUDA of the main index's torch, by torch's major and first and last minor version (their pins of nvrtc; before
/// those, what the release says).
const CUDA_OF_TORCH: [(u64, u64, u64, &str); 9] = [
    (1, 5, 12, "10.2"),
    (1, 13, 13, "11.7"),
    (2, 0, 0, "11.7"),
    (2, 1, 4, "12.1"),
    (2, 5, 6, "12.4"),
    (2, 7, 7, "12.6"),
    (2, 8, 10, "12.8"),
    (2, 11, 14, "13.0"),
    (2, 15, 15, "13.2"),
];
/// No minor version of torch had a higher patch number.
const MAX_PATCH: u64 = 3;

/// Returns the CUDA that the main index's torch of this version (`2.4.1`, `2.4.*`) is built for, `12.1`; `None` where nothing is known of
/// it.
#[must_use]
pub fn cuda_of_torch(version: &str) -> Option<&'static str> {
    let plain = version.split('+').next().unwrap_or_default();
    let plain = plain.trim_end_matches(".*");
    let version = Version::from_str(plain).ok()?;
    let release = version.release();
    let (major, minor) = (*release.first()?, release.get(1).copied().unwrap_or(0));
    let mut rows = CUDA_OF_TORCH.iter();
    let row = rows.find(|(of, first, last, _)| *of == major && (*first..=*last).contains(&minor));
    row.map(|(.., cuda)| *cuda)
}

/// Returns the build of a torch version that the main index has, `cu121`.
#[must_use]
pub fn find_plain_build(version: &str) -> Option<String> {
    cuda_of_torch(version).map(name_build)
}

/// `cu121` of `12.1`, `12.1.105`.
#[must_use]
pub fn name_build(cuda: &str) -> String {
    let parts: Vec<&str> = cuda.split('.').take(2).collect();
    format!("cu{}", parts.concat())
}

/// Returns the build that an index is of, as PyTorch lays its own out: `…/whl/cu121`.
#[must_use]
pub fn build_of_index(url: &str) -> Option<&str> {
    let (before, build) = url.trim_end_matches('/').rsplit_once('/')?;
    let digits = |build: &str| !build.is_empty() && build.bytes().all(|b| b.is_ascii_digit());
    let is_build = build.strip_prefix("cu").is_some_and(digits);
    (before.ends_with("/whl") && is_build).then_some(build)
}

/// A requirement as the main index meets it with this build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainRequirement {
    /// The requirement: without the build in its version, or with the versions that are of the build.
    pub text: String,
    /// Of which torch, for a sentence: `2.4.1`, `>=2.1,<2.5`.
    pub versions: String,
}

/// Returns what to ask the main index for where `text` asks for torch in this build; `None` where that has no such
/// version, or `text` is about something else.
#[must_use]
pub fn find_plain_torch(text: &str, build: &str) -> Option<PlainRequirement> {
    let parts = RequirementParts::split(text)?;
    if parts.name != "torch" {
        return None;
    }
    if let Some((version, local)) = parts.pin() {
        let is_build = local.is_none_or(|local| local == build);
        let is_plain = is_build && find_plain_build(version).as_deref() == Some(build);
        return is_plain.then(|| PlainRequirement {
            text: without_build(text, build),
            versions: version.to_owned(),
        });
    }
    let asked = VersionSpecifiers::from_str(parts.versions).ok()?;
    let versions = versions_of_build(build)?;
    let mut of_build = CUDA_OF_TORCH
        .iter()
        .filter(|row| name_build(row.3) == build);
    let is_met = of_build.any(|(major, first, last, _)| {
        let mut minors = *first..=*last;
        minors.any(|minor| {
            let mut patches = 0..=MAX_PATCH;
            patches.any(|patch| asked.contains(&Version::new([*major, minor, patch])))
        })
    });
    is_met.then(|| PlainRequirement {
        text: parts.narrowed_to(&versions),
        versions,
    })
}

/// Returns a requirement of torch's family without this build in its version; any other as it is.
#[must_use]
pub fn without_build(text: &str, build: &str) -> String {
    let local = RequirementParts::split(text)
        .filter(|parts| FAMILY.contains(&parts.name.as_str()))
        .and_then(|parts| Some(parts.pin()?.1? == build));
    match local {
        Some(true) => text.replacen(&format!("+{build}"), "", 1),
        _ => text.to_owned(),
    }
}

/// Says why the main index does where its torch of `versions` is of this build.
#[must_use]
pub fn explain_plain_build(versions: &str, build: &str) -> String {
    format!("torch {versions} of the main index is this build ({build}), so it is not needed")
}

/// The versions of torch that the main index has in a build, `>=2.1,<2.5`.
fn versions_of_build(build: &str) -> Option<String> {
    let mut rows = CUDA_OF_TORCH
        .iter()
        .filter(|row| name_build(row.3) == build);
    let (major, first, ..) = rows.next()?;
    let (end_major, _, last, _) = rows.next_back().unwrap_or_else(|| {
        let mut rows = CUDA_OF_TORCH.iter();
        rows.find(|row| name_build(row.3) == build)
            .expect("it was found above")
    });
    Some(format!(">={major}.{first},<{end_major}.{}", last + 1))
}

/// A requirement (PEP 508) without an address.
struct RequirementParts<'a> {
    /// Normalised.
    name: String,
    /// The name and the extras, as written.
    begin: &'a str,
    /// `>=2,<3`
    versions: &'a str,
    /// With its semicolon.
    marker: &'a str,
}

impl<'a> RequirementParts<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let marker_at = text.find(';').unwrap_or(text.len());
        let (before, marker) = text.split_at(marker_at);
        if before.contains('@') {
            return None;
        }
        let at = before.find(['<', '>', '=', '~', '!', '(']);
        let (begin, versions) = before.split_at(at.unwrap_or(before.len()));
        let name = begin.split('[').next().unwrap_or_default();
        Some(Self {
            name: normalize_project_name(name.trim())?,
            begin: begin.trim_end(),
            versions: versions.trim().trim_matches(['(', ')']),
            marker,
        })
    }

    /// The version of `==`, and its build.
    fn pin(&self) -> Option<(&'a str, Option<&'a str>)> {
        let version = self.versions.strip_prefix("==")?;
        let version = version.trim_start_matches('=').trim();
        if version.contains([',', '*']) {
            return None;
        }
        Some(match version.split_once('+') {
            Some((version, local)) => (version, Some(local)),
            None => (version, None),
        })
    }

    fn narrowed_to(&self, versions: &str) -> String {
        let both = match self.versions {
            "" => versions.to_owned(),
            own => format!("{},{versions}", own.trim_end_matches(',')),
        };
        let marker = match self.marker {
            "" => String::new(),
            marker => format!(" {marker}"),
        };
        format!("{}{both}{marker}", self.begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_the_main_index_are_known() {
        for (torch, build) in [
            ("2.4.1", Some("cu121")),
            ("2.0.0", Some("cu117")),
            ("1.13.1", Some("cu117")),
            ("1.12.1", Some("cu102")),
            ("2.11.0", Some("cu130")),
            ("2.4.1+cu118", Some("cu121")),
            ("2.6.*", Some("cu124")),
            ("99.0", None),
            ("latest", None),
        ] {
            assert_eq!(find_plain_build(torch).as_deref(), build, "{torch}");
        }
        for (url, build) in [
            ("https://i.example.org/whl/cu121", Some("cu121")),
            ("https://i.example.org/pytorch/whl/cu121/", Some("cu121")),
            ("https://i.example.org/whl/nightly/cu121", None),
            ("https://i.example.org/whl/cpu", None),
            ("https://i.example.org/whl/cu", None),
            ("https://i.example.org/simple", None),
        ] {
            assert_eq!(build_of_index(url), build, "{url}");
        }
    }

    #[test]
    fn torch_of_the_main_index_takes_the_place_of_a_build() {
        for (text, build, plain) in [
            ("torch==2.4.1", "cu121", Some("torch==2.4.1")),
            ("torch==2.4.1+cu121", "cu121", Some("torch==2.4.1")),
            (
                "torch == 2.4.1+cu121 ; sys_platform == 'linux'",
                "cu121",
                Some("torch == 2.4.1 ; sys_platform == 'linux'"),
            ),
            ("torch==2.4.1+cu118", "cu121", None),
            ("torch==2.4.1", "cu118", None),
            ("torch", "cu121", Some("torch>=2.1,<2.5")),
            ("torch>=2.2,<3", "cu121", Some("torch>=2.2,<3,>=2.1,<2.5")),
            (
                "torch~=2.4.0; sys_platform == 'linux'",
                "cu121",
                Some("torch~=2.4.0,>=2.1,<2.5 ; sys_platform == 'linux'"),
            ),
            (
                "torch[opt]>=1.13",
                "cu117",
                Some("torch[opt]>=1.13,>=1.13,<2.1"),
            ),
            ("torch (>=2)", "cu128", Some("torch>=2,>=2.8,<2.11")),
            ("torch==2.4.*", "cu121", Some("torch==2.4.*,>=2.1,<2.5")),
            ("torch>=2.5", "cu121", None),
            ("torch", "cu118", None),
            ("numpy", "cu121", None),
            (
                "torch @ https://example.org/torch-2.4.1-py3-none-any.whl",
                "cu121",
                None,
            ),
        ] {
            let found = find_plain_torch(text, build).map(|plain| plain.text);
            assert_eq!(found.as_deref(), plain, "{text} {build}");
        }
    }
}
