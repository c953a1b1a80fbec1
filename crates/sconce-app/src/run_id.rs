//! Ids of runs: a word of the command, the minute, and chance.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// So many ids are tried for one that is free.
const MAX_ATTEMPTS: usize = 32;

/// An id that no record in `runs` has: in a minute of many runs, chance could give one twice.
pub(crate) fn new_id(name: &str, runs: &Path) -> String {
    let fresh = || sconce_record::new_id(name, unix_ms(), random());
    let taken = |id: &String| runs.join(id).exists();
    let mut ids = std::iter::repeat_with(fresh).take(MAX_ATTEMPTS);
    ids.find(|id| !taken(id)).unwrap_or_else(fresh)
}

/// The id of a chore, which has no record to be compared with: a build has many at once, and so may others.
pub(crate) fn chore_id(name: &str) -> String {
    let chance = sconce_base::random_name();
    format!(
        "{}-{chance}",
        sconce_record::new_id(name, unix_ms(), random())
    )
}

/// Now, in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Chance for ids; nothing depends on its quality. From the kernel, without a file: there may be no descriptor
/// left.
fn random() -> u32 {
    RandomState::new().hash_one(0) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A thousand runs in one minute, of 16 million ids: without a look at the others, some may be equal.
    #[test]
    fn no_run_has_the_id_of_another() {
        let runs = tempfile::tempdir().unwrap();
        for _ in 0..1000 {
            let id = new_id("same", runs.path());
            std::fs::create_dir(runs.path().join(id)).unwrap();
        }
    }

    /// A build of many wheels beside others: all of them live at once.
    #[test]
    fn no_chore_has_the_id_of_another() {
        let ids: BTreeSet<String> = (0..10_000).map(|_| chore_id("bytecode")).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
