//! Prints how many calls a second the simulated allocator answers, on one core.
//!
//! Three programs: training (forward passes that keep their activations, backward passes that
//! free them, temporaries in between), random sizes with random frees (some thousand free blocks
//! of all sizes, which training never has), and training whose blocks a second stream uses too.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "it is a program that prints"
)]

use std::time::Instant;

use sconce_memory::allocator::{Allocator, AllocatorSettings, SimulatedGpu, TorchVersion};

const CALLS: u64 = 8_000_000;

/// Marsaglia's xorshift: the same numbers every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn training(allocator: &mut Allocator, elsewhere: bool) -> u64 {
    const LAYERS: u64 = 96;
    let mut numbers = Numbers(0x5eed);
    let mut calls = 0;
    let mut kept = Vec::new();
    while calls < CALLS {
        for layer in 0..LAYERS {
            // Some sizes repeat from step to step, some follow the length of the batch.
            let batch = 1 + numbers.below(4);
            for bytes in [4 << 20, batch << 19, 24 << 20, 2048 + 512 * layer, 100_000] {
                kept.push(allocator.malloc(bytes, 0).expect("there is enough"));
                let temporary = allocator.malloc(bytes * 2, 0).expect("there is enough");
                if elsewhere {
                    allocator
                        .record_stream(temporary, 1)
                        .expect("it is allocated");
                    calls += 1;
                }
                allocator.free(temporary).expect("it is allocated");
                calls += 3;
            }
        }
        while let Some(address) = kept.pop() {
            let gradient = allocator.malloc(3 << 20, 0).expect("there is enough");
            allocator.free(address).expect("it is allocated");
            allocator.free(gradient).expect("it is allocated");
            calls += 3;
        }
    }
    calls
}

fn random(allocator: &mut Allocator) -> u64 {
    let mut numbers = Numbers(0x5eed);
    let mut live = Vec::new();
    for _ in 0..CALLS {
        if live.len() < 2000 || (live.len() < 6000 && numbers.below(2) == 0) {
            let most = 1 << (9 + numbers.below(16));
            let bytes = 1 + numbers.below(most);
            live.push(
                allocator
                    .malloc(bytes, numbers.below(2))
                    .expect("there is enough"),
            );
        } else {
            let at = numbers.below(live.len() as u64) as usize;
            allocator
                .free(live.swap_remove(at))
                .expect("it is allocated");
        }
    }
    CALLS
}

fn main() {
    for conf in ["", "expandable_segments:True", "max_split_size_mb:64"] {
        for (name, run) in [
            (
                "training",
                &(|a: &mut Allocator| training(a, false)) as &dyn Fn(&mut Allocator) -> u64,
            ),
            ("random", &random),
            ("two streams", &|a: &mut Allocator| training(a, true)),
        ] {
            let settings =
                AllocatorSettings::parse(conf, TorchVersion::MAX_KNOWN).expect("they are settings");
            let device = SimulatedGpu::new(192 << 30).expect("it is a card");
            let mut allocator = Allocator::new(settings, device, TorchVersion::MAX_KNOWN);
            allocator.complete_at_once(true);
            let begun = Instant::now();
            let calls = run(&mut allocator);
            let seconds = begun.elapsed().as_secs_f64();
            let peak = allocator.stats().reserved_bytes.all.peak >> 20;
            println!(
                "{name:12} {conf:26} {:6.2} million calls a second, {peak} MiB reserved at most",
                calls as f64 / seconds / 1e6
            );
        }
    }
}
