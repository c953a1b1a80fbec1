//! What cards are made of, and how much of their memory a program gets: `hardware.txt`.
//!
//! A card that is played stands on these figures. Memory decides whether a run fits, so it is the
//! smallest figure that was seen; rates decide how long it would take and are nobody's promise.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::LazyLock;

use sconce_schema::{Bytes, Hint, exit};

use super::{
    GpuMatch, GpuProduct, TableError, TableSource, UnknownGpu, gpu_products, resolve_gpu_name, rows,
};

/// A card with one size of memory and in one form.
#[derive(Debug, Clone)]
pub struct Hardware {
    /// The product, with its compute capability.
    pub card: &'static GpuProduct,
    /// Its memory as sold.
    pub memory: Bytes,
    /// How it is built in, where that makes a difference.
    pub form: Option<FormFactor>,
    /// The memory that CUDA reports in all: the smallest figure that was seen.
    pub total: Bytes,
    /// The largest that was seen, where there was more than one.
    pub total_most: Option<Bytes>,
    /// Where the memory's figures are from.
    pub total_source: TableSource,
    /// Multiprocessors (SMs).
    pub multiprocessors: u32,
    /// The L2 cache.
    pub l2: Bytes,
    /// Bandwidth of the memory, 10^9 bytes a second.
    pub bandwidth_gb_s: f64,
    /// The tensor cores' rate for fp16 and bf16 with sums in fp32, without sparsity, 10^12 operations a
    /// second; none where there are no tensor cores.
    pub tensor_tflops: Option<f64>,
    /// The tensor cores' rate for tf32, likewise; none before capability 8.0.
    pub tf32_tflops: Option<f64>,
    /// The rate for fp32 without tensor cores, 10^12 operations a second.
    pub fp32_tflops: f64,
    /// Where these are from.
    pub rates_source: TableSource,
    /// The memory that a CUDA context takes, where it was reported for this card.
    pub context: Option<ContextMemory>,
}

/// The memory that a CUDA context takes before a program has asked for any.
#[derive(Debug, Clone, Copy)]
pub struct ContextMemory {
    /// How much.
    pub size: Bytes,
    /// Who says so.
    pub source: TableSource,
}

/// How a card is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormFactor {
    /// On a board of several, with NVLink and more power.
    Sxm,
    /// In a slot.
    Pcie,
    /// In a slot, bridged by NVLink.
    Nvl,
}

impl FromStr for FormFactor {
    type Err = ();

    /// `SXM`, `sxm4`, `PCIe`, `nvl`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let lower = text.to_ascii_lowercase();
        match lower.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "sxm" => Ok(Self::Sxm),
            "pcie" => Ok(Self::Pcie),
            // `NVL72` is a rack.
            "nvl" if lower == "nvl" => Ok(Self::Nvl),
            _ => Err(()),
        }
    }
}

impl fmt::Display for FormFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sxm => "SXM",
            Self::Pcie => "PCIe",
            Self::Nvl => "NVL",
        })
    }
}

/// Hardware that was found by what a person typed.
#[derive(Debug, Clone)]
pub struct HardwareMatch {
    /// The figures.
    pub hardware: &'static Hardware,
    /// The sizes that the card was sold with, if there are several and neither a size nor a form that
    /// has only one was typed. Then the smallest that has figures was chosen, and the reader should be
    /// told. Otherwise empty.
    pub choice: Vec<Bytes>,
}

/// Why there are no figures for what was typed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HardwareError {
    /// The card is not known.
    #[error(transparent)]
    Card(#[from] UnknownGpu),
    /// The card was never sold with this much memory.
    #[error("{card} was not sold with {}", gib(*.size))]
    Size {
        /// The product.
        card: &'static str,
        /// What was asked for.
        size: Bytes,
        /// Its sizes.
        sizes: Vec<Bytes>,
    },
    /// The card is known, what it is made of is not.
    #[error("of `{typed}` it is not known what it is made of and how much memory a program gets")]
    NoFigures {
        /// What was asked for, shortened.
        typed: String,
        /// The card's sizes that have figures.
        sizes: Vec<Bytes>,
    },
}

