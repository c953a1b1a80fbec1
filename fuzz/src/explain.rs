//! Error logs: any bytes, cut anywhere.

use sconce_compat::explain::{Explainer, Explanation, LogEnvironment, RuleSet, explain, oom};

use crate::bytes::parts;

/// A log is explained the same however it is cut, and nothing of it reaches a terminal as a command.
pub(crate) fn log(data: &[u8]) {
    let environment = LogEnvironment::default();
    let whole = explain(data, None, &environment);
    let at = data
        .first()
        .map_or(0, |&byte| usize::from(byte))
        .min(data.len());
    let mut explainer = Explainer::new(RuleSet::builtin_rules());
    explainer.push(&data[..at]);
    explainer.push(&data[at..]);
    assert_eq!(explainer.finish(None, &environment), whole);
    assert_eq!(whole.bytes, data.len() as u64);
    for cause in &whole.causes {
        assert!(!cause.lines.is_empty() && cause.count > 0);
        for line in &cause.lines {
            assert!(line.number > 0 && line.number <= whole.lines);
            assert!(!line.text.contains(char::is_control));
        }
    }
    let json = serde_json::to_string(&whole).expect("an explanation is plain data");
    assert_eq!(serde_json::from_str::<Explanation>(&json).ok(), Some(whole));
}

pub(crate) fn log_seeds() -> Vec<Vec<u8>> {
    let rules = RuleSet::builtin_rules().rules.iter();
    rules
        .flat_map(|rule| &rule.examples)
        .map(|example| example.clone().into_bytes())
        .collect()
}

/// Figures of a message never exceed what can be.
pub(crate) fn out_of_memory(data: &[u8]) {
    for part in parts::<2>(data) {
        if let Some(oom) = oom::parse(part) {
            assert!(!oom.why.is_empty());
            let sizes = [
                oom.asked,
                oom.capacity,
                oom.free,
                oom.in_use,
                oom.allocated,
                oom.allowed,
            ];
            for size in sizes
                .into_iter()
                .flatten()
                .chain(oom.others.iter().map(|(_, size)| *size))
            {
                assert!(size.0 < 1 << 50);
            }
        }
    }
}

pub(crate) fn out_of_memory_seeds() -> Vec<Vec<u8>> {
    [
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 4.29 GiB already allocated; 10.12 MiB free; 4.46 GiB reserved in total by PyTorch)",
        "CUDA out of memory. Tried to allocate 128.00 MiB. GPU 3 has a total capacity of 79.15 GiB of which 100.00 MiB is free. Process 123 has 30.00 GiB memory in use. Including non-PyTorch memory, this process has 47.50 GiB memory in use. 50.00 GiB allowed; Of the allocated memory 46.00 GiB is allocated by PyTorch, with 399.00 MiB allocated in private pools (e.g., CUDA Graphs), and 64.00 MiB is reserved by PyTorch but unallocated.",
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 7.00 GiB\nRequested               : 2.00 GiB\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n : 8.00 GiB",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
