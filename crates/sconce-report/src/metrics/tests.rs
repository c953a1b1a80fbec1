use std::collections::BTreeMap;
use std::path::PathBuf;

use sconce_record::RunState;
use sconce_schema::event::RecordLine;

use super::*;

fn entry(sample: &str) -> RunEntry {
    let started = r#"{"t_us":0,"event":"started","format":2,"id":"digits-20261121-0034-7f3a","name":"di\"g\\its","unix-ms":1795221240000,"command":["python"],"folder":"/","mode":"container","sconce-pid":1,"limits":{"cpus":2.0,"memory":4294967296},"host":{"hostname":"sun","kernel":"6","cpus":8,"memory":33554432000},"gpus":[]}"#;
    let RecordEvent::Started(started) = serde_json::from_str::<RecordLine>(started).unwrap().event
    else {
        panic!("it began");
    };
    RunEntry {
        path: PathBuf::new(),
        started: *started,
        state: RunState::Running,
        last: Some(serde_json::from_str(sample).unwrap()),
    }
}

/// A run and a card of which everything is known.
fn full() -> (RunEntry, MachineGpuSample) {
    let sample = r#"{"t_us":1,"event":"sample","cpu-us":1500000,"throttled-us":1,"memory":2,"memory-peak":3,"cache":4,"pss":5,"rss":6,"swap":7,"processes":8,"threads":9,"read-bytes":10,"write-bytes":11,"shm":12,"oom-kills":0,"received-bytes":13,"sent-bytes":14,"pressure":{"cpu-some-us":1,"memory-some-us":2,"memory-full-us":3,"io-some-us":4,"io-full-us":5},"gpus":[{"index":0,"memory-by-pid":{"7":100,"8":1}}],"training":[{"pid":7,"rank":3,"steps":10,"wall-us":2000000,"phases":{"data-us":500000,"forward-us":1500000},"samples":320,"tokens":4096,"flops-per-step":304128,"exchange":{"sharded-steps":4,"all-gather-us":500000,"all-gather-exposed-us":250000,"reduce-scatter-us":7,"reduce-scatter-exposed-us":7},"loader":{"batches":10,"empty":9,"ready":1},"evaluation":{"batches":2,"wall-us":3},"card-memory":{"allocated":1,"reserved":2}}]}"#;
    let card = MachineGpuSample {
        uuid: "GPU-1".to_owned(),
        name: Some("NVIDIA H100".to_owned()),
        bus_id: Some("00000000:01:00.0".to_owned()),
        memory: Some(Bytes::from_mib(81_920)),
        hostname: "sun".to_owned(),
        driver: Some("570.1".to_owned()),
        sample: GpuSample {
            utilisation_percent: Some(97),
            memory_utilisation_percent: Some(40),
            memory_used: Some(Bytes::from_mib(1024)),
            power_mw: Some(312_500),
            energy_mj: Some(5_000),
            temperature_c: Some(64),
            sm_clock_mhz: Some(1980),
            memory_clock_mhz: Some(2619),
            pcie_received_bytes_per_s: Some(1),
            pcie_sent_bytes_per_s: Some(2),
            throttle: Some(vec!["sw-power-cap".to_owned()]),
            ..GpuSample::default()
        },
    };
    (entry(sample), card)
}

#[test]
fn figures_have_base_units() {
    let (run, card) = full();
    let told = render_prometheus([run].iter(), &[card], true);
    for line in [
        "sconce_run_cpu_seconds_total{run=\"digits-20261121-0034-7f3a\"} 1.5\n",
        "sconce_run_info{run=\"digits-20261121-0034-7f3a\",environment=\"di\\\"g\\\\its\",mode=\"container\"} 1\n",
        "sconce_run_gpu_memory_bytes{run=\"digits-20261121-0034-7f3a\",gpu=\"0\"} 101\n",
        "sconce_train_phase_seconds_total{run=\"digits-20261121-0034-7f3a\",rank=\"3\",phase=\"data\"} 0.5\n",
        "sconce_train_flops_per_step{run=\"digits-20261121-0034-7f3a\",rank=\"3\"} 304128\n",
        "sconce_train_sharded_exposed_seconds_total{run=\"digits-20261121-0034-7f3a\",rank=\"3\",collective=\"all-gather\"} 0.25\n",
        "sconce_gpu_utilization_ratio{gpu=\"0\",uuid=\"GPU-1\"} 0.97\n",
        "sconce_gpu_sm_clock_hertz{gpu=\"0\",uuid=\"GPU-1\"} 1980000000\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-1\",pci_bus_id=\"00000000:01:00.0\",device=\"nvidia0\",modelName=\"NVIDIA H100\",Hostname=\"sun\"} 1024\n",
    ] {
        assert!(told.contains(line), "{line}{told}");
    }
    assert_eq!(
        names::ALL.len(),
        told.matches("# TYPE ").count(),
        "each is told once"
    );
}

