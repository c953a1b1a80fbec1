//! Modules, and names in them, that a later version of their project does not have any more: code that uses one
//! wants an older version, whatever its author wrote down. Kept by hand.

use super::super::specifier::{VersionNumbers, compare_versions, parse_numbers};
use super::own_imports::{OwnCode, OwnImport};

/// A version that the code asks for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionWish {
    /// `openai<1`
    pub(super) requirement: &'static str,
    /// What later versions do not have: `openai.openai_object`.
    pub(super) removed: &'static str,
    pub(super) file: String,
    pub(super) line: usize,
}

/// A module, or a name in one, and the versions that have it. By module. Each row was looked up in the newest version
/// that has it and in the next.
const REMOVED: [(&str, &str); 85] = [
    ("PIL.Image.ANTIALIAS", "pillow<10"),
    ("PIL.Image.CUBIC", "pillow<10"),
    ("PIL.Image.LINEAR", "pillow<10"),
    ("datasets.load_metric", "datasets<3"),
    ("gym.wrappers.Monitor", "gym<0.23"),
    ("huggingface_hub.cached_download", "huggingface-hub<0.26"),
    ("matplotlib.cm.get_cmap", "matplotlib<3.11"),
    ("matplotlib.cm.register_cmap", "matplotlib<3.9"),
    ("matplotlib.pyplot.cm.get_cmap", "matplotlib<3.11"),
    ("moviepy.editor", "moviepy<2"),
    ("networkx.from_numpy_matrix", "networkx<3"),
    ("networkx.from_scipy_sparse_matrix", "networkx<3"),
    ("networkx.info", "networkx<3"),
    ("networkx.read_gpickle", "networkx<3"),
    ("networkx.to_numpy_matrix", "networkx<3"),
    ("networkx.to_scipy_sparse_matrix", "networkx<3"),
    ("networkx.write_gpickle", "networkx<3"),
    ("numba.decorators", "numba<0.50"),
    ("numpy.Inf", "numpy<2"),
    ("numpy.Infinity", "numpy<2"),
    ("numpy.NAN", "numpy<2"),
    ("numpy.NINF", "numpy<2"),
    ("numpy.NaN", "numpy<2"),
    ("numpy.PINF", "numpy<2"),
    ("numpy.alltrue", "numpy<2"),
    ("numpy.asfarray", "numpy<2"),
    ("numpy.cast", "numpy<2"),
    ("numpy.complex", "numpy<1.24"),
    ("numpy.complex_", "numpy<2"),
    ("numpy.cumproduct", "numpy<2"),
    ("numpy.deprecate", "numpy<2"),
    ("numpy.disp", "numpy<2"),
    ("numpy.find_common_type", "numpy<2"),
    ("numpy.float", "numpy<1.24"),
    ("numpy.float_", "numpy<2"),
    ("numpy.in1d", "numpy<2.4"),
    ("numpy.infty", "numpy<2"),
    ("numpy.int", "numpy<1.24"),
    ("numpy.issubsctype", "numpy<2"),
    ("numpy.lookfor", "numpy<2"),
    ("numpy.mat", "numpy<2"),
    ("numpy.msort", "numpy<2"),
    ("numpy.object", "numpy<1.24"),
    ("numpy.product", "numpy<2"),
    ("numpy.round_", "numpy<2"),
    ("numpy.sctypes", "numpy<2"),
    ("numpy.sometrue", "numpy<2"),
    ("numpy.str", "numpy<1.24"),
    ("numpy.string_", "numpy<2"),
    ("numpy.trapz", "numpy<2.4"),
    ("numpy.typeDict", "numpy<1.24"),
    ("numpy.unicode", "numpy<1.24"),
    ("numpy.unicode_", "numpy<2"),
    ("openai.error", "openai<1"),
    ("openai.openai_object", "openai<1"),
    ("pandas.Int64Index", "pandas<2"),
    ("pandas.datetime", "pandas<2"),
    ("pandas.np", "pandas<2"),
    ("pkg_resources", "setuptools<81"),
    ("pytorch_lightning.metrics", "pytorch-lightning<1.5"),
    (
        "pytorch_lightning.utilities.distributed",
        "pytorch-lightning<2",
    ),
    ("scipy.integrate.cumtrapz", "scipy<1.14"),
    ("scipy.integrate.simps", "scipy<1.14"),
    ("scipy.integrate.trapz", "scipy<1.14"),
    ("scipy.linalg.tri", "scipy<1.13"),
    ("scipy.signal.gaussian", "scipy<1.13"),
    ("scipy.signal.hamming", "scipy<1.13"),
    ("scipy.signal.hann", "scipy<1.13"),
    ("scipy.stats.binom_test", "scipy<1.12"),
    ("skimage.measure.compare_psnr", "scikit-image<0.18"),
    ("skimage.measure.compare_ssim", "scikit-image<0.18"),
    ("sklearn.datasets.load_boston", "scikit-learn<1.2"),
    ("sklearn.externals.joblib", "scikit-learn<0.23"),
    ("sklearn.externals.six", "scikit-learn<0.23"),
    ("torch._six", "torch<2"),
    ("torch._utils._accumulate", "torch<2.3"),
    ("torchtext.legacy", "torchtext<0.12"),
    ("torchvision.models.utils", "torchvision<0.13"),
    (
        "torchvision.transforms.functional_tensor",
        "torchvision<0.17",
    ),
    ("transformers.AdamW", "transformers<4.50"),
    ("transformers.AutoModelWithLMHead", "transformers<5"),
    ("transformers.TRANSFORMERS_CACHE", "transformers<5"),
    ("transformers.modeling_attn_mask_utils", "transformers<5"),
    (
        "transformers.modeling_utils.apply_chunking_to_forward",
        "transformers<5",
    ),
    ("transformers.optimization.AdamW", "transformers<4.50"),
];

