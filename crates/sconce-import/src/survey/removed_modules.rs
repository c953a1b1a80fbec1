//! Modules that a later version of their project does not have any more: code that imports one wants an older
//! version, whatever its author wrote down. Kept by hand.

use super::own_imports::OwnImport;

/// A version that the code asks for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionWish {
    /// `openai<1`
    pub(super) requirement: &'static str,
    pub(super) file: String,
    pub(super) line: usize,
}

/// A module, or a name in one, and the versions that have it. By module.
const REMOVED: [(&str, &str); 20] = [
    ("datasets.load_metric", "datasets<3"),
    ("gym.wrappers.Monitor", "gym<0.23"),
    ("huggingface_hub.cached_download", "huggingface-hub<0.26"),
    ("moviepy.editor", "moviepy<2"),
    ("numba.decorators", "numba<0.50"),
    ("openai.error", "openai<1"),
    ("openai.openai_object", "openai<1"),
    ("pkg_resources", "setuptools<81"),
    ("pytorch_lightning.metrics", "pytorch-lightning<1.5"),
    (
        "pytorch_lightning.utilities.distributed",
        "pytorch-lightning<2",
    ),
    ("skimage.measure.compare_psnr", "scikit-image<0.18"),
    ("skimage.measure.compare_ssim", "scikit-image<0.18"),
    ("sklearn.datasets.load_boston", "scikit-learn<1.2"),
    ("sklearn.externals.joblib", "scikit-learn<0.23"),
    ("sklearn.externals.six", "scikit-learn<0.23"),
    ("torch._six", "torch<2"),
    ("torchtext.legacy", "torchtext<0.12"),
    ("torchvision.models.utils", "torchvision<0.13"),
    (
        "torchvision.transforms.functional_tensor",
        "torchvision<0.17",
    ),
    ("transformers.modeling_attn_mask_utils", "transformers<5"),
];

/// The versions that the project's own code asks for, each once.
pub(super) fn find_version_wishes(imports: &[OwnImport]) -> Vec<VersionWish> {
    let mut wishes: Vec<VersionWish> = Vec::new();
    for OwnImport { file, statement } in imports {
        let module = &statement.module;
        let names = statement
            .names
            .iter()
            .map(|name| format!("{module}.{name}"));
        for asked in std::iter::once(module.clone()).chain(names) {
            let Some(requirement) = wanted_version(&asked) else {
                continue;
            };
            if wishes.iter().all(|wish| wish.requirement != requirement) {
                wishes.push(VersionWish {
                    requirement,
                    file: file.clone(),
                    line: statement.line,
                });
            }
        }
    }
    wishes
}

/// The versions that have a module: `torch._six` and what is in it.
fn wanted_version(module: &str) -> Option<&'static str> {
    let is_such = |known: &str| {
        module == known
            || module
                .strip_prefix(known)
                .is_some_and(|rest| rest.starts_with('.'))
    };
    let found = REMOVED.iter().find(|(known, _)| is_such(known));
    found.map(|(_, requirement)| *requirement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_are_gone_ask_for_a_version() {
        for (module, expected) in [
            ("openai.openai_object", Some("openai<1")),
            ("torch._six.container_abcs", Some("torch<2")),
            ("torch._sixty", None),
            ("openai", None),
            ("pkg_resources", Some("setuptools<81")),
        ] {
            assert_eq!(wanted_version(module), expected, "{module}");
        }
        assert!(REMOVED.is_sorted());
        for (_, requirement) in REMOVED {
            let parsed = super::super::super::requirement::parse(requirement);
            assert!(parsed.is_ok_and(|one| one.versioned), "{requirement}");
        }
    }
}