/// Two launchers in one run, one that trains alone, and a record that says the same twice.
#[test]
fn no_labels_stand_twice() {
    let one = |pid: u32, more: &str| format!(r#"{{"pid":{pid},{more}"steps":{pid},"wall-us":1}}"#);
    let all = [
        one(7, r#""rank":0,"#),
        one(8, r#""rank":1,"#),
        one(9, r#""rank":0,"group":2,"#),
        one(10, r#""rank":1,"group":2,"#),
        one(11, r#""group":3,"#),
        one(12, r#""rank":1,"#),
    ];
    let sample = format!(
        r#"{{"t_us":1,"event":"sample","training":[{}]}}"#,
        all.join(",")
    );
    let told = render_prometheus([entry(&sample)].iter(), &[], true);
    let mut seen = std::collections::BTreeSet::new();
    for line in told.lines().filter(|line| !line.starts_with('#')) {
        let (labels, _) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(labels), "{labels} stands twice");
    }
    let steps = |labels: &str| {
        told.contains(&format!(
            "sconce_train_steps_total{{run=\"digits-20261121-0034-7f3a\",{labels}}}"
        ))
    };
    assert!(
        steps(r#"rank="0""#) && steps(r#"rank="1",group="2""#) && steps(r#"rank="0",group="3""#),
        "{told}"
    );
    assert!(
        told.contains(r#"rank="1"} 8"#) && !told.contains(r#"rank="1"} 12"#),
        "{told}"
    );
}

#[test]
fn what_is_not_known_has_no_line() {
    let told = render_prometheus([entry(r#"{"t_us":1,"event":"sample"}"#)].iter(), &[], true);
    assert!(
        !told.contains("sconce_run_memory_bytes") && !told.contains("DCGM"),
        "{told}"
    );
    assert!(told.contains("sconce_run_memory_limit_bytes"));
}

#[test]
fn names_keep_prometheus_rules() {
    let mut seen = BTreeMap::new();
    for (name, kind, help) in names::ALL {
        assert!(seen.insert(name, kind).is_none(), "{name} twice");
        assert!(help.ends_with('.'), "{name}");
        if name.starts_with("sconce_") {
            assert_eq!(*kind == "counter", name.ends_with("_total"), "{name}");
        }
    }
}

/// The dashboard asks for nothing that is not served, by no label that is not there.
#[test]
fn the_dashboard_asks_for_what_is_served() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../share/grafana/sconce.json"
    );
    let dashboard = std::fs::read_to_string(folder).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let (run, card) = full();
    let told = render_prometheus([run].iter(), &[card], false);
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let words: Vec<&str> = words.filter(|word| word.starts_with("sconce_")).collect();
            assert!(!words.is_empty(), "{expression}");
            for word in words {
                assert!(
                    told.contains(&format!("\n{word}{{")),
                    "{word} in {expression}"
                );
                asked += 1;
            }
        }
    }
    assert!(asked >= 15, "{asked}");
}

#[test]
fn the_docs_have_each_metric() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let docs = std::fs::read_to_string(file).unwrap();
    for (name, kind, help) in names::ALL {
        assert!(
            docs.contains(&format!("| `{name}` | {kind} | {help} |\n")),
            "{name}"
        );
    }
}

#[test]
fn otlp_has_the_same_metrics() {
    let (run, card) = full();
    let source = OtlpResource {
        hostname: "sun",
        unix_ms: 1_795_221_300_123,
    };
    let told = render_otlp([run].iter(), &[card], source);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let resource = &told["resourceMetrics"][0];
    assert_eq!(
        resource["resource"]["attributes"][2],
        serde_json::json!({"key": "host.name", "value": {"stringValue": "sun"}})
    );
    let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let find = |name: &str| {
        let metric = metrics.iter().find(|metric| metric["name"] == name);
        metric.unwrap_or_else(|| panic!("{name}")).clone()
    };
    assert_eq!(
        find("sconce_run_cpu_seconds_total"),
        serde_json::json!({
            "name": "sconce_run_cpu_seconds_total", "unit": "s", "description": "CPU time of all its processes.",
            "sum": {"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [{
                "attributes": [{"key": "run", "value": {"stringValue": "digits-20261121-0034-7f3a"}}],
                "startTimeUnixNano": "1795221240000000000", "timeUnixNano": "1795221300123000000", "asDouble": 1.5,
            }]},
        })
    );
    let memory = &find("sconce_run_memory_bytes")["gauge"]["dataPoints"][0];
    assert_eq!(memory["asDouble"], 2.0);
    assert!(memory.get("startTimeUnixNano").is_none(), "{memory}");
    let limit = find("hw.gpu.memory.limit");
    assert_eq!(limit["sum"]["isMonotonic"], false);
    assert_eq!(limit["sum"]["dataPoints"][0]["asDouble"], 85_899_345_920.0);
    let energy = find("hw.energy");
    assert_eq!(energy["sum"]["isMonotonic"], true);
    assert_eq!(energy["sum"]["dataPoints"][0]["asDouble"], 5.0);
    let task = &find("hw.gpu.utilization")["gauge"]["dataPoints"][0];
    assert_eq!(task["asDouble"], 0.97);
    for name in ["hw.id", "hw.type", "hw.gpu.task"] {
        let attributes = task["attributes"].as_array().unwrap();
        assert!(attributes.iter().any(|one| one["key"] == name), "{name}");
    }
    let own = names::ALL
        .iter()
        .filter(|metric| metric.0.starts_with("sconce_"));
    own.for_each(|metric| drop(find(metric.0)));
    let text = serde_json::to_string(&told).unwrap();
    assert!(!text.contains("DCGM") && !text.contains("null"), "{text}");
}

#[test]
fn otlp_of_nothing_is_a_request() {
    let source = OtlpResource {
        hostname: "",
        unix_ms: u64::MAX,
    };
    let unknown = MachineGpuSample {
        uuid: "GPU-1".to_owned(),
        ..MachineGpuSample::default()
    };
    let told = render_otlp(std::iter::empty(), &[unknown], source);
    assert!(!told.contains("hw.") && !told.contains("null"), "{told}");
    assert_eq!(
        otlp::unit("sconce_gpu_pcie_receive_bytes_per_second"),
        "By/s"
    );
}
