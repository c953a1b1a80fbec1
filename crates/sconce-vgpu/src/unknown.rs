//! What was asked and is not known.

use crate::machine::{machine, say};

/// Says once that something was asked that the virtual GPU does not know.
pub fn met(name: &str) {
    let mut machine = machine();
    if machine.asked.unknown.iter().any(|known| known == name) {
        return;
    }
    machine.asked.unknown.push(name.to_owned());
    drop(machine);
    say(&format!("`{name}` was asked, which it does not know"));
}
