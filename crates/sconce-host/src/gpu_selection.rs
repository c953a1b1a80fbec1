//! Which cards a run gets.

use sconce_schema::spec::{GpuId, GpuRequest};
use sconce_schema::{Hint, exit};

use crate::nvidia::GpuDevice;

/// Why cards could not be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuSelectionError {
    /// More cards than there are.
    #[error("{} asked for and this machine has {}", asked(*wanted), count(there))]
    TooFew {
        /// How many were asked for.
        wanted: u32,
        /// The cards that exist, in words.
        there: Vec<String>,
    },
    /// A name that no card has.
    #[error("there is no card `{name}`; this machine has {}", count(there))]
    NoSuchCard {
        /// The index or UUID.
        name: String,
        /// The cards that exist, in words.
        there: Vec<String>,
    },
    /// A beginning of a UUID that several cards share.
    #[error("`{name}` is the beginning of more than one card's UUID")]
    Ambiguous {
        /// The text.
        name: String,
        /// The cards that exist, in words.
        there: Vec<String>,
    },
    /// A card named twice.
    #[error("card {index} is named twice, the second time as `{name}`")]
    Twice {
        /// The second name.
        name: String,
        /// The card's index.
        index: u32,
    },
}

fn asked(wanted: u32) -> String {
    match wanted {
        1 => "1 card was".to_owned(),
        wanted => format!("{wanted} cards were"),
    }
}

fn count(there: &[String]) -> String {
    match there.len() {
        0 => "none".to_owned(),
        n => format!("{n}"),
    }
}

/// Cards of one name next to each other are told together; those told by their UUIDs have a line each.
fn together(there: &[String]) -> String {
    let mut kinds: Vec<(String, &str)> = Vec::new();
    for card in there {
        let (index, name) = card.split_once(": ").unwrap_or(("", card.as_str()));
        match kinds.last_mut() {
            Some((indices, last)) if *last == name => {
                indices.push_str(", ");
                indices.push_str(index);
            }
            _ => kinds.push((index.to_owned(), name)),
        }
    }
    let lines: Vec<_> = kinds
        .iter()
        .map(|(indices, name)| format!("{indices}: {name}"))
        .collect();
    lines.join("\n  ")
}

impl Hint for GpuSelectionError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::TooFew { there, .. }
            | Self::NoSuchCard { there, .. }
            | Self::Ambiguous { there, .. } => Some(match there.is_empty() {
                true => "no card is known to an NVIDIA driver here; `gpus = \"all\"` takes what \
                         there is and `gpus = 0` none"
                    .to_owned(),
                false => format!("there are: {}", together(there)),
            }),
            Self::Twice { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Chooses among `cards` (those of [`crate::NvidiaDriver`]; empty without a driver): all there are, the
/// first n, or the listed ones in the order of the list.
///
/// # Errors
/// When fewer exist than were asked for, or a name is no card's, several cards', or given twice.
pub fn select_gpus<'a>(
    cards: &'a [GpuDevice],
    wanted: &GpuRequest,
) -> Result<Vec<&'a GpuDevice>, GpuSelectionError> {
    let there = || cards.iter().map(describe).collect();
    let numbered = || cards.iter().map(number).collect();
    match wanted {
        GpuRequest::All => Ok(cards.iter().collect()),
        &GpuRequest::Count(wanted) => {
            let chosen: Vec<_> = cards.iter().take(wanted as usize).collect();
            match chosen.len() == wanted as usize {
                true => Ok(chosen),
                false => Err(GpuSelectionError::TooFew {
                    wanted,
                    there: numbered(),
                }),
            }
        }
        GpuRequest::Listed(names) => {
            let mut chosen: Vec<&GpuDevice> = Vec::with_capacity(names.len());
            for wished in names {
                let mut found = cards.iter().filter(|card| is_named(card, wished));
                let name = || wished.to_string();
                let card = found.next().ok_or_else(|| GpuSelectionError::NoSuchCard {
                    there: match wished {
                        GpuId::Index(_) => numbered(),
                        GpuId::Uuid(_) => there(),
                    },
                    name: name(),
                })?;
                if found.next().is_some() {
                    return Err(GpuSelectionError::Ambiguous {
                        name: name(),
                        there: there(),
                    });
                }
                if chosen.iter().any(|other| other.index == card.index) {
                    return Err(GpuSelectionError::Twice {
                        name: name(),
                        index: card.index,
                    });
                }
                chosen.push(card);
            }
            Ok(chosen)
        }
    }
}

fn is_named(card: &GpuDevice, name: &GpuId) -> bool {
    match name {
        GpuId::Index(index) => card.index == *index,
        // `GPU-` alone would name all of them.
        GpuId::Uuid(start) => {
            start.len() > "GPU-".len()
                && card
                    .uuid
                    .as_deref()
                    .and_then(|uuid| uuid.get(..start.len()))
                    .is_some_and(|beginning| beginning.eq_ignore_ascii_case(start))
        }
    }
}

