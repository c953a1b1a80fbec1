//! Plans as text.

use std::fmt::Write as _;

use sconce_memory::forecast::table::{PlanFit, PlanRow, PlanTable};
use sconce_memory::forecast::training_plan::{TrainingPlan, TrainingPlans};

use crate::commands::memory::format::{format_bytes, format_signed_bytes, printable_text};
use crate::table::format_table;
use crate::text_layout::TextLayout;

/// What a plan is for.
pub(super) struct PlanCommand<'a> {
    pub(super) command: &'a [String],
    /// With the Python that is here.
    pub(super) host: bool,
}

/// The table, and for each card what to do.
pub(super) fn render_plans(plans: &PlanTable, run: &PlanCommand<'_>, page: &TextLayout) -> String {
    let mut text = String::new();
    let head = format!("Plans for the {}", plans.card);
    let _ = writeln!(text, "\n{}\n", page.style.warn(&head));
    let cells = plans
        .rows
        .iter()
        .map(|row| format_plan_cells(row, plans.flag.as_deref()));
    let rows: Vec<[String; 7]> = cells.collect();
    let heads = [
        "PLAN", "RESERVED", "ON CARD", "SAVED", "STEP", "SENT IN", "FITS",
    ];
    let shown_table = match of_ranks(plans) {
        true => format_table(heads, &rows, &page.style),
        // Where nothing is sent there is no column of it.
        false => {
            let without = |[a, b, c, d, e, _, f]: [String; 7]| [a, b, c, d, e, f];
            let rows: Vec<[String; 6]> = rows.into_iter().map(without).collect();
            let [a, b, c, d, e, _, f] = heads;
            format_table([a, b, c, d, e, f], &rows, &page.style)
        }
    };
    let _ = writeln!(text, "{shown_table}\n");
    let mut say = |said: &str| {
        let _ = writeln!(text, "  {}", page.wrap_text(said, 2, 2));
    };
    let cards = plans.rows.first().map_or(&[][..], |row| &row.cards);
    for (at, card) in cards.iter().enumerate() {
        let Some(best) = plans.fastest_fitting(at) else {
            say(&format!("{}: no plan that was tried fits", card.card));
            continue;
        };
        let doubt = match best.cards.get(at).map(|card| card.fits) {
            Some(PlanFit::NotKnown) => {
                " (what was watched fits with it; beyond that it is not known)"
            }
            _ => "",
        };
        say(&format!(
            "{}{}{doubt}: {}",
            card.card,
            step_there(best, at),
            format_how_to_apply(best, plans.flag.as_deref(), run)
        ));
        for line in format_script_lines(plans, best) {
            say(&format!("  {line}"));
        }
    }
    for row in &plans.rows {
        if let Some(why) = why_not(row) {
            let name = format_plan_name(row, plans.flag.as_deref());
            say(&format!("Not applied: {name}: {why}"));
        }
    }
    say(&format_table_note(plans));
    if of_ranks(plans) {
        say(SENT_IN);
    }
    text
}

/// Whether something is sent between ranks.
pub(super) fn of_ranks(plans: &PlanTable) -> bool {
    plans.rows.iter().any(|row| row.exchange_ms.is_some())
}

/// What that column is.
pub(super) const SENT_IN: &str = "SENT IN is what this rank sends and receives in a step, at the rate of NVLink \
    (450 GB/s) or the bus within a machine, and of an adapter (50 GB/s a card, 12.5 without NVLink) between \
    machines; STEP takes all of it to go on beside the rest. A script of one process has its own batch in \
    each rank.";

/// What does the same in the script.
pub(super) fn format_script_lines(plans: &PlanTable, best: &PlanRow) -> Vec<String> {
    let named: TrainingPlans = best.plan.parse().unwrap_or_default();
    // What divides stands on top of what makes ranks of one process.
    let begun = |plan: &TrainingPlan| plan.is_of_ranks() && *plan != TrainingPlan::Ddp;
    let plain = plans.rows.first().and_then(|row| row.plan.parse().ok());
    let ranks = plain.and_then(|plain: TrainingPlans| plain.of_ranks());
    let ranks = ranks.filter(|_| named.iter().any(|plan| begun(&plan)));
    let all = ranks.into_iter().chain(named.iter());
    all.map(|plan| format!("{plan}: {}", plan.code_lines()))
        .collect()
}

