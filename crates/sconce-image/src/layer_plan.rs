//! Which package lies in which layer.
//!
//! The plan is a function of the lock alone, so two projects that lock the same torch have the same
//! layers for it, byte for byte, on any machine. What is large or changes rarely lies low and by
//! itself; what is small lies in one of a few layers that is chosen by the package's name, so that
//! another small package changes one small layer and no other. No history is needed for that, and
//! adding a package never moves another.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sconce_schema::lock::{Deb, Lock, Wheel};
use sha2::Digest as _;

use crate::compiler;
use crate::slim::SlimRules;

/// Layers of an image unless something else is asked for.
pub const DEFAULT_LAYERS: usize = 60;
/// The most that overlayfs and Docker's storage take.
pub const MAX_LAYERS: usize = 127;
/// Fewer cannot hold apart what the plan keeps apart.
pub const MIN_LAYERS: usize = 6;
/// A wheel of this many bytes or more is a layer of its own.
const LARGE_WHEEL_BYTES: u64 = 10 << 20;
/// How many layers small wheels are spread over.
const SMALL_WHEEL_LAYERS: u8 = 8;

/// Small packages that torch itself needs, or that nearly everything needs: their releases are few,
/// and they change when torch does.
const FOUNDATION: [&str; 20] = [
    "certifi",
    "charset-normalizer",
    "filelock",
    "fsspec",
    "idna",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "packaging",
    "pip",
    "python-dateutil",
    "pytz",
    "pyyaml",
    "setuptools",
    "six",
    "sympy",
    "typing-extensions",
    "urllib3",
    "wheel",
];

/// The layers of an image, lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerPlan {
    /// The layers.
    pub layers: Vec<PlannedLayer>,
    /// What is left out of the packages, for a slim image.
    pub slim: Option<SlimRules>,
}

/// One layer of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLayer {
    /// What it is, for people: `debian/trixie`, `torch 2.15.0`, `packages 3`.
    pub name: String,
    /// What lies in it.
    pub content: LayerContent,
    /// Its packages with their versions, sorted by name.
    pub packages: Vec<(String, String)>,
    /// What its packages weigh as they are downloaded, where the lock tells it of all of them.
    pub download_bytes: Option<u64>,
}

/// What lies in a layer. Wheels are numbers in the lock's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerContent {
    /// The system tree without the interpreter.
    System,
    /// The interpreter and its standard library.
    Interpreter {
        /// With the library's bytecode.
        bytecode: bool,
    },
    /// These wheels.
    Wheels(Vec<usize>),
    /// These wheels and their bytecode.
    WheelsAndBytecode(Vec<usize>),
    /// The bytecode of these wheels.
    Bytecode(Vec<usize>),
    /// The environment's compiler.
    Compiler,
    /// A tree of the store that is not made from packages: the project's files, what a step changed.
    /// Absent while it has not been made.
    Tree(Option<PathBuf>),
}

/// What may be chosen about a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerPlanOptions {
    /// The most layers that it may have, of those made from packages.
    pub most_layers: usize,
    /// Whether the image has bytecode.
    pub bytecode: bool,
}

impl Default for LayerPlanOptions {
    fn default() -> Self {
        Self {
            most_layers: DEFAULT_LAYERS,
            bytecode: true,
        }
    }
}

