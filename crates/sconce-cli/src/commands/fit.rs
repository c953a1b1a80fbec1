//! `sconce fit`.

mod ended;
mod failure;
mod flag_range;
mod inconclusive;
mod page;
mod server;
mod text;
mod text_plans;
mod training_plans;
mod trial;
mod trial_process;
mod values;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use sconce_compat::tables::{self, Hardware};
use sconce_host::{HostProfile, Roots};
use sconce_memory::forecast::inconclusive::{growth_reason, inconclusive_reasons};
use sconce_memory::forecast::probe_report::ObservationEnd;
use sconce_memory::forecast::training_plan::TrainingPlans;
use sconce_memory::forecast::values::{SubstituteValues, ValueDependence};
use sconce_memory::forecast::{
    self, FitOutcome, FlagSearchResult, Forecast, GpuBudget, GpuForecast, InconclusiveReason,
    VERSION,
};
use sconce_schema::spec::MountSpec;
use sconce_schema::{Bytes, exit};

use self::failure::FitError;
use self::flag_range::FlagRange;
use self::server::ForkServer;
use self::training_plans::BaselineTrial;
use self::trial::{TrialContext, TrialOutput, TrialRequest};
use self::values::Free;
use crate::args::{LockFlags, RankFlags, SourceFlags, TrainingPlanFlags};
use crate::error::CliError;
use crate::failure::render_failure;
use crate::output;
use crate::style::OutputStyle;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::outputs::{self, OutputDestination, OutputError, OutputForm, VerbFiles, inputs};
use sconce_app::reporter::AppEvent;
use sconce_app::run_options::RunOverrides;
use sconce_app::virtual_gpu;
use sconce_app::worker::WorkerTask;

