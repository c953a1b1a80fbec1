//! What the probe of a trial writes, in Python, and a forecast reads.

use sconce_memory::forecast::probe_report::ProbeReport;
use sconce_memory::forecast::training_plan::TrainingPlans;
use serde_json::Value;

use super::goldens;

/// Paths of all keys in a value, as JSON pointers; what lies in a list, by its first element.
fn keys(value: &Value, at: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let at = format!("{at}/{key}");
                keys(value, &at, into);
                into.push(at);
            }
        }
        Value::Array(list) => {
            if let Some(first) = list.first() {
                keys(first, &format!("{at}/0"), into);
            }
        }
        _ => {}
    }
}

fn without(value: &Value, key: &str) -> String {
    let mut value = value.clone();
    let (parent, name) = key.rsplit_once('/').expect("a pointer has a slash");
    let parent = value.pointer_mut(parent).expect("it was there");
    let removed = parent.as_object_mut().and_then(|map| map.remove(name));
    assert!(removed.is_some(), "{key}");
    value.to_string()
}

#[test]
fn every_key_of_a_probe_is_read() {
    let text = goldens().read_text("probe.json");
    let whole = ProbeReport::parse(&text).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let mut all = Vec::new();
    keys(&value, "", &mut all);
    assert!(all.len() > 50, "{all:?}");
    for key in all {
        let read = ProbeReport::parse(&without(&value, &key)).ok();
        assert_ne!(read.as_ref(), Some(&whole), "{key} is not read");
    }
}

#[test]
fn every_word_of_a_probe_is_read() {
    let text = goldens().read_text("probe.json");
    for ended in ["steps", "exit", "time"] {
        let text = text.replace("\"exit\"", &format!("\"{ended}\""));
        assert!(ProbeReport::parse(&text).is_ok(), "{ended}");
    }
}

/// A trial is told its plans by these names, and `--plan` and a forecast have them.
#[test]
fn plans_keep_their_names() {
    let names = [
        "bf16",
        "fp16",
        "checkpoint",
        "checkpoint=12",
        "foreach-off",
        "fused",
        "8-bit",
        "expandable",
        "offload",
        "ddp",
        "zero1",
        "zero2",
        "zero3",
    ];
    for name in names {
        let plans: TrainingPlans = name.parse().unwrap();
        assert_eq!(serde_json::to_value(&plans).unwrap(), *name);
    }
}
