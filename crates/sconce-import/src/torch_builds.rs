//! Which build of torch a file asks for: by `+cu121`, by an index of such builds, by conda's parts of CUDA. The main
//! index has one build of each version; where that is the one, nothing else is needed.

use super::release::usual_cuda;
use super::requirement::{self, Requirement};
use super::specifier::parse_numbers;

/// What is built together, and has the build in its version.
const FAMILY: [&str; 5] = [
    "torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "torchdata",
];

/// The build of a torch version that the main index has, `cu121`.
pub(super) fn find_plain_build(torch: &str) -> Option<String> {
    let numbers = parse_numbers(torch)?;
    let cuda = match numbers.as_slice() {
        [1, 13, ..] => "11.7",
        [1, 5..=12, ..] => "10.2",
        numbers => usual_cuda(numbers)?,
    };
    Some(name_build(cuda))
}

/// `cu121` of `12.1`, `12.1.105`.
pub(super) fn name_build(cuda: &str) -> String {
    let parts: Vec<&str> = cuda.split('.').take(2).collect();
    format!("cu{}", parts.concat())
}

/// The build that an index is of, as PyTorch lays its own out: `…/whl/cu121`.
pub(super) fn build_of_index(url: &str) -> Option<&str> {
    let (before, build) = url.trim_end_matches('/').rsplit_once('/')?;
    let digits = |build: &str| !build.is_empty() && build.bytes().all(|b| b.is_ascii_digit());
    let is_build = build.strip_prefix("cu").is_some_and(digits);
    (before.ends_with("/whl") && is_build).then_some(build)
}

/// The version of torch and the build that are asked for.
fn asked_build(requirements: &[Requirement], indexes: &[String]) -> Option<(String, String)> {
    let torch = requirements.iter().find(|r| r.name == "torch")?;
    let pin = torch.pinned_version()?;
    let (version, build) = match pin.split_once('+') {
        Some((version, build)) => (version, Some(build)),
        None => (pin, None),
    };
    let mut of_indexes = indexes.iter().filter_map(|url| build_of_index(url));
    let build = build.or_else(|| of_indexes.next())?;
    Some((version.to_owned(), build.to_owned()))
}

/// Whether the build that is asked for is the one that the main index has.
pub(super) fn asks_for_plain_build(requirements: &[Requirement], indexes: &[String]) -> bool {
    let asked = asked_build(requirements, indexes);
    asked.is_some_and(|(version, build)| find_plain_build(&version) == Some(build))
}

/// Takes the build out of versions, and its index out of the indexes, where the main index has it. Gives what to say
/// of it: the thing, and why.
pub(super) fn drop_plain_build(
    requirements: &mut [Requirement],
    indexes: &mut Vec<String>,
) -> Vec<(String, String)> {
    let Some((version, build)) = asked_build(requirements, indexes) else {
        return Vec::new();
    };
    if find_plain_build(&version).as_ref() != Some(&build) {
        return Vec::new();
    }
    let mut said = Vec::new();
    let suffix = format!("+{build}");
    let why =
        format!("torch {version} of the main index is this build ({build}), so it is not needed");
    for one in requirements.iter_mut() {
        let is_family = FAMILY.contains(&one.name.as_str());
        let ends = one
            .pinned_version()
            .is_some_and(|pin| pin.ends_with(&suffix));
        if is_family
            && ends
            && let Ok(plain) = requirement::parse(&one.text.replacen(&suffix, "", 1))
        {
            said.push((one.text.clone(), why.clone()));
            *one = plain;
        }
    }
    indexes.retain(|url| {
        let is_plain = build_of_index(url) == Some(build.as_str());
        if is_plain {
            said.push((url.clone(), why.clone()));
        }
        !is_plain
    });
    said
}

/// What to decide where conda asks for a CUDA that the main index's torch is not built for; `None` where it is, or
/// where nothing is known of it.
pub(super) fn explain_other_build(torch: &str, cuda: &str) -> Option<String> {
    let version = torch.split('+').next().unwrap_or_default();
    let wanted = name_build(cuda);
    let plain = find_plain_build(version)?;
    (plain != wanted).then(|| {
        format!(
            "torch {version} of the main index is built for {plain}: where that will not do, write `torch=={version}+{wanted}` and name PyTorch's own index, whose address ends in /whl/{wanted}, as `[python] extra-index`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(texts: &[&str]) -> Vec<Requirement> {
        texts
            .iter()
            .map(|text| requirement::parse(text).unwrap())
            .collect()
    }

    #[test]
    fn builds_of_the_main_index_are_known() {
        for (torch, build) in [
            ("2.4.1", Some("cu121")),
            ("2.0.0", Some("cu117")),
            ("1.13.1", Some("cu117")),
            ("1.12.1", Some("cu102")),
            ("2.11.0", Some("cu130")),
            ("99.0", None),
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
    fn what_the_main_index_has_needs_no_other() {
        let url = "https://i.example.org/whl/cu121".to_owned();
        let mut asked = requirements(&["torch==2.4.1+cu121", "torchvision==0.19.1+cu121", "numpy"]);
        let mut indexes = vec![url.clone(), "https://i.example.org/simple".to_owned()];
        assert!(asks_for_plain_build(&asked, &indexes));
        let said = drop_plain_build(&mut asked, &mut indexes);
        let texts: Vec<&str> = asked.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["torch==2.4.1", "torchvision==0.19.1", "numpy"]);
        assert_eq!(indexes, ["https://i.example.org/simple"]);
        assert_eq!(said.len(), 3);
        // The index alone names the build.
        let mut asked = requirements(&["torch==2.4.1"]);
        assert_eq!(
            drop_plain_build(&mut asked, &mut vec![url.clone()]).len(),
            1
        );
        for texts in [
            &["torch==2.4.1+cu118"][..],
            &["torch==2.3.1+cu118"],
            &["torch>=2"],
            &["numpy"],
        ] {
            let mut asked = requirements(texts);
            let mut indexes = vec![url.clone()];
            assert!(
                drop_plain_build(&mut asked, &mut indexes).is_empty(),
                "{texts:?}"
            );
            assert_eq!((asked, indexes), (requirements(texts), vec![url.clone()]));
        }
    }

    #[test]
    fn another_cuda_of_conda_is_a_question() {
        assert_eq!(explain_other_build("2.4.1", "12.1"), None);
        let why = explain_other_build("1.12.1", "11.3").unwrap();
        assert!(
            why.contains("built for cu102") && why.contains("`torch==1.12.1+cu113`"),
            "{why}"
        );
    }
}
