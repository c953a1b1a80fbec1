use super::probe_report::ProbeReportError;
use super::*;

/// As the probe wrote it of a ResNet-50 with torch 2.15, shortened.
const SEEN: &str = r#"{"format": 1, "torch": "2.15.0+cu132", "cuda": "13.2", "python": "3.11.7",
"ended": "steps", "wanted-steps": 2, "steps": [
{"optimizer": 0, "begin-us": 10, "end-us": 20, "devices": [{"allocated-bytes": 336103936}]},
{"optimizer": 0, "begin-us": 30, "end-us": 40, "devices": []}],
"optimizers": 1, "used-cuda": true, "error": null, "devices": [
{"name": "NVIDIA H100", "total-bytes": 1000, "outside-bytes": 100, "stats":
 {"allocated_bytes.all.peak": 300, "reserved_bytes.all.peak": 400, "num_alloc_retries": 0, "num_ooms": 0}},
{"name": "NVIDIA H100", "total-bytes": 1000, "outside-bytes": 0, "stats": {}}],
"holds": [["parameters", 0, 4096, 512], ["optimizer-state", 1, 8192, 512]],
"dnn-plans": 3, "dnn-modelled": 1, "dnn-workspace-bytes": 2097152, "dnn-recurrent": 1, "unknown": ["cudaSomething"], "reads": [
{"file": "/w/train.py", "line": 3, "use": "branch", "times": 2, "by": null, "code": "if loss < 1:"},
{"file": "/w/site-packages/a.py", "line": 9, "use": "value", "times": 1, "by": {"file": "/w/train.py", "line": 4}, "code": ""}]}"#;

fn seen() -> ProbeReport {
    ProbeReport::parse(SEEN).unwrap()
}

fn card(total_bytes: u64) -> GpuBudget {
    GpuBudget {
        name: "H100".to_owned(),
        total_bytes,
        context_bytes: 90,
        context_reported: false,
        nccl_least_bytes: 10,
    }
}

