//! `sconce lease list`: who has what, and who waits.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use sconce_host::{GpuMonitor as _, Roots, process_owner};
use sconce_lease::{
    LeaseGpu, LeaseSummary, Overview, QueueEntry, UnleasedProcess, list_unleased_processes,
    user_by_uid,
};
use sconce_schema::exit;

use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::lease_client::{self, LeaseClient};

const MISSING: &str = "–";

pub(super) fn list_leases(json: bool, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let (host, nvml) = lease_client::read_host_profile();
    let loaded = nvml
        .as_ref()
        .map(|nvml| nvml as &dyn sconce_host::GpuMonitor);
    let cards = lease_client::list_lease_gpus(&host, loaded);
    let overview = LeaseClient::open(&places.leases, cards)?.query_overview()?;
    let roots = Roots::default();
    let keys: BTreeMap<u32, String> = overview
        .cards
        .iter()
        .map(|card| (card.index, card.key.clone()))
        .collect();
    let samples: Vec<_> = nvml
        .iter()
        .flat_map(|nvml| keys.keys().map(|&index| nvml.sample(index)))
        .collect();
    let who = |pid| process_owner::read_owner(&roots, pid).map(|owner| (owner.uid, owner.command));
    let parents = |pid| process_owner::list_ancestors(&roots, pid);
    let outside = list_unleased_processes(&samples, &overview.leases, &keys, &who, &parents);
    output::write_data(&if json {
        as_json(&overview, &outside)
    } else {
        let name = |uid| user_by_uid(uid).name;
        as_text(&overview, &outside, &name, &OutputStyle::for_stdout())
    })?;
    Ok(exit::OK)
}

fn as_json(overview: &Overview, outside: &[UnleasedProcess]) -> String {
    let mut value = serde_json::to_value(overview).unwrap_or_default();
    value["outside"] = serde_json::to_value(outside).unwrap_or_default();
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

fn as_text(
    overview: &Overview,
    outside: &[UnleasedProcess],
    name: &dyn Fn(u32) -> String,
    style: &OutputStyle,
) -> String {
    let mut parts = Vec::new();
    if overview.cards.is_empty() && overview.leases.is_empty() {
        parts.push("this machine has no card that could be leased".to_owned());
    } else {
        let rows: Vec<_> = card_rows(overview);
        parts.push(format_table(
            ["CARD", "NAME", "HOLDER", "LEASE", "LEFT", ""],
            &rows,
            style,
        ));
    }
    if !overview.queue.is_empty() {
        let rows: Vec<_> = overview
            .queue
            .iter()
            .map(|waiting| {
                [
                    waiting.place.to_string(),
                    waiting.user.clone(),
                    waiting.id.to_string(),
                    waiting.cards.to_string(),
                    waiting
                        .for_s
                        .map_or_else(|| MISSING.to_owned(), format_duration),
                    format_duration(overview.now_s.saturating_sub(waiting.asked_s)),
                    waiting.start_s.map_or_else(
                        || MISSING.to_owned(),
                        |start| format!("in {}", left(start.saturating_sub(overview.now_s))),
                    ),
                    waiting
                        .why
                        .as_ref()
                        .map_or_else(|| MISSING.to_owned(), ToString::to_string),
                ]
            })
            .collect();
        let heads = [
            "PLACE",
            "USER",
            "LEASE",
            "CARDS",
            "FOR",
            "WAITED",
            "EXPECTED START",
            "WHY",
        ];
        parts.push(format_table(heads, &rows, style));
    }
    let mut notes = Vec::new();
    for process in outside {
        let (card, pid, memory) = (process.card, process.pid, process.memory);
        let (user, command) = (name(process.uid), &process.command);
        let lease = match process.lease {
            Some(lease) => format!("in the way of lease {lease}"),
            None => "without a lease".to_owned(),
        };
        let line =
            format!("card {card}: process {pid} ({command}) of {user} holds {memory} {lease}");
        notes.push(style.warn(&tame(&line)));
    }
    notes.extend(
        overview
            .remarks
            .iter()
            .map(|remark| style.dim(&tame(remark))),
    );
    if !notes.is_empty() {
        parts.push(notes.join("\n"));
    }
    parts.join("\n\n")
}

/// One row a card; a lost one that somebody holds has its own.
fn card_rows(overview: &Overview) -> Vec<[String; 6]> {
    let row = |index: String, name: String, lease: Option<&LeaseSummary>, lost: bool| {
        let missing = || MISSING.to_owned();
        let time_left = |lease: &LeaseSummary| match lease.until_s {
            Some(until) => left(until.saturating_sub(overview.now_s)),
            None => "while it runs".to_owned(),
        };
        let mut remark = Vec::new();
        if lost {
            remark.push("the card does not answer".to_owned());
        }
        if let Some(idle) = lease.and_then(|lease| lease.idle_s) {
            let warned = lease.is_some_and(|lease| lease.warned);
            let then = if warned { ", will be taken back" } else { "" };
            remark.push(format!("unused for {}{then}", format_duration(idle)));
        }
        [
            index,
            name,
            lease.map_or_else(|| "free".to_owned(), |lease| lease.user.clone()),
            lease.map_or_else(missing, |lease| lease.id.to_string()),
            lease.map_or_else(missing, time_left),
            remark.join("; "),
        ]
    };
    let holder = |key: &String| overview.leases.iter().find(|l| l.cards.contains(key));
    let present = overview.cards.iter().map(|card| {
        row(
            card.index.to_string(),
            describe(card),
            holder(&card.key),
            false,
        )
    });
    let lost = overview.leases.iter().flat_map(|lease| {
        let lost = lease.lost.iter();
        lost.map(move |key| row(MISSING.to_owned(), key.clone(), Some(lease), true))
    });
    present.chain(lost).collect()
}

fn describe(card: &LeaseGpu) -> String {
    let name = card.name.as_deref().unwrap_or(MISSING);
    match card.memory {
        Some(memory) => format!("{name}, {memory}"),
        None => name.to_owned(),
    }
}

/// Names of processes and reasons are anyone's text.
fn tame(text: &str) -> String {
    sconce_base::text::to_printable(text, 200)
}

/// `3 h 20 min`; the shortest that says enough.
pub(super) fn format_duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, 0) => format!("{hours} h"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, 0, _) => format!("{days} d"),
        _ => format!("{days} d {hours} h"),
    }
}

