//! What Slurm's programs say on standard error, as errors: texts of `slurm_errno.c` and of the programs themselves.

use sconce_base::text::to_printable;

use crate::error::{RejectionCause, SubmitError};

/// The most of a program's words that is shown, characters.
const MAX_SAID_CHARS: usize = 400;

/// Parts of texts, each with what it means. The first that is found counts.
const REJECTIONS: &[(&str, RejectionCause)] = &[
    ("Invalid partition name", RejectionCause::Partition),
    ("invalid partition specified", RejectionCause::Partition),
    ("No partition specified", RejectionCause::Partition),
    (
        "group not permitted to use this partition",
        RejectionCause::Partition,
    ),
    (
        "Required partition not available",
        RejectionCause::Partition,
    ),
    ("Invalid account", RejectionCause::Account),
    ("Invalid qos", RejectionCause::Qos),
    ("QOS usage threshold", RejectionCause::Qos),
    ("violates accounting/QOS policy", RejectionCause::Limit),
    ("Memory required by task", RejectionCause::Memory),
    (
        "Memory specification can not be satisfied",
        RejectionCause::Memory,
    ),
    (
        "Requested node configuration is not available",
        RejectionCause::Nodes,
    ),
    (
        "Requested partition configuration not available",
        RejectionCause::Nodes,
    ),
    ("Node count specification invalid", RejectionCause::Nodes),
    ("CPU count specification invalid", RejectionCause::Nodes),
    (
        "More processors requested than permitted",
        RejectionCause::Nodes,
    ),
    ("Requested more tasks than available", RejectionCause::Nodes),
    ("Required node not available", RejectionCause::Nodes),
    ("Invalid node name", RejectionCause::Nodes),
    ("Invalid generic resource (gres)", RejectionCause::Nodes),
    ("Invalid Trackable RESource", RejectionCause::Nodes),
    ("Invalid GRES", RejectionCause::Nodes),
    ("Invalid feature", RejectionCause::Constraint),
    ("Invalid job array specification", RejectionCause::Array),
    ("Requested time limit is invalid", RejectionCause::Time),
    ("Invalid --time", RejectionCause::Time),
    ("requested reservation", RejectionCause::Reservation),
    ("Requested reservation", RejectionCause::Reservation),
    ("Access/permission denied", RejectionCause::Permission),
    ("System submissions disabled", RejectionCause::Permission),
    ("Burst Buffer permission denied", RejectionCause::Permission),
    ("Invalid job id", RejectionCause::NoJob),
    ("already completing or completed", RejectionCause::NoJob),
    ("unrecognized option", RejectionCause::Option),
    ("invalid option", RejectionCause::Option),
    ("option requires an argument", RejectionCause::Option),
    ("is ambiguous", RejectionCause::Option),
    (
        "Invalid directive found in batch script",
        RejectionCause::Option,
    ),
    ("only permitted by root", RejectionCause::Option),
    ("Invalid license specification", RejectionCause::Licence),
    ("DOS line breaks", RejectionCause::Script),
    ("Batch script", RejectionCause::Script),
    ("does not look like a batch script", RejectionCause::Script),
    (
        "Pathname of a file, directory or other parameter too long",
        RejectionCause::Script,
    ),
];

/// Texts after which it is sure that the controller did not take anything.
const UNREACHABLE: [&str; 6] = [
    "Unable to contact slurm controller (connect failure)",
    "Unable to contact slurm controller (send failure)",
    "Slurm backup controller in standby mode",
    "Controller is in standby mode",
    "Could not establish a configuration source",
    "Unable to process configuration file",
];

/// Texts after which nobody knows whether the controller took it.
const UNSURE: [&str; 9] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Message receive failure",
    "Unexpected message received",
    "Communication connection failure",
    "Communication shutdown failure",
    "Connection reset",
    "Connection timed out",
];

/// Returns what a program said, without its own name before each line, as one line that may be shown.
pub(super) fn shorten_said(stderr: &str) -> String {
    let lines = stderr.lines().map(|line| {
        let mut line = line.trim();
        for word in [
            "sbatch:", "squeue:", "sacct:", "scancel:", "error:", "fatal:",
        ] {
            line = line.strip_prefix(word).unwrap_or(line).trim_start();
        }
        line
    });
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    match lines.is_empty() {
        true => "nothing was said".to_owned(),
        false => to_printable(&lines.join("; "), MAX_SAID_CHARS),
    }
}

