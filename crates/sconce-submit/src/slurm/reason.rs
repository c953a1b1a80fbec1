//! Slurm's words for why a job waits or ended, in plain ones.

/// Words and what they mean: squeue(1), "JOB REASON CODES", and `job_reason_string` of Slurm's
/// `slurm_protocol_defs.c`.
const REASONS: &[(&str, &str)] = &[
    ("Priority", "other jobs are ahead of it"),
    ("Resources", "it is next, when enough nodes are free"),
    ("Dependency", "it waits for another job"),
    (
        "DependencyNeverSatisfied",
        "the job that it waits for ended in a way that it does not wait for: it will never start",
    ),
    (
        "BeginTime",
        "its earliest start is not reached; after a requeue Slurm sets one two minutes ahead",
    ),
    ("JobHeldUser", "it is held: `scontrol release` lets it go"),
    ("JobHeldAdmin", "it is held by whoever runs the cluster"),
    (
        "JobHoldMaxRequeue",
        "it was started again too often and is held",
    ),
    (
        "ReqNodeNotAvail",
        "nodes that it needs are down, drained or reserved",
    ),
    ("NodeDown", "a node that it needs is down"),
    ("PartitionDown", "its partition takes no jobs now"),
    ("PartitionInactive", "its partition starts no jobs now"),
    (
        "PartitionNodeLimit",
        "it asks for more or fewer nodes than its partition gives: it will not start as it is",
    ),
    (
        "PartitionConfig",
        "its partition cannot start it as it is: it asks for more nodes, cards or time than the partition gives, or nodes are down",
    ),
    (
        "PartitionTimeLimit",
        "it asks for more time than its partition gives: it will not start as it is",
    ),
    (
        "BadConstraints",
        "no nodes are as it asks for: it will not start as it is",
    ),
    ("FrontEndDown", "the front-end node is down"),
    ("Reservation", "it waits for its reservation to begin"),
    ("ReservationDeleted", "its reservation is gone"),
    ("Licenses", "it waits for a license"),
    ("Cleaning", "its previous start is still being cleaned up"),
    ("Prolog", "the site's prolog runs"),
    ("InvalidAccount", "its account is not valid"),
    ("InvalidQOS", "its quality of service is not valid"),
    (
        "AccountNotAllowed",
        "its account may not use this partition",
    ),
    (
        "QOSNotAllowed",
        "its quality of service may not use this partition or account",
    ),
    // In 22.05 whole sentences, with what is allowed behind them (`job_mgr.c`).
    (
        "Job's_account_not_permitted_to_use_this_partition",
        "its account may not use this partition",
    ),
    (
        "Job's_QOS_not_permitted_to_use_this_partition",
        "its quality of service may not use this partition",
    ),
    (
        "AssociationJobLimit",
        "you have as many jobs as your account may have",
    ),
    (
        "AssocMaxJobsLimit",
        "as many jobs of you run as your account lets each user run",
    ),
    (
        "AssocMaxSubmitJobLimit",
        "you have as many jobs as your account lets each user have",
    ),
    (
        "AssociationResourceLimit",
        "your account has reached a limit",
    ),
    ("AssociationTimeLimit", "your account has used up its time"),
    (
        "QOSJobLimit",
        "your quality of service has as many jobs as it may have",
    ),
    (
        "QOSResourceLimit",
        "your quality of service has reached a limit",
    ),
    (
        "QOSTimeLimit",
        "your quality of service has used up its time",
    ),
    (
        "QOSUsageThreshold",
        "your quality of service has fallen under its usage threshold",
    ),
    (
        "QOSMaxJobsPerUserLimit",
        "you run as many jobs as your quality of service lets each user run",
    ),
    (
        "QOSMaxSubmitJobPerUserLimit",
        "you have as many jobs as your quality of service lets each user have",
    ),
    (
        "QOSMaxGRESPerUser",
        "you use as many cards as your quality of service lets each user use",
    ),
    (
        "QOSMinGRES",
        "it asks for fewer cards than its quality of service is for",
    ),
    ("JobArrayTaskLimit", "as many tasks of its array run as may"),
    ("NonZeroExitCode", "it ended with an exit code other than 0"),
    (
        "RaisedSignal:53(Real-time_signal_19)",
        "its output file could not be opened",
    ),
    (
        "JobLaunchFailure",
        "it could not be started on its nodes (a missing directory, a failing prolog), or its script was killed",
    ),
    ("OutOfMemory", "it took more memory than it was given"),
    ("TimeLimit", "its time was over"),
    ("InactiveLimit", "it was inactive for too long"),
    ("SystemFailure", "a part of Slurm or of the machine failed"),
    (
        "launch_failed_requeued_held",
        "it could not be started, and is held: `scontrol release` tries it again",
    ),
    (
        "user_env_retrieval_failed_requeued_held",
        "its node could not read the variables of a login of yours (a shell's file that fails or takes too long, an \
         account that the node does not know), and it is held: `scontrol release` tries it again",
    ),
    (
        "job_requeued_in_special_exit_state",
        "it was put back into the queue by a special exit, and is held: `scontrol release` lets it go",
    ),
    (
        "job_requeued_in_held_state",
        "it was put back into the queue, and is held: `scontrol release` lets it go",
    ),
    ("DeadLine", "its deadline passed"),
    (
        "PowerNotAvail",
        "the power that the cluster may take does not suffice",
    ),
    (
        "PowerReserved",
        "the power that the cluster may take is reserved for others",
    ),
    (
        "BlockMaxError",
        "a block of nodes that it needs failed too often",
    ),
    (
        "BlockFreeAction",
        "a block of nodes that it needs is being freed",
    ),
    ("InvalidReason", "Slurm has no word for why"),
    (
        "ReservationInvalid",
        "its reservation is not valid for it: it will not start as it is",
    ),
    (
        "Constraints",
        "no nodes are as it asks for: it will not start as it is",
    ),
    (
        "BurstBufferOperation",
        "an operation on its burst buffer failed",
    ),
    (
        "BurstBufferStageOut",
        "what is in its burst buffer is being copied out",
    ),
    (
        "AccountingPolicy",
        "a limit of its account or quality of service holds it back",
    ),
    (
        "FedJobLock",
        "the clusters of the federation settle which of them starts it",
    ),
    (
        "MaxMemPerLimit",
        "it asks for more memory a node or CPU than its partition gives",
    ),
    (
        "MaxPoweredUpNodes",
        "as many nodes are powered up as may be",
    ),
    ("MpiPortsBusy", "ports that it reserved for MPI are in use"),
    (
        "NvidiaImexChannels",
        "all channels of NVIDIA's IMEX are in use",
    ),
    ("BurstBufferResources", "it waits for a burst buffer"),
    ("BurstBufferStageIn", "its burst buffer is being filled"),
    ("SchedDefer", "Slurm defers jobs at the moment"),
];

