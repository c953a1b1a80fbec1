//! Hints are data: an error says what failed, its hint says what to do about it.

use crate::exit;

/// What every error of a stage can tell the program besides its text.
pub trait Hint: std::error::Error {
    /// One or two short sentences that say how to mend it; printed once, as `hint: …`.
    fn hint(&self) -> Option<String> {
        None
    }

    /// The documented exit code ([`crate::exit`]) that the program ends with.
    fn exit_code(&self) -> u8 {
        exit::BUG
    }
}
