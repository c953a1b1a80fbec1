//! A forecast as a page.

use sconce_memory::analysis::purpose::Purpose;
use sconce_memory::forecast::table::PlanTable;
use sconce_memory::forecast::{FitOutcome, Forecast, GpuForecast, PeakBreakdown};

use super::text_plans::{self, PlanCommand};
use super::{inconclusive, text};
use crate::commands::memory::format::{
    format_bytes, format_certainty, format_count, format_location, format_percent, frame_of,
    printable_text,
};
use crate::html::{BarSegment, Html};

/// Rows of a list.
const MAX_ROWS: usize = 40;

/// The page.
pub(super) fn render_page(forecast: &Forecast, host: bool) -> String {
    let mut html = Html::default();
    let words: Vec<String> = forecast
        .command
        .iter()
        .map(|word| printable_text(word))
        .collect();
    html.push_markup("<pre>")
        .push_text(&words.join(" "))
        .push_markup("</pre>\n");
    html.push_markup("<div class=\"cards\">\n");
    for card in &forecast.cards {
        of_card(&mut html, card);
    }
    html.push_markup("</div>\n")
        .push_list(&text::format_gpu_notes(&forecast.cards));
    if let Some(made) = &forecast.made {
        peak(&mut html, made, forecast.cards.len() > 1);
    }
    let run = PlanCommand {
        command: &forecast.command,
        host,
    };
    for table in &forecast.plans {
        plans(&mut html, table, &run);
    }
    let unknown = inconclusive::format_reasons(&forecast.cards, forecast.steps);
    if !unknown.is_empty() {
        html.push_element("h2", "Why it is not known")
            .push_list(&unknown);
    }
    html.push_element("h2", "How sure");
    let doubts: Vec<String> = forecast.doubts.iter().map(text::format_caveat).collect();
    html.push_list(&doubts);
    let reads: Vec<String> = forecast
        .deciding_reads()
        .map(text::format_value_read)
        .collect();
    if !reads.is_empty() {
        html.push_element("h3", "What hangs on values")
            .push_list(&reads);
    }
    html.render_page("Will it fit", &text::format_headline(forecast))
}

fn of_card(html: &mut Html, card: &GpuForecast) {
    let (class, fits) = match card.verdict {
        FitOutcome::Fits => ("<p class=\"verdict yes\">", "fits"),
        FitOutcome::Tight => ("<p class=\"verdict just\">", "fits just so"),
        FitOutcome::DoesNotFit => ("<p class=\"verdict no\">", "does not fit"),
        FitOutcome::NotKnown => ("<p class=\"verdict just\">", "not known"),
    };
    let open = matches!(card.verdict, FitOutcome::Tight | FitOutcome::NotKnown);
    let margin = card.margin_bytes.filter(|_| !open);
    let margin = margin.map(|bytes| (bytes, format_bytes(bytes.unsigned_abs())));
    let margin = match margin {
        Some((0.., left)) if card.verdict == FitOutcome::Fits => format!(", {left} left"),
        Some((..0, short)) => format!(", {short} short"),
        _ => String::new(),
    };
    let said = format!("{fits}{margin}");
    html.push_markup("<article class=\"card\">")
        .push_element("h3", &card.card);
    html.push_markup(class)
        .push_text(&said)
        .push_markup("</p>\n");
    let parts = parts(card);
    let shown = format!("{}: {said}", card.card);
    html.push_bar(&parts, card.total_bytes, &shown)
        .push_legend(&parts);
    let or_none = |bytes: Option<u64>| bytes.map_or("–".to_owned(), format_bytes);
    html.push_markup("<dl class=\"figures\">\n");
    for (name, figure) in [
        ("allocated", or_none(card.allocated_bytes)),
        ("reserved", or_none(card.reserved_bytes)),
        ("on card", or_none(card.on_card_bytes)),
        ("memory of the card", format_bytes(card.total_bytes)),
    ] {
        html.push_element("dt", name).push_element("dd", &figure);
    }
    html.push_markup("</dl>\n</article>\n");
}

