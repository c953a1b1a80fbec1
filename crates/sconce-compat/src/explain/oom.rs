//! CUDA out-of-memory messages of PyTorch, taken apart.
//!
//! The wordings are those of `c10/cuda/CUDACachingAllocator.cpp` and
//! `CUDAMallocAsyncAllocator.cpp` (`cudaMallocAsync`), seen in torch 2.0 to 2.15: one with
//! semicolons in parentheses until 2.0; since 2.1 sentences, with other processes; 2.15 adds that an
//! allocation is beyond an expandable segment's reserve, and refusals before cudaMalloc is asked.

use std::sync::OnceLock;

use sconce_schema::Bytes;
use serde::{Deserialize, Serialize};

use super::folded_text::FoldedText;
use super::template::{Template, find_literal};

/// The most of a log that belongs to one message, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4096;

/// The most processes that are kept.
const MAX_PROCESSES: usize = 64;

/// What a message says, and what follows from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct OomMessage {
    /// The card's number in the process.
    pub device: Option<u32>,
    /// What was asked for.
    pub asked: Option<Bytes>,
    /// All of the card's memory.
    pub capacity: Option<Bytes>,
    /// What the driver had left.
    pub free: Option<Bytes>,
    /// What this process had of the card, with CUDA's own part.
    pub in_use: Option<Bytes>,
    /// What tensors had.
    pub allocated: Option<Bytes>,
    /// What of it lay in private pools (CUDA graphs).
    pub private_pools: Option<Bytes>,
    /// What PyTorch held and no tensor had.
    pub unallocated: Option<Bytes>,
    /// What PyTorch was allowed to have (`set_per_process_memory_fraction`).
    pub allowed: Option<Bytes>,
    /// An expandable segment's reserve, where the message says that more than it was asked.
    pub reserve: Option<Bytes>,
    /// Other processes on the card, by process id. In a container the process itself can be listed
    /// here under its number outside; it is told by its size and left out.
    pub others: Vec<(u32, Bytes)>,
    /// The message speaks of address space.
    pub address_space: bool,
    /// The likely reason; absent where the figures do not tell.
    pub class: Option<OomClass>,
    /// The reason with its figures, in one or two sentences.
    pub why: String,
}

/// Why an allocation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OomClass {
    /// One allocation larger than the card.
    LargerThanCard,
    /// Enough was there in pieces that are too small.
    Fragmented,
    /// Other processes have what was missing.
    OthersUseIt,
    /// PyTorch was allowed less than the card has.
    Limited,
    /// Expandable segments: too little address space was reserved, not too little memory.
    AddressSpace,
    /// The process fills the card, and the card is small.
    SmallCard,
    /// The process fills the card.
    Full,
    /// When the figures were taken, there was enough: something else had it a moment before.
    Momentary,
}

/// Below this a card is called small: what most examples on the web are written for does not fit.
const SMALL_CARD_MEMORY: Bytes = Bytes::from_gib(12);

/// What CUDA itself takes of a card for one process, at most: its context and loaded kernels.
const MAX_CONTEXT_BYTES: u64 = 2 << 30;

struct Wordings {
    asked: [Template; 3],
    old: [Template; 5],
    device: Template,
    capacity: [Template; 3],
    free: [Template; 2],
    in_use: Template,
    process: Template,
    allocated: [Template; 2],
    pools: Template,
    unallocated: [Template; 2],
    allowed: [Template; 3],
    reserve: Template,
    address: [Template; 2],
}