/// How the table came to be.
pub(super) fn format_table_note(plans: &PlanTable) -> String {
    let cards = plans.rows.first().map_or(0, |row| row.cards.len());
    format!(
        "Each plan was run on the virtual {}{}. STEP is an estimate: what the step's products and bytes \
         take at least at the card's rates; it is for comparing.",
        plans.card,
        match cards {
            1 => "",
            _ => ", and the one that is named for a card on that card too",
        }
    )
}

/// What a step takes on a card; nothing of the only one, which the table tells.
pub(super) fn step_there(best: &PlanRow, card: usize) -> String {
    let ms = best.cards.get(card).and_then(|card| card.step_ms);
    match ms.filter(|_| best.cards.len() > 1) {
        Some(ms) => format!(", a step in {}", milliseconds(ms)),
        None => String::new(),
    }
}

/// How to train with it from outside; what follows are the lines that do the same inside.
pub(super) fn format_how_to_apply(
    row: &PlanRow,
    flag: Option<&str>,
    run: &PlanCommand<'_>,
) -> String {
    let flagged = match (row.value, flag) {
        (Some(value), Some(flag)) => {
            format!(", with {} {value} in the command", printable_text(flag))
        }
        _ => String::new(),
    };
    match (&row.lines, row.plan.is_empty()) {
        (Some(_), _) => format!("these lines in the script{flagged}"),
        (None, true) => format!("the plan is its flag alone{flagged}"),
        (None, false) => format!(
            "{}{flagged}; or in the script",
            format_run_command(row, run)
        ),
    }
}

/// The command that trains with it.
pub(super) fn format_run_command(row: &PlanRow, run: &PlanCommand<'_>) -> String {
    let words: String = run
        .command
        .iter()
        .map(|word| format!(" {}", printable_text(word)))
        .collect();
    // The spec's own command needs no words.
    let dashes = if words.is_empty() { "" } else { " --" };
    let host = if run.host { " --host" } else { "" };
    format!("sconce run{host} --plan {}{dashes}{words}", row.plan)
}

/// Why a plan was not applied; the reason may begin with its name.
pub(super) fn why_not(row: &PlanRow) -> Option<String> {
    let why = row.failed.as_deref()?;
    let why = why.strip_prefix(&format!("{}: ", row.plan)).unwrap_or(why);
    Some(printable_text(why))
}

pub(super) fn format_plan_name(row: &PlanRow, flag: Option<&str>) -> String {
    match (row.value, flag, row.plan.is_empty()) {
        (Some(value), Some(flag), true) => format!("{flag} {value}"),
        (Some(value), Some(flag), false) => format!("{}, {flag} {value}", row.plan),
        (_, _, true) => "as it is".to_owned(),
        _ => row.plan.clone(),
    }
}

pub(super) fn format_plan_cells(row: &PlanRow, flag: Option<&str>) -> [String; 7] {
    let or_none = |bytes: Option<u64>| bytes.map_or("–".to_owned(), format_bytes);
    let is_plan = !row.plan.is_empty() || row.value.is_some();
    let saved = row.saved_bytes.filter(|_| is_plan);
    [
        format_plan_name(row, flag),
        or_none(row.reserved_bytes),
        or_none(row.on_card_bytes),
        saved.map_or("–".to_owned(), |bytes| format_signed_bytes(bytes.into())),
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
    let word = |fits: PlanFit| match fits {
        PlanFit::Yes => "yes",
        PlanFit::Perhaps => "perhaps",
        PlanFit::Tight => "just so",
        PlanFit::NotKnown => "not known",
        PlanFit::No => "no",
    };
    if row.failed.is_some() {
        return "–".to_owned();
    }
    match row.cards.as_slice() {
        [one] => word(one.fits).to_owned(),
        cards if cards.iter().all(|card| card.fits == PlanFit::Yes) => "all".to_owned(),
        cards => {
            let does = cards.iter().filter(|card| card.fits != PlanFit::No);
            let named = does.map(|card| match card.fits {
                PlanFit::Yes => card.card.clone(),
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