/// What the card is filled with; nothing where that is not known.
fn parts(card: &GpuForecast) -> Vec<BarSegment> {
    let (Some(allocated), Some(reserved)) = (card.allocated_bytes, card.reserved_bytes) else {
        return Vec::new();
    };
    let nccl = card.nccl.as_ref().map_or(0, |nccl| nccl.bytes);
    let all = [
        ("allocated", "allocated", allocated),
        (
            "free",
            "reserved beside it",
            reserved.saturating_sub(allocated),
        ),
        ("context", "CUDA context", card.context_bytes),
        ("communication", "NCCL's buffers", nccl),
        ("workspace", "libraries", card.libraries_bytes),
    ];
    let part = |(colour, name, bytes): (&'static str, &str, u64)| BarSegment {
        colour,
        name: name.to_owned(),
        bytes,
    };
    all.into_iter().map(part).collect()
}

fn colour(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Parameters => "parameters",
        Purpose::Buffers => "buffers",
        Purpose::Gradients => "gradients",
        Purpose::OptimizerState => "optimizer",
        Purpose::Activations => "activations",
        Purpose::Temporary => "temporary",
        Purpose::Communication => "communication",
        Purpose::Workspace => "workspace",
        Purpose::Other => "other",
    }
}

fn peak(html: &mut Html, made: &PeakBreakdown, several: bool) {
    let head = text::peak_head(made, several);
    html.push_element("h2", &head);
    let moment = &made.moment;
    let mut parts = Vec::new();
    for group in text::merge_by_purpose(&moment.purposes) {
        let doubt = match format_certainty(group.certainty) {
            "" => String::new(),
            sure => format!(" ({sure})"),
        };
        parts.push(BarSegment {
            colour: colour(group.purpose),
            name: format!("{}{doubt}", text::format_purpose(group.purpose)),
            bytes: group.bytes,
        });
    }
    let rounding = made.allocated_bytes.saturating_sub(moment.filled.bytes);
    let cached = made.reserved_bytes.saturating_sub(made.allocated_bytes);
    let rest = [
        ("rounding", "lost to rounding of blocks", rounding),
        (
            "free",
            "reserved and not allocated: cached, or in pieces",
            cached,
        ),
    ];
    parts.extend(rest.map(|(colour, name, bytes)| BarSegment {
        colour,
        name: name.to_owned(),
        bytes,
    }));
    html.push_markup("<div class=\"peak\">")
        .push_bar(&parts, made.reserved_bytes, &head)
        .push_markup("</div>\n")
        .push_legend(&parts);
    let whole = made.reserved_bytes;
    let rows: Vec<[String; 3]> = parts
        .iter()
        .map(|part| {
            [
                format_bytes(part.bytes),
                format_percent(part.bytes, whole),
                part.name.clone(),
            ]
        })
        .collect();
    html.push_table(["#Size", "#Of reserved", "What for"], &rows);
    html.push_element("h3", "By line");
    html.push_markup("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Size</th>")
        .push_markup("<th scope=\"col\" class=\"number\">Of reserved</th><th scope=\"col\">Where</th></tr></thead>\n<tbody>\n");
    for group in moment.filled.places.iter().take(MAX_ROWS) {
        html.push_markup("<tr><td class=\"number\">")
            .push_text(&format_bytes(group.bytes));
        html.push_markup("</td><td class=\"number\">")
            .push_text(&format_percent(group.bytes, whole));
        html.push_markup("</td><td>");
        let place = format_location(group.place.as_ref());
        if group.stack.is_empty() {
            html.push_text(&place);
        } else {
            html.push_markup("<details><summary><code>")
                .push_text(&place)
                .push_markup("</code></summary><pre>");
            let frames: Vec<String> = group.stack.iter().map(|frame| frame_of(frame)).collect();
            html.push_text(&frames.join("\n"))
                .push_markup("</pre></details>");
        }
        html.push_markup("</td></tr>\n");
    }
    html.push_markup("</tbody></table></div>\n");
    let more = moment.filled.places.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        html.push_element(
            "p",
            &format!("and {}", format_count(more as u64, "other line")),
        );
    }
    let modules = moment.filled.modules.iter();
    let modules = modules.filter_map(|one| Some((one.module.as_ref()?, one.bytes)));
    let rows: Vec<[String; 3]> = modules
        .take(MAX_ROWS)
        .map(|(module, bytes)| {
            [
                format_bytes(bytes),
                format_percent(bytes, whole),
                printable_text(module),
            ]
        })
        .collect();
    if !rows.is_empty() {
        html.push_element("h3", "By module")
            .push_table(["#Size", "#Of reserved", "Module"], &rows);
    }
}