fn wordings() -> &'static Wordings {
    static WORDINGS: OnceLock<Wordings> = OnceLock::new();
    WORDINGS.get_or_init(|| {
        let read = |text: &str| Template::parse(text).expect("a test reads every wording");
        Wordings {
            asked: [
                read("Tried to allocate {x:size}"),
                read("Requested size: {x:size}"),
                read("Requested : {x:size}"),
            ],
            old: [
                read("total capacity; {x:size} already allocated"),
                read("already allocated; {x:size} free"),
                read("free; {x:size} allowed"),
                read("free; {x:size} reserved in total"),
                read("allowed; {x:size} reserved in total"),
            ],
            device: read("allocate {..} GPU {x:int}"),
            capacity: [
                read("has a total capac{..}ty of {x:size}"),
                read("allocate {..} GPU {n:int}; {x:size} total capacity"),
                read("Device limit : {x:size}"),
            ],
            free: [
                read("of which {x:size} is free"),
                read("Free (according to CUDA): {x:size}"),
            ],
            in_use: read("this process has {x:size} memory in use"),
            process: read("Process {n:int} has {x:size} memory in use"),
            allocated: [
                read("Of the allocated memory {x:size} is allocated by PyTorch"),
                read("Currently allocated : {x:size}"),
            ],
            pools: read("PyTorch, with {x:size} allocated in private pools"),
            unallocated: [
                read("is allocated by PyTorch, and {x:size} is reserved"),
                read("allocated in private pools {..}, and {x:size} is reserved"),
            ],
            allowed: [
                read("is free. {x:size} allowed;"),
                read("in use. {x:size} allowed;"),
                read("user-supplied memory fraction) : {x:size}"),
            ],
            reserve: read("exceeds the expandable-segment reserve of {x:size}"),
            address: [
                read("virtual-address-space (VSZ) exhaustion"),
                read("exceeds the expandable-segment reserve of"),
            ],
        }
    })
}

/// Takes apart the first message of a text.
#[must_use]
pub fn parse(text: &[u8]) -> Option<OomMessage> {
    let text = FoldedText::new(&text[..text.len().min(MAX_MESSAGE_BYTES)]);
    let words = wordings();
    let mut end = text.bytes.len();
    // What follows belongs to the next message.
    for again in [&b"triedtoallocate"[..], b"wouldexceedallowedmemory"] {
        let starts = positions(&text, again);
        end = end.min(starts.get(1).copied().unwrap_or(end));
    }
    let first = |template: &Template| all(&text, template, end).into_iter().next();
    let size = |templates: &[Template]| {
        let value = templates.iter().find_map(first)?;
        bytes(value.last()?)
    };
    let asked = size(&words.asked);
    let allocated = size(&words.old[..1]).or_else(|| size(&words.allocated));
    let capacity = size(&words.capacity);
    if asked.is_none() && capacity.is_none() {
        return None;
    }
    let reserved = size(&words.old[3..]);
    let old_free = size(&words.old[1..2]);
    let unallocated =
        size(&words.unallocated).or_else(|| Some(Bytes(reserved?.0.saturating_sub(allocated?.0))));
    let listed = all(&text, &words.process, end);
    let others = listed
        .iter()
        .filter_map(|values| Some((values.first()?.parse().ok()?, bytes(values.get(1)?)?)));
    let mut oom = OomMessage {
        device: first(&words.device).and_then(|values| values.last()?.parse().ok()),
        asked,
        capacity,
        free: old_free.or_else(|| size(&words.free)),
        in_use: size(std::slice::from_ref(&words.in_use)),
        allocated,
        private_pools: size(std::slice::from_ref(&words.pools)),
        unallocated,
        allowed: size(&words.old[2..3]).or_else(|| size(&words.allowed)),
        reserve: size(std::slice::from_ref(&words.reserve)),
        others: others.take(MAX_PROCESSES).collect(),
        address_space: words
            .address
            .iter()
            .any(|template| first(template).is_some()),
        class: None,
        why: String::new(),
    };
    tell_own_apart(&mut oom);
    (oom.class, oom.why) = judge(&oom);
    Some(oom)
}

/// Where a literal stands.
fn positions(text: &FoldedText, literal: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = find_literal(&text.bytes[from..], literal)
        && found.len() < MAX_PROCESSES
    {
        found.push(from + at);
        from += at + 1;
    }
    found
}

