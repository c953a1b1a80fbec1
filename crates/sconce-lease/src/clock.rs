//! Time that goes on evenly whatever happens to the wall clock.
//!
//! Within one boot the time of the leases follows `CLOCK_BOOTTIME`, which nobody can set and which
//! counts a suspended machine's sleep. Over a reboot only the wall clock knows how long it took;
//! where it says less than nothing, no time passed.

use serde::{Deserialize, Serialize};

use super::types::Millis;

/// One reading of the clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Milliseconds since 1970, as the wall clock says.
    pub wall_ms: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// Milliseconds since boot, sleep included.
    pub boot_ms: u64,
}

impl ClockReading {
    /// Milliseconds from `earlier` to this reading, and whether the wall clock was not there to
    /// tell them: it was set back while the machine was off.
    #[must_use]
    pub fn elapsed_since(&self, earlier: &Self) -> (Millis, bool) {
        if self.boot == earlier.boot {
            (self.boot_ms.saturating_sub(earlier.boot_ms), false)
        } else {
            let passed = self.wall_ms.checked_sub(earlier.wall_ms);
            (passed.unwrap_or(0), passed.is_none())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: &str, boot_ms: u64, wall_ms: u64) -> ClockReading {
        ClockReading {
            wall_ms,
            boot: boot.to_owned(),
            boot_ms,
        }
    }

    #[test]
    fn the_wall_clock_counts_over_a_reboot_alone() {
        let first = at("a", 1_000, 50_000);
        assert_eq!(
            at("a", 4_000, 10).elapsed_since(&first),
            (3_000, false),
            "set back"
        );
        assert_eq!(
            at("a", 4_000, 9_000_000).elapsed_since(&first),
            (3_000, false)
        );
        assert_eq!(at("b", 7, 80_000).elapsed_since(&first), (30_000, false));
        assert_eq!(at("b", 7, 49_999).elapsed_since(&first), (0, true));
        assert_eq!(
            at("a", 999, 0).elapsed_since(&first),
            (0, false),
            "two processors"
        );
    }
}
