//! What is written or sent of this crate's types, as bytes that a rename or a move must not change.
//!
//! Held elsewhere: an image's tag by `src/tag.rs`, the texts of units by `src/units.rs`, what a writer makes
//! of a record's lines by sconce-record, the digest of [`Spec::lock_inputs`](sconce_schema::Spec::lock_inputs)
//! by sconce-resolve.

/// Makes a `Vec` of values of an enum; it does not compile while a variant is missing.
macro_rules! every_variant {
    ($type:ident: $($variant:ident $(($($tuple:tt)*))? $({$($field:tt)*})?),+ $(,)?) => {{
        let complete = |value: &$type| match value {
            $($type::$variant { .. } => (),)+
        };
        let all = vec![$($type::$variant $(($($tuple)*))? $({$($field)*})?),+];
        all.iter().for_each(complete);
        all
    }};
}

mod facts;
mod findings;
mod job;
mod lock;
mod record;
mod request;
mod spec;
mod values;

use std::fmt::Debug;
use std::str::FromStr;

use sconce_testkit::golden_files::{Goldens, HeldBy};
use serde::Serialize;

const SPEC: HeldBy = HeldBy::Golden("sconce.toml");
const PYTHON: HeldBy = HeldBy::Golden("python.toml");
const LOCK_INPUTS: HeldBy = HeldBy::Golden("lock-inputs.toml");
const LOCK: HeldBy = HeldBy::Golden("lock.toml");
const LOCK_WITH_BUILDS: HeldBy = HeldBy::Golden("lock-with-builds.toml");
const LOCK_WITH_REQUESTS: HeldBy = HeldBy::Golden("lock-with-requests.toml");
const FACTS: HeldBy = HeldBy::Golden("facts.json");
const RECORD: HeldBy = HeldBy::Golden("record.jsonl");
const REQUEST: HeldBy = HeldBy::Golden("run-request.json");
const FINDINGS: HeldBy = HeldBy::Golden("findings.json");
const JOB: HeldBy = HeldBy::Golden("job.json");
const VALUES: HeldBy = HeldBy::Golden("values.txt");

