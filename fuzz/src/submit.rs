//! What a scheduler says: Slurm's lists of nodes and its tables of jobs, in which other users' text may stand.

use sconce_base::text::is_unprintable;
use sconce_submit::{JobRow, MAX_NODES, expand_node_list, parse_sacct, parse_squeue};

use crate::bytes::text;

pub(crate) fn node_list(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match expand_node_list(text) {
        Ok(names) => {
            assert!(names.len() <= MAX_NODES);
            // Each is a word of a program's arguments, and a list of itself.
            for name in names.iter().take(64) {
                assert!(!name.starts_with('-'), "{name}");
                assert_eq!(expand_node_list(name).as_ref(), Ok(&vec![name.clone()]));
            }
        }
        Err(error) => assert!(!error.to_string().contains(is_unprintable)),
    }
}

pub(crate) fn node_list_seeds() -> Vec<Vec<u8>> {
    [
        "n[1-3,7],gpu-a[08-11]-ib,login",
        "r[1-2]n[01-02]",
        "n[098-101]",
        "",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn squeue(data: &[u8]) {
    if let Some(text) = text(data) {
        check(parse_squeue(text).unwrap_or_default());
    }
}

pub(crate) fn squeue_seeds() -> Vec<Vec<u8>> {
    [
        "3\u{1f}COMPLETED\u{1f}None\u{1f}n2\u{1f}0\u{1f}1795815403\u{1f}1795815403\u{1f}0\u{1f}a|b\nc\u{1f}d\u{1e}\n",
        "23\u{1f}PENDING\u{1f}ReqNodeNotAvail, UnavailableNodes:n1\u{1f}\u{1f}0\u{1f}N/A\u{1f}N/A\u{1f}2\u{1f}(null)\u{1e}\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn sacct(data: &[u8]) {
    if let Some(text) = text(data) {
        check(parse_sacct(text).unwrap_or_default());
    }
}

pub(crate) fn sacct_seeds() -> Vec<Vec<u8>> {
    vec![
        "7\u{1f}CANCELLED by 1000\u{1f}n[1-2]\u{1f}0:15\u{1f}1795815403\u{1f}Unknown\u{1f}sconce:t\nmore\n"
            .as_bytes()
            .to_vec(),
    ]
}

/// A terminal obeys nothing of it, and a job that goes on has not ended.
fn check(rows: Vec<JobRow>) {
    for row in rows {
        let status = row.status;
        let reason = status
            .reason
            .iter()
            .flat_map(|reason| [&reason.raw, &reason.text]);
        for text in status.nodes.iter().chain(reason).chain([&row.comment]) {
            assert!(!text.contains(is_unprintable), "{text:?}");
        }
        assert!(!status.state.name().contains(is_unprintable));
        assert!(status.state.is_final() || status.exit.is_none());
    }
}
