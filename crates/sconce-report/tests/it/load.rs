//! What a run waited for, from a record to the screen.

use std::path::Path;

use sconce_record::RecordReader;
use sconce_report::terminal::TerminalStyle;
use sconce_report::{RunReport, json, terminal};

const RECORD: &str = r#"{"t_us":0,"event":"started","format":2,"id":"a","unix-ms":1,"command":["x"],"folder":"/","mode":"container","sconce-pid":1,"limits":{},"host":{"hostname":"sun","kernel":"6.18","cpus":2,"memory":1024},"gpus":[{"index":0,"uuid":"GPU-0","name":"NVIDIA H100"}]}
{"t_us":1000000,"event":"sample","swap":4096,"pressure":{"cpu-some-us":200000,"memory-some-us":0,"io-some-us":3000},"received-bytes":1048576,"sent-bytes":2048,"gpus":[{"index":0,"pcie-received-bytes-per-s":1073741824,"pcie-sent-bytes-per-s":1024,"nvlink-received-bytes":0,"nvlink-sent-bytes":0,"xids":[79]}]}
{"t_us":2000000,"event":"sample","swap":0,"pressure":{"cpu-some-us":900000,"memory-some-us":0,"io-some-us":4000},"received-bytes":2097152,"sent-bytes":4096,"gpus":[{"index":0,"pcie-received-bytes-per-s":1024,"pcie-sent-bytes-per-s":2048}]}
{"t_us":2000000,"event":"ended","exit":{"code":0},"last":{}}
"#;

fn report() -> RunReport {
    let record = RecordReader::new(RECORD.as_bytes(), Path::new("events.jsonl"));
    RunReport::from_record(record.expect("it is a record"))
}

#[test]
fn the_terminal_tells_what_was_measured() {
    let style = TerminalStyle {
        color: false,
        width: 100,
    };
    let text = terminal::render_report(&report(), style);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| {
            let label = line.trim_start();
            let labels = ["waited for", "swap", "network", "links", "errors"];
            labels.iter().any(|name| label.starts_with(name))
        })
        .collect();
    assert_eq!(
        rows,
        [
            "  waited for    CPU 45 % of the time · memory 0 % · disks under 1 %",
            "  swap          4 KiB at most",
            "  network       2 MiB received · 4 KiB sent",
            "    links       PCIe at most 1 GiB/s to it, 2 KiB/s from it",
            "    errors      Xid 79 at 1.0 s",
        ]
    );
}

#[test]
fn programs_get_it_with_units() {
    let value: serde_json::Value =
        serde_json::from_str(&json::render_report(&report())).expect("JSON");
    let load = &value["load"];
    assert_eq!(load["waited_for_cpu_seconds"], 0.9);
    assert_eq!(load["stopped_for_memory_seconds"], serde_json::Value::Null);
    assert_eq!(load["peak_swap_bytes"], 4096);
    assert_eq!(
        load["links"][0]["pcie_received_peak_bytes_per_second"],
        1_073_741_824
    );
    assert_eq!(load["xids"][0]["xid"], 79);
}