#[test]
fn what_the_probe_writes_is_read() {
    let seen = seen();
    assert_eq!((seen.step_count(), seen.fullest_gpu().unwrap().0), (2, 0));
    assert_eq!(
        (
            seen.live_storages(0).len(),
            seen.live_storages(1)[0].address
        ),
        (1, 8192)
    );
    assert_eq!(seen.optimizer_steps()[1].begin_us, 30);
    assert_eq!(
        (seen.reads[0].at.line, seen.reads[0].done),
        (3, ValueUse::Branch)
    );
    assert_eq!(seen.reads[1].by.as_ref().unwrap().line, 4);
    let written = serde_json::to_string(&seen.reads[0]).unwrap();
    assert!(written.starts_with(r#"{"file":"/w/train.py","line":3,"use":"branch""#));
}

#[test]
fn what_is_something_else_is_refused() {
    let newer = SEEN.replace("\"format\": 1", "\"format\": 2");
    assert!(matches!(
        ProbeReport::parse(&newer),
        Err(ProbeReportError::Format { format: 2 })
    ));
    let wrong = [
        "",
        "[]",
        "{}",
        "null",
        "{\"format\": 1}",
        &SEEN[..SEEN.len() - 1],
    ];
    for text in wrong {
        assert!(
            matches!(ProbeReport::parse(text), Err(ProbeReportError::Json(_))),
            "{text}"
        );
    }
    let deep = "[".repeat(100_000);
    assert!(ProbeReport::parse(&deep).is_err());
}

#[test]
fn a_card_has_a_margin() {
    let said = of_card(&card(1000), &seen(), None);
    assert_eq!(said.verdict, FitOutcome::Fits);
    assert_eq!(
        (said.allocated_bytes, said.reserved_bytes),
        (Some(300), Some(400))
    );
    assert_eq!((said.context_bytes, said.libraries_bytes), (90, 10));
    assert_eq!(
        (said.on_card_bytes, said.margin_bytes),
        (Some(500), Some(500))
    );
}

#[test]
fn what_ran_out_is_measured_without_a_limit() {
    let mut limited = seen();
    limited.ended = ObservationEnd::Exit;
    limited.error = Some(probe_report::ProgramError {
        kind: "OutOfMemoryError".to_owned(),
        message: String::new(),
        out_of_memory: true,
    });
    let said = of_card(&card(450), &limited, Some(&seen()));
    assert_eq!(
        (said.verdict, said.margin_bytes),
        (FitOutcome::DoesNotFit, Some(-50))
    );
    let said = of_card(&card(450), &limited, None);
    assert_eq!(
        (said.verdict, said.on_card_bytes),
        (FitOutcome::DoesNotFit, None)
    );
    // A trial without a limit that came to nothing tells nothing.
    let said = of_card(&card(450), &limited, Some(&limited));
    assert_eq!(said.reserved_bytes, None);
}

#[test]
fn an_allocator_that_had_to_try_again_is_tight() {
    let mut one = seen();
    let stats = &mut one.devices[0].stats;
    stats.insert("num_alloc_retries".to_owned(), 2);
    let said = of_card(&card(1000), &one, None);
    assert_eq!((said.verdict, said.retries), (FitOutcome::Tight, 2));
    stats_are_anything(&mut one);
}

/// Figures come from a process that may write anything.
fn stats_are_anything(one: &mut ProbeReport) {
    for value in [i64::MIN, -1, i64::MAX] {
        one.devices[0].stats.insert(RESERVED.to_owned(), value);
        one.devices[0].outside_bytes = value;
        for total in [0, u64::MAX] {
            let _ = of_card(&card(total), one, None);
        }
    }
}

#[test]
fn the_process_with_the_most_steps_is_the_one() {
    let mut launcher = seen();
    launcher.steps.clear();
    launcher.used_cuda = false;
    let mut other = seen();
    other.devices[0].stats.insert(RESERVED.to_owned(), 500);
    let (used, chosen) = select_main_process(vec![other.clone(), launcher, seen()]).unwrap();
    assert_eq!((used, chosen), (2, other));
    assert_eq!(select_main_process(Vec::new()), None);
}

#[test]
fn doubts_are_said() {
    let said = [of_card(&card(1000), &seen(), None)];
    let doubts = list_caveats(&said, &seen(), 2, None);
    let names = vec!["cudaSomething".to_owned()];
    let expected = [
        ForecastCaveat::Workspaces {
            largest_bytes: 2 << 20,
            modelled: true,
        },
        ForecastCaveat::Recurrent,
        ForecastCaveat::Context,
        ForecastCaveat::Unknown { names },
        ForecastCaveat::NothingCompared,
        ForecastCaveat::LaterSteps { watched: 2 },
        ForecastCaveat::Processes { count: 2 },
        ForecastCaveat::Values,
    ];
    assert_eq!(doubts, expected);
}

#[test]
fn buffers_of_nccl_are_counted_at_their_most() {
    let mut one = seen();
    one.devices[0].outside_bytes = 90 + 60 + 7;
    one.devices[0].communicators = 2;
    one.devices[0].nccl_bytes = 60;
    let said = of_card(&card(1000), &one, None);
    let nccl = NcclBuffers {
        communicators: 2,
        bytes: 60,
        least_bytes: 20,
    };
    assert_eq!((said.nccl, said.libraries_bytes), (Some(nccl), 7));
    assert_eq!(said.on_card_bytes, Some(400 + 90 + 60 + 7));
    // What does not fit for them alone is said to hang on them.
    let mut limited = one.clone();
    limited.ended = ObservationEnd::Exit;
    limited.devices[0].stats.insert("num_ooms".to_owned(), 1);
    for (total, hangs) in [(557, true), (517, true), (516, false)] {
        let said = of_card(&card(total), &limited, Some(&one));
        assert_eq!(said.verdict, FitOutcome::DoesNotFit);
        assert_eq!(said.hangs_on_nccl(), hangs, "{total}");
    }
    let expected = ForecastCaveat::Ranks {
        ranks: 64,
        pairs: false,
    };
    assert_eq!(list_caveats(&[], &one, 1, Some(64))[0], expected);
}

#[test]
fn releases_that_nobody_tried_are_named() {
    let named = |torch: &str| {
        let mut seen = seen();
        seen.torch = torch.to_owned();
        let release = ForecastCaveat::Release {
            torch: torch.to_owned(),
        };
        list_caveats(&[], &seen, 1, None).contains(&release)
    };
    for tried in ["2.6.0", "2.15.1+cu132", "2.10.0a0+git123"] {
        assert!(!named(tried), "{tried}");
    }
    for other in ["2.5.1+cu124", "2.16.0", "1.13.1", "3.6", "master", ""] {
        assert!(named(other), "{other}");
    }
}
