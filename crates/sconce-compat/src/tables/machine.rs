//! A machine that is not here, by the names of its cards and its driver.

use sconce_schema::facts::{Driver, FORMAT, GpuFacts, Mig};
use sconce_schema::units::UnitError;
use sconce_schema::{DriverVersion, Hint, HostFacts, exit};

use super::{GpuMatch, UnknownGpu, driver_cuda, resolve_gpu_name};

/// The most cards that one name may stand for.
const MAX_CARDS: u32 = 64;

/// Why there is no machine of this description.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The card is not known.
    #[error(transparent)]
    Card(#[from] UnknownGpu),
    /// The driver's version cannot be read.
    #[error(transparent)]
    Driver(#[from] UnitError),
    /// Too many of them.
    #[error("`{typed}` asks for {count} cards; a machine has up to {MAX_CARDS}")]
    Count {
        /// What was asked for.
        typed: String,
        /// How many these are.
        count: u32,
    },
}

impl Hint for MachineError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Card(error) => error.hint(),
            Self::Driver(_) => {
                Some("write the whole version, as nvidia-smi shows it: 535.104.05".into())
            }
            Self::Count { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// A machine with this card: `RTX 3070`, `8x H100`. Everything that was not said is absent, so that
/// nothing is judged by it; without a driver it is one that suits.
///
/// # Errors
/// A card that is not known, a driver that is no version, more cards than a machine has.
pub fn host_from_gpu_name(gpu: &str, driver: Option<&str>) -> Result<HostFacts, MachineError> {
    let (count, name) = counted(gpu);
    if count > MAX_CARDS {
        return Err(MachineError::Count {
            typed: gpu.chars().take(40).collect(),
            count,
        });
    }
    let found = resolve_gpu_name(name)?;
    let version: Option<DriverVersion> = driver.map(str::parse).transpose()?;
    let cards = (0..count).map(|index| facts(index, &found)).collect();
    let times = match count {
        1 => String::new(),
        count => format!("{count} × "),
    };
    let with = version.map_or(String::new(), |version| format!(", driver {version}"));
    Ok(HostFacts {
        version: FORMAT,
        name: Some(format!("{times}{}{with}", found.card.name)),
        architecture: Some(found.card.cpu_architecture().to_owned()),
        driver: Some(Driver {
            version,
            cuda: version.and_then(driver_cuda),
            ..Driver::default()
        }),
        cards,
        ..HostFacts::default()
    })
}

/// A machine for each name, all with the same driver.
///
/// # Errors
/// The first that [`host_from_gpu_name`] has.
pub fn hosts_from_gpu_names<'a>(
    gpus: impl IntoIterator<Item = &'a str>,
    driver: Option<&str>,
) -> Result<Vec<HostFacts>, MachineError> {
    gpus.into_iter()
        .map(|gpu| host_from_gpu_name(gpu, driver))
        .collect()
}

/// `8x H100` is eight; `RTX 3070` is one. A number needs an `x` or `×` behind it, as `3070` is a name.
fn counted(gpu: &str) -> (u32, &str) {
    let gpu = gpu.trim();
    let digits = gpu.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let (number, rest) = gpu.split_at(digits);
    let rest = rest.trim_start();
    let name = rest.strip_prefix(['x', '×', '*']);
    match (number.parse(), name) {
        (Ok(count), Some(name)) if count > 0 => (count, name.trim_start()),
        _ => (1, gpu),
    }
}

fn facts(index: u32, found: &GpuMatch) -> GpuFacts {
    GpuFacts {
        index,
        name: Some(found.card.name.to_owned()),
        capability: Some(found.card.capability),
        memory: found.memory,
        mig: found.card.mig.then(Mig::default),
        data_centre: found.card.forward_compatible(),
        ..GpuFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sconce_schema::{Bytes, ComputeCapability, CudaVersion};

    #[test]
    fn a_name_and_a_driver_make_a_machine() {
        let facts = host_from_gpu_name("RTX 3070", Some("535.104.05")).unwrap();
        assert_eq!(
            facts.name.as_deref(),
            Some("GeForce RTX 3070, driver 535.104.05")
        );
        let driver = facts.driver.unwrap();
        assert_eq!(driver.cuda, Some(CudaVersion::new(12, 2)));
        let [card] = facts.cards.as_slice() else {
            panic!("{:?}", facts.cards);
        };
        assert_eq!(card.capability, Some(ComputeCapability::new(8, 6)));
        assert_eq!(card.memory, Some(Bytes::from_gib(8)));
        assert_eq!(card.data_centre, Some(false));
    }

    #[test]
    fn several_of_a_kind() {
        for text in ["8x H100", "8 × h100", "8xH100 80GB"] {
            assert_eq!(
                host_from_gpu_name(text, None).unwrap().cards.len(),
                8,
                "{text}"
            );
        }
        assert_eq!(host_from_gpu_name("3070", None).unwrap().cards.len(), 1);
        assert!(matches!(
            host_from_gpu_name("4294967295x h100", None),
            Err(MachineError::Count { .. })
        ));
        let fleet = hosts_from_gpu_names(["v100", "4090", "b200"], None).unwrap();
        assert_eq!(fleet.len(), 3);
        assert_eq!(
            host_from_gpu_name("gb200", None)
                .unwrap()
                .architecture
                .as_deref(),
            Some("aarch64")
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = host_from_gpu_name("3070", Some("535")).unwrap_err();
        assert!(error.hint().unwrap().contains("535.104.05"));
        assert!(host_from_gpu_name("Voodoo 2", None).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(gpu in "\\PC{0,60}", driver in "\\PC{0,20}") {
            let _ = host_from_gpu_name(&gpu, Some(&driver));
        }
    }
}
