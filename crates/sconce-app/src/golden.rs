//! What the program writes for itself, byte for byte, in `tests/golden`. Values are made where their types are.

use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

const JUPYTER: HeldBy = Golden("jupyter.jsonl");

const MESSAGES: HeldBy = Golden("job-messages.jsonl");

const TYPES: &[(&str, HeldBy)] = &[
    ("inspect/scan::TreeScan", Golden("scan.json")),
    ("job/fault::JobFault", Golden("job-files.jsonl")),
    ("job/job_dir::SubmittedJob", Golden("job-files.jsonl")),
    ("job/task_run::TaskRun", Golden("job-files.jsonl")),
    (
        "job/architectures::KnownArchitectures",
        Golden("job-architectures.json"),
    ),
    ("job/answers::Answers", Golden("job-answers.json")),
    ("job/answers::Silence", Golden("job-answers.json")),
    ("job/job_report::JobReport", Golden("job-answers.json")),
    ("job/meeting/wire::LeaderMessage", MESSAGES),
    ("job/meeting/wire::NodeFailure", MESSAGES),
    ("job/meeting/wire::NodeMessage", MESSAGES),
    ("services/jupyter::JupyterEndpoint", JUPYTER),
    ("services/jupyter::JupyterKernels", JUPYTER),
    (
        "source_builds/build_plan::BuildPlan",
        Golden("build-plan.json"),
    ),
    ("worker::DriverLibrary", Golden("worker-tasks.jsonl")),
    ("worker::TrialTask", Golden("fit-task.json")),
    ("worker::WorkerTask", Golden("worker-tasks.jsonl")),
];

pub(crate) fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}