/// As [`format_duration`], of a time that is still to come: what was 1 h a second ago is not 59 min.
fn left(seconds: u64) -> String {
    match seconds {
        0..60 => format_duration(seconds),
        _ => format_duration(seconds.next_multiple_of(60)),
    }
}

fn in_words(start_s: Option<u64>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |now| now.as_secs());
    match start_s {
        Some(start) if start <= now_s => "expected to start now".to_owned(),
        Some(start) => format!("expected to start in {}", left(start - now_s)),
        None => "no start can be told".to_owned(),
    }
}

/// What is said of a place in the queue.
pub(crate) fn format_queue_position(waiting: &QueueEntry) -> String {
    let (place, start) = (waiting.place, in_words(waiting.start_s));
    let why = waiting.why.as_ref().map_or_else(String::new, |why| {
        // A window's reason is the owner's text.
        format!(": {}", tame(&why.to_string()))
    });
    format!("waiting for cards: place {place} in the queue, {start}{why}")
}

/// What is said to whoever does not wait.
pub(super) fn format_expected_start(start_s: Option<u64>) -> String {
    format!("with --wait: {}", in_words(start_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_lease::WaitReason;
    use sconce_schema::Bytes;

    #[test]
    fn spans() {
        let said = [0, 59, 60, 3_599, 3_600, 12_000, 86_400, 100_000].map(format_duration);
        let expected = [
            "0 s",
            "59 s",
            "1 min",
            "59 min",
            "1 h",
            "3 h 20 min",
            "1 d",
            "1 d 3 h",
        ];
        assert_eq!(said, expected);
        let said = [59, 60, 3_541, 3_599, 3_601, 86_399].map(left);
        let expected = ["59 s", "1 min", "1 h", "1 h", "1 h 1 min", "1 d"];
        assert_eq!(said, expected);
    }

    #[test]
    fn all_see_who_has_what() {
        let card = |index: u32| LeaseGpu {
            key: format!("k{index}"),
            index,
            name: Some("NVIDIA L4".to_owned()),
            memory: Some(Bytes::from_gib(24)),
        };
        let lease = |id, user: &str, cards: &[&str], until_s, idle_s| LeaseSummary {
            id,
            uid: 1000,
            user: user.to_owned(),
            cards: cards.iter().map(|&card| card.to_owned()).collect(),
            lost: cards
                .iter()
                .filter(|c| **c == "k9")
                .map(|&c| c.to_owned())
                .collect(),
            since_s: 0,
            until_s,
            pid: None,
            idle_s,
            warned: idle_s.is_some(),
        };
        let overview = Overview {
            format: 1,
            now_s: 1_000,
            cards: vec![card(0), card(1), card(2)],
            leases: vec![
                lease(3, "anna", &["k0", "k9"], Some(13_000), None),
                lease(4, "bo\x1b[2J", &["k1"], None, Some(2_400)),
            ],
            queue: vec![QueueEntry {
                id: 5,
                uid: 1001,
                user: "cai".to_owned(),
                cards: 3,
                for_s: Some(7_200),
                place: 1,
                start_s: None,
                asked_s: 700,
                why: Some(WaitReason::Limit {
                    user: "cai".to_owned(),
                    held: 1,
                    asked: 0,
                    limit: 3,
                }),
            }],
            remarks: vec!["maintenance in 3 h: new driver".to_owned()],
            given_up: Vec::new(),
        };
        let outside = [UnleasedProcess {
            card: 2,
            pid: 812,
            uid: 1002,
            command: "python".to_owned(),
            memory: Bytes::from_gib(10),
            lease: None,
        }];
        let name = |_| "dana".to_owned();
        crate::golden::goldens().assert_same("lease-list.json", as_json(&overview, &outside));
        let text = as_text(&overview, &outside, &name, &OutputStyle { color: false });
        insta::assert_snapshot!(text, @"
        CARD  NAME               HOLDER  LEASE  LEFT
        0     NVIDIA L4, 24 GiB  anna    3      3 h 20 min
        1     NVIDIA L4, 24 GiB  bo [2J  4      while it runs  unused for 40 min, will be taken back
        2     NVIDIA L4, 24 GiB  free    –      –
        –     k9                 anna    3      3 h 20 min     the card does not answer

        PLACE  USER  LEASE  CARDS  FOR  WAITED  EXPECTED START  WHY
        1      cai   5      3      2 h  5 min   –               cai holds 1 of the 3 that cai may hold at once

        card 2: process 812 (python) of dana holds 10 GiB without a lease
        maintenance in 3 h: new driver
        ");
    }
}
