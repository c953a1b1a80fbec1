//! The rule files, by name. A test compares the list with the folder.

macro_rules! files {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../rules/", $name))),)*]
    };
}

/// Every file of `crates/sconce-report/rules/`, with its text.
pub(crate) const FILES: &[(&str, &str)] = files![
    "starved-by-data.toml",
    "allocator-retries.toml",
    "card-blocks-grow.toml",
    "card-cache-grows.toml",
    "card-memory-grows.toml",
    "card-out-of-memory.toml",
    "copies-not-overlapped.toml",
    "cpu-limit.toml",
    "cudnn-benchmark-off.toml",
    "exposed-communication.toml",
    "fragmentation.toml",
    "idle-card.toml",
    "killed-for-memory.toml",
    "late-in-backward.toml",
    "launch-bound.toml",
    "memory-grows.toml",
    "memory-pressure.toml",
    "mostly-other.toml",
    "no-mixed-precision.toml",
    "no-step.toml",
    "power-limited.toml",
    "sockets-beside-fabric.toml",
    "straggler.toml",
    "swapping.toml",
    "too-hot.toml",
];
