//! `[build]` and `[stage.NAME]`: how an image is made.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::parse::{is_name, validate_value};
use super::{Spec, SpecError};
use crate::units::UnitError;

/// The name under which a lock keeps what the image itself has more than the environment. No stage
/// can have it.
pub const IMAGE: &str = "image";

/// `[build]`: what its image has beside the packages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BuildSpec {
    /// Files and folders of the project that lie in [`WORKSPACE`](super::WORKSPACE), relative to the spec. None where
    /// it is absent: an image is an environment, and no secret gets into it by accident.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Whether it has the bytecode of its packages; yes where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytecode: Option<bool>,
    /// The most layers that packages are spread over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// What size it is made in; [`Variant::Runtime`] where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
    /// Cards that a slim image is made for, by name (`RTX 4090`) or compute capability (`8.9`):
    /// device code that none of them runs is left out. Every card where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<String>,
    /// Removals of [`Variant::Slim`] that are not wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<Removal>,
    /// What stages made: see [`CopySpec`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<CopySpec>,
    /// Lines for bash that are run inside, as root in [`WORKSPACE`](super::WORKSPACE), one after the other. What each
    /// changes is a layer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// Whether they have the machine's network; no where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

/// `[stage.NAME]`: an environment in which something is built.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct StageSpec {
    /// What it is made with; [`Variant::Devel`] where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
    /// Debian packages beside the environment's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<String>,
    /// Python packages beside the environment's (PEP 508).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<String>,
    /// As `[build] files`, for this stage alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// What other stages made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<CopySpec>,
    /// As `[build] run`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// As `[build] network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

impl StageSpec {
    /// What it is made with.
    #[must_use]
    pub fn variant_or_default(&self) -> Variant {
        self.variant.unwrap_or(Variant::Devel)
    }
}

/// What has to be locked for one purpose beside the environment's own packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StageRequirements {
    /// A stage's name, or [`IMAGE`].
    pub name: String,
    /// What compiles extensions.
    pub devel: bool,
    /// Debian packages.
    pub system: Vec<String>,
    /// Python packages.
    pub python: Vec<String>,
}

impl Spec {
    /// What has to be locked beside the environment, sorted by name: for the image where it is a
    /// [`Variant::Devel`], and for stages.
    #[must_use]
    pub fn stage_requirements(&self) -> Vec<StageRequirements> {
        let image = StageRequirements {
            name: IMAGE.to_owned(),
            devel: self.build.variant == Some(Variant::Devel),
            system: Vec::new(),
            python: Vec::new(),
        };
        let stages = self.stages.iter().map(|(name, stage)| StageRequirements {
            name: name.clone(),
            devel: stage.variant_or_default() == Variant::Devel,
            system: stage.system.clone(),
            python: stage.python.clone(),
        });
        let any = |more: &StageRequirements| {
            more.devel || !more.system.is_empty() || !more.python.is_empty()
        };
        let mut all: Vec<StageRequirements> = stages.chain([image]).filter(any).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The rules of `[build]` and of stages that a type cannot say.
    pub(super) fn check_build(&self) -> Result<(), SpecError> {
        let lines = self.stages.values().flat_map(|stage| &stage.run);
        let line = lines.chain(&self.build.run).find(|line| !is_line(line));
        validate_value(
            "run",
            line.map(String::as_str),
            is_line,
            "each is a line for bash, such as \"pip install --no-deps ./ext\"",
        )?;
        validate_value(
            "stage",
            self.stages
                .keys()
                .map(String::as_str)
                .find(|name| !is_stage(name)),
            is_stage,
            "letters, digits, `.`, `_` and `-`, 63 at most, and not `image`",
        )?;
        let not_slim = self.build.variant != Some(Variant::Slim);
        validate_value(
            "build.cards",
            self.build
                .cards
                .first()
                .map(String::as_str)
                .filter(|_| not_slim),
            |_| false,
            "only `variant = \"slim\"` is made for some cards; every other is for all",
        )?;
        let slim = |(_, stage): &(&String, &StageSpec)| stage.variant_or_default() == Variant::Slim;
        validate_value(
            "stage.variant",
            self.stages.iter().find(slim).map(|_| "slim"),
            |_| false,
            "a stage is `devel` or `runtime`: nothing of it is in the image but what is copied",
        )?;
        let copies = self.stages.values().flat_map(|stage| &stage.copy);
        let unknown = |copy: &&CopySpec| !self.stages.contains_key(&copy.stage);
        validate_value(
            "copy",
            copies
                .chain(&self.build.copy)
                .find(unknown)
                .map(|copy| copy.stage.as_str()),
            |_| false,
            "it begins with the name of a stage: `[stage.NAME]`",
        )?;
        // Each round takes the stages whose sources are taken; what stays then waits for itself.
        let mut waiting: Vec<(&String, &StageSpec)> = self.stages.iter().collect();
        loop {
            let names: Vec<&String> = waiting.iter().map(|(name, _)| *name).collect();
            waiting.retain(|(_, stage)| stage.copy.iter().any(|copy| names.contains(&&copy.stage)));
            if waiting.len() == names.len() {
                break;
            }
        }
        validate_value(
            "stage",
            waiting.first().map(|(name, _)| name.as_str()),
            |_| false,
            "no stage copies from itself, nor from one that copies from it",
        )
    }
}

fn is_stage(name: &str) -> bool {
    is_name(name) && name != IMAGE
}

/// What can be handed to a shell, and says something.
fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains('\0')
}

