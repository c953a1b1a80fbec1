//! Which build of torch a file asks for: by `+cu121`, by an index of such builds, by conda's parts of CUDA. The main
//! index has one build of each version; where that is the one, nothing else is needed.

use sconce_formats::torch_builds::{
    build_of_index, explain_plain_build, find_plain_build, find_plain_torch, name_build,
    without_build,
};

use super::requirement::{self, Requirement};

/// The build that is asked for, and torch as the main index has it.
struct PlainBuild {
    build: String,
    /// Of which torch.
    versions: String,
}

/// The build that is asked for, where the main index has it for every torch that is required.
fn find_asked_build(requirements: &[Requirement], indexes: &[String]) -> Option<PlainBuild> {
    let torch = || requirements.iter().filter(|r| r.name == "torch");
    let pinned = torch().find_map(|torch| Some(torch.pinned_version()?.split_once('+')?.1));
    let mut of_indexes = indexes.iter().filter_map(|url| build_of_index(url));
    let build = pinned.or_else(|| of_indexes.next())?;
    let plain = torch().map(|torch| find_plain_torch(&torch.text, build));
    let plain: Vec<_> = plain.collect::<Option<_>>()?;
    Some(PlainBuild {
        build: build.to_owned(),
        versions: plain.into_iter().next()?.versions,
    })
}

/// Whether the build that is asked for is the one that the main index has.
pub(super) fn asks_for_plain_build(requirements: &[Requirement], indexes: &[String]) -> bool {
    find_asked_build(requirements, indexes).is_some()
}

/// Takes the build out of versions, and its index out of the indexes, where the main index has it; torch whose version
/// is open is narrowed to those of the build. Gives what to say of it: the thing, and why.
pub(super) fn drop_plain_build(
    requirements: &mut [Requirement],
    indexes: &mut Vec<String>,
) -> Vec<(String, String)> {
    let Some(PlainBuild { build, versions }) = find_asked_build(requirements, indexes) else {
        return Vec::new();
    };
    let mut said = Vec::new();
    let why = explain_plain_build(&versions, &build);
    for one in requirements.iter_mut() {
        let text = match find_plain_torch(&one.text, &build) {
            Some(plain) => plain.text,
            None => without_build(&one.text, &build),
        };
        if text != one.text
            && let Ok(plain) = requirement::parse(&text)
        {
            if one.text.contains('+') {
                said.push((one.text.clone(), why.clone()));
            }
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
        // Open versions are narrowed.
        let mut asked = requirements(&["torch>=2.2", "torchvision"]);
        let said = drop_plain_build(&mut asked, &mut vec![url.clone()]);
        assert_eq!(asked[0].text, "torch>=2.2,>=2.1,<2.5");
        assert!(said[0].1.contains("torch >=2.1,<2.5 of the main index"));
        for texts in [
            &["torch==2.4.1+cu118"][..],
            &["torch==2.3.1+cu118"],
            &["torch>=2.5"],
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
