//! What engines take, and what they refuse.

use super::*;
use serde_json::json;

fn file(change: impl FnOnce(&mut Value)) -> CdiSpec {
    let mut value = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
        "devices": [{ "name": "0", "containerEdits": {
            "deviceNodes": [{ "path": "/dev/nvidia0", "major": 195, "minor": 0 }] } }],
        "containerEdits": { "env": ["A=b"],
            "mounts": [{ "hostPath": "/lib/a", "containerPath": "/lib/b" }],
            "hooks": [{ "hookName": "createContainer", "path": "/bin/hook" }] } });
    change(&mut value);
    CdiSpec::from_value(&value)
}

#[test]
fn what_a_file_names() {
    let spec = file(|_| ());
    assert_eq!(spec.wrong, [""; 0]);
    assert_eq!(
        (spec.kind.as_deref(), spec.needs),
        (Some("nvidia.com/gpu"), "0.5.0")
    );
    assert_eq!(spec.devices[0].name, "0");
    let node = &spec.devices[0].edits.nodes[0];
    assert_eq!(
        (node.path.as_str(), node.number),
        ("/dev/nvidia0", Some((195, 0)))
    );
    assert_eq!(
        (spec.edits.mounts, spec.edits.hooks),
        (vec!["/lib/a".into()], vec!["/bin/hook".into()])
    );
}

#[test]
fn names_have_a_grammar() {
    for (name, fits) in [
        ("0", true),
        ("0:1", true),
        ("GPU-9221d5d1-b60b", true),
        ("all", true),
        ("a.b_c-d", true),
        ("", false),
        (":0", false),
        ("0:", false),
        ("a b", false),
        ("a\u{1b}[2J", false),
        ("../x", false),
        ("é", false),
    ] {
        assert_eq!(is_device_name(name), fits, "{name:?}");
    }
    for (kind, fits) in [
        ("nvidia.com/gpu", true),
        ("k8s.device-plugin.nvidia.com/gpu", true),
        ("nvidia.com", false),
        ("nvidia.com/", false),
        ("/gpu", false),
        ("1a.com/gpu", false),
        ("a.com/gpu/0", false),
        ("a.com/gpu=0", false),
    ] {
        let spec = file(|value| value["kind"] = kind.into());
        assert_eq!(spec.wrong.is_empty(), fits, "{kind}: {:?}", spec.wrong);
    }
}

#[test]
fn the_least_version_is_that_of_what_is_used() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 8] = [
        ("0.5.0", |_| ()),
        ("0.3.0", |v| v["devices"][0]["name"] = "a".into()),
        ("0.4.0", |v| {
            v["devices"][0]["name"] = "a".into();
            v["containerEdits"]["mounts"][0]["type"] = "bind".into();
        }),
        ("0.5.0", |v| {
            v["devices"][0]["name"] = "a".into();
            v["devices"][0]["containerEdits"]["deviceNodes"][0]["hostPath"] = "/dev/x".into();
        }),
        ("0.6.0", |v| v["annotations"] = json!({})),
        ("0.6.0", |v| v["kind"] = "nvidia.com/g.pu".into()),
        ("0.7.0", |v| {
            v["containerEdits"]["additionalGids"] = json!([44])
        }),
        ("1.1.0", |v| v["containerEdits"]["netDevices"] = json!([])),
    ];
    for (needs, change) in cases {
        let spec = file(change);
        assert_eq!(spec.needs, needs);
        // A file that says an older one is refused.
        assert_eq!(
            spec.wrong.is_empty(),
            needs <= "0.5.0",
            "{needs}: {:?}",
            spec.wrong
        );
    }
}

#[test]
fn what_engines_refuse_is_said() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 10] = [
        ("no `cdiVersion`", |v| v["cdiVersion"] = Value::Null),
        ("no released version", |v| v["cdiVersion"] = "9.0.0".into()),
        ("no `kind`", |v| v["kind"] = 3.into()),
        ("no devices", |v| v["devices"] = json!([])),
        ("two devices `0`", |v| {
            let again = v["devices"][0].clone();
            v["devices"].as_array_mut().unwrap().push(again);
        }),
        ("unknown field `links`", |v| {
            v["containerEdits"]["links"] = json!([])
        }),
        ("changes nothing", |v| {
            v["devices"][0]["containerEdits"] = json!({})
        }),
        ("NAME=VALUE", |v| v["containerEdits"]["env"] = json!(["A"])),
        ("no `hostPath`", |v| {
            v["containerEdits"]["mounts"] = json!([{"containerPath": "/a"}])
        }),
        ("`hookName`", |v| {
            v["containerEdits"]["hooks"] = json!([{"hookName": "x", "path": "/a"}])
        }),
    ];
    for (said, change) in cases {
        let wrong = file(change).wrong;
        assert!(
            wrong.iter().any(|one| one.contains(said)),
            "{said}: {wrong:?}"
        );
    }
    assert!(file(|v| v["cdiVersion"] = "v0.5.0".into()).wrong.is_empty());
    // Any value is read.
    for odd in [
        Value::Null,
        json!([]),
        json!({ "devices": [1], "containerEdits": [] }),
    ] {
        assert!(!CdiSpec::from_value(&odd).wrong.is_empty());
    }
}