/// Returns the error of a program that failed.
pub(super) fn error_of(program: &'static str, stderr: &str) -> SubmitError {
    let said = shorten_said(stderr);
    if is_unsure(stderr) || UNREACHABLE.iter().any(|text| stderr.contains(text)) {
        return SubmitError::Unreachable { said };
    }
    let found = REJECTIONS.iter().find(|(text, _)| stderr.contains(text));
    // Whatever sbatch finds wrong with an option before it asks anybody: `Invalid --signal specification`.
    let is_option = stderr.contains("Invalid --") && stderr.contains("specification");
    match (found, is_option) {
        (Some((_, cause)), _) => SubmitError::Rejected {
            cause: *cause,
            said,
        },
        (None, true) => SubmitError::Rejected {
            cause: RejectionCause::Option,
            said,
        },
        (None, false) => SubmitError::Failed { program, said },
    }
}

/// Whether the controller may have taken what it gave no answer to.
pub(super) fn is_unsure(stderr: &str) -> bool {
    UNSURE.iter().any(|text| stderr.contains(text))
        && !UNREACHABLE.iter().any(|text| stderr.contains(text))
}

/// Whether sacct says that this cluster keeps no accounts: no slurmdbd, no file.
pub(super) fn has_no_accounting(stderr: &str) -> bool {
    stderr.contains("accounting storage is disabled")
        || stderr.contains("Slurm accounting storage is not")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What programs of 22.05 wrote, captured on a cluster of two nodes.
    #[test]
    fn words_of_real_programs_become_causes() {
        use RejectionCause as Cause;
        for (stderr, cause) in [
            (
                "sbatch: error: invalid partition specified: nope\n\
                 sbatch: error: Batch job submission failed: Invalid partition name specified\n",
                Cause::Partition,
            ),
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified\n",
                Cause::Account,
            ),
            (
                "sbatch: error: Batch job submission failed: Invalid qos specification\n",
                Cause::Qos,
            ),
            (
                "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n",
                Cause::Limit,
            ),
            (
                "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
                Cause::Nodes,
            ),
            (
                "sbatch: error: Memory specification can not be satisfied\n\
                 sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
                Cause::Memory,
            ),
            (
                "sbatch: error: Batch job submission failed: Invalid feature specification\n",
                Cause::Constraint,
            ),
            (
                "sbatch: error: Batch job submission failed: Requested reservation is invalid\n",
                Cause::Reservation,
            ),
            (
                "sbatch: unrecognized option '--nonsense=1'\nTry \"sbatch --help\" for more information\n",
                Cause::Option,
            ),
            (
                "sbatch: error: Batch job submission failed: Invalid license specification\n",
                Cause::Licence,
            ),
            (
                "sbatch: error: Invalid --signal specification\n",
                Cause::Option,
            ),
            (
                "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n\
                 sbatch: error: instead of expected UNIX line breaks (\\n).\n",
                Cause::Script,
            ),
            (
                "scancel: error: Kill job error on job id 32: Access/permission denied\n",
                Cause::Permission,
            ),
            (
                "slurm_load_jobs error: Invalid job id specified\n",
                Cause::NoJob,
            ),
        ] {
            match error_of("sbatch", stderr) {
                SubmitError::Rejected { cause: found, said } => {
                    assert_eq!(found, cause, "{stderr}");
                    assert!(!said.contains("sbatch: error"), "{said}");
                }
                other => panic!("{stderr}: {other:?}"),
            }
        }
    }

    #[test]
    fn no_answer_is_told_from_no_connection() {
        let away = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n";
        assert!(matches!(
            error_of("sbatch", away),
            SubmitError::Unreachable { .. }
        ));
        assert!(!is_unsure(away));
        for unsure in [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
            "Unable to contact slurm controller (receive failure)",
            "Zero Bytes were transmitted or received",
        ] {
            assert!(is_unsure(unsure), "{unsure}");
        }
        assert!(has_no_accounting("Slurm accounting storage is disabled\n"));
    }

    #[test]
    fn what_is_said_is_one_line_that_may_be_shown() {
        let hostile = format!(
            "sbatch: error: \u{1b}[31mred\nsbatch: fatal: {}\n",
            "x".repeat(9999)
        );
        let said = shorten_said(&hostile);
        assert_eq!(said.chars().count(), MAX_SAID_CHARS);
        assert!(said.starts_with(" [31mred; xxx"), "{said}");
        assert_eq!(shorten_said(" \n"), "nothing was said");
    }
}
