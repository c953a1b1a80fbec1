//! `sconce doctor`.

mod bundle;
mod fix;
mod installed;
mod pyenv;
mod summary;

use std::path::PathBuf;

use clap::Args;
use sconce_compat::rules;
use sconce_schema::finding::Severity;
use sconce_schema::{Finding, HostFacts, exit};

use self::installed::InstalledTools;
use super::check;
use crate::findings;
use crate::output;
use crate::remote_machines;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::inspect::InspectedEnvironment;
use sconce_app::outputs::{self, OutputForm, VerbFiles, inputs};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Judge this environment too: a sconce.toml or its folder, a lock, an image, or a folder of
    /// installed packages, such as .venv.
    subject: Option<String>,
    /// Offer to mend what can be mended safely; each command is shown first.
    #[arg(long)]
    fix: bool,
    /// Write this machine's facts to FILE, for `sconce check --facts`; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// Write all that a bug report needs to FILE, secrets masked; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Says what is wrong with this machine, the verdict first.
pub(crate) fn doctor(args: &DoctorArgs, context: &AppContext) -> Result<u8> {
    let facts = outputs::find_some(args.facts.as_deref(), OutputForm::Text)?;
    let bundle = outputs::find_some(args.bundle.as_deref(), OutputForm::Text)?;
    let subject = args.subject.as_deref();
    VerbFiles {
        outputs: &[facts.as_ref(), bundle.as_ref()],
        inputs: &subject.map(inputs::of_subject).unwrap_or_default(),
        prints_json: args.json,
        ..VerbFiles::default()
    }
    .claim()?;
    let places = SconceDirs::find(context)?;
    let host = remote_machines::read_local_facts(Some(&places.store), &context.env);
    let judged = args
        .subject
        .as_deref()
        .map(|what| check::inspect_environment(what, &places, context));
    let judged = judged.transpose()?;
    let found = match &judged {
        Some(judged) => judged.check_host(&host),
        None => rules::check_host(&host),
    };
    let verdict = verdict(&host, judged.as_ref(), &found);
    let report = Report {
        verdict: &verdict,
        host: &host,
        found: &found,
        judged: judged.as_ref(),
        installed: &InstalledTools::detect_from_env(&context.env),
    };
    if let Some(output) = facts {
        let text = serde_json::to_string_pretty(&host).unwrap_or_default() + "\n";
        outputs::write(output, text.as_bytes(), context)?;
    }
    if let Some(output) = bundle {
        outputs::write(
            output,
            bundle::render_text(&report, context.env.home_dir()).as_bytes(),
            context,
        )?;
    }
    if args.json {
        output::write_data(&report.json())?;
    } else {
        output::write_data(&report.text(&TextLayout::for_stdout()))?;
    }
    if args.fix {
        fix::offer_fixes(&found)?;
    }
    let fails = found.iter().any(|one| one.weight == Severity::Fails);
    Ok(if fails { exit::NO } else { exit::OK })
}

/// What the doctor has to say.
struct Report<'a> {
    verdict: &'a str,
    host: &'a HostFacts,
    found: &'a [Finding],
    judged: Option<&'a InspectedEnvironment>,
    installed: &'a InstalledTools,
}

impl Report<'_> {
    fn json(&self) -> String {
        let said = serde_json::json!({
            "verdict": self.verdict,
            "findings": self.found,
            "environment": self.judged.map(InspectedEnvironment::format_summary),
            "installed": self.installed,
            "facts": self.host,
        });
        serde_json::to_string_pretty(&said).unwrap_or_default()
    }

    fn text(&self, page: &TextLayout) -> String {
        let mut text = format!("{}\n\n", page.wrap_text(self.verdict, 0, 0));
        if !self.found.is_empty() {
            text += &findings::render_findings(self.found, page);
            text += "\n";
        }
        let mut more = self.installed.summary_lines(self.judged.is_none());
        if let Some(judged) = self.judged {
            more.push(("judged", judged.format_summary()));
        }
        text + &summary::render_host_facts(self.host, &more, page)
    }
}

/// One line: can this machine run it?
fn verdict(host: &HostFacts, judged: Option<&InspectedEnvironment>, found: &[Finding]) -> String {
    let first = |weight| found.iter().find(|one| one.weight == weight);
    let what = judged.map_or("PyTorch on a card", |judged| judged.name.as_str());
    let cards = match host.cards.len() {
        0 => "no card".to_owned(),
        1 => "1 card".to_owned(),
        count => match host.cards.iter().filter(|card| card.lost.is_some()).count() {
            0 => format!("{count} cards"),
            lost => format!("{} of {count} cards", count - lost),
        },
    };
    let more = |weight: Severity| match found.iter().filter(|one| one.weight == weight).count() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    if let Some(worst) = first(Severity::Fails) {
        return format!(
            "{what} will not run here: {}{}",
            worst.what,
            more(Severity::Fails)
        );
    }
    match first(Severity::Warns) {
        Some(worst) => format!(
            "{what} should run here ({cards}), but: {}{}",
            worst.what,
            more(Severity::Warns)
        ),
        None if host.cards.is_empty() => format!("nothing is wrong here; there is {cards}"),
        None => format!("{what} should run here: {cards}, and nothing is wrong"),
    }
}