/// Families of words, by how they begin; each holds many limits, `QOSGrpGRES`, `AssocMaxNodePerJobLimit`.
const FAMILIES: &[(&str, &str)] = &[
    (
        "AssocGrp",
        "all jobs of your account together have reached a limit",
    ),
    ("AssocMax", "it asks for more than your account may have"),
    (
        "QOSGrp",
        "all jobs of its quality of service together have reached a limit",
    ),
    (
        "QOSMax",
        "it asks for more than its quality of service gives, or you use as much as it gives",
    ),
    (
        "QOSMin",
        "it asks for less than its quality of service is for",
    ),
];

/// The same, by how they begin and end: `MaxGRESPerAccount`, `MaxNodeRunMinsPerUser`. They are limits of a quality of
/// service for whoever shares it.
const BOUNDED_FAMILIES: &[(&str, &str, &str)] = &[
    (
        "MaxSubmitJobs",
        "PerAccount",
        "your account has as many jobs as it may",
    ),
    (
        "MaxJobs",
        "PerAccount",
        "your account runs as many jobs as it may",
    ),
    (
        "Max",
        "RunMinsPerAccount",
        "your account's running jobs together may still take as much time as they may",
    ),
    (
        "Max",
        "RunMinsPerUser",
        "your running jobs together may still take as much time as they may",
    ),
    (
        "Max",
        "PerAccount",
        "your account uses as much of something as it may (CPUs, nodes, memory, cards)",
    ),
];

