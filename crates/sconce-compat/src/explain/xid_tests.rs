//! What is said of the numbers that the driver reports.

use sconce_schema::finding::FixAction;

use super::Explanation;
use super::tests::{codes, plain};
use crate::tables::XidResolution;

/// What `explain` says of a line of the kernel log.
fn of_xid(number: u32) -> Explanation {
    plain(&format!(
        "[ 1234.5] NVRM: Xid (PCI:0000:65:00): {number}, pid=4242, name=python3, Ch 00000008\n"
    ))
}

#[test]
fn each_xid_has_the_mend_of_the_catalogue() {
    for row in crate::tables::xid_entries() {
        let said = of_xid(row.code);
        let cause = &said.causes[0];
        let code = match row.code {
            79 => "card-lost".to_owned(),
            number => format!("xid-{number}"),
        };
        assert_eq!(cause.code, code, "{:?}", codes(&said));
        assert_eq!(said.causes.len(), 1, "{:?}", codes(&said));
        let whole = serde_json::to_string(&said).unwrap().to_lowercase();
        assert!(
            !whole.contains("replace the card") && !whole.contains("replacement"),
            "{whole}"
        );
        let first = cause.mends[0].what.as_str();
        let (begins, command) = first_mend(row.bucket, row.code);
        assert!(first.starts_with(begins), "{code}: {first}");
        let line = match &cause.mends[0].action {
            Some(FixAction::Command { line, .. }) => line.as_str(),
            _ => "",
        };
        assert!(
            line.contains(command) && line.is_empty() == command.is_empty(),
            "{code}: {line}"
        );
    }
}

/// How the first mend of a number begins, and what of its command tells it, by NVIDIA's catalogue.
fn first_mend(bucket: XidResolution, code: u32) -> (&'static str, &'static str) {
    const RESET: &str = "--gpu-reset";
    match bucket {
        XidResolution::Ignore => ("Nothing needs to be done for this alone", ""),
        XidResolution::RestartApp => ("Start the program again.", ""),
        XidResolution::ResetGpu | XidResolution::Xid48 => {
            ("Stop what runs on the card and reset it.", RESET)
        }
        XidResolution::RestartMachine => ("Start the machine again.", "reboot"),
        XidResolution::RestartVm => ("Start the virtual machine again.", ""),
        XidResolution::CheckMechanicals => ("Switch the machine off and look", ""),
        XidResolution::UpdateSoftware => ("Bring the driver of the host", ""),
        XidResolution::CheckUvm => ("Reset the card if the program used managed memory", RESET),
        XidResolution::ContactSupport => (
            "Make a report for who sold the machine",
            "nvidia-bug-report",
        ),
        XidResolution::Xid45 => ("Beside another Xid do what that one needs", ""),
        XidResolution::Nvlink => (
            "Stop what runs on the cards of the link and reset them.",
            RESET,
        ),
        XidResolution::Nvlink5 if [149, 150].contains(&code) => (
            "Do what the Xid 154 beside it says. Without one, stop what runs on the cards of the link and reset them.",
            RESET,
        ),
        XidResolution::Nvlink5 => (
            "Do what the Xid 154 beside it says. Without one, stop what runs on the cards of the link and reset them \
             where the line says Fatal or Link Fatal; else start the program again.",
            RESET,
        ),
        XidResolution::Xid154 => ("Do what its line says", ""),
        XidResolution::None => ("NVIDIA's catalogue names nothing to do for it.", ""),
        XidResolution::Unused => ("Look it up in NVIDIA's catalogue for older cards", ""),
    }
}

#[test]
fn an_xid_that_follows_another_comes_after_it() {
    let log = "NVRM: Xid (PCI:0000:65:00): 45, pid=1, name=a\n\
               NVRM: Xid (PCI:0000:65:00): 48, pid=1, name=a\n\
               NVRM: Xid (PCI:0000:65:00): 45, pid=2, name=b\n\
               NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n";
    let said = plain(log);
    assert_eq!(codes(&said)[0], "xid-48");
    let after: Vec<_> = said.causes[1..]
        .iter()
        .map(|cause| cause.consequence_of.as_deref())
        .collect();
    assert_eq!(after, [Some("xid-48"), Some("xid-48")]);
    // The program's own words come before the driver's.
    let log = "RuntimeError: CUDA error: an illegal memory access was encountered\n\
               NVRM: Xid (PCI:0000:65:00): 31, pid=1, name=a\n";
    assert_eq!(codes(&plain(log))[0], "illegal-memory-access");
}