fn plans(html: &mut Html, table: &PlanTable, run: &PlanCommand<'_>) {
    html.push_element("h2", &format!("Plans for the {}", table.card));
    let cards = table.rows.first().map_or(&[][..], |row| &row.cards);
    let flag = table.flag.as_deref();
    let best: Vec<_> = (0..cards.len())
        .filter_map(|at| table.fastest_fitting(at))
        .collect();
    let most = table
        .rows
        .iter()
        .filter_map(|row| row.on_card_bytes)
        .max()
        .unwrap_or(0);
    let of_ranks = text_plans::of_ranks(table);
    html.push_markup("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">Plan</th>")
        .push_markup("<th scope=\"col\" class=\"number\">Reserved</th><th scope=\"col\" class=\"number\">On card</th><th scope=\"col\" class=\"meter\"></th>")
        .push_markup("<th scope=\"col\" class=\"number\">Saved</th><th scope=\"col\" class=\"number\">Step</th>")
        .push_markup(if of_ranks { "<th scope=\"col\" class=\"number\">Sent in</th>" } else { "" })
        .push_markup("<th scope=\"col\">Fits</th></tr></thead>\n<tbody>\n");
    for row in &table.rows {
        let [name, reserved, on_card, saved, step, sent, fits] =
            text_plans::format_plan_cells(row, flag);
        let chosen = best.iter().any(|best| std::ptr::eq(*best, row));
        html.push_markup(if chosen {
            "<tr class=\"best\"><td>"
        } else {
            "<tr><td>"
        });
        html.push_text(&name)
            .push_markup("</td><td class=\"number\">")
            .push_text(&reserved);
        html.push_markup("</td><td class=\"number\">")
            .push_text(&on_card);
        html.push_markup("</td><td class=\"meter\">");
        if let Some(bytes) = row.on_card_bytes {
            let part = BarSegment {
                colour: "allocated",
                name: String::new(),
                bytes,
            };
            html.push_bar(&[part], most, &format!("{on_card} on card"));
        }
        html.push_markup("</td><td class=\"number\">")
            .push_text(&saved);
        html.push_markup("</td><td class=\"number\">")
            .push_text(&step);
        if of_ranks {
            html.push_markup("</td><td class=\"number\">")
                .push_text(&sent);
        }
        html.push_markup("</td><td>")
            .push_text(&fits)
            .push_markup("</td></tr>\n");
    }
    html.push_markup("</tbody></table></div>\n");
    for (at, card) in cards.iter().enumerate() {
        let Some(best) = table.fastest_fitting(at) else {
            html.push_element("h3", &card.card)
                .push_element("p", "No plan that was tried fits.");
            continue;
        };
        let there = text_plans::step_there(best, at);
        html.push_element("h3", &format!("{}: what to do{there}", card.card));
        if best.lines.is_none() && !best.plan.is_empty() {
            html.push_markup("<pre>")
                .push_text(&text_plans::format_run_command(best, run))
                .push_markup("</pre>\n");
        }
        if let (Some(value), Some(flag)) = (best.value, flag) {
            html.push_element(
                "p",
                &format!("with {} {value} in the command", printable_text(flag)),
            );
        }
        let lines = text_plans::format_script_lines(table, best);
        if !lines.is_empty() {
            html.push_element("p", "or in the script:")
                .push_list(&lines);
        }
    }
    let failed = table.rows.iter().filter_map(|row| {
        let why = text_plans::why_not(row)?;
        Some(format!(
            "Not applied: {}: {why}",
            text_plans::format_plan_name(row, flag)
        ))
    });
    html.push_list(&failed.collect::<Vec<String>>());
    html.push_markup("<p class=\"dim\">")
        .push_text(&text_plans::format_table_note(table))
        .push_markup("</p>\n");
    if of_ranks {
        html.push_markup("<p class=\"dim\">")
            .push_text(text_plans::SENT_IN)
            .push_markup("</p>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text that a program, its packages or its machine could choose is hostile.
    const HOSTILE: &str = r#"{"version": 1, "command": ["python", "X"], "torch": "X", "cuda": "X", "steps": 3,
        "cards": [{"card": "X", "total-bytes": 1000, "verdict": "does-not-fit", "allocated-bytes": 1500,
            "reserved-bytes": 1900, "context-bytes": 100, "context-reported": true, "libraries-bytes": 0,
            "on-card-bytes": 2000, "margin-bytes": -1000, "retries": 0, "failed-requests": 1,
            "varied": {"flag": "X", "largest": null, "least": 1, "most": 2}}],
        "made": {"card": "X", "device": 0, "allocated-bytes": 1500, "reserved-bytes": 1900, "moment": {"step": 1,
            "phase": "backward", "purposes": [{"purpose": "activations", "certainty": "likely", "bytes": 9, "blocks": 1}],
            "filled": {"bytes": 9, "blocks": 1, "unrecorded-bytes": 0, "categories": [], "modules": [{"module": "X", "bytes": 9, "blocks": 1}],
                "places": [{"bytes": 9, "blocks": 1, "category": "activations", "certainty": "likely",
                    "place": {"file": "X", "line": 1, "function": "X"}, "stack": ["X"]}]}}},
        "doubts": [{"what": "unknown", "names": ["X"]}],
        "reads": [{"file": "X", "line": 1, "use": "branch", "times": 1, "by": {"file": "X", "line": 2}, "code": "X"}],
        "plans": [{"card": "X", "flag": "X", "rows": [
            {"plan": "", "allocated-bytes": 1500, "reserved-bytes": 1900, "on-card-bytes": 2000, "saved-bytes": 0,
                "step-ms": 3.0, "cards": [{"card": "X", "fits": "no"}]},
            {"plan": "bf16", "value": 2, "allocated-bytes": 500, "reserved-bytes": 600, "on-card-bytes": 700,
                "saved-bytes": 1300, "step-ms": 2.0, "cards": [{"card": "X", "fits": "yes"}]},
            {"plan": "X", "allocated-bytes": null, "reserved-bytes": null, "on-card-bytes": null,
                "saved-bytes": null, "step-ms": null, "cards": [{"card": "X", "fits": "no"}], "failed": "X"}]}]}"#;

    #[test]
    fn nothing_of_a_program_is_markup() {
        let forecast = HOSTILE.replace("\"X\"", r#""</pre><img src=x>\"&\u001b""#);
        let forecast: Forecast = serde_json::from_str(&forecast).unwrap();
        let page = render_page(&forecast, true);
        assert!(!page.contains("<img") && !page.contains('\u{1b}'));
        assert!(page.matches("&lt;img src=x&gt;").count() > 15);
        for tag in ["pre", "table", "article", "details", "div", "ul", "main"] {
            let (opened, closed) = (format!("<{tag}"), format!("</{tag}>"));
            assert_eq!(
                page.matches(&opened).count(),
                page.matches(&closed).count(),
                "{tag}"
            );
        }
    }

    #[test]
    fn a_page_says_what_fits_and_what_does() {
        let forecast: Forecast = serde_json::from_str(HOSTILE).unwrap();
        let page = render_page(&forecast, true);
        for said in [
            "does not fit, 1000 B short",
            "<b style=\"left:50.000%\">",
            "sconce run --host --plan bf16 -- python X",
            "branches on a value of the card",
            "<tr class=\"best\"><td>bf16, X 2",
        ] {
            assert!(page.contains(said), "{said}");
        }
    }
}
