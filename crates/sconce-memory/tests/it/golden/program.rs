//! Allocator programs, a call a line, and the answers to them.

use sconce_memory::allocator::{AllocationFailure, OutOfMemory};
use sconce_memory::program::{AllocatorCall, CallResult, LineResult};

use super::goldens;

#[test]
fn program_is_read_and_written_as_before() {
    let text = goldens().read_text("allocator-program.jsonl");
    let written: String = text
        .lines()
        .map(|line| {
            let op: AllocatorCall = serde_json::from_str(line).unwrap();
            serde_json::to_string(&op).unwrap() + "\n"
        })
        .collect();
    goldens().assert_same("allocator-program.jsonl", written);
}

#[test]
fn each_answer_is_written_as_before() {
    let out_of_memory = |why| {
        CallResult::OutOfMemory(Box::new(OutOfMemory {
            why,
            requested: 1001,
            rounded: 1024,
            tried: 2_097_152,
            total: 4_000_000,
            free: 1005,
            allowed: Some(3_000_000),
            allocated: 1_500_000,
            reserved: 2_000_000,
            in_private_pools: 100_000,
            advice: true,
        }))
    };
    let given = [
        CallResult::Done,
        CallResult::Address(140_000),
        CallResult::NoMemory,
        CallResult::Stats([("allocated_bytes.all.peak".to_owned(), 512)].into()),
        out_of_memory(AllocationFailure::Exhausted),
        out_of_memory(AllocationFailure::Rejected),
        out_of_memory(AllocationFailure::Exabyte),
    ];
    let written: String = (1..)
        .zip(given)
        .map(|(line, given)| serde_json::to_string(&LineResult { line, given }).unwrap() + "\n")
        .collect();
    goldens().assert_same("allocator-answers.jsonl", written);
}