impl LayerPlan {
    /// The plan for `lock`.
    #[must_use]
    pub fn for_lock(lock: &Lock, options: LayerPlanOptions) -> Self {
        let mut own = Vec::new();
        let mut foundation = Vec::new();
        let mut groups: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        for (at, wheel) in lock.wheels.iter().enumerate() {
            if is_large(wheel) {
                own.push(at);
            } else if FOUNDATION.contains(&wheel.name.as_str()) {
                foundation.push(at);
            } else {
                groups.entry(group(&wheel.name)).or_default().push(at);
            }
        }
        // System, interpreter, foundation, bytecode and compiler.
        let compiler = of_compiler(lock);
        let room = options
            .most_layers
            .clamp(MIN_LAYERS, MAX_LAYERS)
            .saturating_sub(4 + usize::from(compiler.is_some()));
        if own.len() + groups.len() > room && groups.len() > 1 {
            let all = groups.into_values().flatten().collect();
            groups = BTreeMap::from([(0, all)]);
        }
        let mut together = Vec::new();
        if own.len() + groups.len() > room {
            // The largest stay alone; one layer takes the others.
            own.sort_by_key(|&at| (std::cmp::Reverse(lock.wheels[at].size), at));
            let alone = room.saturating_sub(groups.len() + 1).min(own.len());
            together = own.split_off(alone);
            together.sort_unstable();
        }
        own.sort_by_key(|&at| (rank(&lock.wheels[at].name), at));

        let small = |wheels: Vec<usize>| match options.bytecode {
            true => LayerContent::WheelsAndBytecode(wheels),
            false => LayerContent::Wheels(wheels),
        };
        let mut layers = vec![system(lock), interpreter(lock, options.bytecode)];
        let sources: Vec<usize> = own.iter().chain(&together).copied().collect();
        for at in own {
            layers.push(of_wheels(lock, None, LayerContent::Wheels(vec![at])));
        }
        let rest = [
            (
                "further large packages",
                Some(LayerContent::Wheels(together)),
            ),
            ("foundation", Some(small(foundation))),
            (
                "bytecode of large packages",
                options.bytecode.then_some(LayerContent::Bytecode(sources)),
            ),
        ];
        for (name, content) in rest {
            let content = content.filter(|content| !content.wheel_indices().is_empty());
            layers.extend(content.map(|content| of_wheels(lock, Some(name), content)));
        }
        for (number, wheels) in groups {
            let name = format!("packages {}", number + 1);
            layers.push(of_wheels(lock, Some(&name), small(wheels)));
        }
        // Highest: security updates of the kernel's headers change it more often than the rest.
        layers.extend(compiler);
        Self { layers, slim: None }
    }
}

impl LayerPlan {
    /// Adds a layer above all others; without its tree where that has not been made.
    pub fn push(&mut self, name: &str, tree: Option<PathBuf>) {
        self.layers.push(PlannedLayer {
            name: name.to_owned(),
            content: LayerContent::Tree(tree),
            packages: Vec::new(),
            download_bytes: None,
        });
    }
}

impl LayerContent {
    /// The wheels that it concerns.
    #[must_use]
    pub fn wheel_indices(&self) -> &[usize] {
        match self {
            Self::System | Self::Interpreter { .. } | Self::Compiler | Self::Tree(_) => &[],
            Self::Wheels(wheels) | Self::WheelsAndBytecode(wheels) | Self::Bytecode(wheels) => {
                wheels
            }
        }
    }
}

/// Whether a wheel is a layer of its own. CUDA's and torch's always are: they are what images share.
fn is_large(wheel: &Wheel) -> bool {
    wheel.name.starts_with("nvidia-")
        || matches!(wheel.name.as_str(), "torch" | "triton")
        || wheel.size.is_some_and(|size| size >= LARGE_WHEEL_BYTES)
}

/// The order of large wheels: CUDA's change least, then Triton and torch, then everything else.
fn rank(name: &str) -> u8 {
    match name {
        "triton" => 1,
        "torch" => 2,
        _ if name.starts_with("nvidia-") => 0,
        _ => 3,
    }
}

/// The group of a small wheel.
fn group(name: &str) -> u8 {
    sha2::Sha256::digest(name.as_bytes())[0] % SMALL_WHEEL_LAYERS
}

/// Whether a Debian package is part of the interpreter.
fn is_interpreter(name: &str) -> bool {
    name.starts_with("python3") || name.starts_with("libpython3")
}

fn system(lock: &Lock) -> PlannedLayer {
    of_debs(
        lock,
        lock.target.release.clone(),
        LayerContent::System,
        |deb| !is_interpreter(&deb.name),
    )
}

fn interpreter(lock: &Lock, bytecode: bool) -> PlannedLayer {
    let name = format!("python {}", lock.versions.python);
    let content = LayerContent::Interpreter { bytecode };
    let mut layer = of_debs(lock, name, content, |deb| is_interpreter(&deb.name));
    if let Some(python) = &lock.interpreter {
        layer
            .packages
            .push(("python".to_owned(), python.version.clone()));
        let bytes = layer.download_bytes.zip(python.size);
        layer.download_bytes = bytes.map(|(debs, python)| debs + python);
    }
    layer
}

