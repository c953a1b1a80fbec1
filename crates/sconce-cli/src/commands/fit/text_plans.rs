//! Plans as text.

use std::fmt::Write as _;

use sconce_memory::forecast::plan::{Plan, Plans};
use sconce_memory::forecast::table::{Fits, PlanRow, PlanTable};

use crate::commands::memory::words::{shown, signed, size};
use crate::page::Page;
use crate::table::table;

/// What a plan is for.
pub(super) struct Run<'a> {
    pub(super) command: &'a [String],
    /// With the Python that is here.
    pub(super) host: bool,
}

/// The table, and for each card what to do.
pub(super) fn plans(plans: &PlanTable, run: &Run<'_>, page: &Page) -> String {
    let mut text = String::new();
    let head = format!("Plans for the {}", plans.card);
    let _ = writeln!(text, "\n{}\n", page.style.warn(&head));
    let cells = plans
        .rows
        .iter()
        .map(|row| cells(row, plans.flag.as_deref()));
    let rows: Vec<[String; 7]> = cells.collect();
    let heads = [
        "PLAN", "RESERVED", "ON CARD", "SAVED", "STEP", "SENT IN", "FITS",
    ];
    let of_ranks = plans.rows.iter().any(|row| row.exchange_ms.is_some());
    let shown_table = match of_ranks {
        true => table(heads, &rows, &page.style),
        // Where nothing is sent there is no column of it.
        false => {
            let without = |[a, b, c, d, e, _, f]: [String; 7]| [a, b, c, d, e, f];
            let rows: Vec<[String; 6]> = rows.into_iter().map(without).collect();
            let [a, b, c, d, e, _, f] = heads;
            table([a, b, c, d, e, f], &rows, &page.style)
        }
    };
    let _ = writeln!(text, "{shown_table}\n");
    let mut say = |said: &str| {
        let _ = writeln!(text, "  {}", page.wrapped(said, 2, 2));
    };
    let cards = plans.rows.first().map_or(&[][..], |row| &row.cards);
    for (at, card) in cards.iter().enumerate() {
        let Some(best) = plans.best(at) else {
            say(&format!("{}: no plan that was tried fits", card.card));
            continue;
        };
        say(&format!(
            "{}: {}",
            card.card,
            applied(best, plans.flag.as_deref(), run)
        ));
        let named: Plans = best.plan.parse().unwrap_or_default();
        // What divides stands on top of what makes ranks of one process.
        let begun = |plan: &Plan| plan.is_of_ranks() && *plan != Plan::Ddp;
        let plain = plans.rows.first().and_then(|row| row.plan.parse().ok());
        let ranks = plain.and_then(|plain: Plans| plain.of_ranks());
        for plan in ranks
            .filter(|_| named.iter().any(|plan| begun(&plan)))
            .into_iter()
            .chain(named.iter())
        {
            say(&format!("  {plan}: {}", plan.lines()));
        }
    }
    for row in plans.rows.iter().filter(|row| row.failed.is_some()) {
        let why = row.failed.as_deref().unwrap_or_default();
        // The reason may begin with the plan's name.
        let why = why.strip_prefix(&format!("{}: ", row.plan)).unwrap_or(why);
        let name = name(row, plans.flag.as_deref());
        say(&format!("Not applied: {name}: {}", shown(why)));
    }
    say(&format!(
        "Each plan was run on the virtual {}{}. STEP is an estimate: what the step's products and bytes \
         take at least at the card's rates; it is for comparing.",
        plans.card,
        match cards.len() {
            1 => "",
            _ => ", and the one that is named for a card on that card too",
        }
    ));
    if of_ranks {
        say(
            "SENT IN is what this rank sends and receives in a step, at the rate of NVLink (450 GB/s) or the \
             bus within a machine, and of an adapter (50 GB/s a card, 12.5 without NVLink) between \
             machines; STEP takes all of it to go on beside the rest. A script of one process has its own \
             batch in each rank.",
        );
    }
    text
}

/// How to train with it from outside; what follows are the lines that do the same inside.
fn applied(row: &PlanRow, flag: Option<&str>, run: &Run<'_>) -> String {
    let flagged = match (row.value, flag) {
        (Some(value), Some(flag)) => format!(", with {} {value} in the command", shown(flag)),
        _ => String::new(),
    };
    match (&row.lines, row.plan.is_empty()) {
        (Some(_), _) => format!("these lines in the script{flagged}"),
        (None, true) => format!("the plan is its flag alone{flagged}"),
        (None, false) => {
            let words: Vec<String> = run.command.iter().map(|word| shown(word)).collect();
            let words = words.join(" ");
            let host = if run.host { " --host" } else { "" };
            format!(
                "sconce run{host} --plan {} -- {words}{flagged}; or in the script",
                row.plan
            )
        }
    }
}

fn name(row: &PlanRow, flag: Option<&str>) -> String {
    match (row.value, flag, row.plan.is_empty()) {
        (Some(value), Some(flag), true) => format!("{flag} {value}"),
        (Some(value), Some(flag), false) => format!("{}, {flag} {value}", row.plan),
        (_, _, true) => "as it is".to_owned(),
        _ => row.plan.clone(),
    }
}

fn cells(row: &PlanRow, flag: Option<&str>) -> [String; 7] {
    let or_none = |bytes: Option<u64>| bytes.map_or("–".to_owned(), size);
    let is_plan = !row.plan.is_empty() || row.value.is_some();
    let saved = row.saved_bytes.filter(|_| is_plan);
    [
        name(row, flag),
        or_none(row.reserved_bytes),
        or_none(row.on_card_bytes),
        saved.map_or("–".to_owned(), |bytes| signed(bytes.into())),
        row.step_ms.map_or("–".to_owned(), milliseconds),
        row.exchange_ms.map_or("–".to_owned(), milliseconds),
        fits(row),
    ]
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 10_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", ms / 1000.0),
    }
}

/// Of one card whether it fits, of several on which.
fn fits(row: &PlanRow) -> String {
    let word = |fits: Fits| match fits {
        Fits::Yes => "yes",
        Fits::Perhaps => "perhaps",
        Fits::Tight => "just so",
        Fits::No => "no",
    };
    if row.failed.is_some() {
        return "–".to_owned();
    }
    match row.cards.as_slice() {
        [one] => word(one.fits).to_owned(),
        cards if cards.iter().all(|card| card.fits == Fits::Yes) => "all".to_owned(),
        cards => {
            let does = cards.iter().filter(|card| card.fits != Fits::No);
            let named = does.map(|card| match card.fits {
                Fits::Yes => card.card.clone(),
                fits => format!("{} {}", card.card, word(fits)),
            });
            let named: Vec<String> = named.collect();
            match named.is_empty() {
                true => "no".to_owned(),
                false => named.join(", "),
            }
        }
    }
}