/// `STAGE:SOURCE:TARGET`: what lies at SOURCE in a stage that has been built, at TARGET. Both are
/// absolute paths; SOURCE may have the wildcards of a shell; a TARGET that ends with `/` is the
/// folder that it is put in, and otherwise its new name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySpec {
    /// The stage's name.
    pub stage: String,
    /// In the stage.
    pub source: String,
    /// In the image, or in the stage that copies.
    pub target: String,
}

impl FromStr for CopySpec {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError {
            text: text.to_owned(),
            expected: "a copy such as builder:/out/x.so:/opt/x.so (STAGE:SOURCE:TARGET, both paths \
                       absolute)",
        };
        let straight = |path: &str| {
            path.starts_with('/')
                && path != "/"
                && !path.contains('\0')
                && !path.split('/').any(|part| part == "..")
        };
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [stage, source, target]
                if !stage.is_empty() && straight(source) && straight(target) =>
            {
                Ok(Self {
                    stage: stage.to_owned(),
                    source: source.to_owned(),
                    target: target.to_owned(),
                })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for CopySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.stage, self.source, self.target)
    }
}

crate::units::serde_as_text!(CopySpec);

/// What size an image is made in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Everything that its packages have.
    #[default]
    Runtime,
    /// Without what is needed neither to import nor to run: see [`Removal`].
    Slim,
    /// With what compiles extensions: a C and C++ compiler, make, ninja, Python's headers, pip and
    /// setuptools, and nvcc where there is one for the CUDA of its torch.
    Devel,
}

/// What a slim image leaves out. `docs/images.md` says for each why it can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// Triton's libraries for AMD's cards, where torch is made for NVIDIA's.
    Amd,
    /// Bytecode that wheels bring, which the image's own repeats.
    Bytecode,
    /// The environment's compiler.
    Compiler,
    /// Machine code and PTX that no card of `[build] cards` runs.
    DeviceCode,
    /// Manuals, translations and the like.
    Docs,
    /// Headers of C, C++ and CUDA.
    Headers,
    /// Static libraries.
    Static,
    /// Type stubs.
    Stubs,
    /// Symbol tables that the loader does not use, and debug information.
    Symbols,
    /// Packages `tests` and `test` inside of other packages.
    Tests,
}

impl Removal {
    /// All, in the order of their names.
    pub const ALL: [Self; 10] = [
        Self::Amd,
        Self::Bytecode,
        Self::Compiler,
        Self::DeviceCode,
        Self::Docs,
        Self::Headers,
        Self::Static,
        Self::Stubs,
        Self::Symbols,
        Self::Tests,
    ];

