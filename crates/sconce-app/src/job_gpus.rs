//! The cards of a job on its node: those that the job can open, if the scheduler's variables say the same.

use sconce_base::Env;
use sconce_host::GpuDevice;
use sconce_schema::spec::{GpuId, GpuRequest};
use sconce_schema::{Hint, exit};

/// Why a node does not have a job's cards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JobGpuError {
    /// The variables name cards that cannot be opened.
    #[error(
        "{variable} is `{value}`, and of this node's cards the job can open {}",
        list(openable)
    )]
    Conflict {
        /// The variable.
        variable: &'static str,
        /// What it says.
        value: String,
        /// Indices of the cards that can be opened.
        openable: Vec<u32>,
    },
    /// Fewer than were asked for.
    #[error(
        "the job is for {wanted} cards a node, and of this node's it can open {}",
        list(openable)
    )]
    TooFew {
        /// How many were asked for.
        wanted: u32,
        /// Indices of the cards that can be opened.
        openable: Vec<u32>,
    },
    /// A run within a job wants more than the job has.
    #[error(
        "the run is for {wanted} cards, and its job has on this node {}",
        list(of_job)
    )]
    MoreThanJob {
        /// How many it wants.
        wanted: u32,
        /// Indices of the job's.
        of_job: Vec<u32>,
    },
}

impl Hint for JobGpuError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Conflict { .. } => {
                "leave the variable to the scheduler: no `setup` line should set it".to_owned()
            }
            Self::MoreThanJob { .. } => {
                "ask the scheduler for more, by `--gpus-per-node` of `salloc` or of `sconce submit`"
                    .to_owned()
            }
            Self::TooFew { .. } => {
                "`scontrol show node` says which cards Slurm has for it; the driver may be down"
                    .to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Conflict { .. } | Self::TooFew { .. } => exit::NODE,
            Self::MoreThanJob { .. } => exit::BAD_INPUT,
        }
    }
}