#[test]
fn an_xid_is_known_in_every_spelling() {
    for (log, code) in [
        ("Xid 79", "card-lost"),
        ("XID 43", "xid-43"),
        ("xid 94?", "xid-94"),
        ("What does Xid 31 mean", "xid-31"),
        ("my training died with Xid-48 last night", "xid-48"),
        ("Xid (74)", "xid-74"),
        ("Xid #63", "xid-63"),
        ("Xid: 95", "xid-95"),
        ("Xid error 13", "xid-13"),
        ("GPU 3: Xid 94: Contained ECC error", "xid-94"),
        ("GPU 0: Xid critical error 94", "xid-94"),
        (
            "XidCriticalError: Xid=48 on Device=GPU-34d7319c-5b19-1e75-186d-c187099e4fe5, the device will go unhealthy.",
            "xid-48",
        ),
        (
            "I0102 10:20:30.123 health.go:159] Skipping event for device GPU-34d7319c: xid=45",
            "xid-45",
        ),
        ("DCGM: Detected XID 79 error for GPU 3", "card-lost"),
        ("Detected XID errors: 119 on an NVIDIA GPU", "xid-119"),
        (
            r#"DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-34d7319c-5b19-1e75-186d-c187099e4fe5",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-3",DCGM_FI_DRIVER_VERSION="570.158.01",err_code="79",err_msg="GPU has fallen off the bus"} 79"#,
            "card-lost",
        ),
        (
            r#"DCGM_FI_DEV_XID_ERRORS{gpu="0"} 94 1700000000000"#,
            "xid-94",
        ),
        (
            r#"DCGM_EXP_XID_ERRORS_COUNT{gpu="0",window_size_in_ms="300000",xid="48"} 2"#,
            "xid-48",
        ),
        (
            "kernel: NVRM: Xid (PCI:0000:3b:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1)",
            "xid-94",
        ),
        (
            "[Tue Jan  6 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=python",
            "xid-48",
        ),
        (
            "Jan 06 10:00:00 gpu-node3 kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python",
            "xid-31",
        ),
        (
            "<4>1 2026-01-06T10:00:00.000000+00:00 node3 kernel - - - [   12.5] NVRM: Xid (PCI:0000:3b:00): 62, pid=7",
            "xid-62",
        ),
        (
            "Xid (PCI:0000:3b:00): 119, Timeout after 6s of waiting for RPC response",
            "xid-119",
        ),
        (
            r#"{"level":"error","gpu":3,"xid":79,"msg":"unhealthy"}"#,
            "card-lost",
        ),
        // In a longer log, by what stands beside it.
        (
            &format!("{}GPU 3 has Xid 79\n", "step 1 loss 2\n".repeat(9)),
            "card-lost",
        ),
        (
            &format!(
                "{}the kernel says\nXid 79\nof the GPU\n",
                "step 1 loss 2\n".repeat(9)
            ),
            "card-lost",
        ),
    ] {
        assert_eq!(codes(&plain(log)).first(), Some(&code), "{log}");
    }
}

#[test]
fn an_xid_of_something_else_is_none() {
    let long = |line: &str| format!("{}{line}\n", "step 1 loss 2\n".repeat(9));
    for log in [
        "exid 79",
        "SXid 79 of a GPU",
        "virtualxid 79",
        "xid 79abc",
        "xid=79",
        "xid=79 state=idle",
        "2026-01-06 10:00:00.000 UTC [812] LOG:  xid 12345",
        "LOG:  process 812 still waiting for ShareLock on transaction 79; xid 79",
        "oldest xid 79",
        "postgres: xid 79",
        "# at 4\n#260106 10:00:00 server id 1  end_log_pos 35 CRC32 0x1 \tXid = 79\nCOMMIT/*!*/;",
        "Jan 06 10:00:00 gpu-node3 dhclient[7]: DHCPDISCOVER on eth0 to 255.255.255.255 port 67 (xid=79)",
        "Jan 06 10:00:00 gpu-node3 app[7]: xid=79 status=ok",
        "RPC: 79 xid 79 call",
        "dhclient: XID 0x5dd3",
        // More than the catalogue has, and nothing of a GPU.
        "xid 12345",
        r#"DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1"} 0"#,
        "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n# TYPE DCGM_FI_DEV_XID_ERRORS gauge",
        "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} 0\nDCGM_FI_DEV_FB_FREE{gpu=\"0\"} 79",
        &long("xid 79"),
        &long("Xid 79"),
        &format!("CUDA is available\n{}", long("xid=79")),
        &format!("{}using a GPU\nxid=79 ok\n", long("")),
    ] {
        let said = plain(log);
        let found = codes(&said);
        let of_xid = |code: &&&str| code.starts_with("xid") || **code == "card-lost";
        assert_eq!(found.iter().find(of_xid), None, "{log}");
    }
}

/// The codes of a log's causes, and by what each is explained.
fn order(log: &str) -> Vec<(String, Option<String>)> {
    let said = plain(log);
    let causes = said.causes.into_iter();
    causes
        .map(|cause| (cause.code, cause.consequence_of))
        .collect()
}