impl Hint for HardwareError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Card(error) => error.hint(),
            Self::Size { sizes, .. } if !sizes.is_empty() => {
                Some(format!("name one of its sizes: {}", listed(sizes)))
            }
            Self::NoFigures { sizes, .. } if !sizes.is_empty() => {
                Some(format!("there are figures for {} of it", listed(sizes)))
            }
            Self::Size { .. } | Self::NoFigures { .. } => {
                Some("name a card that is like it, such as `RTX 3070` or `A100 80GB`".into())
            }
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// As people name a card's size: `80 GB`.
fn gib(size: Bytes) -> String {
    format!("{} GB", size.0 / Bytes::from_gib(1).0)
}

fn listed(sizes: &[Bytes]) -> String {
    let sizes: Vec<String> = sizes.iter().map(|size| gib(*size)).collect();
    sizes.join(", ")
}

static HARDWARE: LazyLock<Vec<Hardware>> =
    LazyLock::new(|| read().expect("the compiled-in table is read by a test"));

fn read() -> Result<Vec<Hardware>, TableError> {
    let table = rows::parse_table(include_str!("hardware.txt"))?;
    let row = |row: &rows::TableRow<'static>| {
        let name = row.text(0)?;
        let card = gpu_products().iter().find(|card| card.name == name);
        let context = row.option(11)?.map(|mib| {
            let source = row.source(14, &table.sources)?;
            let size = Bytes::from_mib(mib);
            Ok(ContextMemory { size, source })
        });
        Ok(Hardware {
            card: card.ok_or_else(|| row.to_error())?,
            memory: Bytes::from_gib(row.value(1)?),
            form: row.option(2)?,
            total: Bytes::from_mib(row.value(3)?),
            total_most: row.option(4)?.map(Bytes::from_mib),
            total_source: row.source(12, &table.sources)?,
            multiprocessors: row.value(5)?,
            l2: Bytes::from_kib(row.value(6)?),
            bandwidth_gb_s: row.value(7)?,
            tensor_tflops: row.option(8)?,
            tf32_tflops: row.option(9)?,
            fp32_tflops: row.value(10)?,
            rates_source: row.source(13, &table.sources)?,
            context: context.transpose()?,
        })
    };
    table.rows.iter().map(row).collect()
}

/// All that is known, oldest architecture first.
#[must_use]
pub fn all_hardware() -> &'static [Hardware] {
    &HARDWARE
}

/// The figures of a card. Where no size is given it is the smallest that has figures, and where no
/// form is given the form that the table has first (SXM before PCIe).
#[must_use]
pub fn hardware_for_gpu(
    card: &GpuProduct,
    memory: Option<Bytes>,
    form: Option<FormFactor>,
) -> Option<&'static Hardware> {
    let rows = rows_of(card, form).filter(|row| memory.is_none_or(|size| row.memory == size));
    // Of equals the first is the smallest.
    rows.min_by_key(|row| row.memory)
}

/// A card's rows in this form, where it makes a difference.
fn rows_of(card: &GpuProduct, form: Option<FormFactor>) -> impl Iterator<Item = &'static Hardware> {
    HARDWARE.iter().filter(move |row| {
        row.card.name == card.name && (form.is_none() || row.form.is_none() || row.form == form)
    })
}