fn list(indices: &[u32]) -> String {
    match indices {
        [] => "none".to_owned(),
        indices => indices
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Where a scheduler names cards, the first that is set counts: Slurm has the first for the cards of the step, by the
/// driver's own numbers; the second counts from 0 where the job cannot open others.
const VARIABLES: [&str; 3] = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"];

/// Chooses among the node's cards for a job that asked for `wanted` on each node.
///
/// Where Slurm confines devices, the job cannot open others', and those that it can open are its own. Where it does
/// not, all can be opened, and the variable says which are the job's.
///
/// # Errors
/// The variable and the devices contradict each other, or there are too few.
pub(crate) fn choose_gpus(
    cards: &[GpuDevice],
    wanted: Option<u32>,
    env: &Env,
) -> Result<GpuRequest, JobGpuError> {
    let is_open = |card: &&GpuDevice| card.node.as_ref().is_some_and(|node| node.usable);
    let open: Vec<&GpuDevice> = cards.iter().filter(is_open).collect();
    let openable = || open.iter().map(|card| card.index).collect::<Vec<_>>();
    let named = VARIABLES.into_iter().find_map(|variable| {
        let value = env.var(variable)?;
        let names: Vec<&str> = value.split(',').map(str::trim).collect();
        (!value.is_empty() && value != "NoDevFiles").then_some((variable, value, names))
    });
    let chosen: Vec<u32> = match &named {
        None if wanted.is_none_or(|wanted| wanted == 0) => Vec::new(),
        // The scheduler counts as many as can be opened: its numbers may begin at 0 again.
        Some((_, _, names)) if names.len() == open.len() && !has_uuids(names) => openable(),
        Some((_, _, names)) if open.len() < names.len() => {
            return Err(JobGpuError::TooFew {
                wanted: u32::try_from(names.len()).unwrap_or(u32::MAX),
                openable: openable(),
            });
        }
        Some((variable, value, names)) => {
            let find = |name: &&str| {
                let is_it = |card: &&&GpuDevice| match name.parse::<u32>() {
                    Ok(number) => card.minor.unwrap_or(card.index) == number,
                    Err(_) => card
                        .uuid
                        .as_ref()
                        .is_some_and(|uuid| uuid.starts_with(*name)),
                };
                Some(open.iter().find(is_it)?.index)
            };
            let found: Option<Vec<u32>> = names.iter().map(find).collect();
            found.ok_or_else(|| JobGpuError::Conflict {
                variable,
                value: (*value).to_owned(),
                openable: openable(),
            })?
        }
        None => openable(),
    };
    match wanted {
        Some(wanted) if chosen.len() < wanted as usize => Err(JobGpuError::TooFew {
            wanted,
            openable: openable(),
        }),
        _ if chosen.is_empty() => Ok(GpuRequest::Count(0)),
        _ => Ok(GpuRequest::Listed(
            chosen.into_iter().map(GpuId::Index).collect(),
        )),
    }
}

fn has_uuids(names: &[&str]) -> bool {
    names.iter().any(|name| name.parse::<u32>().is_err())
}

#[cfg(test)]
mod tests {
    use sconce_host::CharacterDevice;

    use super::*;

    /// Eight cards, of which those can be opened.
    fn cards(open: &[u32]) -> Vec<GpuDevice> {
        let card = |index: u32| GpuDevice {
            index,
            bus_id: None,
            minor: Some(index),
            uuid: Some(format!("GPU-{index}a")),
            name: None,
            memory: None,
            node: Some(CharacterDevice {
                path: format!("/dev/nvidia{index}").into(),
                host_path: format!("/dev/nvidia{index}").into(),
                major: 195,
                minor: index,
                usable: open.contains(&index),
            }),
        };
        (0..8).map(card).collect()
    }

    fn choose(
        open: &[u32],
        wanted: Option<u32>,
        variables: &[(&str, &str)],
    ) -> Result<GpuRequest, JobGpuError> {
        let env = Env::from_variables(variables.iter().copied());
        choose_gpus(&cards(open), wanted, &env)
    }

    fn listed(indices: &[u32]) -> Result<GpuRequest, JobGpuError> {
        Ok(GpuRequest::Listed(
            indices.iter().copied().map(GpuId::Index).collect(),
        ))
    }

    #[test]
    fn what_can_be_opened_is_the_jobs_whatever_its_numbers_are() {
        let confined = [2, 3];
        for variables in [
            &[("SLURM_JOB_GPUS", "2,3")][..],
            &[("CUDA_VISIBLE_DEVICES", "0,1")],
            &[("CUDA_VISIBLE_DEVICES", "GPU-2a,GPU-3")],
            &[],
        ] {
            assert_eq!(
                choose(&confined, Some(2), variables),
                listed(&confined),
                "{variables:?}"
            );
        }
        assert_eq!(choose(&confined, None, &[]), Ok(GpuRequest::Count(0)));
        assert_eq!(
            choose(&[], None, &[("SLURM_JOB_GPUS", "")]),
            Ok(GpuRequest::Count(0))
        );
    }

    #[test]
    fn where_all_can_be_opened_the_variable_says_which() {
        let all = [0, 1, 2, 3, 4, 5, 6, 7];
        for (variables, chosen) in [
            (&[("SLURM_JOB_GPUS", "4,5")][..], &[4, 5][..]),
            (&[("CUDA_VISIBLE_DEVICES", "GPU-6a")], &[6]),
            (&[("SLURM_STEP_GPUS", "1"), ("SLURM_JOB_GPUS", "1,2")], &[1]),
        ] {
            assert_eq!(
                choose(&all, None, variables),
                listed(chosen),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn a_contradiction_and_too_few_are_errors() {
        for (open, wanted, variables) in [
            (
                &[2, 3][..],
                Some(2),
                &[("CUDA_VISIBLE_DEVICES", "GPU-2a,GPU-7a")][..],
            ),
            (&[2, 3], Some(1), &[("SLURM_JOB_GPUS", "5")]),
        ] {
            let error = choose(open, wanted, variables).unwrap_err();
            assert!(matches!(error, JobGpuError::Conflict { .. }), "{error}");
        }
        let named = choose(&[2], None, &[("SLURM_JOB_GPUS", "2,3")]).unwrap_err();
        let error = choose(&[2], Some(2), &[]).unwrap_err();
        assert_eq!(named, error);
        assert_eq!(
            error.to_string(),
            "the job is for 2 cards a node, and of this node's it can open 2"
        );
        assert_eq!(error.exit_code(), exit::NODE);
    }
}
