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
const FACTS: HeldBy = HeldBy::Golden("facts.json");
const RECORD: HeldBy = HeldBy::Golden("record.jsonl");
const REQUEST: HeldBy = HeldBy::Golden("run-request.json");
const FINDINGS: HeldBy = HeldBy::Golden("findings.json");
const VALUES: HeldBy = HeldBy::Golden("values.txt");

const TYPES: &[(&str, HeldBy)] = &[
    ("event::Ended", RECORD),
    ("event::Event", RECORD),
    ("event::Exit", VALUES),
    ("event::GpuInstance", RECORD),
    ("event::GpuSample", RECORD),
    ("event::GpuSummary", RECORD),
    ("event::HostSummary", RECORD),
    ("event::Line", RECORD),
    ("event::Lost", RECORD),
    ("event::Mode", VALUES),
    ("event::OutOfMemory", RECORD),
    ("event::Pressure", RECORD),
    ("event::ProcessSample", RECORD),
    ("event::Sample", RECORD),
    ("event::ServiceEvent", RECORD),
    ("event::ServiceState", VALUES),
    ("event::Started", RECORD),
    ("event::Unenforced", RECORD),
    ("facts/gpu::Card", FACTS),
    ("facts/gpu::CdiFile", FACTS),
    ("facts/gpu::CudaInit", FACTS),
    ("facts/gpu::Driver", FACTS),
    ("facts/gpu::DriverFlavour", VALUES),
    ("facts/gpu::DriverLibrary", FACTS),
    ("facts/gpu::FabricState", VALUES),
    ("facts/gpu::Link", FACTS),
    ("facts/gpu::Mig", FACTS),
    ("facts/gpu::Mode", VALUES),
    ("facts/gpu::MpsFacts", FACTS),
    ("facts/gpu::Node", FACTS),
    ("facts/gpu::Nvml", FACTS),
    ("facts/gpu::PciCard", FACTS),
    ("facts/gpu::Toolkit", FACTS),
    ("facts/gpu::Xid", FACTS),
    ("facts/limits::Cgroup", FACTS),
    ("facts/limits::CgroupVersion", VALUES),
    ("facts/limits::Disk", FACTS),
    ("facts/limits::Hugepages", FACTS),
    ("facts/limits::InfiniBand", FACTS),
    ("facts/limits::Iommu", FACTS),
    ("facts/limits::Limit", FACTS),
    ("facts/limits::Limits", FACTS),
    ("facts/limits::Seccomp", VALUES),
    ("facts/limits::Shm", FACTS),
    ("facts/mod::HostFacts", FACTS),
    ("facts/processor::Cache", FACTS),
    ("facts/processor::Processor", FACTS),
    ("finding::Action", VALUES),
    ("finding::Certainty", VALUES),
    ("finding::Evidence", FINDINGS),
    ("finding::Finding", FINDINGS),
    ("finding::Mend", FINDINGS),
    ("finding::Weight", VALUES),
    ("lock::Deb", LOCK),
    ("lock::Lock", LOCK),
    ("lock::Stage", LOCK),
    ("lock::Target", LOCK),
    ("lock::Versions", LOCK),
    ("lock::Wheel", LOCK),
    ("manifest::ImageManifest", REQUEST),
    ("manifest::Layer", REQUEST),
    ("request::ContainerEdits", REQUEST),
    ("request::DeviceNode", REQUEST),
    ("request::EditMount", REQUEST),
    ("request::Limits", REQUEST),
    ("request::Mount", REQUEST),
    ("request::Near", REQUEST),
    ("request::Network", VALUES),
    ("request::Port", REQUEST),
    ("request::Root", VALUES),
    ("request::RunRequest", REQUEST),
    ("request::User", VALUES),
    ("runtime::Runtime", VALUES),
    ("runtime::RuntimeSummary", RECORD),
    ("service::Check", VALUES),
    ("service::Health", REQUEST),
    ("service::Restart", VALUES),
    ("service::Service", REQUEST),
    ("spec/build::Build", SPEC),
    ("spec/build::More", LOCK_INPUTS),
    ("spec/build::Removal", VALUES),
    ("spec/build::Stage", SPEC),
    ("spec/build::Variant", VALUES),
    ("spec/mod::Python", PYTHON),
    ("spec/mod::Run", SPEC),
    ("spec/mod::Spec", SPEC),
    ("spec/mod::System", SPEC),
    ("spec/services/health::HealthCheck", SPEC),
    ("spec/services::Jupyter", SPEC),
    ("spec/services::Known", VALUES),
    ("spec/services::Program", SPEC),
    ("spec/services::Ssh", SPEC),
    ("spec/services::TensorBoard", SPEC),
    ("spec/values::GpuId", VALUES),
    ("spec/values::Numa", VALUES),
    ("training::CardMemory", RECORD),
    ("training::CardOutOfMemory", RECORD),
    ("training::Evaluation", RECORD),
    ("training::Exchange", RECORD),
    ("training::Holder", RECORD),
    ("training::Kept", RECORD),
    ("training::Loader", RECORD),
    ("training::LoaderSetup", RECORD),
    ("training::Operations", RECORD),
    ("training::Peak", RECORD),
    ("training::Phases", RECORD),
    ("training::Setup", RECORD),
    ("training::Training", RECORD),
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
