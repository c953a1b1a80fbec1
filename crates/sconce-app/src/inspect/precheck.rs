//! The cheap part, for verbs whose work is something else: versions and names alone, nothing read.

use sconce_compat::rules::{self, CheckInput, EnvironmentVersions};
use sconce_schema::finding::{Certainty, Severity};
use sconce_schema::{Finding, HostFacts, Lock};

use crate::context::AppContext;
use crate::reporter::AppEvent;

/// Finds what of the lock will fail on these machines; what is only possible is left to `sconce check`.
pub fn find_failures(lock: &Lock, hosts: &[HostFacts]) -> Vec<Finding> {
    let environment = EnvironmentVersions::from_lock(lock);
    let mut failures: Vec<Finding> = Vec::new();
    for host in hosts {
        let case = CheckInput {
            host,
            environment: Some(&environment),
            files: &[],
        };
        let found = rules::check_environment(&case);
        for finding in found.into_iter().filter(is_worth_it) {
            if failures.iter().all(|failure| failure.what != finding.what) {
                failures.push(finding);
            }
        }
    }
    failures
}

/// Tells what of the lock will fail on these machines.
pub fn report_failures(lock: &Lock, hosts: &[HostFacts], context: &AppContext) {
    if context.quiet {
        return;
    }
    let failures = find_failures(lock, hosts);
    if !failures.is_empty() {
        context.report(&AppEvent::WillFail(&failures));
    }
}

fn is_worth_it(finding: &Finding) -> bool {
    finding.weight == Severity::Fails && finding.certainty != Certainty::Possible
}

#[cfg(test)]
mod tests {
    use sconce_compat::tables;

    use super::*;

    #[test]
    fn an_old_driver_and_an_old_card_are_worth_a_warning() {
        let mut lock = Lock::parse(include_str!("testdata/lock.toml")).unwrap();
        let host = |gpu, driver| tables::host_from_gpu_name(gpu, Some(driver)).unwrap();
        let fails = |lock: &Lock, host: &HostFacts| {
            let environment = EnvironmentVersions::from_lock(lock);
            let case = CheckInput {
                host,
                environment: Some(&environment),
                files: &[],
            };
            let found = rules::check_environment(&case)
                .into_iter()
                .filter(is_worth_it);
            found.map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(fails(&lock, &host("H100", "595.45.04")), [""; 0]);
        assert_eq!(fails(&lock, &HostFacts::default()), [""; 0]);
        assert_eq!(
            fails(&lock, &host("H100", "535.104.05")),
            ["driver-too-old"]
        );
        assert_eq!(
            fails(&lock, &host("V100", "580.65.06")),
            ["no-kernel-image"]
        );
        lock.wheels.retain(|wheel| wheel.name != "torch");
        assert_eq!(fails(&lock, &host("V100", "580.65.06")), [""; 0]);
    }
}