/// Every place before `end` where a wording stands, with what it captured.
fn all(text: &FoldedText, template: &Template, end: usize) -> Vec<Vec<String>> {
    positions(text, template.anchor())
        .into_iter()
        .filter_map(|at| template.match_at(text, at))
        .filter(|found| found.end <= end)
        .map(|found| found.captures.into_iter().map(|(_, value)| value).collect())
        .collect()
}

/// A size as PyTorch writes it. Overflown ones (17179869184.00 GiB, seen in the wild) are absent.
fn bytes(text: &str) -> Option<Bytes> {
    let text = text.trim_end_matches("ytes").trim_end_matches("yte");
    let size: Bytes = text.parse().ok()?;
    (size.0 < 1 << 50).then_some(size)
}

/// In a container, NVML knows the process by another number than itself: it is the listed process
/// that has what PyTorch says it has.
fn tell_own_apart(oom: &mut OomMessage) {
    if oom.in_use.is_some() {
        return;
    }
    let Some(allocated) = oom.allocated else {
        return;
    };
    let reserved = allocated.0 + oom.unallocated.unwrap_or_default().0;
    let own = |(_, size): &(u32, Bytes)| {
        size.0 + (1 << 20) >= reserved && size.0 <= reserved.saturating_add(MAX_CONTEXT_BYTES)
    };
    if let Some(at) = oom.others.iter().position(own) {
        oom.in_use = Some(oom.others.remove(at).1);
    }
}

/// What the process held: with CUDA's own part where the message has it, else what PyTorch held.
fn held(oom: &OomMessage, reserved: Bytes) -> String {
    match oom.in_use {
        Some(all) => format!("this process held {all}"),
        None => format!("PyTorch held {reserved}"),
    }
}

/// Others that had a good part of the card too, as a sentence.
fn fragment_others(oom: &OomMessage, capacity: Bytes) -> String {
    let others = oom.others.iter().map(|(_, size)| size.0);
    let others = others.fold(0, u64::saturating_add).min(capacity.0);
    match others > capacity.0 / 20 {
        true => format!(" Other processes had {} of the card.", Bytes(others)),
        false => String::new(),
    }
}