fn after(code: &str, by: Option<&str>) -> (String, Option<String>) {
    (code.to_owned(), by.map(str::to_owned))
}

#[test]
fn what_the_xid_beside_says_counts_more_than_the_error() {
    for (error, number, first_mend) in [
        (
            "uncorrectable ECC error encountered",
            94,
            "Start the program again.",
        ),
        (
            "uncorrectable ECC error encountered",
            48,
            "Stop what runs on the card and reset it.",
        ),
        (
            "uncorrectable ECC error encountered",
            95,
            "Stop what runs on the card and reset it.",
        ),
        (
            "uncorrectable NVLink error detected during the execution",
            74,
            "Stop what runs on the cards of the link and reset them.",
        ),
        (
            "uncorrectable NVLink error detected during the execution",
            149,
            "Do what the Xid 154 beside it says.",
        ),
        ("unspecified launch failure", 94, "Start the program again."),
    ] {
        for error_is_first in [true, false] {
            let error =
                format!("Traceback (most recent call last):\nRuntimeError: CUDA error: {error}\n");
            let xid = format!("[ 12.5] NVRM: Xid (PCI:0000:3b:00): {number}, pid=7, name=python\n");
            let said = plain(&match error_is_first {
                true => error + &xid,
                false => xid + &error,
            });
            let first = &said.causes[0];
            let code = format!("xid-{number}");
            assert_eq!((&first.code, said.causes.len()), (&code, 2), "{said:?}");
            assert!(first.mends[0].what.starts_with(first_mend), "{first:?}");
            assert_eq!(said.causes[1].consequence_of.as_ref(), Some(&code));
        }
    }
    let lost = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n";
    let gsp = "NVRM: Xid (PCI:0000:3b:00): 119, pid=7, name=python, Timeout\n";
    assert_eq!(order(&format!("{lost}{gsp}"))[0].0, "xid-119");
    // A card that fell off the bus brings others with it, and the error of a program is no reason for it.
    let off = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n";
    assert_eq!(order(&format!("{lost}{off}{gsp}"))[0].0, "card-lost");
    assert_eq!(
        order(&format!("{lost}{}", gsp.replace("119", "31")))[0].0,
        "card-lost"
    );
    // The number of another card.
    let other = gsp.replace("3b", "af");
    assert_eq!(
        order(&format!("{lost}{other}"))[..2],
        [after("card-lost", None), after("xid-119", None)]
    );
}

#[test]
fn a_fault_of_one_card_does_not_explain_that_of_another() {
    let line = |bus: &str, number: u32| {
        format!("NVRM: Xid (PCI:0000:{bus}:00): {number}, pid=7, name=a\n")
    };
    let off = line("af", 79).replace("name=a", "GPU has fallen off the bus.");
    let by = |log: &str, code: &str| {
        let found = order(log).into_iter().find(|(own, _)| own == code);
        found.unwrap().1
    };
    let lost = Some("card-lost".to_owned());
    assert_eq!(by(&format!("{off}{}", line("3b", 45)), "xid-45"), None);
    assert_eq!(by(&format!("{off}{}", line("AF", 45)), "xid-45"), lost);
    // One of two that have it has no reason.
    let both = line("3b", 45) + &line("af", 45);
    assert_eq!(by(&format!("{off}{both}"), "xid-45"), None);
    assert_eq!(
        by(&format!("{off}{both}{}", line("3b", 48)), "xid-45"),
        lost
    );
    // What names the card in another way, or not at all, is as before.
    let index = "GPU 1: Xid error 45\n";
    assert_eq!(by(&format!("{off}{index}"), "xid-45"), lost);
    let indexes = "GPU 0: Xid error 48\nGPU 1: Xid error 43\n";
    assert_eq!(by(indexes, "xid-43"), None);
    assert_eq!(
        by(&indexes.replace("GPU 1", "GPU 0"), "xid-43"),
        Some("xid-48".to_owned())
    );
    // Of many lines all cards count.
    let many: String = (0..40).map(|bus| line(&format!("{bus:02x}"), 45)).collect();
    assert_eq!(
        by(&format!("{off}{many}{}", line("af", 45)), "xid-45"),
        None
    );
}

#[test]
fn a_number_is_read_whole() {
    // One that is newer than the catalogue, where a GPU is spoken of.
    assert_eq!(codes(&plain("GPU 3: Xid 9999")), ["xid"]);
    for (number, code) in [
        (4, "xid-4"),
        (7, "xid-7"),
        (790, "xid"),
        (4_294_967_295, "xid"),
        (1540, "xid"),
    ] {
        assert_eq!(codes(&of_xid(number)), [code]);
    }
    let huge = "NVRM: Xid (PCI:0000:65:00): 99999999999999999999, pid=1\n";
    assert_eq!(codes(&plain(huge)), ["xid"]);
}
