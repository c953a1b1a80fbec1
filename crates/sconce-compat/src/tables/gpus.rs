//! Known cards: `cards.txt`, and finding one by what a person types or NVML says.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::LazyLock;

use sconce_schema::{Bytes, ComputeCapability, Hint, exit};

use super::{TableError, TableSource, rows};

/// The longest name that is looked up.
const MAX_NAME_CHARS: usize = 100;
/// How many similar names are offered.
const MAX_SUGGESTIONS: usize = 5;
/// How similar they are at least (1 is equal).
const MIN_SIMILARITY: f64 = 0.8;

/// A product.
#[derive(Debug, Clone)]
pub struct GpuProduct {
    /// Its name.
    pub name: &'static str,
    /// Its compute capability.
    pub capability: ComputeCapability,
    /// Sizes of memory that it was sold with; empty where it shares the machine's.
    pub memory: Vec<Bytes>,
    /// What it is made for.
    pub kind: ProductClass,
    /// Whether it can be divided into instances.
    pub mig: bool,
    /// Whether it can have NVLink.
    pub nvlink: bool,
    /// Where the capability is from.
    pub source: TableSource,
    aliases: Vec<&'static str>,
}

/// What a product is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductClass {
    /// Servers.
    DataCentre,
    /// Workstations: Quadro, RTX A, RTX Ada, RTX PRO.
    Workstation,
    /// Titan.
    Titan,
    /// Players' machines.
    GeForce,
    /// Boards with a CPU of their own.
    Jetson,
}

impl GpuProduct {
    /// Whether the forward-compatibility libraries work on it (NVIDIA, CUDA compatibility: data
    /// centre cards, Jetson, and some workstation cards, so that for these it is not known).
    #[must_use]
    pub fn forward_compatible(&self) -> Option<bool> {
        match self.kind {
            ProductClass::DataCentre | ProductClass::Jetson => Some(true),
            ProductClass::Workstation => None,
            ProductClass::Titan | ProductClass::GeForce => Some(false),
        }
    }

    /// Its memory, where there was only one size.
    #[must_use]
    pub fn only_memory(&self) -> Option<Bytes> {
        match self.memory.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// The kernel's name of the processor that it sits beside, where there is only one such.
    #[must_use]
    pub fn cpu_architecture(&self) -> &'static str {
        let with_cpu = ["GH200", "GB200", "GB300", "GB10"];
        let own_cpu = self.name.split(' ').any(|word| with_cpu.contains(&word));
        if self.kind == ProductClass::Jetson || own_cpu {
            "aarch64"
        } else {
            "x86_64"
        }
    }
}

impl FromStr for ProductClass {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "data-centre" => Self::DataCentre,
            "workstation" => Self::Workstation,
            "titan" => Self::Titan,
            "geforce" => Self::GeForce,
            "jetson" => Self::Jetson,
            _ => return Err(()),
        })
    }
}

/// A card that was found by name.
#[derive(Debug, Clone, Copy)]
pub struct GpuMatch {
    /// The product.
    pub card: &'static GpuProduct,
    /// Its memory: the size in the name if it was sold so, or the only size.
    pub memory: Option<Bytes>,
    /// Whether the name is that of a laptop's card, which is another one under the same name.
    pub mobile: bool,
}

impl GpuMatch {
    /// The sizes that are in a name, whether the card was sold so or not. `480GB` in `GH200 480GB` is
    /// none: that is the memory of the processor beside it.
    pub(super) fn named_sizes(&self, typed: &str) -> Vec<Bytes> {
        let typed: String = typed.chars().take(MAX_NAME_CHARS).collect();
        let lower = typed.to_ascii_lowercase();
        sizes(&words(&lower))
            .filter(|_| self.card.name != "NVIDIA GH200")
            .collect()
    }
}

/// A name that no card has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no card is known as `{typed}`")]
pub struct UnknownGpu {
    /// What was asked for, shortened.
    pub typed: String,
    /// Names that are like it, the nearest first.
    pub nearest: Vec<&'static str>,
}

