//! `--plan`: changes to how a program trains, applied from outside of it.

use clap::Args;
use sconce_memory::forecast::training_plan::TrainingPlans;
use sconce_schema::Hint;

#[derive(Debug, Args, Clone, Default)]
pub(crate) struct TrainingPlanFlags {
    /// Train with a plan, or several with + between them, such as bf16+checkpoint: see `sconce fit`.
    #[arg(long, value_name = "PLAN", value_parser = plans)]
    pub(crate) plan: Option<TrainingPlans>,
}

fn plans(text: &str) -> Result<TrainingPlans, String> {
    text.parse::<TrainingPlans>()
        .map_err(|error| match error.hint() {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        })
}