/// `0: NVIDIA L4`.
fn number(card: &GpuDevice) -> String {
    let summary = card.summary();
    format!("{}: {}", summary.index, summary.name)
}

/// `0: NVIDIA L4 (GPU-…)`.
fn describe(card: &GpuDevice) -> String {
    let summary = card.summary();
    format!("{}: {} ({})", summary.index, summary.name, summary.uuid)
}

/// The value of `CUDA_VISIBLE_DEVICES` that shows a run on the machine itself these cards and no
/// others: UUIDs, or indices where a UUID is unknown (CUDA takes one kind or the other, not a
/// mixture). No card is the empty text, which hides them all. It is a wish, not a wall.
#[must_use]
pub fn visible_devices(cards: &[&GpuDevice]) -> String {
    let uuids: Option<Vec<String>> = cards.iter().map(|card| card.uuid.clone()).collect();
    uuids
        .unwrap_or_else(|| cards.iter().map(|card| card.index.to_string()).collect())
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(index: u32, uuid: &str) -> GpuDevice {
        GpuDevice {
            index,
            bus_id: Some(format!("0000:0{index}:00.0")),
            minor: Some(index),
            uuid: Some(uuid.to_owned()),
            name: Some("NVIDIA L4".to_owned()),
            memory: None,
            node: None,
        }
    }

    fn two() -> Vec<GpuDevice> {
        vec![card(0, "GPU-aaaa-1"), card(1, "GPU-aaaa-2")]
    }

    fn indices(wanted: &GpuRequest) -> Result<Vec<u32>, GpuSelectionError> {
        let cards = two();
        let chosen = select_gpus(&cards, wanted)?;
        Ok(chosen.iter().map(|card| card.index).collect())
    }

    fn uuid(text: &str) -> GpuId {
        GpuId::Uuid(text.to_owned())
    }

    #[test]
    fn cards_are_chosen() {
        assert_eq!(indices(&GpuRequest::Count(0)), Ok(vec![]));
        assert_eq!(indices(&GpuRequest::Count(1)), Ok(vec![0]));
        assert_eq!(indices(&GpuRequest::All), Ok(vec![0, 1]));
        assert_eq!(
            indices(&GpuRequest::Listed(vec![
                GpuId::Index(1),
                uuid("gpu-AAAA-1")
            ])),
            Ok(vec![1, 0])
        );
        assert_eq!(select_gpus(&[], &GpuRequest::All), Ok(vec![]));
    }

    #[test]
    fn what_exists_is_named() {
        let error = indices(&GpuRequest::Count(3)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3 cards were asked for and this machine has 2"
        );
        assert_eq!(error.hint().unwrap(), "there are: 0, 1: NVIDIA L4");
        let hint = |name| {
            let error = indices(&GpuRequest::Listed(vec![name])).unwrap_err();
            error.hint().unwrap()
        };
        assert_eq!(hint(GpuId::Index(12)), "there are: 0, 1: NVIDIA L4");
        assert_eq!(
            hint(uuid("GPU-b")),
            "there are: 0: NVIDIA L4 (GPU-aaaa-1)\n  1: NVIDIA L4 (GPU-aaaa-2)"
        );
        let error = select_gpus(&[], &GpuRequest::Count(1)).unwrap_err();
        assert!(error.to_string().ends_with("has none"), "{error}");
        for name in [
            GpuId::Index(7),
            uuid("GPU-"),
            uuid("GPU-b"),
            uuid(""),
            uuid("GPU-ä"),
        ] {
            let error = indices(&GpuRequest::Listed(vec![name])).unwrap_err();
            assert!(
                matches!(error, GpuSelectionError::NoSuchCard { .. }),
                "{error}"
            );
        }
        let error = indices(&GpuRequest::Listed(vec![uuid("GPU-aaaa")])).unwrap_err();
        assert!(matches!(error, GpuSelectionError::Ambiguous { .. }));
        let error = indices(&GpuRequest::Listed(vec![
            GpuId::Index(0),
            uuid("GPU-aaaa-1"),
        ]))
        .unwrap_err();
        assert!(matches!(error, GpuSelectionError::Twice { index: 0, .. }));
    }

    #[test]
    fn visible_devices_are_of_one_kind() {
        let mut cards = two();
        let all = |cards: &[GpuDevice]| visible_devices(&cards.iter().collect::<Vec<_>>());
        assert_eq!(all(&cards), "GPU-aaaa-1,GPU-aaaa-2");
        cards[0].uuid = None;
        assert_eq!(all(&cards), "0,1");
        assert_eq!(visible_devices(&[]), "");
    }
}
