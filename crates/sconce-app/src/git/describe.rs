//! How far a commit is from the nearest tag: what `git describe --tags --long` tells.

use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use super::objects::ObjectDatabase;
use super::{ObjectId, Repository, Tag};

/// Tags that are compared, as git does.
const MAX_CANDIDATES: usize = 10;
/// The longest history that is followed, and the longest time for it. Linux has 1.3 million commits.
const MAX_COMMITS: usize = 2_000_000;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Where a commit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    /// The nearest tag, by its number among those that were given; absent where none is in its history.
    pub(crate) tag: Option<usize>,
    /// Commits since that tag; all commits where there is none.
    pub(crate) distance: u64,
    /// Commits that were looked at.
    pub(crate) seen: usize,
}

struct Candidate {
    tag: usize,
    bit: u32,
    depth: u64,
}

/// Describes a commit by one of `tags`. An annotated tag goes before another one of the same commit, a newer one before
/// an older. In a shallow clone history ends where it is cut off. `None` where an object is missing or damaged, or
/// history is too long.
pub(crate) fn describe(repository: &Repository, head: ObjectId, tags: &[Tag]) -> Option<Described> {
    let objects = ObjectDatabase::open(repository);
    let end = Instant::now() + MAX_TIME;
    let tagged = tagged_commits(&objects, tags, end)?;
    if let Some(&tag) = tagged.get(&head) {
        return Some(Described {
            tag: Some(tag),
            distance: 0,
            seen: 1,
        });
    }
    let shallow = repository.shallow();
    let mut candidates: Vec<Candidate> = Vec::new();
    // Which candidates a commit lies in the history of.
    let mut within: HashMap<ObjectId, u32> = HashMap::from([(head, 0)]);
    let first = objects.read_commit(head)?;
    let mut queue = BinaryHeap::from([(first.time, head)]);
    let mut waiting = HashMap::from([(head, first)]);
    let mut seen = 0;
    while let Some((_, commit)) = queue.pop() {
        let parents = waiting.remove(&commit).map(|commit| commit.parents)?;
        let mut bits = within.get(&commit).copied().unwrap_or(0);
        if let Some(&tag) = tagged.get(&commit)
            && candidates.len() < MAX_CANDIDATES
        {
            let bit = 1 << candidates.len();
            bits |= bit;
            let depth = seen as u64;
            candidates.push(Candidate { tag, bit, depth });
        }
        seen += 1;
        for candidate in candidates.iter_mut().filter(|one| bits & one.bit == 0) {
            candidate.depth += 1;
        }
        let is_cut_off = shallow.contains(&commit);
        for parent in parents.into_iter().filter(|_| !is_cut_off) {
            if let Some(known) = within.get_mut(&parent) {
                *known |= bits;
            } else {
                within.insert(parent, bits);
                let read = objects.read_commit(parent)?;
                if Instant::now() > end {
                    return None;
                }
                queue.push((read.time, parent));
                waiting.insert(parent, read);
            }
        }
        let best = candidates.iter().min_by_key(|one| one.depth);
        // All that is left lies in the history of the nearest tag: it stays the nearest, and its distance is known.
        if let Some(best) = best {
            let is_covered = |id: &ObjectId| within.get(id).is_some_and(|b| b & best.bit != 0);
            if queue.iter().all(|(_, id)| is_covered(id)) {
                break;
            }
        }
        if seen > MAX_COMMITS || Instant::now() > end {
            return None;
        }
    }
    let best = candidates.iter().min_by_key(|one| one.depth);
    Some(match best {
        Some(best) => Described {
            tag: Some(best.tag),
            distance: best.depth,
            seen,
        },
        None => Described {
            tag: None,
            distance: seen as u64,
            seen,
        },
    })
}

/// The tag of each commit that has one; `None` where that takes too long.
fn tagged_commits(
    objects: &ObjectDatabase,
    tags: &[Tag],
    end: Instant,
) -> Option<HashMap<ObjectId, usize>> {
    let mut tagged: HashMap<ObjectId, usize> = HashMap::new();
    for (number, tag) in tags.iter().enumerate() {
        if Instant::now() > end {
            return None;
        }
        let commit = match tag.peeled {
            Some(commit) => Some(commit),
            None => tag.resolve(objects).map(|(commit, _)| commit),
        };
        let Some(commit) = commit else { continue };
        let Some(other) = tagged.get(&commit) else {
            tagged.insert(commit, number);
            continue;
        };
        let made = |tag: &Tag| tag.resolve(objects).and_then(|(_, made)| made);
        if made(tag) > made(&tags[*other]) {
            tagged.insert(commit, number);
        }
    }
    Some(tagged)
}
