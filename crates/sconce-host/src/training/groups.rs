//! Which ranks belong together, where one run has several processes of the same rank: two launchers, at one
//! time or one after the other, or programs that each train alone.

use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::training::TrainingSample;

use super::Process;

/// Those of processes that ended are known so long as there are no more than so many.
const MAX_KNOWN_RANKS: usize = 4096;

/// A rank and the group that it is of, from 1.
pub(super) type RankInGroup = (u32, u32);

/// Who started a process, and the cell of a notebook that it tells of: two cells never share a group.
type Origin = (u32, Option<u32>);

/// The groups so far: where who was last that rank in that group came from.
#[derive(Debug, Default)]
pub(super) struct RankGroups(BTreeMap<RankInGroup, Origin>);

impl RankGroups {
    /// Gives each of `told` its group, by the names in `at`. A process keeps its group as long as its rank
    /// stays what it is. A new one goes where its siblings are (a launcher starts all ranks of a group, and
    /// starts them again), else into the first group that never had such a rank. Those without a rank
    /// count as rank 0.
    pub(super) fn assign(
        &mut self,
        processes: &mut BTreeMap<String, Process>,
        at: &[String],
        told: &mut [TrainingSample],
    ) {
        let mut live: BTreeSet<RankInGroup> =
            processes.values().filter_map(|it| it.member).collect();
        if self.0.len() > MAX_KNOWN_RANKS {
            self.0.retain(|member, _| live.contains(member));
        }
        let mut order: Vec<(Origin, u32, usize)> = (told.iter().zip(at).enumerate())
            .filter_map(|(index, (of, name))| {
                let process = processes.get(name)?;
                let origin = (process.parent, process.cell);
                Some((origin, of.rank.unwrap_or_default(), index))
            })
            .collect();
        order.sort_unstable();
        for (origin, rank, index) in order {
            let Some((told, process)) =
                (told.get_mut(index)).zip(at.get(index).and_then(|name| processes.get_mut(name)))
            else {
                continue;
            };
            let group = match process.member {
                Some((before, group)) if before == rank => group,
                before => {
                    if let Some(before) = before {
                        live.remove(&before);
                    }
                    self.of(origin, rank, &live)
                }
            };
            live.insert((rank, group));
            self.0.insert((rank, group), origin);
            process.member = Some((rank, group));
            told.group = (group > 1).then_some(group);
        }
    }

    /// The group of a rank that is new.
    fn of(&self, origin: Origin, rank: u32, live: &BTreeSet<RankInGroup>) -> u32 {
        let is_free = |group: &u32| {
            let before = self.0.get(&(rank, *group));
            !live.contains(&(rank, *group)) && before.is_none_or(|of| *of == origin)
        };
        let siblings = self.0.iter().filter(|(_, of)| **of == origin);
        let theirs = siblings.map(|((_, group), _)| *group).filter(is_free).min();
        theirs
            .or_else(|| (1..u32::MAX).find(is_free))
            .unwrap_or(u32::MAX)
    }
}
