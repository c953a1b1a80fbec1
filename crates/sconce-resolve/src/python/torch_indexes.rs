//! Indexes of torch's builds (`…/whl/cu118`). They also have what torch needs, NumPy for example, in versions of their
//! own; here they serve torch's family and NVIDIA's libraries, and the other indexes the rest.
//!
//! uv has that as an index that is explicit, which serves what a `pyproject.toml` names for it. What that is shows a
//! first call, which writes down where each package would come from.

use std::collections::{BTreeMap, BTreeSet};

use sconce_base::text::redact_url_credentials;
use toml::{Table, Value};

use super::compile::{Requirements, UvCompile};
use super::index_settings::IndexSettings;

/// What is built beside torch, or for it alone.
const FAMILY: [&str; 17] = [
    "torch",
    "torchvision",
    "torchaudio",
    "torchtext",
    "torchdata",
    "torchao",
    "torchcodec",
    "torchrec",
    "torchtune",
    "torch-tensorrt",
    "functorch",
    "fbgemm-gpu",
    "triton",
    "pytorch-triton",
    "pytorch-triton-rocm",
    "pytorch-triton-xpu",
    "xformers",
];
/// The option of a requirements file.
const OPTION: &str = "--extra-index-url";
/// How the project is called in uv's texts that wants what such indexes serve.
const WANTING: &str = "environment";

/// Requirements whose indexes of torch's builds serve nothing else.
pub(super) struct RestrictedIndexes {
    pub(super) requirements: Requirements,
    pub(super) index: IndexSettings,
    /// A `pyproject.toml`.
    pub(super) project: String,
    /// What came from these indexes before and may not.
    pub(super) refused: BTreeSet<String>,
}

/// Whether an index may be one of torch's builds, by its last folder: `cu118`, `cpu`, `rocm6.2`, `xpu`.
#[must_use]
pub fn is_build_index(url: &str) -> bool {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((_, build)) = url.trim_end_matches('/').rsplit_once('/') else {
        return false;
    };
    let numbers = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    };
    matches!(build, "cpu" | "xpu")
        || ["cu", "rocm"]
            .into_iter()
            .any(|kind| build.strip_prefix(kind).is_some_and(numbers))
}

/// The indexes that a line of a requirements file adds.
#[must_use]
pub fn added_index(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix(OPTION)?;
    let url = rest.strip_prefix('=').or_else(|| {
        let is_apart = rest.starts_with([' ', '\t']);
        is_apart.then_some(rest)
    })?;
    Some(url.split(" #").next().unwrap_or_default().trim())
}

/// The indexes of builds that would be asked.
pub(super) fn find_build_indexes(
    compile: &UvCompile<'_>,
    requirements: &Requirements,
) -> Vec<String> {
    let settings = compile
        .index
        .effective_settings(compile.pip_index, compile.environment);
    let named = settings
        .into_iter()
        .flat_map(|settings| &settings.extra_index_urls);
    let lines = requirements.file_text.iter().flat_map(|text| text.lines());
    let mut found: Vec<String> = named
        .map(String::as_str)
        .chain(lines.filter_map(added_index))
        .filter(|url| is_build_index(url))
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

impl RestrictedIndexes {
    /// By `origins`, what uv writes of packages and where it takes them from. `None` where torch comes from none of
    /// `indexes`, or they serve nothing else: then they stay as they are.
    pub(super) fn new(
        compile: &UvCompile<'_>,
        requirements: &Requirements,
        indexes: &[String],
        origins: &str,
    ) -> Option<Self> {
        let origins = read_origins(origins);
        let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut restricted, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for (number, url) in indexes.iter().enumerate() {
            let is_here = |origin: &str| plain_address(origin) == plain_address(url);
            let served = || origins.iter().filter(|(_, origin)| is_here(origin));
            if !served().any(|(name, _)| name == "torch") {
                continue;
            }
            restricted.insert(number);
            for (name, _) in served() {
                match is_of_family(name) {
                    true => {
                        sources.insert(name, number);
                    }
                    false => {
                        refused.insert(name.clone());
                    }
                }
            }
        }
        if refused.is_empty() {
            return None;
        }
        let is_restricted = |url: &str| {
            let mut numbers = restricted.iter();
            numbers.any(|number| indexes[*number] == url)
        };
        let mut requirements = requirements.clone();
        if let Some(text) = &mut requirements.file_text {
            let lines = text
                .lines()
                .filter(|line| !added_index(line).is_some_and(is_restricted));
            *text = lines.map(|line| format!("{line}\n")).collect();
        }
        let settings = compile
            .index
            .effective_settings(compile.pip_index, compile.environment);
        let mut index = settings.cloned().unwrap_or_default();
        index.extra_index_urls.retain(|url| !is_restricted(url));
        index.explicit_index_urls = restricted
            .iter()
            .map(|number| indexes[*number].clone())
            .collect();
        Some(Self {
            requirements,
            index,
            project: write_project(&sources, indexes),
            refused,
        })
    }

    /// What of `refused` a failure is about.
    pub(super) fn lacking(&self, stderr: &str) -> Vec<String> {
        let said = |name: &&String| {
            let missing = format!("{name} was not found");
            stderr.contains(&missing) || stderr.contains(&format!("{name}=="))
        };
        self.refused.iter().filter(said).cloned().collect()
    }
}

/// uv writes an address with its user and stars.
fn plain_address(url: &str) -> String {
    redact_url_credentials(url.trim_end_matches('/'))
}

fn is_of_family(name: &str) -> bool {
    FAMILY.contains(&name) || name.starts_with("nvidia-")
}

/// Each package and its index, of a requirements file that says so in a comment below each.
fn read_origins(text: &str) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    let mut package = None;
    for line in text.lines() {
        match line.trim().strip_prefix("# from ") {
            Some(url) => {
                if let Some(name) = package.take() {
                    origins.insert(name, url.to_owned());
                }
            }
            None if !line.starts_with([' ', '#']) => package = super::compile::project_of(line),
            None => {}
        }
    }
    origins
}

