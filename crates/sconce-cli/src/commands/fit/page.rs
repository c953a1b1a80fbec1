//! A forecast as a page.

use sconce_memory::analysis::purpose::Purpose;
use sconce_memory::forecast::table::PlanTable;
use sconce_memory::forecast::{FitOutcome, Forecast, GpuForecast, PeakBreakdown};

use super::text_plans::{self, PlanCommand};
use super::{text, unjudged};
use crate::commands::memory::words::{counted, frame_of, place, share, shown, size, sure};
use crate::html::{BarSegment, Html};

/// Rows of a list.
const ROWS: usize = 40;

/// The page.
pub(super) fn page(forecast: &Forecast, host: bool) -> String {
    let mut html = Html::default();
    let words: Vec<String> = forecast.command.iter().map(|word| shown(word)).collect();
    html.raw("<pre>").text(&words.join(" ")).raw("</pre>\n");
    html.raw("<div class=\"cards\">\n");
    for card in &forecast.cards {
        of_card(&mut html, card);
    }
    html.raw("</div>\n").list(&text::beside(&forecast.cards));
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
    let unknown = unjudged::reasons(&forecast.cards, forecast.steps);
    if !unknown.is_empty() {
        html.within("h2", "Why it is not known").list(&unknown);
    }
    html.within("h2", "How sure");
    let doubts: Vec<String> = forecast.doubts.iter().map(text::said).collect();
    html.list(&doubts);
    let reads: Vec<String> = forecast.deciding().map(text::read).collect();
    if !reads.is_empty() {
        html.within("h3", "What hangs on values").list(&reads);
    }
    html.page("Will it fit", &text::head(forecast))
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
    let margin = margin.map(|bytes| (bytes, size(bytes.unsigned_abs())));
    let margin = match margin {
        Some((0.., left)) if card.verdict == FitOutcome::Fits => format!(", {left} left"),
        Some((..0, short)) => format!(", {short} short"),
        _ => String::new(),
    };
    let said = format!("{fits}{margin}");
    html.raw("<article class=\"card\">")
        .within("h3", &card.card);
    html.raw(class).text(&said).raw("</p>\n");
    let parts = parts(card);
    let shown = format!("{}: {said}", card.card);
    html.bar(&parts, card.total_bytes, &shown).legend(&parts);
    let or_none = |bytes: Option<u64>| bytes.map_or("–".to_owned(), size);
    html.raw("<dl class=\"figures\">\n");
    for (name, figure) in [
        ("allocated", or_none(card.allocated_bytes)),
        ("reserved", or_none(card.reserved_bytes)),
        ("on card", or_none(card.on_card_bytes)),
        ("memory of the card", size(card.total_bytes)),
    ] {
        html.within("dt", name).within("dd", &figure);
    }
    html.raw("</dl>\n</article>\n");
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
    html.within("h2", &head);
    let moment = &made.moment;
    let mut parts = Vec::new();
    for group in text::merged(&moment.purposes) {
        let doubt = match sure(group.certainty) {
            "" => String::new(),
            sure => format!(" ({sure})"),
        };
        parts.push(BarSegment {
            colour: colour(group.purpose),
            name: format!("{}{doubt}", text::purpose(group.purpose)),
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
    html.raw("<div class=\"peak\">")
        .bar(&parts, made.reserved_bytes, &head)
        .raw("</div>\n")
        .legend(&parts);
    let whole = made.reserved_bytes;
    let rows: Vec<[String; 3]> = parts
        .iter()
        .map(|part| {
            [
                size(part.bytes),
                share(part.bytes, whole),
                part.name.clone(),
            ]
        })
        .collect();
    html.table(["#Size", "#Of reserved", "What for"], &rows);
    html.within("h3", "By line");
    html.raw("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\" class=\"number\">Size</th>")
        .raw("<th scope=\"col\" class=\"number\">Of reserved</th><th scope=\"col\">Where</th></tr></thead>\n<tbody>\n");
    for group in moment.filled.places.iter().take(ROWS) {
        html.raw("<tr><td class=\"number\">")
            .text(&size(group.bytes));
        html.raw("</td><td class=\"number\">")
            .text(&share(group.bytes, whole));
        html.raw("</td><td>");
        let place = place(group.place.as_ref());
        if group.stack.is_empty() {
            html.text(&place);
        } else {
            html.raw("<details><summary><code>")
                .text(&place)
                .raw("</code></summary><pre>");
            let frames: Vec<String> = group.stack.iter().map(|frame| frame_of(frame)).collect();
            html.text(&frames.join("\n")).raw("</pre></details>");
        }
        html.raw("</td></tr>\n");
    }
    html.raw("</tbody></table></div>\n");
    let more = moment.filled.places.len().saturating_sub(ROWS);
    if more > 0 {
        html.within("p", &format!("and {}", counted(more as u64, "other line")));
    }
    let modules = moment.filled.modules.iter();
    let modules = modules.filter_map(|one| Some((one.module.as_ref()?, one.bytes)));
    let rows: Vec<[String; 3]> = modules
        .take(ROWS)
        .map(|(module, bytes)| [size(bytes), share(bytes, whole), shown(module)])
        .collect();
    if !rows.is_empty() {
        html.within("h3", "By module")
            .table(["#Size", "#Of reserved", "Module"], &rows);
    }
}

fn plans(html: &mut Html, table: &PlanTable, run: &PlanCommand<'_>) {
    html.within("h2", &format!("Plans for the {}", table.card));
    let cards = table.rows.first().map_or(&[][..], |row| &row.cards);
    let flag = table.flag.as_deref();
    let best: Vec<_> = (0..cards.len()).filter_map(|at| table.best(at)).collect();
    let most = table
        .rows
        .iter()
        .filter_map(|row| row.on_card_bytes)
        .max()
        .unwrap_or(0);
    let of_ranks = text_plans::of_ranks(table);
    html.raw("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">Plan</th>")
        .raw("<th scope=\"col\" class=\"number\">Reserved</th><th scope=\"col\" class=\"number\">On card</th><th scope=\"col\" class=\"meter\"></th>")
        .raw("<th scope=\"col\" class=\"number\">Saved</th><th scope=\"col\" class=\"number\">Step</th>")
        .raw(if of_ranks { "<th scope=\"col\" class=\"number\">Sent in</th>" } else { "" })
        .raw("<th scope=\"col\">Fits</th></tr></thead>\n<tbody>\n");
    for row in &table.rows {
        let [name, reserved, on_card, saved, step, sent, fits] = text_plans::cells(row, flag);
        let chosen = best.iter().any(|best| std::ptr::eq(*best, row));
        html.raw(if chosen {
            "<tr class=\"best\"><td>"
        } else {
            "<tr><td>"
        });
        html.text(&name)
            .raw("</td><td class=\"number\">")
            .text(&reserved);
        html.raw("</td><td class=\"number\">").text(&on_card);
        html.raw("</td><td class=\"meter\">");
        if let Some(bytes) = row.on_card_bytes {
            let part = BarSegment {
                colour: "allocated",
                name: String::new(),
                bytes,
            };
            html.bar(&[part], most, &format!("{on_card} on card"));
        }
        html.raw("</td><td class=\"number\">").text(&saved);
        html.raw("</td><td class=\"number\">").text(&step);
        if of_ranks {
            html.raw("</td><td class=\"number\">").text(&sent);
        }
        html.raw("</td><td>").text(&fits).raw("</td></tr>\n");
    }
    html.raw("</tbody></table></div>\n");
    for (at, card) in cards.iter().enumerate() {
        let Some(best) = table.best(at) else {
            html.within("h3", &card.card)
                .within("p", "No plan that was tried fits.");
            continue;
        };
        let there = text_plans::step_there(best, at);
        html.within("h3", &format!("{}: what to do{there}", card.card));
        if best.lines.is_none() && !best.plan.is_empty() {
            html.raw("<pre>")
                .text(&text_plans::outside(best, run))
                .raw("</pre>\n");
        }
        if let (Some(value), Some(flag)) = (best.value, flag) {
            html.within("p", &format!("with {} {value} in the command", shown(flag)));
        }
        let lines = text_plans::lines(table, best);
        if !lines.is_empty() {
            html.within("p", "or in the script:").list(&lines);
        }
    }
    let failed = table.rows.iter().filter_map(|row| {
        let why = text_plans::why_not(row)?;
        Some(format!(
            "Not applied: {}: {why}",
            text_plans::name(row, flag)
        ))
    });
    html.list(&failed.collect::<Vec<String>>());
    html.raw("<p class=\"dim\">")
        .text(&text_plans::tried(table))
        .raw("</p>\n");
    if of_ranks {
        html.raw("<p class=\"dim\">")
            .text(text_plans::SENT_IN)
            .raw("</p>\n");
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
        let page = page(&forecast, true);
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
        let page = page(&forecast, true);
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