    /// As it is written in a spec.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd => "amd",
            Self::Bytecode => "bytecode",
            Self::Compiler => "compiler",
            Self::DeviceCode => "device-code",
            Self::Docs => "docs",
            Self::Headers => "headers",
            Self::Static => "static",
            Self::Stubs => "stubs",
            Self::Symbols => "symbols",
            Self::Tests => "tests",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hint as _;

    const STAGES: &str = r#"
[build]
copy = ["wheel:/out/*.whl:/opt/wheels/"]
[stage.wheel]
system = ["git"]
copy = ["source:/src:/src"]
run = ["make"]
[stage.source]
variant = "runtime"
run = ["true"]
"#;

    #[test]
    fn stages_say_what_has_to_be_locked() {
        let spec = Spec::parse(STAGES).unwrap();
        let copy = &spec.build.copy[0];
        assert_eq!(
            (
                copy.stage.as_str(),
                copy.source.as_str(),
                copy.target.as_str()
            ),
            ("wheel", "/out/*.whl", "/opt/wheels/")
        );
        let names = |spec: &Spec| {
            spec.stage_requirements()
                .into_iter()
                .map(|more| more.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&spec), ["wheel"]);
        let devel = Spec::parse("[build]\nvariant = \"devel\"").unwrap();
        assert_eq!(names(&devel), [IMAGE]);
        // Steps and copies do not decide the lock; packages do.
        let inputs = |from: &str, to: &str| {
            Spec::parse(&STAGES.replace(from, to))
                .unwrap()
                .lock_inputs()
        };
        assert_eq!(inputs("make", "make all"), spec.lock_inputs());
        assert_ne!(inputs("git", "curl"), spec.lock_inputs());
        assert_ne!(inputs("variant = \"runtime\"", ""), spec.lock_inputs());
        assert_eq!(
            Spec::parse("[stage.a]\nvariant = \"runtime\"")
                .unwrap()
                .lock_inputs(),
            Spec::parse("").unwrap().lock_inputs()
        );
    }

    #[test]
    fn what_is_wrong_with_stages_is_named() {
        let copy = |copies: &str| format!("[build]\ncopy = [\"{copies}\"]\n[stage.a]\n[stage.b]");
        for (text, message) in [
            (copy("c:/x:/y"), "`copy` cannot be `c`"),
            ("[stage.image]".to_owned(), "`stage` cannot be `image`"),
            ("[stage.\"a/b\"]".to_owned(), "`stage` cannot be `a/b`"),
            (
                "[build]\ncards = [\"h100\"]".to_owned(),
                "`build.cards` cannot be `h100`",
            ),
            (
                "[stage.a]\nvariant = \"slim\"".to_owned(),
                "`stage.variant` cannot be `slim`",
            ),
            ("[stage.a]\nrun = [\" \"]".to_owned(), "`run` cannot be ` `"),
            (
                "[stage.a]\ncopy = [\"b:/x:/y\"]\n[stage.b]\ncopy = [\"a:/x:/y\"]\n[stage.c]"
                    .to_owned(),
                "`stage` cannot be `a`",
            ),
            (
                "[stage.a]\ncopy = [\"a:/x:/y\"]".to_owned(),
                "`stage` cannot be `a`",
            ),
        ] {
            let error = Spec::parse(&text).expect_err(&text);
            assert_eq!(error.to_string(), message, "{text}");
            assert!(error.hint().is_some());
        }
        for wrong in [
            "a",
            "a:/x",
            "a:x:/y",
            "a:/x:y",
            "a:/../x:/y",
            ":/x:/y",
            "a:/x:/y:z",
            "a:/:/y",
        ] {
            let error = Spec::parse(&copy(wrong)).expect_err(wrong);
            assert!(
                error.to_string().contains("is not a copy such as"),
                "{error}"
            );
        }
    }
}