/// The figures of what a person types (`h100`, `RTX 3070`, `a100-40gb`, `h100 pcie`) or NVML says. A
/// laptop's card has no figures, as it is not the card of its name.
///
/// # Errors
/// A card that is not known, a size that it was not sold with, or one without figures.
pub fn find_hardware(typed: &str) -> Result<HardwareMatch, HardwareError> {
    let found: GpuMatch = resolve_gpu_name(typed)?;
    let sizes = found.named_sizes(typed);
    let sold = |size: &Bytes| found.card.memory.contains(size);
    if let Some(size) = sizes.first().filter(|_| !sizes.iter().any(sold)) {
        return Err(HardwareError::Size {
            card: found.card.name,
            size: *size,
            sizes: found.card.memory.clone(),
        });
    }
    let named = found.memory.filter(|_| !sizes.is_empty());
    let mut words = typed.split(|c: char| !c.is_ascii_alphanumeric());
    let form = words.find_map(|word| word.parse().ok());
    let row = hardware_for_gpu(found.card, named, form).filter(|_| !found.mobile);
    let mut with_figures: Vec<Bytes> = rows_of(found.card, form).map(|row| row.memory).collect();
    with_figures.sort();
    with_figures.dedup();
    let Some(hardware) = row else {
        return Err(HardwareError::NoFigures {
            typed: typed.chars().take(40).collect(),
            sizes: if found.mobile {
                Vec::new()
            } else {
                with_figures
            },
        });
    };
    let by_form = form.is_some() && hardware.form == form && with_figures.len() == 1;
    let choice = if named.is_some() || by_form || found.card.memory.len() < 2 {
        Vec::new()
    } else {
        found.card.memory.clone()
    };
    Ok(HardwareMatch { hardware, choice })
}