const TYPES: &[(&str, HeldBy)] = &[
    ("event::RunEnded", RECORD),
    ("event::RecordEvent", RECORD),
    ("event::ExitStatus", VALUES),
    ("event::GpuInstance", RECORD),
    ("event::GpuSample", RECORD),
    ("event::GpuSummary", RECORD),
    ("event::HostSummary", RECORD),
    ("event::RecordLine", RECORD),
    ("event::WriteLoss", RECORD),
    ("event::Containment", VALUES),
    ("event::OomKill", RECORD),
    ("event::Pressure", RECORD),
    ("event::ProcessSample", RECORD),
    ("event::Sample", RECORD),
    ("event::ServiceEvent", RECORD),
    ("event::ServiceState", VALUES),
    ("event::RunStarted", RECORD),
    ("event::UnenforcedLimit", RECORD),
    ("facts/gpu::GpuFacts", FACTS),
    ("facts/gpu::CdiFileFacts", FACTS),
    ("facts/gpu::CudaInit", FACTS),
    ("facts/gpu::Driver", FACTS),
    ("facts/gpu::DriverFlavour", VALUES),
    ("facts/gpu::DriverLibrary", FACTS),
    ("facts/gpu::FabricState", VALUES),
    ("facts/gpu::NvLink", FACTS),
    ("facts/gpu::Mig", FACTS),
    ("facts/gpu::FeatureState", VALUES),
    ("facts/gpu::MpsFacts", FACTS),
    ("facts/gpu::DeviceNodeFacts", FACTS),
    ("facts/gpu::Nvml", FACTS),
    ("facts/gpu::PciGpu", FACTS),
    ("facts/gpu::ContainerToolkit", FACTS),
    ("facts/gpu::Xid", FACTS),
    ("facts/limits::CgroupFacts", FACTS),
    ("facts/limits::CgroupVersion", VALUES),
    ("facts/limits::FilesystemFacts", FACTS),
    ("facts/limits::Hugepages", FACTS),
    ("facts/limits::InfiniBand", FACTS),
    ("facts/limits::Iommu", FACTS),
    ("facts/limits::RlimitPair", FACTS),
    ("facts/limits::RlimitFacts", FACTS),
    ("facts/limits::SeccompMode", VALUES),
    ("facts/limits::Shm", FACTS),
    ("facts/mod::HostFacts", FACTS),
    ("facts/processor::CpuCache", FACTS),
    ("facts/processor::Processor", FACTS),
    ("finding::FixAction", VALUES),
    ("finding::Certainty", VALUES),
    ("finding::Evidence", FINDINGS),
    ("finding::Finding", FINDINGS),
    ("finding::Fix", FINDINGS),
    ("finding::Severity", VALUES),
    ("job::JobArray", JOB),
    ("job::ItemPack", JOB),
    ("job::JobLayout", JOB),
    ("job::JobRequest", JOB),
    ("job::LocalStoreRequest", JOB),
    ("job::PackedItem", JOB),
    ("job::PreparationRequest", JOB),
    ("job::PreparedEnvironment", HeldBy::Golden("prepared.json")),
    ("lock::BuildRequest", LOCK_WITH_REQUESTS),
    ("lock::Deb", LOCK),
    ("lock::Lock", LOCK_WITH_BUILDS),
    ("lock::LockedStage", LOCK),
    ("lock::LockTarget", LOCK),
    ("lock::LockedVersions", LOCK),
    ("lock::StandalonePython", LOCK_WITH_BUILDS),
    ("lock::Wheel", LOCK_WITH_BUILDS),
    ("lock::WheelBuild", LOCK_WITH_REQUESTS),
    ("environment_layers::EnvironmentLayers", REQUEST),
    ("environment_layers::LayerTree", REQUEST),
    ("network::HostPlugin", RECORD),
    ("network::NcclNetwork", RECORD),
    ("network::NodeNetwork", RECORD),
    ("request::ContainerEdits", REQUEST),
    ("request::DeviceNode", REQUEST),
    ("request::EditMount", REQUEST),
    ("request::RunLimits", REQUEST),
    ("request::Mount", REQUEST),
    ("request::NumaPlacement", REQUEST),
    ("request::NetworkMode", VALUES),
    ("request::PublishedPort", REQUEST),
    ("request::RunRoot", VALUES),
    ("request::RunRequest", REQUEST),
    ("request::ContainerUser", VALUES),
    ("runtime::Runtime", VALUES),
    ("runtime::RuntimeSummary", RECORD),
    ("service::HealthTest", VALUES),
    ("service::HealthCheck", REQUEST),
    ("service::RestartPolicy", VALUES),
    ("service::RunService", REQUEST),
    ("spec/build::BuildSpec", SPEC),
    ("spec/build::StageRequirements", LOCK_INPUTS),
    ("spec/build::Removal", VALUES),
    ("spec/build::StageSpec", SPEC),
    ("spec/build::Variant", VALUES),
    ("spec/mod::Python", PYTHON),
    ("spec/mod::RunSpec", SPEC),
    ("spec/mod::Spec", SPEC),
    ("spec/mod::System", SPEC),
    ("spec/services/health::HealthCheckSpec", SPEC),
    ("spec/services::Jupyter", SPEC),
    ("spec/services::BuiltinService", VALUES),
    ("spec/services::CustomServiceSpec", SPEC),
    ("spec/services::Ssh", SPEC),
    ("spec/services::TensorBoard", SPEC),
    ("spec/containment::JobContainment", VALUES),
    ("spec/target::LaunchMode", VALUES),
    ("spec/target::SchedulerKind", VALUES),
    ("spec/target::TargetSpec", SPEC),
    ("spec/values::GpuId", VALUES),
    ("spec/values::NumaPolicy", VALUES),
    ("training::GpuAllocatorCounters", RECORD),
    ("training::GpuOutOfMemory", RECORD),
    ("training::EvaluationCounters", RECORD),
    ("training::CollectiveTimes", RECORD),
    ("training::MemoryHolder", RECORD),
    ("training::LeakCandidate", RECORD),
    ("training::DataLoaderCounters", RECORD),
    ("training::DataLoaderSetup", RECORD),
    ("training::Operations", RECORD),
    ("training::RatedThroughput", RECORD),
    ("training::PhaseTimes", RECORD),
    ("training::TrainingSetup", RECORD),
    ("training::TrainingSample", RECORD),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

/// As JSON with a line for each field, so that a difference names it.
fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("plain data is JSON");
    text.push('\n');
    text
}

/// A value of a type that is written as text.
fn parse<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a constant is well written")
}
