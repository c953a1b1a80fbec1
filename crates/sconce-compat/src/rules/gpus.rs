//! Cards against the driver's branch.

use sconce_schema::finding::{Finding, Severity};

use super::{CheckInput, group_gpus, kernel_driver};
use crate::tables;

/// Cards that are newer than the driver, or that its branch dropped.
pub(super) fn unknown_to_driver(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(driver) = kernel_driver(case.host) else {
        return Vec::new();
    };
    let finding = |kind: super::SameGpus<'_>| {
        let known = tables::gpu_architecture(kind.capability)?;
        let (name, all) = (kind.name(), kind.name_with_count());
        if let Some(first) = known.first_branch.filter(|first| driver.major < *first) {
            let what = format!(
                "driver {driver} is older than the {name}: branch {first} was the first to know it"
            );
            let finding = Finding::new(
                "card-too-new",
                Severity::Fails,
                known.source.sure.certainty(),
                what,
            )
            .with_fix(format!("Install driver {first} or newer"), None);
            return Some((finding, all, known));
        }
        let last = known.last_branch.filter(|last| driver.major > *last)?;
        let what =
            format!("driver {driver} no longer knows the {name}: branch {last} was the last to");
        let finding = Finding::new(
            "card-dropped",
            Severity::Fails,
            known.source.sure.certainty(),
            what,
        )
        .with_fix(format!("Install a driver of branch {last}"), None);
        Some((finding, all, known))
    };
    let found = group_gpus(case.host).into_iter().filter_map(finding);
    found
        .map(|(finding, name, known)| {
            finding
                .with_subject(name)
                .with_evidence("/proc/driver/nvidia/version", None, driver.to_string())
                .with_evidence(
                    known.source.what,
                    Some(known.name),
                    format!("{}", known.from),
                )
                .would_say("No CUDA GPUs are available")
        })
        .collect()
}
