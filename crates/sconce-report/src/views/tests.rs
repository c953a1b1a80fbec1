use std::path::Path;

use proptest::prelude::*;
use sconce_record::RecordReader;
use serde_json::{Value, json};

use super::*;

const STARTED: &str = r#"{"t_us":0,"event":"started","format":2,"id":"digits-20261121-0034-7f3a","unix-ms":1795221240000,"command":["python","</script>"],"folder":"/","mode":"host","sconce-pid":1,"limits":{"memory":4294967296},"host":{"hostname":"sun","kernel":"6","cpus":8,"memory":33554432000},"gpus":[]}"#;

fn view(lines: &[Value], points: usize) -> RecordView {
    let lines: String = lines.iter().map(|line| written(line) + "\n").collect();
    let text = format!("{STARTED}\n{lines}");
    RecordView::from_record(
        RecordReader::new(text.as_bytes(), Path::new("record")).unwrap(),
        points,
    )
}

/// A line as a writer has it: its time and its kind come first, in whatever order a JSON object keeps keys.
fn written(line: &Value) -> String {
    let mut rest = line.as_object().unwrap().clone();
    let first = ["t_us", "event"].map(|key| format!("\"{key}\":{}", rest.remove(key).unwrap()));
    let rest = rest
        .iter()
        .map(|(key, value)| format!(",\"{key}\":{value}"));
    format!("{{{}{}}}", first.join(","), rest.collect::<String>())
}

/// A run of two ranks with a card; one step of rank 1 takes long.
fn lines(seconds: u64) -> Vec<Value> {
    let training = |second: u64, rank: u64| {
        let slow = if rank == 1 && second == seconds / 2 {
            9_000_000
        } else {
            500_000
        };
        json!({"pid": 70 + rank, "rank": rank, "steps": second * 2, "wall-us": second * 1_000_000,
            "phases": {"data-us": second * 250_000, "forward-us": second * 750_000}, "samples": second * 64,
            "loader": {"batches": second, "ready": 3},
            "recent": [{"step": second * 2, "t-us": second * 1_000_000, "wall-us": slow, "rss": 1000}]})
    };
    (1..=seconds)
        .map(|second| {
            json!({"t_us": second * 1_000_000, "event": "sample", "cpu-us": second * 2_000_000, "memory": 5000,
                "read-bytes": second * 1000, "pressure": {"io-some-us": second * 100_000},
                "gpus": [{"index": 0, "utilisation-percent": 50, "power-mw": 250_000}],
                "training": [training(second, 0), training(second, 1)]})
        })
        .collect()
}

fn plot<'a>(shape: &'a Value, name: &str) -> &'a Value {
    let mut plots = shape["plots"].as_array().unwrap().iter();
    plots
        .find(|plot| plot["plot"] == name)
        .unwrap_or_else(|| panic!("{name} in {shape}"))
}

#[test]
fn limits_stand_beside_what_they_limit() {
    let limits = |lines: &[Value], name: &str| {
        let view = view(lines, 100);
        let shape: Value =
            serde_json::from_str(&render_series(&view.series, 0, 9_000_000, 10)).unwrap();
        plot(&shape, name)["limits"].clone()
    };
    let limit = json!([{"name": "limit", "value": 4_295_000_000_u64}]);
    assert_eq!(limits(&lines(9), "memory"), limit);
    assert_eq!(limits(&lines(9), "cpu"), json!([]));
    // One that the machine did not enforce is none.
    let mut refused = lines(9);
    refused.insert(
        0,
        json!({"t_us": 1, "event": "unenforced", "what": "memory", "why": "no cgroup"}),
    );
    assert_eq!(limits(&refused, "memory"), json!([]));

    let mut cards = SeriesFold::new(0, None, 10);
    let mut started: sconce_schema::event::RecordLine = serde_json::from_str(STARTED).unwrap();
    let sconce_schema::event::RecordEvent::Started(started) = &mut started.event else {
        panic!("it is how a run begins");
    };
    let card = |index, gib: u64| sconce_schema::event::GpuSummary {
        index,
        uuid: String::new(),
        name: String::new(),
        memory: Some(sconce_schema::Bytes::from_mib(gib * 1024)),
    };
    let mut told = |sizes: [u64; 2]| {
        started.gpus = vec![card(0, sizes[0]), card(1, sizes[1])];
        cards.apply_start_event(started);
        let told = shape::limits(Plot::CardMemory, &cards.series);
        serde_json::to_value(told).unwrap()
    };
    assert_eq!(
        told([80, 80]),
        json!([{"name": "total", "value": 85_899_000_000_u64}])
    );
    assert_eq!(
        told([80, 16]),
        json!([{"name": "card 0, total", "value": 85_899_000_000_u64},
            {"name": "card 1, total", "value": 17_180_000_000_u64}])
    );
}