impl Hint for UnknownGpu {
    fn hint(&self) -> Option<String> {
        Some(match self.nearest.as_slice() {
            [] => "NVIDIA's cards are known; give its name as nvidia-smi shows it, such as `RTX 3070` or \
                   `A100 80GB`"
                .into(),
            nearest => {
                let first: Vec<&str> = nearest.iter().copied().take(3).collect();
                format!("did you mean {}?", first.join(", "))
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

struct Cards {
    all: Vec<GpuProduct>,
    by_key: BTreeMap<String, usize>,
}

static CARDS: LazyLock<Cards> = LazyLock::new(|| {
    let all = read().expect("the compiled-in table is read by a test");
    let mut by_key = BTreeMap::new();
    for (at, card) in all.iter().enumerate() {
        for key in keys(card) {
            by_key.entry(key).or_insert(at);
        }
    }
    Cards { all, by_key }
});

fn read() -> Result<Vec<GpuProduct>, TableError> {
    let table = rows::parse_table(include_str!("cards.txt"))?;
    let card = |row: &rows::TableRow<'static>| {
        let can: Vec<String> = row.values(4)?;
        let aliases = row.text(6)?.split(',').map(str::trim);
        Ok(GpuProduct {
            name: row.text(0)?,
            capability: row.value(1)?,
            memory: row.values(2)?.into_iter().map(Bytes::from_gib).collect(),
            kind: row.value(3)?,
            mig: can.iter().any(|word| word == "mig"),
            nvlink: can.iter().any(|word| word == "nvlink"),
            source: row.source(5, &table.sources)?,
            aliases: aliases.filter(|alias| !alias.is_empty()).collect(),
        })
    };
    table.rows.iter().map(card).collect()
}

/// Every name that a card is found by, in the form of [`key`].
fn keys(card: &GpuProduct) -> Vec<String> {
    let mut keys = vec![key(card.name)];
    keys.extend(card.aliases.iter().map(|alias| key(alias)));
    let short = match card.kind {
        ProductClass::GeForce => ["rtx", "gtx", "gt"]
            .iter()
            .find_map(|word| keys[0].strip_prefix(word)),
        // `P4000` is a Quadro alone; `RTX 4000` is several.
        ProductClass::Workstation => keys[0]
            .strip_prefix("quadro")
            .filter(|rest| !rest.starts_with("rtx")),
        _ => None,
    };
    keys.extend(short.map(str::to_owned));
    keys.dedup();
    keys
}

/// A name without what says nothing about which card it is: `NVIDIA A100-SXM4-80GB` is `a100`.
fn key(name: &str) -> String {
    const EMPTY: [&str; 18] = [
        "nvidia",
        "corporation",
        "geforce",
        "tesla",
        "gpu",
        "graphics",
        "card",
        "laptop",
        "mobile",
        "max",
        "q",
        "hgx",
        "dgx",
        "edition",
        "generation",
        "nvgpu",
        "gb",
        "gib",
    ];
    let mut key = String::new();
    let lower = name.to_ascii_lowercase();
    let mut words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .peekable();
    while let Some(word) = words.next() {
        let a_size = size(word).is_some()
            || (word.parse::<u32>().is_ok()
                && words
                    .peek()
                    .is_some_and(|next| ["gb", "gib"].contains(next)));
        if !(a_size || EMPTY.contains(&word) || form_factor(word)) {
            key.push_str(word);
        }
    }
    key
}

/// `80gb` is 80.
fn size(word: &str) -> Option<u64> {
    let units = ["gib", "gb", "g"];
    let number = units.iter().find_map(|unit| word.strip_suffix(unit))?;
    number.parse().ok()
}

/// `sxm4`, `pcie`, `hbm3e`, `nvl72`: how it is built in.
fn form_factor(word: &str) -> bool {
    ["sxm", "pcie", "hbm", "nvl"].iter().any(|form| {
        let rest = word.strip_prefix(form);
        rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == 'e'))
    })
}

/// All known cards, oldest first.
#[must_use]
pub fn gpu_products() -> &'static [GpuProduct] {
    &CARDS.all
}

/// The card of this name, as a person types it (`RTX 3070`, `3070`, `a100 80gb`) or NVML says it
/// (`NVIDIA A100-SXM4-80GB`).
///
/// # Errors
/// [`UnknownGpu`], with names that are like it.
pub fn resolve_gpu_name(typed: &str) -> Result<GpuMatch, UnknownGpu> {
    known_card(typed).ok_or_else(|| {
        let typed: String = typed.chars().take(MAX_NAME_CHARS).collect();
        let nearest = nearest(&key(&typed));
        UnknownGpu { typed, nearest }
    })
}

/// The card of this name, where there is one.
#[must_use]
pub fn known_card(typed: &str) -> Option<GpuMatch> {
    let typed: String = typed.chars().take(MAX_NAME_CHARS).collect();
    let card = &CARDS.all[*CARDS.by_key.get(&key(&typed))?];
    let lower = typed.to_ascii_lowercase();
    let words = words(&lower);
    // A laptop's card has the name of another one, and not its memory.
    let mobile = ["laptop", "mobile"].iter().any(|word| words.contains(word));
    let memory = sizes(&words).find(|size| card.memory.contains(size));
    Some(GpuMatch {
        card,
        memory: memory.or_else(|| card.only_memory().filter(|_| !mobile)),
        mobile,
    })
}

fn words(lower: &str) -> Vec<&str> {
    lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect()
}

/// The sizes in a name: `80gb`, `80 GB`.
fn sizes(words: &[&str]) -> impl Iterator<Item = Bytes> {
    let apart = words.windows(2).filter_map(|pair| match pair {
        [number, "gb" | "gib"] => number.parse().ok(),
        _ => None,
    });
    let named = words.iter().filter_map(|word| size(word)).chain(apart);
    // Only small numbers are sizes; a larger one would not fit Bytes.
    named.filter(|gib| *gib < 1 << 20).map(Bytes::from_gib)
}

fn nearest(wanted: &str) -> Vec<&'static str> {
    let mut near: Vec<(f64, &'static str)> = Vec::new();
    for (key, at) in &CARDS.by_key {
        let mut score = strsim::jaro_winkler(wanted, key);
        if wanted.len() >= 3 && key.contains(wanted) {
            score += 1.0;
        }
        if score >= MIN_SIMILARITY {
            near.push((score, CARDS.all[*at].name));
        }
    }
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut names: Vec<&'static str> = Vec::new();
    for (_, name) in near {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(MAX_SUGGESTIONS);
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_name_leads_to_two_cards() {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for card in &read().unwrap() {
            for key in keys(card) {
                assert!(!key.is_empty(), "{}", card.name);
                let other = seen.insert(key.clone(), card.name);
                assert!(
                    other.is_none_or(|other| other == card.name),
                    "{key}: {other:?} and {}",
                    card.name
                );
            }
        }
    }

    #[test]
    fn rows_are_in_order() {
        let cards = read().unwrap();
        assert!(cards.is_sorted_by_key(|card| card.capability));
        for card in &cards {
            assert!(card.memory.is_sorted(), "{}", card.name);
            let shares = card.kind == ProductClass::Jetson || card.name == "NVIDIA GB10";
            assert_eq!(card.memory.is_empty(), shares, "{}", card.name);
            assert!(!card.mig || card.capability.major >= 8, "{}", card.name);
        }
        assert!(cards.len() > 150);
    }

    #[test]
    fn cards_are_found_as_people_and_nvml_call_them() {
        for (typed, name, gib) in [
            ("RTX 3070", "GeForce RTX 3070", Some(8)),
            ("3070", "GeForce RTX 3070", Some(8)),
            (
                "NVIDIA GeForce RTX 3070 Laptop GPU",
                "GeForce RTX 3070",
                None,
            ),
            ("v100", "Tesla V100", None),
            ("Tesla V100-SXM2-32GB", "Tesla V100", Some(32)),
            ("a100", "NVIDIA A100", None),
            ("A100 80 GB", "NVIDIA A100", Some(80)),
            ("NVIDIA A100-SXM4-80GB", "NVIDIA A100", Some(80)),
            ("NVIDIA A100-PCIE-40GB", "NVIDIA A100", Some(40)),
            ("NVIDIA H100 80GB HBM3", "NVIDIA H100", Some(80)),
            ("NVIDIA H100 NVL", "NVIDIA H100", None),
            ("h200", "NVIDIA H200", Some(141)),
            ("NVIDIA GH200 480GB", "NVIDIA GH200", None),
            ("b200", "NVIDIA B200", None),
            ("5090", "GeForce RTX 5090", Some(32)),
            ("l4", "NVIDIA L4", Some(24)),
            ("t4", "Tesla T4", Some(16)),
            ("NVIDIA T4", "Tesla T4", Some(16)),
            ("p100", "Tesla P100", None),
            ("gb10", "NVIDIA GB10", None),
            ("jetson thor", "Jetson AGX Thor", None),
            ("Orin (nvgpu)", "Jetson AGX Orin", None),
            ("1080ti", "GeForce GTX 1080 Ti", Some(11)),
            ("gtx 1660 super", "GeForce GTX 1660 SUPER", Some(6)),
            ("A6000", "NVIDIA RTX A6000", Some(48)),
            ("rtx 6000 ada", "NVIDIA RTX 6000 Ada Generation", Some(48)),
            ("Quadro RTX 6000", "Quadro RTX 6000", Some(24)),
            ("P4000", "Quadro P4000", Some(8)),
            ("NVIDIA TITAN X (Pascal)", "TITAN X Pascal", Some(12)),
            (
                "NVIDIA GeForce GTX TITAN X",
                "GeForce GTX TITAN X",
                Some(12),
            ),
        ] {
            let found = resolve_gpu_name(typed).unwrap();
            assert_eq!(found.card.name, name, "{typed}");
            assert_eq!(found.memory, gib.map(Bytes::from_gib), "{typed}");
        }
    }

    #[test]
    fn an_unknown_name_shows_what_is_like_it() {
        let error = resolve_gpu_name("RTX 3700").unwrap_err();
        assert!(error.nearest.contains(&"GeForce RTX 3070"), "{error:?}");
        let error = resolve_gpu_name("RTX 6000").unwrap_err();
        assert!(
            error.nearest.contains(&"NVIDIA RTX 6000 Ada Generation")
                && error.nearest.contains(&"Quadro RTX 6000"),
            "{error:?}"
        );
        let error = resolve_gpu_name("MI300X").unwrap_err();
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
        assert!(resolve_gpu_name("").is_err());
        assert_eq!(
            resolve_gpu_name(&"x".repeat(10_000))
                .unwrap_err()
                .typed
                .len(),
            100
        );
    }

    proptest! {
        #[test]
        fn no_name_panics(typed in "\\PC{0,200}") {
            let _ = resolve_gpu_name(&typed);
            let _ = resolve_gpu_name(&format!("a100 {typed}gb"));
        }
    }
}
