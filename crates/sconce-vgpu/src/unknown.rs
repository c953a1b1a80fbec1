//! What was asked and is not known.

use crate::machine::{lock_state, print_diagnostic};

/// Says once that something was asked that the virtual GPU does not know.
pub fn report_unknown_call(name: &str) {
    let mut machine = lock_state();
    if machine.asked.unknown.iter().any(|known| known == name) {
        return;
    }
    machine.asked.unknown.push(name.to_owned());
    drop(machine);
    print_diagnostic(&format!("`{name}` was asked, which it does not know"));
}
