//! Which devices a run may open, as v1's device controller and as v2's eBPF program want it said.
//!
//! The program only makes sure. A run sees no device node but those that Sconce mounts for it,
//! nodes of other mounts do nothing (`nodev`), and it can make none: that alone holds for a plain
//! user's run, where the kernel takes no filter and none is missing. With root outside, one wall
//! more keeps a hole in the mounts from being a hole to the machine's disks.

use std::path::Path;
use std::{fmt, io};

use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::DeviceNode;

use crate::sys::bpf::EbpfInstruction;

/// Character or block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceKind {
    Character,
    Block,
}

/// Devices that can be opened for reading and writing; making nodes is never allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceRule {
    kind: DeviceKind,
    major: u32,
    /// `None` is every minor.
    minor: Option<u32>,
}

const fn character(major: u32, minor: Option<u32>) -> DeviceRule {
    DeviceRule {
        kind: DeviceKind::Character,
        major,
        minor,
    }
}

/// The harmless devices: null, zero, full, random, urandom, tty, ptmx, and every pts.
const HARMLESS: [DeviceRule; 8] = [
    character(1, Some(3)),
    character(1, Some(5)),
    character(1, Some(7)),
    character(1, Some(8)),
    character(1, Some(9)),
    character(5, Some(0)),
    character(5, Some(2)),
    character(136, None),
];

/// The harmless devices and `nodes`. What is neither a character nor a block device is left out:
/// it is no matter of the device controller.
pub(super) fn build_rules(nodes: &[DeviceNode]) -> Vec<DeviceRule> {
    let given = nodes.iter().filter_map(|node| {
        let kind = match node.r#type.as_str() {
            // `u` is how mknod(1) names a character device without a buffer.
            "c" | "u" => DeviceKind::Character,
            "b" => DeviceKind::Block,
            _ => return None,
        };
        Some(DeviceRule {
            kind,
            major: node.major,
            minor: Some(node.minor),
        })
    });
    HARMLESS.into_iter().chain(given).collect()
}

/// The same for runtime-spec (config-linux.md, "Allowed Device list"): nothing, but for these.
pub(super) fn oci_device_list(rules: &[DeviceRule]) -> serde_json::Value {
    use serde_json::json;
    let nothing = json!({ "allow": false, "access": "rwm" });
    let allowed = rules.iter().map(|rule| {
        let kind = match rule.kind {
            DeviceKind::Character => "c",
            DeviceKind::Block => "b",
        };
        let mut one = json!({
            "allow": true, "type": kind, "major": rule.major, "access": "rw",
        });
        if let Some(minor) = rule.minor {
            one["minor"] = minor.into();
        }
        one
    });
    std::iter::once(nothing).chain(allowed).collect()
}

/// As `devices.allow` of v1 wants it.
impl fmt::Display for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Character => 'c',
            DeviceKind::Block => 'b',
        };
        match self.minor {
            Some(minor) => write!(f, "{kind} {}:{minor} rw", self.major),
            None => write!(f, "{kind} {}:* rw", self.major),
        }
    }
}

/// Says that the kernel did not take the rules for a run's folder.
pub(super) fn unenforced_devices(folder: &Path, error: &io::Error) -> UnenforcedLimit {
    UnenforcedLimit {
        what: "devices".to_owned(),
        why: format!(
            "the kernel refused the list of devices for the cgroup {} ({error}); the run has no \
             other device nodes, but nothing else would stop it from opening one",
            folder.display()
        ),
        hint: None,
    }
}

// Opcodes (Documentation/bpf/standardization/instruction-set.rst): class, operation, source.
/// dst = *(u32 *)(src + offset)
const LOAD_WORD: u8 = 0x61;
/// dst = src
const MOVE: u8 = 0xbf;
/// dst = immediate
const MOVE_IMMEDIATE: u8 = 0xb7;
/// (u32) dst &= immediate
const AND: u8 = 0x54;
/// Skip `offset` instructions if dst != immediate.
const JUMP_IF_OTHER: u8 = 0x55;
/// Give register 0.
const EXIT: u8 = 0x95;

/// What the program judges: `struct bpf_cgroup_dev_ctx`, three u32: `access << 16 | kind`, major,
/// minor. Register 1 points to it when the program begins.
mod context {
    pub(super) const ACCESS_AND_KIND: i16 = 0;
    pub(super) const MAJOR: i16 = 4;
    pub(super) const MINOR: i16 = 8;
    /// In the lower half.
    pub(super) const BLOCK: i32 = 1;
    pub(super) const CHARACTER: i32 = 2;
    /// In the upper half; reading is 2, writing 4.
    pub(super) const MAKE_NODE: i32 = 1 << 16;
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> EbpfInstruction {
    EbpfInstruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    }
}

