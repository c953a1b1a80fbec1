//! Findings, as `check --json` and its like print them.

use sconce_schema::Finding;
use sconce_schema::finding::{Certainty, Evidence, Fix, FixAction, Severity};

use super::{goldens, json};

#[test]
fn full_finding_is_written_as_before_and_read_back() {
    let mend = |action| Fix {
        what: "install a newer driver".into(),
        action,
    };
    let finding = Finding {
        code: "driver-too-old".into(),
        weight: Severity::Fails,
        certainty: Certainty::Certain,
        what: "the driver is too old for CUDA 13.2".into(),
        subject: Some("GPU 0".into()),
        evidence: vec![Evidence {
            source: "/proc/driver/nvidia/version".into(),
            place: Some("line 1".into()),
            value: "570.10.01".into(),
        }],
        error_text: Some("CUDA driver version is insufficient".into()),
        mends: vec![
            mend(None),
            mend(Some(FixAction::Variable {
                name: "NCCL_P2P_DISABLE".into(),
                value: Some("1".into()),
            })),
        ],
    };
    let text = json(&finding);
    goldens().assert_same("findings.json", &text);
    assert_eq!(serde_json::from_str::<Finding>(&text).unwrap(), finding);
}
