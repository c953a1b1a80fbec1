use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sconce_schema::Bytes;
use sconce_schema::facts::{
    CudaInit, DeviceNodeFacts, Driver, DriverLibrary, GpuFacts, Iommu, RlimitFacts, RlimitPair, Shm,
};
use sconce_schema::finding::{Certainty, FixAction};

use super::*;

pub(super) fn plain(log: &str) -> Explanation {
    explain(log.as_bytes(), None, &LogEnvironment::default())
}

pub(super) fn codes(explanation: &Explanation) -> Vec<&str> {
    explanation
        .causes
        .iter()
        .map(|cause| cause.code.as_str())
        .collect()
}

/// Every example with its rule.
fn examples() -> impl Iterator<Item = (&'static ExplainRule, &'static str)> {
    let rules = &RuleSet::builtin_rules().rules;
    rules.iter().flat_map(|rule| {
        rule.examples
            .iter()
            .map(move |example| (rule, example.as_str()))
    })
}

/// Every example in this dress must be explained by its own rule first, and by no other.
fn all_first(dress: impl Fn(&str) -> String) {
    let mut wrong = Vec::new();
    for (rule, example) in examples() {
        let explanation = plain(&dress(example));
        if codes(&explanation).first() != Some(&rule.code.as_str()) {
            wrong.push(format!(
                "{}: {example}\n    {:?}",
                rule.code,
                codes(&explanation)
            ));
        }
        assert_eq!(explanation.unknown, None, "{example}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_is_read() {
    let mut wrong = Vec::new();
    for file in files::FILES {
        if let Err(error) = RuleSet::parse(&[file]) {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            wrong.push(format!("{error}: {}", source.unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_names_every_file() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let there: BTreeSet<String> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    let listed: BTreeSet<String> = files::FILES
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(there, listed);
}

#[test]
fn rules_are_whole() {
    let known: BTreeSet<&str> = RuleSet::builtin_rules()
        .rules
        .iter()
        .map(|rule| rule.code.as_str())
        .collect();
    for rule in &RuleSet::builtin_rules().rules {
        let code = &rule.code;
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(code.chars().all(kebab), "{code}");
        let by_number =
            code.starts_with("xid-") || rule.title.starts_with("The driver reported Xid");
        assert!(by_number || !rule.patterns.is_empty(), "{code}");
        assert!(!rule.examples.is_empty(), "{code}");
        assert!(!rule.mends.is_empty() && !rule.sources.is_empty(), "{code}");
        assert!(
            rule.sources
                .iter()
                .all(|source| source.starts_with("https://")),
            "{code}"
        );
        assert!(
            rule.cause.ends_with('.') && !rule.title.ends_with('.'),
            "{code}"
        );
        for other in &rule.yields_to {
            assert!(
                known.contains(other.as_str()) && other != code,
                "{code} yields to {other}"
            );
        }
        for mend in &rule.mends {
            assert!(
                mend.mend.what.ends_with(['.', ':']),
                "{code}: {}",
                mend.mend.what
            );
        }
    }
}

#[test]
fn every_example_is_explained_by_its_rule_first() {
    all_first(str::to_owned);
}

#[test]
fn examples_are_known_in_any_dress() {
    // Windows' line ends, colours, a launcher's prefix, a log in JSON, a narrow terminal, a frame.
    all_first(|text| text.replace('\n', "\r\n"));
    all_first(|text| format!("\u{1b}[1;31m{}\u{1b}[0m", text.replace(' ', " \u{1b}[0m")));
    all_first(|text| {
        let lines = text.lines();
        lines
            .map(|line| format!("[rank0]: 2025-01-30 18:11:27,123 ERROR {line}\n"))
            .collect()
    });
    all_first(|text| format!("{{\"log\": {}}}", serde_json::to_string(text).unwrap()));
    all_first(|text| {
        let wide: Vec<char> = text.chars().collect();
        let lines: Vec<String> = wide.chunks(80).map(|line| line.iter().collect()).collect();
        lines.join("\n")
    });
    all_first(|text| {
        text.lines()
            .map(|line| format!("│ {line:<90} │\n"))
            .collect()
    });
    all_first(|text| format!("{}\n{text}\n", "INFO step 1 loss 2.3\n".repeat(50)));
}

#[test]
fn a_cut_anywhere_changes_nothing() {
    let mut log = String::new();
    for (_, example) in examples() {
        log.push_str(example);
        log.push_str("\nstep 17 loss 0.25\n");
    }
    let whole = plain(&log);
    for size in [1, 7, 4096] {
        let mut explainer = Explainer::new(RuleSet::builtin_rules());
        for piece in log.as_bytes().chunks(size) {
            explainer.push(piece);
        }
        assert_eq!(
            explainer.finish(None, &LogEnvironment::default()),
            whole,
            "{size}"
        );
    }
}

#[test]
fn lines_are_counted_through_windows() {
    // More than one window, with the text across the border of two.
    let filler = "step 12 loss 0.5 tokens 1024 of the second epoch\n";
    for before in [0, 5_340, 5_349, 5_350, 5_351, 11_000] {
        let log = format!(
            "{}RuntimeError: No CUDA\nGPUs are available\n{}",
            filler.repeat(before),
            filler.repeat(6_000)
        );
        let explanation = plain(&log);
        assert_eq!(codes(&explanation), ["no-driver"], "{before}");
        assert_eq!(explanation.causes[0].lines[0].number, before as u64 + 1);
        assert_eq!(explanation.causes[0].count, 1);
        assert_eq!(explanation.lines, before as u64 + 6_002);
    }
}

#[test]
fn the_first_error_of_several_ranks_is_the_cause() {
    let log = "\
[rank2]: Traceback (most recent call last):
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.10 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated.
[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1207, OpType=ALLREDUCE)
[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5
[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:";
    let explanation = plain(log);
    assert_eq!(explanation.ranks, [0, 2]);
    let first = &explanation.causes[0];
    assert_eq!(
        (first.code.as_str(), first.lines[0].rank),
        ("out-of-memory", Some(2))
    );
    for other in &explanation.causes[1..] {
        assert_eq!(
            other.consequence_of.as_deref(),
            Some("out-of-memory"),
            "{}",
            other.code
        );
    }
    assert_eq!(explanation.oom.unwrap().class, Some(OomClass::Fragmented));
    let names = |mend: &Fix| matches!(&mend.action, Some(FixAction::Variable { name, .. }) if name == "PYTORCH_CUDA_ALLOC_CONF");
    assert!(names(&first.mends[0]), "{:?}", first.mends);
}

#[test]
fn alone_a_time_out_is_the_cause() {
    let log = "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST)";
    let explanation = plain(log);
    assert_eq!(codes(&explanation), ["nccl-timeout"]);
    let cause = &explanation.causes[0];
    assert_eq!(cause.consequence_of, None);
    assert_eq!(cause.captures["seq"], "3");
}

#[test]
fn what_another_cause_explains_comes_after_it() {
    for (log, order) in [
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\nTraceback (most recent call last):\nRuntimeError: No CUDA GPUs are available",
            ["driver-too-old", "no-driver"],
        ),
        (
            "RuntimeError: operator torchvision::nms does not exist\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\nImportError: x.so: undefined symbol: _ZN3c105ErrorC2E",
            ["torchvision-mismatch", "torch-abi"],
        ),
        (
            "/pytorch/Indexing.cu:1289: block: [12,0,0], thread: [5,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            ["device-assert", "cublas-failed"],
        ),
    ] {
        let explanation = plain(log);
        assert_eq!(codes(&explanation), order, "{log}");
        assert_eq!(
            explanation.causes[1].consequence_of.as_deref(),
            Some(order[0])
        );
        assert_eq!(explanation.unknown, None);
    }
}

#[test]
fn the_last_exception_of_one_process_counts_more() {
    let one =
        "Traceback (most recent call last):\nRuntimeError: CUDA error: invalid device ordinal\n";
    let two = "Traceback (most recent call last):\nValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.\n";
    let during = "During handling of the above exception, another exception occurred:\n";
    assert_eq!(
        codes(&plain(&format!("{one}{during}{two}")))[0],
        "bf16-unsupported"
    );
    assert_eq!(
        codes(&plain(&format!("{two}{during}{one}")))[0],
        "invalid-device"
    );
}

#[test]
fn an_unknown_error_is_said_to_be_unknown() {
    let log = "UserWarning: Can't initialize NVML\nTraceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 'scheduler'\n";
    let explanation = plain(log);
    let unknown = explanation.unknown.unwrap();
    assert_eq!(
        (unknown.line, unknown.text.as_str()),
        (4, "KeyError: 'scheduler'")
    );
    // What a warning says is told, and not as sure.
    assert!(
        explanation
            .causes
            .iter()
            .all(|cause| cause.certainty == Certainty::Possible)
    );

    let near =
        plain("RuntimeError: the card of this machine has no kernel image that can execute\n");
    assert_eq!(codes(&near), [""; 0]);
    let nearest = near.unknown.unwrap().nearest;
    assert_eq!(nearest[0].code, "no-kernel-image");
    assert!(nearest[0].likeness < 100);

    // One word in common is chance.
    for text in ["KeyError: 'lr'\n", "False\n", "hello world\n"] {
        assert_eq!(plain(text).unknown.unwrap().nearest, [], "{text}");
    }

    let quiet = plain(&"epoch 1 done\n".repeat(20));
    assert_eq!((quiet.unknown, quiet.causes.len()), (None, 0));
    assert_eq!(plain(""), Explanation::default());
}

#[test]
fn what_is_only_mentioned_does_not_hide_an_unknown_error() {
    let log = "CUDA used to build PyTorch: None\nIs CUDA available: False\nTraceback (most recent call last):\nKeyError: 'scheduler'\n";
    let explanation = plain(log);
    assert_eq!(explanation.unknown.map(|unknown| unknown.line), Some(4));
    assert_eq!(explanation.causes[0].certainty, Certainty::Possible);

    let illegal = plain("RuntimeError: CUDA error: an illegal instruction was encountered");
    assert_eq!(codes(&illegal), ["illegal-memory-access"]);
    assert_eq!(
        codes(&plain(
            "ModuleNotFoundError: No module named 'tritonclient'"
        )),
        ["package-missing"]
    );
}

#[test]
fn healthy_logs_have_no_cause() {
    let log = "\
NCCL version 2.27.3+cuda12.8
node1:77:91 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.2<0>
node1:77:91 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read
node1:77:91 [0] NCCL INFO NET/IB : No device found.
INFO 05-06 12:00:00 [cuda.py:292] Using Flash Attention backend on V1 engine.
Loading checkpoint shards: 100%|##########| 4/4 [00:05<00:00]
100%|##########| 500/500 [10:00<00:00, 1.2s/it]
FutureWarning: `clean_up_tokenization_spaces` was not set
the device has 80 GiB of memory, 79 GiB free
";
    let explanation = plain(log);
    assert_eq!(codes(&explanation), [""; 0]);
    assert_eq!(explanation.unknown, None);
}

#[test]
fn facts_speak_for_and_against() {
    let log =
        b"RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment";
    let judged = |host: &HostFacts| {
        let explanation = explain(log, Some(host), &LogEnvironment::default());
        let cause = explanation.causes[0].clone();
        assert_eq!(cause.code, "uvm-broken");
        (cause.certainty, cause.seen)
    };
    let node = |path: &str| DeviceNodeFacts {
        path: path.to_owned(),
        major: 195,
        minor: 255,
        mode: 0o666,
        usable: true,
        open_error: None,
        char_link: None,
    };
    let broken = HostFacts {
        nodes: Some(vec![node("/dev/nvidiactl"), node("/dev/nvidia0")]),
        ..HostFacts::default()
    };
    let (certainty, seen) = judged(&broken);
    assert_eq!(certainty, Certainty::Likely);
    assert_eq!(seen[0].what, "Here there is no /dev/nvidia-uvm.");
    let whole = HostFacts {
        nodes: Some(vec![node("/dev/nvidia-uvm")]),
        cuda_init: Some(CudaInit {
            result: Some(0),
            ..CudaInit::default()
        }),
        ..HostFacts::default()
    };
    let (certainty, seen) = judged(&whole);
    assert_eq!(
        (certainty, seen[0].speaks),
        (Certainty::Possible, LikelihoodEffect::Lower)
    );
    assert_eq!(judged(&HostFacts::default()), (Certainty::Possible, vec![]));
}

#[test]
fn facts_decide_between_causes() {
    // The text may mean either; the machine tells.
    let log = b"RuntimeError: NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp:813";
    let mismatched = HostFacts {
        driver: Some(Driver {
            version: "550.90.07".parse().ok(),
            libraries: vec![DriverLibrary {
                name: "libnvidia-ml.so.1".to_owned(),
                path: "/usr/lib/libnvidia-ml.so.560.35.03".to_owned(),
                version: "560.35.03".parse().ok(),
                wins: true,
                compat: false,
            }],
            ..Driver::default()
        }),
        ..HostFacts::default()
    };
    let environment = LogEnvironment::default();
    let without = explain(log, None, &environment);
    let with = explain(log, Some(&mismatched), &environment);
    let find = |explanation: &Explanation| {
        let cause = explanation
            .causes
            .iter()
            .find(|cause| cause.code == "driver-mismatch");
        cause.map(|cause| cause.points).unwrap()
    };
    assert!(find(&with) > find(&without));
    let seen = &with
        .causes
        .iter()
        .find(|cause| cause.code == "driver-mismatch")
        .unwrap()
        .seen;
    assert!(seen[0].what.contains("560.35.03"), "{seen:?}");
}

#[test]
fn environments_are_judged_too() {
    let log = b"AssertionError: CUDA is not available\nTorch is not able to use GPU";
    let cpu = LogEnvironment {
        cpu_torch: true,
        ..LogEnvironment::default()
    };
    assert_eq!(codes(&explain(log, None, &cpu))[0], "torch-without-cuda");
    let bare = HostFacts {
        version: 1,
        variables: BTreeMap::from([("CUDA_VISIBLE_DEVICES".to_owned(), "-1".to_owned())]),
        ..HostFacts::default()
    };
    let explanation = explain(log, Some(&bare), &LogEnvironment::default());
    assert_eq!(codes(&explanation)[0], "no-driver");
    let unset = FixAction::Variable {
        name: "CUDA_VISIBLE_DEVICES".to_owned(),
        value: None,
    };
    assert_eq!(explanation.causes[0].mends[0].action, Some(unset));

    let old = HostFacts {
        driver: Some(Driver {
            version: "535.104.05".parse().ok(),
            ..Driver::default()
        }),
        ..HostFacts::default()
    };
    let new = LogEnvironment {
        torch_cuda: "13.0".parse().ok(),
        ..LogEnvironment::default()
    };
    let explanation = explain(
        b"CUDA driver version is insufficient for CUDA runtime version",
        Some(&old),
        &new,
    );
    assert_eq!(
        explanation.causes[0].seen[0].what,
        "This machine has driver 535.104.05; CUDA 13.0 needs 580.65.06 or newer."
    );
}

#[test]
fn a_missing_module_is_mended_by_what_the_project_has() {
    let texts = |list: &[(&str, &str)]| {
        let owned = list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        owned.collect::<BTreeMap<String, String>>()
    };
    let environment = LogEnvironment {
        packages: texts(&[("torchvision", "0.26.0"), ("numpy", "2.1.0")]),
        project: Some(ProjectContents {
            extras: texts(&[("cv2", "vision")]),
            modules: texts(&[("net", "/workspace/src")]),
            old_commit_day: Some("2021-03-25".to_owned()),
        }),
        ..LogEnvironment::default()
    };
    for (log, code, certainty, mends) in [
        (
            "ModuleNotFoundError: No module named 'cv2'",
            "package-missing",
            Certainty::Likely,
            &[
                ("python.extras", r#"["vision"]"#),
                ("python.packages", r#"["opencv-python-headless"]"#),
            ][..],
        ),
        (
            "ModuleNotFoundError: No module named 'net.version'",
            "package-missing",
            Certainty::Likely,
            &[("", "The project's own package net has no such file")],
        ),
        (
            "ModuleNotFoundError: No module named 'net'",
            "package-missing",
            Certainty::Likely,
            &[("run.env", r#"{ PYTHONPATH = "/workspace/src" }"#)],
        ),
        (
            "ModuleNotFoundError: No module named 'torchvision.models.utils'",
            "package-missing",
            Certainty::Certain,
            &[("", "Name a version in the spec that has it")],
        ),
        (
            "ModuleNotFoundError: No module named 'pkg_resources'",
            "package-missing",
            Certainty::Likely,
            &[("python.packages", r#"["setuptools<81"]"#)],
        ),
        (
            "ModuleNotFoundError: No module named 'sklearn.metrics'",
            "package-missing",
            Certainty::Likely,
            &[("python.packages", r#"["scikit-learn"]"#)],
        ),
        (
            "AttributeError: module 'numpy' has no attribute 'float'.",
            "name-missing",
            Certainty::Likely,
            &[
                ("python.as-of", r#""2021-03-25""#),
                ("", "Name the version"),
            ],
        ),
        (
            "ImportError: cannot import name 'Layer' from 'net.layers' (/workspace/src/net/layers.py)",
            "name-missing",
            Certainty::Possible,
            &[("python.as-of", r#""2021-03-25""#)],
        ),
    ] {
        let explanation = explain(log.as_bytes(), None, &environment);
        let cause = &explanation.causes[0];
        assert_eq!(
            (cause.code.as_str(), cause.certainty),
            (code, certainty),
            "{log}"
        );
        let shown: Vec<(&str, &str)> = (cause.mends.iter())
            .map(|mend| match &mend.action {
                Some(FixAction::Spec { key, value }) => (key.as_str(), value.as_str()),
                _ => ("", mend.what.as_str()),
            })
            .collect();
        assert_eq!(shown.len(), mends.len(), "{log}: {shown:?}");
        for (shown, expected) in shown.iter().zip(mends) {
            assert_eq!(shown.0, expected.0, "{log}");
            assert!(shown.1.starts_with(expected.1), "{log}: {shown:?}");
        }
    }
}

#[test]
fn a_missing_compiler_is_mended_where_it_was_left_out() {
    let log =
        b"torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found";
    let mends = |compiler| {
        let environment = LogEnvironment {
            compiler,
            ..LogEnvironment::default()
        };
        let cause = explain(log, None, &environment).causes.remove(0);
        assert_eq!(cause.code, "compiler-missing");
        let actions = cause.mends.into_iter().filter_map(|mend| mend.action);
        let own: Vec<&str> = actions
            .filter_map(|action| match action {
                FixAction::Spec { key, .. } if key == "system.compiler" => Some("key"),
                FixAction::Command { line, .. } if line == "sconce lock" => Some("lock"),
                _ => None,
            })
            .collect();
        own
    };
    assert_eq!(mends(Some(CompilerState::Excluded)), ["key"]);
    assert_eq!(mends(Some(CompilerState::NotRequested)), ["key"]);
    assert_eq!(mends(Some(CompilerState::NotLocked)), ["lock"]);
    assert_eq!(mends(None), ["key", "lock"]);
    assert_eq!(mends(Some(CompilerState::Locked)), [""; 0]);
}

#[test]
fn limits_and_cards_are_looked_up() {
    let host = HostFacts {
        shm: Some(Shm {
            size: Some(Bytes::from_mib(64)),
            ..Shm::default()
        }),
        limits: Some(RlimitFacts {
            open_files: Some(RlimitPair {
                soft: Some(1024),
                hard: Some(4096),
            }),
            ..RlimitFacts::default()
        }),
        iommu: Some(Iommu {
            active: Some(true),
            ..Iommu::default()
        }),
        cards: vec![GpuFacts {
            name: Some("Tesla P100-PCIE-16GB".to_owned()),
            capability: "6.0".parse().ok(),
            memory_used: Some(Bytes::from_gib(9)),
            memory_by_pid: Some(BTreeMap::from([(7, Bytes::from_gib(1))])),
            ..GpuFacts::default()
        }],
        ..HostFacts::default()
    };
    for (log, seen) in [
        (
            "DataLoader worker is killed by signal: Bus error",
            "Here /dev/shm has 64 MiB.",
        ),
        (
            "received 0 items of ancdata",
            "Here 1024 open files are allowed, up to 4096 can be asked for.",
        ),
        (
            "failed to open CUDA IPC handle",
            "Here the IOMMU is in use.",
        ),
        (
            "no kernel image is available for execution on the device",
            "Tesla P100-PCIE-16GB has compute capability 6.0: CUDA 13 has no code for it any more.",
        ),
        (
            "CUDA out of memory",
            "Here 8 GiB on Tesla P100-PCIE-16GB belong to no listed process: a process that ended badly, or one in another container.",
        ),
    ] {
        let explanation = explain(log.as_bytes(), Some(&host), &LogEnvironment::default());
        let seen_here: Vec<&str> = explanation.causes[0]
            .seen
            .iter()
            .map(|seen| seen.what.as_str())
            .collect();
        assert!(seen_here.contains(&seen), "{log}: {seen_here:?}");
    }
}

#[test]
fn captures_get_into_texts_and_no_command_gets_a_shell() {
    let explanation = plain(
        "error: #error -- unsupported GNU version! gcc versions later than 12 are not supported!",
    );
    let flags = |mend: &Fix| match &mend.action {
        Some(FixAction::Variable { value, .. }) => value.clone(),
        _ => None,
    };
    let values: Vec<String> = explanation.causes[0]
        .mends
        .iter()
        .filter_map(flags)
        .collect();
    assert_eq!(values, ["-ccbin g++-12"]);

    let evil = plain("OSError: $(reboot);lib`x`.so.1: cannot open shared object file");
    for cause in &evil.causes {
        for mend in &cause.mends {
            if let Some(FixAction::Command { line, .. }) = &mend.action {
                assert!(!line.contains("reboot)") && !line.contains('`'), "{line}");
            }
        }
    }
}

#[test]
fn written_and_read_again() {
    for (_, example) in examples() {
        let explanation = plain(example);
        let json = serde_json::to_string(&explanation).unwrap();
        assert_eq!(
            serde_json::from_str::<Explanation>(&json).unwrap(),
            explanation
        );
    }
}

#[test]
fn hostile_logs_end() {
    let unit = "undefined symbol: _Z CUDA out of memory. Tried to allocate ";
    let logs: [Vec<u8>; 8] = [
        vec![b'a'; 300_000],
        vec![0; 300_000],
        vec![b'\n'; 300_000],
        b"\x1b[".repeat(100_000),
        b"[rank".repeat(60_000),
        unit.as_bytes().repeat(3_000),
        unit.as_bytes()
            .iter()
            .map(|byte| byte ^ 0x80)
            .cycle()
            .take(300_000)
            .collect(),
        b"NCCL WARN \xff{}{..}\\\\\\n\\u001b[".repeat(10_000),
    ];
    for log in logs {
        let explanation = explain(&log, None, &LogEnvironment::default());
        assert_eq!(explanation.bytes, log.len() as u64);
        for cause in &explanation.causes {
            assert!(cause.lines.len() <= 16);
            for line in &cause.lines {
                assert!(line.text.len() < 1000 && !line.text.contains(char::is_control));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_explained(log in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = explain(&log, None, &LogEnvironment::default());
    }

    #[test]
    fn changed_examples_are_explained(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        times in 1usize..40,
    ) {
        let all: Vec<&str> = examples().map(|(_, example)| example).collect();
        let mut log = all[which.index(all.len())].as_bytes().repeat(times);
        let at = at.index(log.len());
        log[at] = byte;
        let explanation = explain(&log, None, &LogEnvironment::default());
        prop_assert_eq!(explanation.bytes, log.len() as u64);
        let cut = explain(&log[at..], None, &LogEnvironment::default());
        prop_assert!(cut.causes.len() <= 12);
    }
}

#[test]
fn what_was_not_captured_is_left_to_the_reader() {
    let explained =
        plain("RuntimeError: CUDA error: no kernel image is available for execution on the device");
    let variable = explained.causes[0]
        .mends
        .iter()
        .find_map(|mend| match &mend.action {
            Some(FixAction::Variable { name, value }) => Some((name.as_str(), value.as_deref())),
            _ => None,
        });
    assert_eq!(variable, Some(("TORCH_CUDA_ARCH_LIST", Some("…"))));
    let filled = rule::fill_placeholders("{a} {b} {} { c } {{.X}} {d", |name| {
        (name == "a").then_some("1")
    });
    assert_eq!(filled, "1 … {} { c } {{.X}} {d");
}

#[test]
fn short_texts_of_shells_and_prompts() {
    let bash = "job.sh: line 12:  3412 Killed                  python train.py\n";
    for (text, code) in [
        ("zsh: killed     python train.py\n", "worker-killed"),
        (bash, "worker-killed"),
        ("Aborted\n", "crashed"),
        (">>> torch.cuda.is_available()\nFalse\n", "no-driver"),
        ("Is CUDA available: False\n", "no-driver"),
    ] {
        assert!(
            codes(&plain(text)).contains(&code),
            "{text}: {:?}",
            plain(text)
        );
    }
}