/// The likely reason and its figures.
fn judge(oom: &OomMessage) -> (Option<OomClass>, String) {
    let Some(asked) = oom.asked else {
        return (
            None,
            "The message does not say how much was asked for.".to_owned(),
        );
    };
    if oom.address_space {
        let reserve = oom
            .reserve
            .map_or(String::new(), |size| format!(" of {size}"));
        return (
            Some(OomClass::AddressSpace),
            format!(
                "{asked} do not fit in the address space that an expandable segment reserved{reserve}; the card may have memory left."
            ),
        );
    }
    let none = Bytes::default();
    let allocated = oom.allocated.unwrap_or(none);
    let unallocated = oom.unallocated.unwrap_or(none);
    let reserved = Bytes(allocated.0.saturating_add(unallocated.0));
    if let Some(allowed) = oom.allowed
        && reserved.0.saturating_add(asked.0) > allowed.0
        && oom.free.is_none_or(|free| free >= asked)
    {
        return (
            Some(OomClass::Limited),
            format!(
                "PyTorch may have {allowed} of this card; it holds {reserved} and asked for {asked} more."
            ),
        );
    }
    let Some(capacity) = oom.capacity else {
        return (
            None,
            format!("It asked for {asked}; the message says nothing of the card."),
        );
    };
    if asked > capacity {
        return (
            Some(OomClass::LargerThanCard),
            format!("It asked for {asked} at once; the whole card has {capacity}."),
        );
    }
    let Some(free) = oom.free else {
        return (
            None,
            format!("It asked for {asked} on a card of {capacity}."),
        );
    };
    if free >= asked && unallocated < asked {
        return (
            Some(OomClass::Momentary),
            format!(
                "It asked for {asked}, and {free} were free when the figures were taken: another process or thread had them a moment before."
            ),
        );
    }
    let missing = Bytes(asked.0.saturating_sub(free.0));
    if unallocated >= missing && unallocated.0 >= capacity.0 / 20 {
        return (
            Some(OomClass::Fragmented),
            format!(
                "It asked for {asked} with {free} free; PyTorch held {unallocated} more that no tensor used, in pieces that were too small.{}",
                fragment_others(oom, capacity)
            ),
        );
    }
    let own = oom
        .in_use
        .unwrap_or(Bytes(reserved.0.saturating_add(MAX_CONTEXT_BYTES / 4)));
    let listed: u64 = oom
        .others
        .iter()
        .map(|(_, size)| size.0)
        .fold(0, u64::saturating_add);
    let unlisted = capacity.0.saturating_sub(free.0).saturating_sub(own.0);
    let others = Bytes(if listed > 0 { listed } else { unlisted }.min(capacity.0));
    if others.0 >= missing.0
        && others.0 >= (capacity.0 / 20).max(512 << 20)
        && oom.allocated.is_some()
    {
        let who = match oom.others.as_slice() {
            [] => "other processes".to_owned(),
            [(pid, _)] => format!("process {pid}"),
            many => format!("{} other processes", many.len()),
        };
        return (
            Some(OomClass::OthersUseIt),
            format!(
                "{who} had {others} of the card's {capacity}; {} and asked for {asked} more, with {free} free.",
                held(oom, reserved)
            ),
        );
    }
    let mut held = held(oom, reserved);
    held.replace_range(..1, &held[..1].to_uppercase());
    let why =
        format!("{held} of the card's {capacity} and asked for {asked} more, with {free} free.");
    match capacity < SMALL_CARD_MEMORY {
        true => (Some(OomClass::SmallCard), why),
        false => (Some(OomClass::Full), why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(text: &str) -> Option<Bytes> {
        Some(text.parse().unwrap())
    }

    /// Wording of torch 1.x to 2.0.
    const OLD: &str = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 4.29 GiB already allocated; 10.12 MiB free; 4.46 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.";

    #[test]
    fn the_wording_up_to_2_0() {
        let oom = parse(OLD.as_bytes()).unwrap();
        assert_eq!(oom.device, Some(0));
        assert_eq!(oom.asked, gib("20.00 MiB"));
        assert_eq!(oom.capacity, gib("10.76 GiB"));
        assert_eq!(oom.allocated, gib("4.29 GiB"));
        assert_eq!(oom.free, gib("10.12 MiB"));
        let held = gib("4.46 GiB").unwrap().0 - gib("4.29 GiB").unwrap().0;
        assert_eq!(oom.unallocated, Some(Bytes(held)));
        // Six of ten GiB belong to nobody that the message names.
        assert_eq!(oom.class, Some(OomClass::OthersUseIt));
        assert!(oom.why.contains("PyTorch held 4.5 GiB"), "{}", oom.why);
    }

    #[test]
    fn the_wording_since_2_1() {
        let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 3 has a total capacity of 79.15 GiB of which 100.00 MiB is free. Process 123 has 30.00 GiB memory in use. Process 124 has 1.50 GiB memory in use. Including non-PyTorch memory, this process has 47.50 GiB memory in use. Of the allocated memory 46.00 GiB is allocated by PyTorch, with 399.00 MiB allocated in private pools (e.g., CUDA Graphs), and 64.00 MiB is reserved by PyTorch but unallocated. If reserved";
        let oom = parse(text.as_bytes()).unwrap();
        assert_eq!(oom.device, Some(3));
        assert_eq!(oom.asked, gib("128 MiB"));
        assert_eq!(oom.free, gib("100 MiB"));
        assert_eq!(oom.in_use, gib("47.5 GiB"));
        assert_eq!(oom.allocated, gib("46 GiB"));
        assert_eq!(oom.private_pools, gib("399 MiB"));
        assert_eq!(oom.unallocated, gib("64 MiB"));
        assert_eq!(
            oom.others,
            [(123, Bytes::from_gib(30)), (124, Bytes(3 << 29))]
        );
        assert_eq!(oom.class, Some(OomClass::OthersUseIt));
        assert!(
            oom.why.contains("2 other processes had 31.5 GiB"),
            "{}",
            oom.why
        );
        // The process's own figure, which is more than PyTorch's part of it.
        assert!(
            oom.why.contains("this process held 47.5 GiB"),
            "{}",
            oom.why
        );
    }

    #[test]
    fn each_class_is_told() {
        let text = |asked: &str,
                    capacity: &str,
                    free: &str,
                    middle: &str,
                    allocated: &str,
                    rest: &str| {
            format!(
                "Tried to allocate {asked}. GPU 0 has a total capacty of {capacity} of which {free} is free. {middle}Of the allocated memory {allocated} is allocated by PyTorch, and {rest} is reserved by PyTorch but unallocated."
            )
        };
        let this = |size: &str| {
            format!("Including non-PyTorch memory, this process has {size} memory in use. ")
        };
        for (message, class) in [
            (text("3725.29 GiB", "23.69 GiB", "18.56 GiB", "", "3.73 GiB", "20 MiB"), OomClass::LargerThanCard),
            (text("2.00 GiB", "23.69 GiB", "1.00 GiB", &this("22.5 GiB"), "16.00 GiB", "6.00 GiB"), OomClass::Fragmented),
            (text("20.00 MiB", "31.36 GiB", "2.62 MiB", "Process 9 has 30.57 GiB memory in use. Including non-PyTorch memory, this process has 784.00 MiB memory in use. ", "179.69 MiB", "12.31 MiB"), OomClass::OthersUseIt),
            (text("1.00 GiB", "79.15 GiB", "0.50 GiB", &this("78.6 GiB"), "77.00 GiB", "1.00 MiB"), OomClass::Full),
            (text("20.00 MiB", "7.79 GiB", "15.00 MiB", &this("7.70 GiB"), "7.20 GiB", "60.00 MiB"), OomClass::SmallCard),
            (text("64.00 MiB", "79.15 GiB", "9.00 GiB", &this("70 GiB"), "69.00 GiB", "1.00 MiB"), OomClass::Momentary),
            // A container: the one process that is listed is the process itself.
            (text("14.00 MiB", "22.30 GiB", "4.69 MiB", "Process 860120 has 22.29 GiB memory in use. ", "21.92 GiB", "16.47 MiB"), OomClass::Full),
            (text("1.00 GiB", "79.15 GiB", "70.00 GiB", "8.00 GiB allowed; ", "7.50 GiB", "0 bytes"), OomClass::Limited),
            ("CUDA out of memory. Tried to allocate 12.00 GiB. This allocation exceeds the expandable-segment reserve of 10.00 GiB for this stream, and a single allocation cannot span expandable segments. GPU 0 has a total capacity of 79.15 GiB of which 60.00 GiB is free.".to_owned(), OomClass::AddressSpace),
        ] {
            let oom = parse(message.as_bytes()).unwrap();
            assert_eq!(oom.class, Some(class), "{message}\n{oom:?}");
            assert!(!oom.why.is_empty());
        }
    }

    #[test]
    fn the_wording_of_cuda_malloc_async() {
        let text = "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 7.00 GiB\nRequested               : 2.00 GiB\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB";
        let oom = parse(text.as_bytes()).unwrap();
        assert_eq!(oom.asked, gib("2 GiB"));
        assert_eq!(oom.allocated, gib("7 GiB"));
        assert_eq!(oom.capacity, gib("8 GiB"));
        assert_eq!(oom.free, Some(Bytes(0)));
        assert_eq!(oom.allowed, None);
        assert_eq!(oom.class, Some(OomClass::SmallCard));
    }

    #[test]
    fn wrapped_and_second_messages() {
        let wrapped = OLD.replace(' ', "\n  ");
        assert_eq!(parse(wrapped.as_bytes()), parse(OLD.as_bytes()));
        let two = format!(
            "{OLD} CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1 has a total capacity of 1.00 GiB of which 2.00 MiB is free. Process 7 has 1.00 GiB memory in use."
        );
        assert_eq!(parse(two.as_bytes()), parse(OLD.as_bytes()));
        assert_eq!(parse(b"out of memory"), None);
    }
}
