//! Whether the machine's disks heed a weight.

use crate::roots::Roots;
use crate::small_files;

/// Whether a weight of a cgroup has any effect: a disk's scheduler is BFQ, or the kernel's cost
/// model is on for a disk (Documentation/admin-guide/cgroup-v2.rst, "IO Interface Files").
/// `top` is the top folder of cgroup v2, where it is mounted.
#[must_use]
pub fn detect_io_weight_support(roots: &Roots, top: Option<&std::path::Path>) -> bool {
    let bfq = || {
        let disks = std::fs::read_dir(roots.sys.join("block"))
            .into_iter()
            .flatten();
        disks.flatten().any(|disk| {
            small_files::read_line(&disk.path().join("queue/scheduler"))
                .is_some_and(|s| s.contains("[bfq]"))
        })
    };
    let cost = top.and_then(|top| small_files::read_text(&top.join("io.cost.qos")));
    cost.is_some_and(|text| text.contains("enable=1")) || bfq()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_needs_bfq_or_the_cost_model() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        assert!(!detect_io_weight_support(&roots, None));
        let queue = roots.sys.join("block/nvme0n1/queue");
        std::fs::create_dir_all(&queue).unwrap();
        std::fs::write(queue.join("scheduler"), "[none] mq-deadline bfq\n").unwrap();
        assert!(!detect_io_weight_support(&roots, Some(folder.path())));
        let qos = folder.path().join("io.cost.qos");
        std::fs::write(&qos, "259:0 enable=0 ctrl=auto\n").unwrap();
        assert!(!detect_io_weight_support(&roots, Some(folder.path())));
        std::fs::write(&qos, "259:0 enable=1 ctrl=auto rpct=0.00\n").unwrap();
        assert!(detect_io_weight_support(&roots, Some(folder.path())));
        std::fs::write(queue.join("scheduler"), "none mq-deadline [bfq]\n").unwrap();
        assert!(detect_io_weight_support(&roots, None));
    }
}