#[test]
fn figures_have_their_units() {
    let view = view(&lines(100), 4096);
    assert_eq!(view.report.training.len(), 2);
    let shape: Value =
        serde_json::from_str(&render_series(&view.series, 0, 100_000_000, 10)).unwrap();
    for (name, line, value) in [
        ("cpu", 0, json!(2)),
        ("memory", 0, json!(5000)),
        ("disk", 0, json!(1000)),
        ("pressure", 0, json!(0.1)),
        ("card-use", 0, json!(0.5)),
        ("card-power", 0, json!(250)),
        ("steps", 0, json!(2)),
        ("samples", 1, json!(64)),
        ("loader", 1, json!(3)),
        ("phases rank 0", 0, json!(0.25)),
        ("phases rank 1", 1, json!(0.75)),
        ("process-memory", 0, json!(1000)),
    ] {
        assert_eq!(
            plot(&shape, name)["lines"][line]["mean"][5],
            value,
            "{name} {line}"
        );
    }
    let steps = plot(&shape, "step-time");
    assert_eq!(steps["lines"][0]["most"], Value::Null);
    let peaks = steps["lines"][1]["most"].as_array().unwrap();
    assert_eq!(peaks.iter().filter(|peak| **peak == json!(9)).count(), 1);
    assert_eq!(steps["lines"][1]["name"], "rank 1");
}

#[test]
fn a_window_is_as_fine_as_it_is_asked_for() {
    let mut fold = SeriesFold::new(20_000_000, Some(30_000_000), 10);
    for line in lines(100) {
        fold.add_line(&serde_json::from_str(&written(&line)).unwrap());
    }
    let part = fold.finish();
    assert_eq!(part.wall_us, 100_000_000);
    let shape: Value =
        serde_json::from_str(&render_series(&part, 20_000_000, 30_000_000, 10)).unwrap();
    let means = plot(&shape, "cpu")["lines"][0]["mean"].as_array().unwrap();
    assert!(means.iter().all(|mean| *mean == json!(2)), "{means:?}");
}

#[test]
fn a_run_says_what_it_is() {
    let view = view(&lines(5), 100);
    let shape: Value = serde_json::from_str(&render_run(&view)).unwrap();
    assert_eq!(shape["state"], "interrupted");
    assert_eq!(
        shape["processes"][1]["phases"][0],
        json!(["data", 125_000.0])
    );
    assert!(
        shape["text"]
            .as_str()
            .unwrap()
            .starts_with("digits-20261121-0034-7f3a")
    );
    let memory = json!(["Memory, most", "4.9 KiB of 4 GiB, charged to the run"]);
    assert!(
        shape["figures"].as_array().unwrap().contains(&memory),
        "{}",
        shape["figures"]
    );
}

/// What is between steps is no part of their speed, and what comes after the last one is no speed of 0.
#[test]
fn a_speed_is_of_the_steps_time() {
    let mut all = lines(10);
    for (n, line) in all.iter_mut().enumerate() {
        // Steps take half of the time.
        let wall_us = (n as u64 + 1) * 500_000;
        line["training"][0]["wall-us"] = json!(wall_us);
    }
    let last = all[9].clone();
    for second in 11..=20 {
        let mut idle = last.clone();
        idle["t_us"] = json!(second * 1_000_000);
        all.push(idle);
    }
    let view = view(&all, 4096);
    let shape: Value =
        serde_json::from_str(&render_series(&view.series, 0, 20_000_000, 20)).unwrap();
    let means = plot(&shape, "samples")["lines"][0]["mean"].clone();
    assert_eq!(means[5], json!(128));
    assert_eq!((&means[15], &means[19]), (&Value::Null, &Value::Null));
    let report = view.report.training[0].samples_per_s();
    assert_eq!(report, Some(128.0));
}

#[test]
fn what_a_page_says_of_services() {
    let service = |t_us: u64, name: &str, state: &str, starts: u64| json!({"t_us": t_us, "event": "service", "name": name, "state": state, "starts": starts});
    let mut healthy = service(3, "web", "healthy", 1);
    healthy["open"] = json!(["http://127.0.0.1:8888/lab"]);
    let mut failed = service(9, "bad", "failed", 5);
    failed["exit"] = json!({"code": 3});
    failed["why"] = json!("it ended 5 times");
    let lines = [service(1, "web", "starting", 1), healthy, failed];
    let shape: Value = serde_json::from_str(&render_run(&view(&lines, 100))).unwrap();
    assert_eq!(
        shape["services"],
        json!([
            {"name": "web", "state": "healthy", "since_us": 3, "restarts": 0, "last_end": null, "why": null,
                "open": ["http://127.0.0.1:8888/lab"]},
            {"name": "bad", "state": "failed", "since_us": 9, "restarts": 4, "last_end": "exit code 3",
                "why": "it ended 5 times", "open": []}
        ])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_figure_panics(
        times in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..40),
        points in 0_usize..50,
        from_us: u64,
        to_us: u64,
    ) {
        let lines: Vec<Value> = times.iter().map(|(t_us, figure, pid)| json!({
            "t_us": t_us, "event": "sample", "cpu-us": figure, "throttled-us": t_us, "memory": figure,
            "gpus": [{"index": pid, "utilisation-percent": pid, "memory-by-pid": {"1": figure, "2": figure}}],
            "training": [{"pid": pid, "steps": figure, "wall-us": t_us, "phases": {"data-us": figure, "other-us": figure},
                "recent": [{"step": 1, "t-us": figure, "wall-us": figure}]}]})).collect();
        let view = view(&lines, points);
        let _ = render_run(&view);
        let shape: Value = serde_json::from_str(&render_series(&view.series, from_us, to_us, points)).unwrap();
        for plot in shape["plots"].as_array().unwrap() {
            for line in plot["lines"].as_array().unwrap() {
                prop_assert_eq!(line["mean"].as_array().unwrap().len(), points);
            }
        }
    }
}
