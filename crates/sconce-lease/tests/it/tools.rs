//! A machine that is played, and random numbers.

use std::sync::Mutex;

use sconce_lease::{ClockReading, LeaseGpu, LeaseSystem, LeaseUser, ProcessRef};
use sconce_schema::Bytes;

pub(crate) const MINUTE: u64 = 60_000;

/// xorshift64*: the same numbers for the same seed everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
}

pub(crate) fn user(uid: u32) -> LeaseUser {
    LeaseUser {
        uid,
        name: format!("user{uid}"),
        groups: Vec::new(),
    }
}

/// Cards of 40 GiB, of which the first half has 80.
pub(crate) fn cards(count: u32) -> Vec<LeaseGpu> {
    let card = |index| LeaseGpu {
        key: format!("0000:{index:02x}:00.0"),
        index,
        name: Some("NVIDIA A100".to_owned()),
        memory: Some(Bytes::from_gib(if index < count / 2 { 80 } else { 40 })),
    };
    (0..count).map(card).collect()
}

/// A machine whose clock and processes a test holds.
pub(crate) struct Played {
    pub(crate) clock: Mutex<ClockReading>,
    pub(crate) cards: Mutex<Vec<LeaseGpu>>,
    pub(crate) dead: Mutex<Vec<u32>>,
}

impl Played {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            clock: Mutex::new(ClockReading {
                wall_ms: 1_795_329_600_000,
                boot: "first".to_owned(),
                boot_ms: 1_000_000,
            }),
            cards: Mutex::new(cards(count)),
            dead: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn pass(&self, ms: u64) {
        let mut clock = self.clock.lock().unwrap();
        clock.wall_ms += ms;
        clock.boot_ms += ms;
    }

    pub(crate) fn kill(&self, pid: u32) {
        self.dead.lock().unwrap().push(pid);
    }
}

impl LeaseSystem for Played {
    fn clock(&self) -> Option<ClockReading> {
        Some(self.clock.lock().unwrap().clone())
    }

    fn cards(&self) -> Vec<LeaseGpu> {
        self.cards.lock().unwrap().clone()
    }

    fn is_alive(&self, process: &ProcessRef) -> bool {
        !self.dead.lock().unwrap().contains(&process.pid)
    }

    fn process(&self, pid: u32) -> Option<ProcessRef> {
        Some(ProcessRef {
            pid,
            start_ticks: 1,
            boot: self.clock.lock().unwrap().boot.clone(),
        })
    }
}
