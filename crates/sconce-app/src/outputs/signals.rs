//! What is there only until an output is complete goes when a signal ends the program.

use std::sync::mpsc;
use std::thread;

use sconce_base::output::remove_unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Signals by which a person, a terminal or a scheduler ends a program.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Begins to wait for signals that end the program. It ends by them still, once names that are there for the time
/// being are gone. While a command runs, they are the command's: the supervisor catches them.
pub fn watch_signals() {
    let (ready, is_ready) = mpsc::channel();
    // Caught in the thread: where there is none, they end the program as before.
    let wait = move || {
        let ignored = ignored_signals();
        let caught = ENDING.iter().filter(|signal| !ignored.contains(signal));
        let Ok(mut signals) = Signals::new(caught) else {
            return;
        };
        let _ = ready.send(());
        for signal in signals.forever() {
            remove_unfinished(|| {
                let _ = emulate_default_handler(signal);
            });
        }
    };
    let name = "signals".to_owned();
    if thread::Builder::new().name(name).spawn(wait).is_ok() {
        // An error says that it caught none.
        let _ = is_ready.recv();
    }
}

/// The signals that the program's caller has it ignore, as nohup does, which stay ignored (proc_pid_status(5)).
fn ignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    (1..=64)
        .filter(|signal| mask >> (signal - 1) & 1 == 1)
        .collect()
}