/// Memory of a card without end: what the addresses of a virtual card leave room for.
const UNLIMITED_CARD_MEMORY: Bytes = Bytes(1000 << 30);

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// A sconce.toml or its folder.
    #[arg(default_value = ".", value_name = "SPEC")]
    spec: PathBuf,
    /// A card, such as h100 or "RTX 3070"; once for each [default: the cards of this machine].
    #[arg(long, value_name = "CARD")]
    gpu: Vec<String>,
    /// Optimizer steps to run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = crate::number::whole_number_parser::<u32>(1, 1000))]
    steps: u32,
    /// Seconds after which a command that did not take its steps is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = crate::number::whole_number_parser::<u32>(1, u64::MAX))]
    time: u32,
    /// A flag of the command's own and a range, such as --batch-size=8..256: the largest value that fits
    /// on each card is found.
    #[arg(
        long,
        value_name = "FLAG=LEAST..MOST",
        allow_hyphen_values = true,
        requires = "command"
    )]
    vary: Option<FlagRange>,
    /// Also try plans where it fits: what mixed precision, checkpointing and others save, really run.
    #[arg(long, conflicts_with = "no_plans")]
    plans: bool,
    /// Try no plans where it does not fit.
    #[arg(long)]
    no_plans: bool,
    #[command(flatten)]
    plan: TrainingPlanFlags,
    #[command(flatten)]
    ranks: RankFlags,
    /// Write the memory snapshot of the trial on the card with the least left: PyTorch's own viewer
    /// and `sconce memory report` open it.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Use the Python that is here: no image, no container.
    #[arg(long, requires = "command", conflicts_with_all = ["spec", "volumes", "index", "extra_index", "mirror", "locked", "frozen"])]
    host: bool,
    /// Mount a host folder or file: SOURCE:TARGET[:ro].
    #[arg(long = "volume", short = 'v', value_name = "MOUNT")]
    volumes: Vec<MountSpec>,
    /// Set a variable: NAME=VALUE, or NAME to pass this shell's.
    #[arg(long = "env", short = 'e', value_name = "VAR")]
    env: Vec<String>,
    /// Working directory; inside, one that is not absolute is below /workspace.
    #[arg(long, short, value_name = "DIR")]
    workdir: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Write a page to FILE: cards, what the peak is made of, plans. `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show whole lists.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    lock: LockFlags,
    /// The command, instead of the spec's.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Says whether the command's training fits on each card.
pub(crate) fn fit(args: &FitArgs, context: &AppContext) -> Result<u8> {
    let hardware = cards(args, context)?;
    let of_ranks = args.plan.plan.as_ref().and_then(TrainingPlans::of_ranks);
    if let (Some(plan), None) = (of_ranks, args.ranks.ranks) {
        let plan = plan.to_string();
        return Err(CliError::PlanWithoutRanks { plan }.into());
    }
    let places = SconceDirs::find(context)?;
    let overrides = RunOverrides {
        // The machine's own cards are none of its business.
        virtual_gpus: vec![String::new()],
        mounts: args.volumes.clone(),
        env: args.env.clone(),
        workdir: args.workdir.clone(),
        sources: args.sources.to_sources(args.lock.to_lock_use()),
        ..RunOverrides::default()
    };
    let mut asked = TrialContext {
        args,
        overrides: &overrides,
        context,
        places: &places,
        trials: 0,
        server: ForkServer::default(),
    };
    if let Some(WorkerTask::Trial { directory, task }) = &context.task {
        return trial_process::carry_out(&asked, &hardware, directory.as_ref(), task);
    }
    let page = outputs::find_some(args.html.as_deref(), OutputForm::Text)?;
    let kept = outputs::find_some(args.snapshot.as_deref(), OutputForm::Binary)?;
    let of_spec = || inputs::of_spec(&args.spec);
    VerbFiles {
        outputs: &[page.as_ref(), kept.as_ref()],
        inputs: &(!args.host).then(of_spec).unwrap_or_default(),
        prints_json: args.json,
        ..VerbFiles::default()
    }
    .claim()?;
    let mut plain: Vec<BaselineTrial> = Vec::new();
    let mut of_cards: Vec<GpuForecast> = Vec::new();
    // The card with the least left, and the trial that tells what fills it.
    let mut tightest: Option<(i64, GpuBudget, TrialOutput)> = None;
    // The command of which it is known that no memory hangs on values.
    let mut free: Option<Free> = None;
    for &hardware in &hardware {
        let card = card(hardware);
        let varied = match &args.vary {
            // Plans are to bring the most that is asked for onto the card.
            Some(vary) if args.plans => Some(vary.most),
            Some(vary) => largest(&mut asked, hardware, &card, vary)?,
            None => None,
        };
        // Where no value fits, the least is the one to speak of.
        let value = args.vary.as_ref().map(|vary| varied.unwrap_or(vary.least));
        let command = command(args, value);
        say(context, &trying(&card, args, value));
        let wanted = |memory| TrialRequest {
            hardware,
            memory,
            command: &command,
            plans: args.plan.plan.clone().unwrap_or_default(),
            history: true,
            work: args.plans,
            answers: SubstituteValues::default(),
            seconds: None,
            steps: None,
        };
        let began = Instant::now();
        let mut limited = asked.run_trial(wanted(None))?;
        failure::validate_trial(&limited)?;
        let unwatched = inconclusive_reasons(&limited.seen);
        // Where steps differ by themselves, what others do with other values tells nothing.
        let steps_differ = |one: &InconclusiveReason| {
            matches!(
                one,
                InconclusiveReason::Shapes { .. } | InconclusiveReason::Sizes { .. }
            )
        };
        let is_free = |free: &Free| free.holds_of(&command, &limited.seen);
        let judged = match unwatched.iter().any(steps_differ) || free.as_ref().is_some_and(is_free)
        {
            true => ValueDependence::Bounded {
                most: SubstituteValues::default(),
            },
            false => values::classify_by_trials(
                &mut asked,
                &card,
                &wanted(None),
                &limited.seen,
                began.elapsed(),
            )?,
        };
        let mut not_judged: Vec<InconclusiveReason> = Vec::new();
        let mut answers = SubstituteValues::default();
        let mut told_with: Option<SubstituteValues> = None;
        match judged {
            ValueDependence::Free => free = Some(Free::from_probe_report(&command, &limited.seen)),
            // With the values that take the most it is told of.
            ValueDependence::Bounded { most } if !most.are_zeros() => {
                let wanted = TrialRequest {
                    answers: most.clone(),
                    ..wanted(None)
                };
                let with_most = asked.run_trial(wanted)?;
                if forecast::fit_outcome(&with_most.seen) != FitOutcome::DoesNotFit {
                    limited = with_most;
                    told_with = Some(most.clone());
                }
                answers = most;
            }
            ValueDependence::Bounded { .. } => {}
            ValueDependence::Unknown { why, lines, with } => {
                let least_room = |one: &&forecast::values::ValueTrial| {
                    (one.verdict == FitOutcome::DoesNotFit, one.reserved_bytes)
                };
                answers = with
                    .iter()
                    .max_by_key(least_room)
                    .map_or(answers, |one| one.values.clone());
                not_judged.push(InconclusiveReason::Values { why, lines, with });
            }
        }
        not_judged.extend(unwatched);
        let without_end = if forecast::ran_out(&limited.seen) {
            let said = format!("{} ran out of memory: trying how much it takes", card.name);
            say(context, &said);
            let wanted = TrialRequest {
                work: !args.no_plans,
                ..wanted(Some(UNLIMITED_CARD_MEMORY))
            };
            Some(asked.run_trial(wanted)?)
        } else {
            None
        };
        let unlimited = without_end.as_ref().map(|done| &done.seen);
        let mut said = forecast::of_card(&card, &limited.seen, unlimited);
        said.values = told_with;
        not_judged.extend(growth_reason(&said, &limited.seen));
        said.apply_inconclusive_reasons(not_judged);
        let vary = args.vary.as_ref().filter(|_| !args.plans);
        said.varied = vary.map(|vary| FlagSearchResult {
            flag: vary.to_string(),
            largest: varied,
            least: vary.least,
            most: vary.most,
        });
        if args.plans || (said.verdict == FitOutcome::DoesNotFit && !args.no_plans) {
            // Plans are to bring what takes the most onto the card.
            let with_most = match answers.are_zeros() {
                true => None,
                false => {
                    let wanted = TrialRequest {
                        answers: answers.clone(),
                        work: true,
                        ..wanted(Some(UNLIMITED_CARD_MEMORY))
                    };
                    values::optional_output(asked.run_trial(wanted))?
                        .filter(|done| done.seen.ended == ObservationEnd::Steps)
                }
            };
            let answers = with_most.as_ref().map(|_| answers).unwrap_or_default();
            let seen = with_most.as_ref().map(|done| &done.seen);
            let seen = seen.or(unlimited).unwrap_or(&limited.seen);
            let one = BaselineTrial::from_probe_report(
                hardware,
                &card,
                said.verdict,
                seen,
                command.clone(),
                answers,
            );
            plain.extend(one.map(|one| one.of_ranks(&mut asked)));
        }
        let margin = said.margin_bytes.unwrap_or(i64::MIN);
        of_cards.push(said);
        if tightest.as_ref().is_none_or(|(least, ..)| margin < *least) {
            tightest = Some((margin, card, without_end.unwrap_or(limited)));
        }
    }
    let Some((_, card, done)) = tightest else {
        return Err(FitError::NoCards.into());
    };
    let seen = &done.seen;
    // Without it what fits is known all the same.
    let snapshot = done.read_snapshot().unwrap_or_else(|failure| {
        output::print_message(&render_failure(&failure, &OutputStyle::for_stderr()));
        None
    });
    let made = snapshot.and_then(|snapshot| forecast::peak_breakdown(&card, seen, &snapshot));
    if let Some(output) = kept {
        keep(&done, output)?;
    }
    let plans = training_plans::build_plan_tables(&mut asked, &hardware, &plain)?;
    let seen = &done.seen;
    let forecast = Forecast {
        plans,
        version: VERSION,
        command: sconce_base::secrets::mask_command(&args.command),
        torch: seen.torch.clone(),
        cuda: seen.cuda.clone(),
        steps: seen.step_count(),
        made,
        doubts: forecast::list_caveats(&of_cards, seen, done.processes, args.ranks.ranks),
        reads: seen.reads.clone(),
        ranks: args.ranks.ranks,
        cards: of_cards,
    };
    if let Some(output) = page {
        let page = page::render_page(&forecast, args.host);
        outputs::write(output, page.as_bytes(), context)?;
    }
    if args.json {
        output::write_data(&serde_json::to_string_pretty(&forecast).unwrap_or_default())?;
    } else if args.html.is_none() {
        let said = text::render_text(&forecast, args.all, args.host, &TextLayout::for_stdout());
        output::write_data(&said)?;
    }
    // What does not fit as it is may fit with a plan, which is another question.
    let any = |verdict| forecast.cards.iter().any(|card| card.verdict == verdict);
    Ok(if any(FitOutcome::DoesNotFit) {
        exit::NO
    } else if any(FitOutcome::NotKnown) {
        exit::NOT_JUDGED
    } else {
        exit::OK
    })
}

/// Puts the snapshot where it was asked for.
fn keep(done: &TrialOutput, output: OutputDestination) -> Result<()> {
    let path = output.path().to_owned();
    let mut snapshot = done.open_snapshot()?.ok_or(FitError::NoSnapshot)?;
    let mut out = output.open()?;
    io::copy(&mut snapshot, &mut out).map_err(OutputError::io_error(&path))?;
    Ok(out.finish()?)
}

/// The largest value of a flag that fits on a card.
fn largest(
    asked: &mut TrialContext<'_>,
    hardware: &Hardware,
    card: &GpuBudget,
    vary: &FlagRange,
) -> Result<Option<u64>> {
    let (args, context) = (asked.args, asked.context);
    vary.find_largest_fitting(|value| {
        say(context, &trying(card, args, Some(value)));
        let done = asked.run_trial(TrialRequest {
            hardware,
            memory: None,
            command: &command(args, Some(value)),
            plans: args.plan.plan.clone().unwrap_or_default(),
            history: true,
            work: false,
            answers: SubstituteValues::default(),
            seconds: None,
            steps: None,
        })?;
        failure::validate_trial(&done)?;
        Ok(!forecast::ran_out(&done.seen))
    })
}

fn command(args: &FitArgs, value: Option<u64>) -> Vec<String> {
    match (&args.vary, value) {
        (Some(vary), Some(value)) => vary.command_with_value(&args.command, value),
        _ => args.command.clone(),
    }
}

fn trying(card: &GpuBudget, args: &FitArgs, value: Option<u64>) -> String {
    match (&args.vary, value) {
        (Some(vary), Some(value)) => format!("trying {}, {vary} {value}", card.name),
        _ => format!("trying {}", card.name),
    }
}

/// The cards that are asked about.
fn cards(args: &FitArgs, context: &AppContext) -> Result<Vec<&'static Hardware>> {
    let mut cards: Vec<&'static Hardware> = Vec::new();
    for name in &args.gpu {
        let chosen = tables::find_hardware(name)?;
        if !chosen.choice.is_empty() {
            context.report(&AppEvent::VirtualGpuSize(&chosen));
        }
        cards.push(chosen.hardware);
    }
    if args.gpu.is_empty() {
        let host = HostProfile::read(&Roots::default());
        let here = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
        for name in here.filter_map(|card| card.name.as_ref()) {
            cards.push(tables::find_hardware(name)?.hardware);
        }
    }
    // Of several of one kind one tells.
    let mut different: Vec<&'static Hardware> = Vec::new();
    for card in cards {
        if !different.iter().any(|known| std::ptr::eq(*known, card)) {
            different.push(card);
        }
    }
    match different.is_empty() {
        true => Err(FitError::NoCards.into()),
        false => Ok(different),
    }
}

fn card(hardware: &Hardware) -> GpuBudget {
    let name = hardware.card.name;
    let name = match hardware.card.memory.len() {
        0 | 1 => name.to_owned(),
        _ => format!("{name} {}", hardware.memory),
    };
    GpuBudget {
        name,
        total_bytes: hardware.total.0,
        context_bytes: virtual_gpu::context_bytes(hardware).0,
        context_reported: hardware.context.is_some(),
        nccl_least_bytes: virtual_gpu::communicator_range(hardware).start().0,
    }
}

fn say(context: &AppContext, text: &str) {
    if !context.quiet {
        output::print_message(&OutputStyle::for_stderr().dim(&format!("fit: {text}")));
    }
}
