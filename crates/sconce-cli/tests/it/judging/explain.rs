//! `sconce explain`.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::Value;

use super::home::{Home, with_site};

/// As torch 2.4 to 2.8 say it; the figures are made up.
const FULL: &str = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total \
    capacity of 23.65 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process \
    has 22.10 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by PyTorch, and \
    6.50 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large \
    try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";

#[test]
fn explain_knows_a_text() {
    let home = Home::new();
    let text =
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n";
    home.write("error.log", text);
    assert_snapshot!(home.said(&["explain", "--elsewhere", "error.log"]), @r"
    exit code 0
    -- standard output
    The library has no device code for this card [no-kernel-image]
      why    The wheel has machine code for other cards only. New wheels leave old cards out (Pascal and Volta), old wheels do not know new ones (Blackwell), and extensions are often built for one card alone.
      line   1: RuntimeError: CUDA error: no kernel image is available for execution on the device
      mend   Take a torch that has code for this card: a table shows which have (name the card with --gpu if it is not here): `sconce check --torch all`
      mend   If an extension says it and torch itself runs, build that extension again for this card: `export TORCH_CUDA_ARCH_LIST=…`
      see    https://github.com/pytorch/pytorch/issues/31285
      see    https://github.com/pytorch/pytorch/issues/156968

    -- standard error
    ");
    // The same from standard input, and beside bytes that are no text.
    let done = home.fed(&["explain", "--elsewhere"], text.as_bytes());
    assert_eq!(done.code, 0);
    let mut bytes = b"\xff\xfe\0\xc3(".to_vec();
    bytes.extend(text.as_bytes());
    bytes.extend(b"\xf0\x9f\n\x80");
    let done = home.fed(&["explain", "--elsewhere", "--json", "-"], &bytes);
    let said = done.json();
    assert_eq!(
        (done.code, &said["causes"][0]["code"]),
        (0, &"no-kernel-image".into())
    );
    // With the card and the environment that it came from.
    with_site(&home);
    let words = ["explain", "error.log", "--gpu", "v100", "--of", "venv"];
    assert_snapshot!(home.said(&words), @r#"
    exit code 0
    -- standard output
    The library has no device code for this card [no-kernel-image]
      why    The wheel has machine code for other cards only. New wheels leave old cards out (Pascal and Volta), old wheels do not know new ones (Blackwell), and extensions are often built for one card alone.
      line   1: RuntimeError: CUDA error: no kernel image is available for execution on the device
      here   Tesla V100 has compute capability 7.0: CUDA 13 has no code for it any more.
      mend   Take a torch whose wheels have code for this card: Volta has it up to 2.10, Pascal in builds for CUDA 12.6 up to 2.14: in sconce.toml, beside what else is there, python.packages = ["torch==2.8.0"]
      mend   Take a torch that has code for this card: a table shows which have (name the card with --gpu if it is not here): `sconce check --torch all`
      mend   If an extension says it and torch itself runs, build that extension again for this card: `export TORCH_CUDA_ARCH_LIST=…`
      see    https://github.com/pytorch/pytorch/issues/31285
      see    https://github.com/pytorch/pytorch/issues/156968

    -- standard error
    "#);
}

#[test]
fn explain_says_what_it_does_not_know() {
    let home = Home::new();
    home.write(
        "error.log",
        "step 1\nValueError: the colour of the third tensor is out of fashion\n",
    );
    assert_snapshot!(home.said(&["explain", "--elsewhere", "error.log"]), @r"
    exit code 1
    -- standard output
    Nothing is known of this:
      line 2: ValueError: the colour of the third tensor is out of fashion
    The most like it, which need not be its cause:
      Tensors are on different devices, or of different types [dtype-or-device-mismatch] (13 % alike)
    `sconce doctor` looks at this machine, `sconce check` at an environment, without a text
    -- standard error
    ");
    home.write(
        "near.log",
        "RuntimeError: CUDA error: no kernel picture was available to execute\n",
    );
    let done = home.sconce(&["explain", "--elsewhere", "--json", "near.log"]);
    let said = done.json();
    assert_eq!((done.code, &said["causes"]), (1, &Value::Array(Vec::new())));
    assert_eq!(said["unknown"]["nearest"][0]["code"], "no-kernel-image");
    assert_snapshot!(home.fed(&["explain", "--elsewhere"], b"").text(), @r"
    exit code 1
    -- standard output
    no error was found in 0 lines
    -- standard error
    ");
    assert_snapshot!(home.said(&["explain", "nowhere.log"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: cannot read nowhere.log: No such file or directory (os error 2)
    ");
    assert_snapshot!(home.said(&["explain", "--elsewhere", "--gpu", "v100"]), @r"
    exit code 2
    -- standard output
    -- standard error
    error: the argument '--elsewhere' cannot be used with '--gpu <CARD>'

    Usage: sconce explain --elsewhere [FILE|-]

    For more information, try '--help'.
    ");
}

#[test]
fn explain_takes_a_full_card_apart() {
    let home = Home::new();
    let done = home.fed(&["explain", "--elsewhere"], FULL.as_bytes());
    assert_snapshot!(done.text(), @r"
    exit code 0
    -- standard output
    The card's memory is full [out-of-memory]
      why    It asked for 2 GiB with 1.5 GiB free; PyTorch held 6.5 GiB more that no tensor used, in pieces that were too small.
             asked for                              2 GiB
             the card's memory                   23.7 GiB
             free on the card                     1.5 GiB
             held by this process                22.1 GiB
               of it allocated to tensors          15 GiB
               of it reserved and unallocated     6.5 GiB
      line   3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.50 GiB is free. Including non-PyTorch memory, this process has 22.10 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by
      mend   Let the allocator grow its segments, so that free pieces join: `export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`
      mend   Take a smaller batch or shorter sequences, with gradient accumulation if the batch must stay
      mend   Save memory: bfloat16, activation checkpointing, an 8-bit optimizer, sharding over cards
      mend   If memory grows from step to step, something keeps graphs: add `.item()` or `.detach()` to losses that are collected
      see    https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
      see    https://github.com/pytorch/FBGEMM/issues/3763

    -- standard error
    ");
    let said = home
        .fed(&["explain", "--elsewhere", "--json"], FULL.as_bytes())
        .json();
    let oom = &said["oom"];
    assert_eq!(
        (&oom["class"], &oom["asked"]),
        (&"fragmented".into(), &(2_u64 << 30).into())
    );
}

#[test]
fn explain_reads_any_size_in_bounded_memory() {
    const PIECES: usize = 16;
    let home = Home::new();
    let mut child = home
        .command(&["explain", "--elsewhere", "--json"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // A line that does not end, and then lines that look like errors.
    let endless = vec![b'x'; 1 << 20];
    let errors = "ValueError: 0123456789 of 9876543210\n".repeat((1 << 20) / 37);
    for piece in 0..PIECES {
        let piece = if piece < PIECES / 2 {
            &endless[..]
        } else {
            errors.as_bytes()
        };
        input.write_all(piece).unwrap();
    }
    // It has read all but a pipe's worth, and still runs.
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let resident = resident.and_then(|text| text.trim().strip_suffix(" kB"));
    let resident: u64 = resident.unwrap().trim().parse().unwrap();
    assert!(resident < 8 << 10, "{resident} KiB after {PIECES} MiB");
    input.write_all(b"\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n").unwrap();
    drop(input);
    let done = home.done(child);
    let said = done.json();
    assert_eq!(
        (done.code, &said["causes"][0]["code"]),
        (0, &"no-kernel-image".into())
    );
    assert!(said["bytes"].as_u64() > Some((PIECES as u64 - 1) << 20));
    assert!(
        done.out.len() < 1 << 16,
        "{} bytes are said of it",
        done.out.len()
    );
}

#[test]
fn nothing_turns_the_direction_of_writing() {
    let home = Home::new();
    for c in [
        '\u{61c}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}',
    ] {
        let known = format!("ModuleNotFoundError: No module named 'fl{c}ash_attn'\n");
        let unknown = format!("FunnyError: ab{c}cd\n");
        for text in [&known, &unknown] {
            home.write("error.log", text);
            for more in [&[][..], &["--json"]] {
                let words = [&["explain", "--elsewhere", "error.log"], more].concat();
                let said = home.sconce(&words).out;
                assert!(!said.contains(c) && said.contains('\u{fffd}'), "{said:?}");
            }
        }
        let path = format!("no{c}file");
        for words in [
            &["check", &*path][..],
            &["explain", &*path],
            &["--flag", &*path],
        ] {
            let said = home.sconce(words).err;
            assert!(!said.contains(c) && !said.is_empty(), "{said:?}");
        }
    }
}

#[test]
fn json_has_the_names_of_others_escaped() {
    let home = Home::new();
    let name = "node\u{202e}1\u{9b}31m";
    let facts = serde_json::json!([
        { "version": 1, "name": name, "cards": [{ "name": "NVIDIA H100 80GB HBM3", "capability": "9.0" }] },
    ]);
    home.write("facts.json", &facts.to_string());
    let words = ["check", "--torch", "2.8", "--facts", "facts.json"];
    let said = home.sconce(&words);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("node 1 31m"), "{:?}", said.out);
    let json = home.sconce(&[&words[..], &["--json"]].concat());
    assert!(json.out.contains(r"node\u202e1\u009b31m"), "{:?}", json.out);
    assert_eq!(json.json()["machines"][0], name);
}

#[test]
fn a_pasted_error_is_no_file() {
    let home = Home::new();
    let done = home.sconce(&["explain", "RuntimeError: CUDA error: out of memory"]);
    assert_eq!(
        (done.code, done.err.as_str()),
        (
            3,
            "error: the error itself was given, and a file is asked for\n\
             hint: give it on standard input: `sconce explain`, then paste it and press Ctrl-D\n"
        )
    );
    assert_eq!(home.sconce(&["explain", "no.log"]).code, 3);
}