fn of_compiler(lock: &Lock) -> Option<PlannedLayer> {
    let debs: Vec<&Deb> = lock.compiler_debs().iter().collect();
    let name = compiler::LAYER.to_owned();
    (!debs.is_empty()).then(|| planned(&debs, name, LayerContent::Compiler))
}

fn of_debs(
    lock: &Lock,
    name: String,
    content: LayerContent,
    wanted: impl Fn(&Deb) -> bool,
) -> PlannedLayer {
    let debs: Vec<&Deb> = lock.debs.iter().filter(|deb| wanted(deb)).collect();
    planned(&debs, name, content)
}

fn planned(debs: &[&Deb], name: String, content: LayerContent) -> PlannedLayer {
    let package = |deb: &&Deb| (deb.name.clone(), deb.version.clone());
    PlannedLayer {
        name,
        content,
        packages: debs.iter().map(package).collect(),
        download_bytes: Some(debs.iter().map(|deb| deb.size).sum()),
    }
}

fn of_wheels(lock: &Lock, name: Option<&str>, content: LayerContent) -> PlannedLayer {
    let wheels: Vec<&Wheel> = content
        .wheel_indices()
        .iter()
        .map(|&at| &lock.wheels[at])
        .collect();
    let package = |wheel: &&Wheel| (wheel.name.clone(), wheel.version.clone());
    let mut packages: Vec<_> = wheels.iter().map(package).collect();
    packages.sort();
    let name = match (name, packages.first()) {
        (None, Some((name, version))) => format!("{name} {version}"),
        (name, _) => name.unwrap_or_default().to_owned(),
    };
    let download_bytes = match content {
        LayerContent::Bytecode(_) => None,
        _ => wheels.iter().map(|wheel| wheel.size).sum(),
    };
    PlannedLayer {
        name,
        content,
        packages,
        download_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sconce_schema::Sha256;
    use sconce_schema::lock::{LockTarget, LockedVersions};

    fn lock(wheels: &[(&str, u64)]) -> Lock {
        let wheel = |(name, size): &(&str, u64)| Wheel {
            name: (*name).to_owned(),
            version: "1".to_owned(),
            file: format!("{name}-1-py3-none-any.whl"),
            url: "file:///x".to_owned(),
            size: Some(*size),
            sha256: Sha256([0; 32]),
            build: None,
        };
        let deb = |name: &str| Deb {
            name: name.to_owned(),
            version: "1".to_owned(),
            architecture: "amd64".to_owned(),
            url: "file:///x".to_owned(),
            size: 10,
            sha256: Sha256([0; 32]),
            source: None,
            source_version: None,
        };
        Lock {
            version: 1,
            inputs: Sha256([0; 32]),
            target: LockTarget {
                release: "debian/trixie".to_owned(),
                architecture: "amd64".to_owned(),
                python: "3.13".to_owned(),
            },
            versions: LockedVersions {
                python: "3.13.5-2".to_owned(),
                ..LockedVersions::default()
            },
            wheels: wheels.iter().map(wheel).collect(),
            debs: ["bash", "libc6", "libpython3.13-stdlib", "python3.13"]
                .map(deb)
                .to_vec(),
            stages: Vec::new(),
            interpreter: None,
        }
    }

    fn names(plan: &LayerPlan) -> Vec<&str> {
        plan.layers.iter().map(|l| l.name.as_str()).collect()
    }

    const TORCH: [(&str, u64); 8] = [
        ("filelock", 20_000),
        ("numpy", 16 << 20),
        ("nvidia-cublas", 400 << 20),
        ("nvidia-nvtx", 90_000),
        ("rich", 200_000),
        ("sympy", 6 << 20),
        ("torch", 500 << 20),
        ("triton", 190 << 20),
    ];

    #[test]
    fn what_is_shared_lies_low_and_by_itself() {
        let plan = LayerPlan::for_lock(&lock(&TORCH), LayerPlanOptions::default());
        assert_eq!(
            names(&plan),
            [
                "debian/trixie",
                "python 3.13.5-2",
                "nvidia-cublas 1",
                "nvidia-nvtx 1",
                "triton 1",
                "torch 1",
                "numpy 1",
                "foundation",
                "bytecode of large packages",
                "packages 4",
            ]
        );
        let of = |at: usize| -> Vec<&str> {
            plan.layers[at]
                .packages
                .iter()
                .map(|p| p.0.as_str())
                .collect()
        };
        assert_eq!(of(0), ["bash", "libc6"]);
        assert_eq!(of(1), ["libpython3.13-stdlib", "python3.13"]);
        assert_eq!(of(7), ["filelock", "sympy"]);
        assert_eq!(of(9), ["rich"]);
        assert_eq!(plan.layers[7].download_bytes, Some(20_000 + (6 << 20)));
        assert_eq!(plan.layers[8].download_bytes, None);
    }

    #[test]
    fn a_compiler_is_one_layer_and_moves_no_other() {
        let without = lock(&TORCH);
        let mut with = without.clone();
        with.stages.push(sconce_schema::lock::LockedStage {
            name: sconce_schema::lock::COMPILER.to_owned(),
            wheels: Vec::new(),
            debs: with.debs[..2].to_vec(),
        });
        let plain = LayerPlan::for_lock(&without, LayerPlanOptions::default());
        let plan = LayerPlan::for_lock(&with, LayerPlanOptions::default());
        let (last, rest) = plan.layers.split_last().unwrap();
        assert_eq!(rest, plain.layers);
        assert_eq!(
            (last.name.as_str(), &last.content),
            ("compiler", &LayerContent::Compiler)
        );
        assert_eq!((last.packages.len(), last.download_bytes), (2, Some(20)));
        assert_eq!(
            LayerPlan::for_lock(&with.without_compiler(), LayerPlanOptions::default()),
            plain
        );
    }

    #[test]
    fn one_more_small_package_changes_one_layer() {
        let before = LayerPlan::for_lock(&lock(&TORCH), LayerPlanOptions::default());
        let mut more = TORCH.to_vec();
        more.push(("tqdm", 80_000));
        let after = LayerPlan::for_lock(&lock(&more), LayerPlanOptions::default());
        let same = before.layers.iter().filter(|l| after.layers.contains(l));
        assert!(same.count() >= before.layers.len() - 1);
        assert!(after.layers.len() <= before.layers.len() + 1);
    }

    #[test]
    fn the_budget_merges_the_smallest() {
        let many: Vec<String> = (0..200).map(|n| format!("nvidia-{n:03}")).collect();
        let mut wheels: Vec<(&str, u64)> = many
            .iter()
            .enumerate()
            .map(|(n, name)| (name.as_str(), 1000 + n as u64))
            .collect();
        wheels.push(("tqdm", 5));
        wheels.push(("rich", 5));
        let plan = LayerPlan::for_lock(&lock(&wheels), LayerPlanOptions::default());
        assert_eq!(plan.layers.len(), 59);
        let together = plan
            .layers
            .iter()
            .find(|l| l.name == "further large packages")
            .unwrap();
        assert!(together.packages.iter().any(|p| p.0 == "nvidia-000"));
        assert!(names(&plan).contains(&"nvidia-199 1"));
    }

    proptest! {
        #[test]
        fn every_package_is_in_one_layer_and_the_budget_is_kept(
            sizes in proptest::collection::vec((0_u64..(20 << 20), any::<bool>()), 0..150),
            most_layers in 0_usize..300,
            bytecode in any::<bool>(),
        ) {
            let wheels: Vec<(String, u64)> = sizes.iter().enumerate()
                .map(|(n, &(size, nvidia))| (format!("{}{n:03}", if nvidia { "nvidia-" } else { "p" }), size))
                .collect();
            let wheels: Vec<(&str, u64)> = wheels.iter().map(|(n, s)| (n.as_str(), *s)).collect();
            let lock = lock(&wheels);
            let plan = LayerPlan::for_lock(&lock, LayerPlanOptions { most_layers, bytecode });
            prop_assert!(plan.layers.len() <= most_layers.clamp(MIN_LAYERS, MAX_LAYERS));
            let mut seen: Vec<usize> = plan.layers.iter()
                .filter(|l| !matches!(l.content, LayerContent::Bytecode(_)))
                .flat_map(|l| l.content.wheel_indices().to_vec())
                .collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..wheels.len()).collect::<Vec<_>>());
        }
    }
}