/// The versions that the project's own code asks for, the lowest bound of each project.
pub(super) fn find_version_wishes(code: &OwnCode) -> Vec<VersionWish> {
    let mut wishes: Vec<VersionWish> = Vec::new();
    let mut wish = |path: &str, file: &str, line: usize| {
        let Some((removed, requirement)) = find_removed(path) else {
            return;
        };
        if wishes.iter().all(|wish| wish.requirement != requirement) {
            wishes.push(VersionWish {
                requirement,
                removed,
                file: file.to_owned(),
                line,
            });
        }
    };
    for OwnImport { file, statement } in &code.imports {
        let module = &statement.module;
        wish(module, file, statement.line);
        for name in &statement.names {
            wish(&format!("{module}.{name}"), file, statement.line);
        }
    }
    for used in &code.uses {
        wish(&used.path, &used.file, used.line);
    }
    let bounds: Vec<(&str, VersionNumbers)> = wishes.iter().filter_map(bound).collect();
    wishes.retain(|wish| {
        bound(wish).is_none_or(|(project, own)| {
            let mut others = bounds.iter().filter(|(name, _)| *name == project);
            others.all(|(_, other)| compare_versions(&own, other).is_le())
        })
    });
    wishes
}

fn bound(wish: &VersionWish) -> Option<(&'static str, VersionNumbers)> {
    let (project, version) = wish.requirement.split_once('<')?;
    Some((project, parse_numbers(version)?))
}

/// Whether a later version of its project does not have it.
pub(super) fn is_removed(path: &str) -> bool {
    find_removed(path).is_some()
}

/// What is gone of a module or name, and the versions that have it: `torch._six` and what is in it.
fn find_removed(path: &str) -> Option<(&'static str, &'static str)> {
    let is_such = |known: &str| {
        path == known
            || path
                .strip_prefix(known)
                .is_some_and(|rest| rest.starts_with('.'))
    };
    REMOVED.iter().find(|(known, _)| is_such(known)).copied()
}

/// The newest Python, 11 for 3.11, that the versions of such a requirement have wheels for: by the index, of the newest of
/// them. What is not here is of any Python.
const NEWEST_PYTHONS: [(&str, u32); 14] = [
    ("matplotlib<3.9", 12),
    ("numba<0.50", 8),
    ("numpy<1.24", 11),
    ("numpy<2", 12),
    ("pandas<2", 11),
    ("pillow<10", 11),
    ("scikit-image<0.18", 8),
    ("scikit-learn<0.23", 8),
    ("scikit-learn<1.2", 11),
    ("scipy<1.12", 12),
    ("scipy<1.13", 12),
    ("scipy<1.14", 12),
    ("torch<2", 11),
    ("torch<2.3", 12),
];

impl VersionWish {
    /// The newest Python that has wheels of it, 11 for 3.11.
    pub(super) fn newest_python(&self) -> Option<u32> {
        let mut rows = NEWEST_PYTHONS.iter();
        let row = rows.find(|(requirement, _)| *requirement == self.requirement)?;
        Some(row.1)
    }
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
            ("torch._utils._accumulate", Some("torch<2.3")),
            ("openai", None),
            ("pkg_resources", Some("setuptools<81")),
            ("numpy.float", Some("numpy<1.24")),
            ("numpy.float32", None),
            ("numpy.Inf", Some("numpy<2")),
            ("PIL.Image.ANTIALIAS", Some("pillow<10")),
        ] {
            let found = find_removed(module).map(|(_, requirement)| requirement);
            assert_eq!(found, expected, "{module}");
        }
        assert!(REMOVED.is_sorted());
        for (requirement, _) in NEWEST_PYTHONS {
            assert!(
                REMOVED.iter().any(|row| row.1 == requirement),
                "{requirement}"
            );
        }
        for (_, requirement) in REMOVED {
            let parsed = super::super::super::requirement::parse(requirement);
            assert!(parsed.is_ok_and(|one| one.versioned), "{requirement}");
        }
    }
}
