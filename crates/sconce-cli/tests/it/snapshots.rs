//! `sconce memory report` and `diff`: the wiring, with the fixtures of sconce-memory.

use std::process::{Command, Stdio};

use insta::assert_snapshot;

const FOLDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../sconce-memory/tests/fixtures"
);

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(arguments)
        .current_dir(FOLDER)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .expect("the program was built");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    format!(
        "exit code {}\n-- standard output\n{}-- standard error\n{}",
        output.status.code().expect("an exit code"),
        text(output.stdout),
        text(output.stderr)
    )
}

#[test]
fn a_report_says_what_filled_the_memory() {
    assert_snapshot!(said(&["memory", "report", "torch-2.15-leak.pickle"]), @r"
    exit code 0
    -- standard output
    card 0: 36.3 MiB at its peak, 42 MiB reserved
      150 entries of history over 1.0 ms, the peak after 938 µs
      the history begins within the run: 21.3 MiB were live before it

    What filled it at the peak
      16.3 MiB   45 %  other
       8.0 MiB   22 %  optimizer state (likely)
       6.0 MiB   17 %  activations (likely)
       4.0 MiB   11 %  parameters (likely)
       2.0 MiB    6 %  backward: gradients and what they need (possibly)

    by line
      15.7 MiB   43 %  train.py:38 step (11 blocks)
       8.0 MiB   22 %  train.py:36 step (4 blocks, optimizer state)
       4.0 MiB   11 %  train.py:45 main (2 blocks, parameters)
       3.0 MiB    8 %  model.py:21 forward (1 block, activations)
         3 MiB    8 %  model.py:20 forward (1 block, activations)
       2.0 MiB    6 %  no Python: autograd's thread, or not recorded (1 block, backward)
       600 KiB  in 1 more: --all shows them

    by module
       3.0 MiB    8 %  model.py:21 > linear
         3 MiB    8 %  model.py:20 > linear

    What grows with each step
      +1.4 MiB  train.py:38 step (+7.2 MiB in 6 steps)
                /home/user/digits/train.py:38 step
                /home/user/digits/train.py:52 main
                /home/user/digits/train.py:58 <module>

    What was reserved when the snapshot was taken
      reserved                                    42 MiB
        in live blocks                          30.7 MiB
          of it roundings                        1.6 MiB
        free, for empty_cache() to give back       2 MiB
        free, kept by live blocks beside it      9.3 MiB
        the largest free block                   7.1 MiB

    Segments that live blocks keep
      7.1 MiB of 20 MiB free, kept by 12.9 MiB in 9 live blocks:
          11.4 MiB  train.py:38 step (8 blocks)
      2.1 MiB of 20 MiB free, kept by 17.9 MiB in 9 live blocks:
           9.0 MiB  train.py:36 step (4 blocks)
           4.0 MiB  train.py:45 main (2 blocks)
           3.4 MiB  train.py:38 step (2 blocks)
    -- standard error
    ");
}

#[test]
fn a_report_says_why_a_request_failed() {
    assert_snapshot!(said(&["memory", "report", "torch-2.15-oom.pickle"]), @r"
    exit code 0
    -- standard output
    card 0: 100 MiB at its peak, 100 MiB reserved
      57 entries of history over 392 µs, the peak after 203 µs

    Why a request failed
      asked for                       12 MiB
      free on the card                   0 B
      reserved                       100 MiB
      of it free, for this stream     52 MiB
      the largest free block           4 MiB
      asked at model.py:20 forward
      enough was free altogether, but in pieces between live blocks
      PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets segments grow instead: most of such pieces then are one
      with 4 MiB less in one segment it would have fitted:
             4 MiB  load.py:12 cache (1 block)

    What filled it at the peak
       100 MiB  100 %  other

    by line
       100 MiB  100 %  load.py:12 cache (25 blocks)

    What was reserved when the snapshot was taken
      reserved                                   100 MiB
        in live blocks                            48 MiB
          of it roundings                            0 B
        free, for empty_cache() to give back         0 B
        free, kept by live blocks beside it       52 MiB
        the largest free block                     4 MiB

    Segments that live blocks keep
      12 MiB of 20 MiB free, kept by 8 MiB in 2 live blocks:
             8 MiB  load.py:12 cache (2 blocks)
      12 MiB of 20 MiB free, kept by 8 MiB in 2 live blocks:
             8 MiB  load.py:12 cache (2 blocks)
      12 MiB of 20 MiB free, kept by 8 MiB in 2 live blocks:
             8 MiB  load.py:12 cache (2 blocks)
        16 MiB  in 2 more: --all shows them
    -- standard error
    ");
}

#[test]
fn a_diff_says_what_differs() {
    let files = ["torch-2.9-protocol-5.pickle", "torch-2.15-leak.pickle"];
    assert_snapshot!(said(&["memory", "diff", files[0], files[1]]), @r"
    exit code 1
    -- standard output
    card 0
                               before    after     change
    live at the peak           20.6 MiB  36.3 MiB  +15.7 MiB
    reserved at its peak       42 MiB    42 MiB    –
    live at the end            12.0 MiB  29.2 MiB  +17.2 MiB
    reserved at the end        42 MiB    42 MiB    –
    free, kept by live blocks  7.0 MiB   9.3 MiB   +2.3 MiB

    change     before   after     what filled the peak
    +15.7 MiB  8.6 MiB  24.3 MiB  train.py step
    -- standard error
    ");
    assert_snapshot!(said(&["memory", "diff", files[0], files[0]]), @r"
    exit code 0
    -- standard output
    -- standard error
    nothing differs in what they say
    ");
}

#[test]
fn reports_are_json_for_programs() {
    let said = said(&["memory", "report", "--json", "torch-2.15-oom.pickle"]);
    let json = said.split_once('{').expect("an object").1;
    let json = json.split_once("-- standard error").expect("the end").0;
    let report: serde_json::Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
    let oom = &report["devices"][0]["traced"]["ooms"][0];
    assert_eq!(oom["reason"], "fragmented");
    assert_eq!(oom["asked-bytes"], 12 << 20);
    assert_eq!(report["version"], 1);
}

#[test]
fn what_is_no_snapshot_is_refused() {
    assert_snapshot!(said(&["memory", "report", "README.md"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: README.md: the snapshot cannot be read: this is no pickle of protocol 2 to 5: it does not begin with byte 0x80
    hint: a snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes
    ");
}

#[test]
fn another_setting_would_have_saved_a_request() {
    let file = "torch-2.15-real-pieces.pickle";
    assert_snapshot!(said(&["memory", "what-if", file]), @r"
    exit code 0
    -- standard output
    card 0: 7.2 GiB reserved at its peak, 1 request failed
      played again as it was: 7.2 GiB reserved at its peak, 7.2 GiB in the snapshot, and the same after each of 103 calls
      rules of PyTorch 2.15, as the snapshot's form says (--torch names another)
      7.2 GiB of the card for PyTorch, as the failed request says

       RESERVED    CHANGE   FAILED  RETRIES  SETTINGS
        7.2 GiB         –        1        1  now: default settings
        7.0 GiB    -2.0 %  avoided        1  expandable_segments:True
        7.2 GiB         –  avoided        0  max_split_size_mb:32
        7.2 GiB         –  avoided        0  max_split_size_mb:64
        7.2 GiB         –  avoided        1  max_split_size_mb:128
        7.2 GiB         –  avoided        1  max_split_size_mb:256
      16 settings were tried: --all shows them

      no request would have failed, instead of 1, with
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
      what the program would have asked for after the failed request is not in the snapshot
    -- standard error
    ");
    let grows = ["--conf", "expandable_segments:True"];
    assert_snapshot!(said(&[&["memory", "what-if", file][..], &grows].concat()), @r"
    exit code 0
    -- standard output
    card 0: 7.2 GiB reserved at its peak, 1 request failed
      played again as it was: 7.2 GiB reserved at its peak, 7.2 GiB in the snapshot, and the same after each of 103 calls
      rules of PyTorch 2.15, as the snapshot's form says (--torch names another)
      7.2 GiB of the card for PyTorch, as the failed request says

       RESERVED    CHANGE   FAILED  RETRIES  SETTINGS
        7.2 GiB         –        1        1  now: default settings
        7.0 GiB    -2.0 %  avoided        1  expandable_segments:True

      no request would have failed, instead of 1, with
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
      what the program would have asked for after the failed request is not in the snapshot
    -- standard error
    ");
    let leak = [
        "memory",
        "what-if",
        "torch-2.15-leak.pickle",
        "--conf",
        "max_split_size_mb:32",
        "--capacity",
        "1GiB",
    ];
    assert_snapshot!(said(&leak), @r"
    exit code 0
    -- standard output
    card 0: 42 MiB reserved at its peak
      played again as it was: 42 MiB reserved at its peak, 42 MiB in the snapshot, and the same after each of 102 calls
      rules of PyTorch 2.15, as the snapshot's form says (--torch names another)
      1 GiB of the card for PyTorch, as you say
      the history begins within the run, with 21.3 MiB live and 42 MiB reserved: all settings below begin with the live blocks alone, which is an approximation

       RESERVED    CHANGE   FAILED  RETRIES  SETTINGS
         42 MiB         –        –        0  now: default settings
         42 MiB         –        –        0  max_split_size_mb:32

      no settings that were tried reserve less
    -- standard error
    ");
    let refused = ["--conf", "expandable_segments:yes"];
    assert_snapshot!(said(&[&["memory", "what-if", file][..], &refused].concat()), @r"
    exit code 3
    -- standard output
    -- standard error
    error: `expandable_segments:yes`: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'yes'
    hint: write `True` or `False`, with a capital
    ");
    assert_snapshot!(said(&["memory", "what-if", "torch-2.0-protocol-2.pickle", "--torch", "1.13"]), @r"
    exit code 2
    -- standard output
    -- standard error
    error: invalid value '1.13' for '--torch <VERSION>': `1.13` is no release of PyTorch whose allocator is known (2.6 to 2.15)

    For more information, try '--help'.
    ");
}