/// Returns what a reason means; `None` if it is not known. What follows a word says more of it and does not count:
/// `ReqNodeNotAvail, UnavailableNodes:n2`.
pub(super) fn explain_reason(raw: &str) -> Option<&'static str> {
    let word = raw.split([',', ' ']).next().unwrap_or_default();
    // Groups before what each user has: `AssocGrpGRES`, `AssocGrpGRESMinutes` and sixty more.
    // Whole sentences, whose spaces 22.05 writes as underscores.
    let sentence = raw.split(" (").next().unwrap_or(raw).replace(' ', "_");
    let exact = |text: &str| REASONS.iter().find(|(name, _)| *name == text);
    let exact = exact(&sentence).or_else(|| exact(word));
    let family = || FAMILIES.iter().find(|(name, _)| word.starts_with(name));
    let bounded = || {
        let mut families = BOUNDED_FAMILIES.iter();
        let found = families.find(|(start, end, _)| word.starts_with(start) && word.ends_with(end));
        found.map(|(_, _, text)| *text)
    };
    let text = exact.or_else(family).map(|(_, text)| *text);
    text.or_else(bounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_families_and_what_follows_are_told_apart() {
        for (raw, part) in [
            ("Priority", "ahead of it"),
            ("Resources", "is next"),
            ("QOSMaxJobsPerUserLimit", "you run as many jobs"),
            ("AssocGrpGRES", "your account together"),
            ("QOSGrpGRESMinutes", "quality of service together"),
            ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "down, drained"),
            ("ReqNodeNotAvail", "down, drained"),
            ("PartitionTimeLimit", "more time than its partition"),
            ("BadConstraints", "no nodes are as it asks for"),
            ("launch failed requeued held", "could not be started"),
            ("launch_failed_requeued_held", "could not be started"),
            (
                "user env retrieval failed requeued held",
                "variables of a login",
            ),
            ("RaisedSignal:53(Real-time_signal_19)", "output file"),
            (
                "Job's account not permitted to use this partition (main allows theirs not vision)",
                "its account may not use",
            ),
            (
                "Job's QOS not permitted to use this partition (main allows long not normal)",
                "its quality of service may not use",
            ),
            ("MaxGRESPerAccount", "your account uses as much"),
            ("MaxNodeRunMinsPerUser", "your running jobs"),
            ("MaxJobsPerAccount", "runs as many jobs"),
        ] {
            assert!(explain_reason(raw).unwrap().contains(part), "{raw}");
        }
        for raw in [
            "",
            "SomethingNew",
            "priority",
            "é",
            "MaxSomething",
            "XPerAccount",
        ] {
            assert_eq!(explain_reason(raw), None);
        }
    }

    #[test]
    fn every_word_of_slurm_is_known() {
        let words = include_str!("../../tests/recorded/reasons.txt");
        let words = words.lines().filter(|line| !line.starts_with('#'));
        let unknown: Vec<&str> = words
            .clone()
            .filter(|word| explain_reason(word).is_none() && !word.starts_with("RaisedSignal"))
            .collect();
        assert_eq!(unknown, [""; 0]);
        assert!(words.count() > 200);
    }

    #[test]
    fn no_word_stands_there_twice() {
        let mut names: Vec<&str> = REASONS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REASONS.len());
    }
}
