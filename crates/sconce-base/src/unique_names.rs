//! Names that nobody else takes.

use std::hash::{BuildHasher as _, RandomState};

/// A name for a file or folder that several processes make in one place, on one machine or several: 16
/// hexadecimal digits of chance. A process's id is no such name: two containers with one home may have
/// equal ones, and so may two machines.
#[must_use]
pub fn random_name() -> String {
    // Seeded from the system's random numbers (std's documentation of `RandomState`).
    format!("{:016x}", RandomState::new().hash_one(0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn names_differ() {
        let in_thread = || (0..50).map(|_| super::random_name()).collect::<Vec<_>>();
        let others: Vec<_> = (0..20).map(|_| std::thread::spawn(in_thread)).collect();
        let others = others.into_iter().flat_map(|thread| thread.join().unwrap());
        let names: BTreeSet<String> = others.collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| name.len() == 16));
    }
}