/// The program that allows what `rules` allow.
pub(super) fn build_filter_program(rules: &[DeviceRule]) -> Vec<EbpfInstruction> {
    const ANSWER: u8 = 0;
    const CONTEXT: u8 = 1;
    const ACCESS: u8 = 2;
    const KIND: u8 = 3;
    const MAJOR: u8 = 4;
    const MINOR: u8 = 5;
    let answer = |allowed| {
        [
            instruction(MOVE_IMMEDIATE, ANSWER, 0, 0, allowed),
            instruction(EXIT, 0, 0, 0, 0),
        ]
    };
    let mut program = vec![
        instruction(LOAD_WORD, ACCESS, CONTEXT, context::ACCESS_AND_KIND, 0),
        instruction(LOAD_WORD, MAJOR, CONTEXT, context::MAJOR, 0),
        instruction(LOAD_WORD, MINOR, CONTEXT, context::MINOR, 0),
        instruction(MOVE, KIND, ACCESS, 0, 0),
        instruction(AND, KIND, 0, 0, 0xffff),
        instruction(AND, ACCESS, 0, 0, context::MAKE_NODE),
        // Past the refusal.
        instruction(JUMP_IF_OTHER, ACCESS, 0, 2, context::MAKE_NODE),
    ];
    program.extend(answer(0));
    for rule in rules {
        let kind = match rule.kind {
            DeviceKind::Character => context::CHARACTER,
            DeviceKind::Block => context::BLOCK,
        };
        // A number beyond 31 bits is no device's; as an immediate it would be another's.
        let number = |number: u32| i32::try_from(number).ok();
        let mut tests = vec![(KIND, kind)];
        match (number(rule.major), rule.minor.map(number)) {
            (Some(major), None) => tests.push((MAJOR, major)),
            (Some(major), Some(Some(minor))) => tests.extend([(MAJOR, major), (MINOR, minor)]),
            _ => continue,
        }
        // Each test that fails leaps over the rest of this rule.
        for (index, (register, wanted)) in tests.iter().enumerate() {
            let rest = tests.len() - index - 1 + answer(1).len();
            program.push(instruction(
                JUMP_IF_OTHER,
                *register,
                0,
                rest as i16,
                *wanted,
            ));
        }
        program.extend(answer(1));
    }
    program.extend(answer(0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 2;
    const WRITE: u32 = 4;
    const MAKE: u32 = 1;

    /// The kernel's machine, as far as these programs go.
    fn judge(
        program: &[EbpfInstruction],
        access: u32,
        kind: DeviceKind,
        major: u32,
        minor: u32,
    ) -> bool {
        let kind = if kind == DeviceKind::Block { 1 } else { 2 };
        let context = [access << 16 | kind, major, minor];
        let mut registers: [Option<u64>; 11] = [None; 11];
        let mut at = 0;
        // Every jump is forward, so that this ends.
        loop {
            let EbpfInstruction {
                code,
                registers: names,
                offset,
                immediate,
            } = program[at];
            let (to, from) = (usize::from(names & 15), usize::from(names >> 4));
            assert!(offset >= 0);
            at += 1;
            match code {
                LOAD_WORD => {
                    assert_eq!(from, 1);
                    registers[to] = Some(u64::from(context[offset as usize / 4]));
                }
                MOVE => registers[to] = registers[from],
                MOVE_IMMEDIATE => registers[to] = Some(immediate as u64),
                AND => registers[to] = registers[to].map(|v| v & u64::from(immediate as u32)),
                JUMP_IF_OTHER if registers[to].unwrap() != immediate as u64 => {
                    at += offset as usize;
                }
                JUMP_IF_OTHER => {}
                EXIT => return registers[0].unwrap() == 1,
                other => panic!("opcode {other:#x}"),
            }
        }
    }

    fn node(kind: &str, major: u32, minor: u32) -> DeviceNode {
        DeviceNode {
            path: "/dev/x".to_owned(),
            host_path: String::new(),
            r#type: kind.to_owned(),
            major,
            minor,
        }
    }

    #[test]
    fn what_was_given_and_the_harmless_can_be_opened() {
        use DeviceKind::{Block, Character};
        let nodes = [
            node("c", 195, 0),
            node("u", 195, 255),
            node("b", 8, 1),
            node("p", 0, 0),
        ];
        let program = build_filter_program(&build_rules(&nodes));
        for (kind, major, minor, allowed) in [
            (Character, 1, 3, true),
            (Character, 136, 0, true),
            (Character, 136, 1_048_575, true),
            (Character, 195, 0, true),
            (Character, 195, 255, true),
            (Block, 8, 1, true),
            (Character, 195, 1, false),
            (Character, 8, 1, false),
            (Block, 195, 0, false),
            (Block, 8, 0, false),
            (Block, 136, 0, false),
            (Block, 1, 3, false),
            (Character, 1, 1, false),
            (Character, 0, 0, false),
        ] {
            for access in [READ, WRITE, READ | WRITE] {
                let found = judge(&program, access, kind, major, minor);
                assert_eq!(found, allowed, "{kind:?} {major}:{minor} {access}");
            }
            for access in [MAKE, MAKE | READ, MAKE | READ | WRITE] {
                assert!(!judge(&program, access, kind, major, minor));
            }
        }
    }

    #[test]
    fn numbers_beyond_the_kernels_allow_nothing() {
        let program = build_filter_program(&build_rules(&[
            node("c", u32::MAX, 7),
            node("c", 7, u32::MAX),
            node("c", 7, 8),
        ]));
        for (major, minor) in [(u32::MAX, 7), (7, u32::MAX), (0, 7), (7, 0)] {
            assert!(!judge(&program, READ, DeviceKind::Character, major, minor));
        }
        assert!(judge(&program, READ, DeviceKind::Character, 7, 8));
    }

    #[test]
    fn v1_is_told_the_same() {
        let lines: Vec<_> = build_rules(&[node("b", 8, 1), node("p", 0, 0)])
            .iter()
            .map(DeviceRule::to_string)
            .collect();
        assert_eq!(lines[0], "c 1:3 rw");
        assert_eq!(lines[7..], ["c 136:* rw", "b 8:1 rw"]);
    }
}