/// What a CUDA context takes on a card for which nobody told, from the least to the most that is to
/// be expected.
///
/// PyTorch's maintainers tell of about 300 MB since CUDA 11.7, which loads kernels when they are needed,
/// and of more than 1000 MB for the versions that loaded them all at once (pytorch issue 107667). 256 MiB
/// were seen on an RTX 3090, 555 on an RTX PRO 6000 and 775 on an H200 under CUDA 13 (the table says where):
/// it depends on the chip, the driver and CUDA's release. Memory that cuBLAS and cuDNN take for themselves
/// comes on top.
#[must_use]
pub fn context_range() -> RangeInclusive<Bytes> {
    Bytes::from_mib(250)..=Bytes::from_mib(775)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::SourceQuality;
    use proptest::prelude::*;
    use sconce_schema::ComputeCapability;

    /// Lanes for fp32 in one multiprocessor (NVIDIA, CUDA C++ Programming Guide, arithmetic
    /// instructions).
    fn lanes(capability: ComputeCapability) -> f64 {
        match (capability.major, capability.minor) {
            (6, 0) | (7, _) | (8, 0) => 64.0,
            _ => 128.0,
        }
    }

    #[test]
    fn memory_is_a_little_less_than_was_sold() {
        for row in &read().unwrap() {
            let name = (row.card.name, row.memory, row.form);
            assert!(row.card.memory.contains(&row.memory), "{name:?}");
            assert!(row.total <= row.memory, "{name:?}");
            assert!(row.total.0 * 100 >= row.memory.0 * 88, "{name:?}");
            if let Some(most) = row.total_most {
                assert!(row.total < most && most <= row.memory, "{name:?}");
            }
            if let Some(context) = row.context {
                assert!(context_range().contains(&context.size), "{name:?}");
            }
        }
    }

    #[test]
    fn rates_agree_with_the_capability() {
        for row in &read().unwrap() {
            let name = (row.card.name, row.memory, row.form);
            let at = row.card.capability;
            let a_cycle = f64::from(row.multiprocessors) * lanes(at) * 2.0;
            let clock_ghz = row.fp32_tflops * 1e3 / a_cycle;
            assert!((1.2..2.8).contains(&clock_ghz), "{name:?} {clock_ghz}");
            assert_eq!(
                row.tf32_tflops.is_some(),
                at >= ComputeCapability::new(8, 0),
                "{name:?}"
            );
            // The GTX 16 series has Turing's multiprocessors without tensor cores.
            let tensor = at >= ComputeCapability::new(7, 0) && !row.card.name.contains("GTX");
            assert_eq!(row.tensor_tflops.is_some(), tensor, "{name:?}");
            if let (Some(half), Some(tf32)) = (row.tensor_tflops, row.tf32_tflops) {
                assert!((1.97..2.03).contains(&(half / tf32)), "{name:?}");
            }
            assert!((200.0..10_000.0).contains(&row.bandwidth_gb_s), "{name:?}");
        }
    }

    #[test]
    fn each_row_is_there_once_and_its_source_is_told() {
        let rows = read().unwrap();
        assert!(rows.len() >= 38);
        let mut seen = std::collections::BTreeSet::new();
        for row in &rows {
            let form = row.form.map(|form| form.to_string());
            assert!(seen.insert((row.card.name, row.memory, form)));
            // Nobody measured these here and NVIDIA tells sizes only.
            assert!(row.total_source.sure >= SourceQuality::Reported);
            assert_eq!(row.rates_source.sure, SourceQuality::Lead);
        }
        assert!(rows.is_sorted_by_key(|row| row.card.capability.major));
    }

    #[test]
    fn what_people_type_finds_its_row() {
        for (typed, gib, form, total_mib, choices) in [
            ("RTX 3070", 8, None, 7946, 0),
            ("h100", 80, Some(FormFactor::Sxm), 81008, 4),
            ("H100 80GB", 80, Some(FormFactor::Sxm), 81008, 0),
            ("NVIDIA H100 80GB HBM3", 80, Some(FormFactor::Sxm), 81008, 0),
            ("NVIDIA H100 PCIe", 80, Some(FormFactor::Pcie), 81008, 0),
            ("NVIDIA H100 NVL", 94, Some(FormFactor::Nvl), 95232, 0),
            ("h100 94gb", 94, Some(FormFactor::Nvl), 95232, 0),
            ("a100", 40, Some(FormFactor::Sxm), 40325, 2),
            ("a100-40gb", 40, Some(FormFactor::Sxm), 40325, 0),
            ("A100 80 GB", 80, Some(FormFactor::Sxm), 81039, 0),
            (
                "NVIDIA A100 80GB PCIe",
                80,
                Some(FormFactor::Pcie),
                81049,
                0,
            ),
            ("a100 pcie", 40, Some(FormFactor::Pcie), 40325, 2),
            ("v100 32gb", 32, Some(FormFactor::Sxm), 32501, 0),
            ("Tesla V100-PCIE-16GB", 16, Some(FormFactor::Pcie), 16160, 0),
            ("v100", 16, Some(FormFactor::Sxm), 16130, 2),
            ("4060 ti", 8, None, 7813, 2),
            ("4060 Ti 16GB", 16, None, 15943, 0),
            ("4090 pcie", 24, None, 24084, 0),
            ("3060", 12, None, 11931, 2),
            ("b200", 180, None, 182_631, 2),
            ("rtx pro 6000", 96, None, 97247, 0),
            ("t4", 16, None, 14909, 0),
        ] {
            let chosen = find_hardware(typed).unwrap();
            let row = chosen.hardware;
            assert_eq!(row.memory, Bytes::from_gib(gib), "{typed}");
            assert_eq!(row.form, form, "{typed}");
            assert_eq!(row.total, Bytes::from_mib(total_mib), "{typed}");
            assert_eq!(chosen.choice.len(), choices, "{typed}");
        }
    }

    #[test]
    fn what_has_no_figures_says_what_has() {
        let error = find_hardware("RTX 3070 16GB").unwrap_err();
        assert!(matches!(error, HardwareError::Size { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "GeForce RTX 3070 was not sold with 16 GB"
        );
        assert_eq!(error.hint().unwrap(), "name one of its sizes: 8 GB");

        let error = find_hardware("3080 12gb").unwrap_err();
        assert_eq!(error.hint().unwrap(), "there are figures for 10 GB of it");
        assert_eq!(error.exit_code(), exit::BAD_INPUT);

        // It has another chip, and other memory, than the card of that name.
        let laptop = find_hardware("NVIDIA GeForce RTX 4090 Laptop GPU").unwrap_err();
        assert!(matches!(&laptop, HardwareError::NoFigures { sizes, .. } if sizes.is_empty()));
        assert!(find_hardware("NVIDIA GH200 480GB").is_err());
        assert!(matches!(
            find_hardware("Voodoo 2"),
            Err(HardwareError::Card(_))
        ));
    }

    proptest! {
        #[test]
        fn no_name_panics(typed in "\\PC{0,200}") {
            let _ = find_hardware(&typed);
            let _ = find_hardware(&format!("h100 {typed}gb"));
        }
    }
}