/// A project that needs `sources`, each from its index.
fn write_project(sources: &BTreeMap<&str, usize>, indexes: &[String]) -> String {
    let text = |text: String| Value::String(text);
    let index_name = |number: usize| format!("torch-builds-{number}");
    let names = sources.keys().map(|name| text((*name).to_owned()));
    let project = Table::from_iter([
        ("name".to_owned(), text(WANTING.to_owned())),
        ("version".to_owned(), text("0".to_owned())),
        ("dependencies".to_owned(), Value::Array(names.collect())),
    ]);
    let used: BTreeSet<usize> = sources.values().copied().collect();
    let explicit = used.iter().map(|number| {
        Value::Table(Table::from_iter([
            ("name".to_owned(), text(index_name(*number))),
            ("url".to_owned(), text(indexes[*number].clone())),
            ("explicit".to_owned(), Value::Boolean(true)),
        ]))
    });
    let explicit = Value::Array(explicit.collect());
    let sources = sources.iter().map(|(name, number)| {
        let source = Table::from_iter([("index".to_owned(), text(index_name(*number)))]);
        ((*name).to_owned(), Value::Table(source))
    });
    let uv = Table::from_iter([
        ("index".to_owned(), explicit),
        ("sources".to_owned(), Value::Table(sources.collect())),
    ]);
    let tool = Table::from_iter([("uv".to_owned(), Value::Table(uv))]);
    Table::from_iter([
        ("project".to_owned(), Value::Table(project)),
        ("tool".to_owned(), Value::Table(tool)),
    ])
    .to_string()
}

#[cfg(test)]
mod tests {
    use sconce_formats::tags::{CpuArchitecture, WheelTarget};

    use super::*;

    #[test]
    fn builds_are_known_by_the_last_folder() {
        for (url, is) in [
            ("https://i.example.org/whl/cu118", true),
            ("https://i.example.org/whl/nightly/cu128/", true),
            ("https://i.example.org/whl/cpu", true),
            ("https://i.example.org/whl/rocm6.2", true),
            ("https://i.example.org/whl/cuda", false),
            ("https://i.example.org/whl/cu", false),
            ("https://i.example.org/simple", false),
            ("cpu", false),
        ] {
            assert_eq!(is_build_index(url), is, "{url}");
        }
        for (line, url) in [
            (
                "--extra-index-url https://i.example.org/x",
                Some("https://i.example.org/x"),
            ),
            (
                " --extra-index-url=https://i.example.org/x # torch",
                Some("https://i.example.org/x"),
            ),
            ("--extra-index-urls x", None),
            ("--index-url https://i.example.org/x", None),
            ("torch", None),
        ] {
            assert_eq!(added_index(line), url, "{line}");
        }
    }

    #[test]
    fn an_index_of_builds_serves_torchs_family() {
        let url = "https://me:secret@i.example.org/whl/cu118/".to_owned();
        let requirements = Requirements {
            file_text: Some(format!("torch==2.4.1\n--extra-index-url {url}\n")),
            ..Requirements::default()
        };
        let (index, environment) = (IndexSettings::default(), BTreeMap::new());
        let compile = UvCompile {
            uv: "uv".as_ref(),
            folder: "/".as_ref(),
            cache: "/".as_ref(),
            environment: &environment,
            index: &index,
            pip_index: &index,
            python: "3.11.2",
            target: WheelTarget {
                python_minor: 11,
                glibc_minor: 36,
                machine: CpuArchitecture::X86_64,
            },
            keep: &[],
            takes_prereleases: false,
            as_of: None,
            sources: &[],
        };
        let indexes = find_build_indexes(&compile, &requirements);
        assert_eq!(indexes, std::slice::from_ref(&url));
        let here = "https://me:****@i.example.org/whl/cu118";
        let main = "https://main.example.org/simple";
        let origins = format!(
            "numpy==1.99\n    # from {here}\nnvidia-x-cu11==1\n    # from {here}\ntimm==1\n    # from {main}\n\
             torch==2.4.1+cu118\n    # from {here}\n"
        );
        let new =
            |origins: &str| RestrictedIndexes::new(&compile, &requirements, &indexes, origins);
        let restricted = new(&origins).unwrap();
        assert_eq!(
            restricted.requirements.file_text.as_deref(),
            Some("torch==2.4.1\n")
        );
        assert_eq!(restricted.index.explicit_index_urls, indexes);
        assert_eq!(
            restricted.lacking("Because numpy was not found in"),
            ["numpy"]
        );
        let project: Table = restricted.project.parse().unwrap();
        let names = ["nvidia-x-cu11", "torch"].map(|n| Value::String(n.to_owned()));
        assert_eq!(
            project["project"]["dependencies"],
            Value::Array(names.to_vec())
        );
        assert_eq!(
            project["tool"]["uv"]["index"][0]["url"].as_str(),
            Some(&*url)
        );
        // Another project's index, of builds for torch: torch is not from it.
        assert!(new(&origins.replace("torch==2.4.1+cu118\n", "llama-cpp==1\n")).is_none());
        assert!(new(&format!("torch==2.4.1+cu118\n    # from {here}\n")).is_none());
    }
}
