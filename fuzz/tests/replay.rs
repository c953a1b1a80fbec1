//! Every target takes its own seeds: no panic, and what it asserts holds.

use sconce_fuzz::{TARGETS, remove_scratch};

#[test]
fn every_target_takes_its_seeds() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in seeds {
            (target.run)(&seed);
        }
    }
    remove_scratch();
}
