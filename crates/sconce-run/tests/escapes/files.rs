//! The kernel's files, devices, programs with more rights.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use sconce_schema::Runtime;

use crate::bench::{NOBODY_IN_PARTICULAR, benches, root_bench};
use crate::tools::{USERS, busybox, layer, with_probe};

/// What engines were left through by writing: the core pattern and the module loader (a program that
/// the kernel starts as root outside), SysRq, interrupts, devices' events, release agents, formats of
/// programs. Only opened, never written. A device is the empty one that hides the file.
#[test]
fn no_file_of_the_kernel_can_be_written() {
    for bench in benches() {
        for user in USERS {
            let mut request = bench.script(
                "for file in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe \
                   /proc/sys/kernel/hotplug /proc/sys/vm/panic_on_oom /proc/sys/vm/overcommit_memory \
                   /proc/sys/fs/binfmt_misc/register /proc/sysrq-trigger /proc/irq/default_smp_affinity \
                   /proc/kcore /proc/kmem /proc/mem /proc/bus/pci/00/00.0 \
                   /sys/kernel/uevent_helper /sys/kernel/mm/ksm/run /sys/power/state \
                   /sys/fs/cgroup/release_agent /sys/fs/cgroup/*/release_agent \
                   /sys/fs/cgroup/*/notify_on_release /sys/fs/cgroup/cgroup.procs \
                   /sys/fs/cgroup/*/cgroup.procs /sys/kernel/debug/x; do \
                 test -c $file && continue; (exec 3>>$file) 2>/dev/null && echo $file; done; \
                 (exec 3>>/tmp/file) && (exec 3>>/proc/self/comm) && echo control",
            );
            request.user = user;
            let done = bench.run(&request);
            assert_eq!(
                done.out, "control\n",
                "{:?} {user:?} {}",
                bench.who, done.err
            );
        }
    }
}

/// The same of everything that is there, whatever this kernel calls it. `/proc/PID` is the run's own.
#[test]
fn nothing_in_proc_and_sys_opens_for_writing() {
    // What has no bit for writing takes nothing; root inside may open it all the same.
    const WRITABLE: &str = "-perm /222";
    // Answered by the kernel for whoever asks, and of no consequence for others.
    const HARMLESS: [&str; 1] = ["/proc/pressure"];
    for bench in benches() {
        for user in USERS {
            let mut request = bench.script(&format!(
                "find /proc /sys -maxdepth 4 -type f {WRITABLE} ! -path '/proc/[0-9]*' ! -path '/proc/self/*' \
                   ! -path '/proc/thread-self/*' ! -path '/sys/devices/*' 2>/dev/null | \
                 while read -r file; do (exec 3>>\"$file\") 2>/dev/null && echo \"$file\"; done; \
                 echo end",
            ));
            request.user = user;
            let done = bench.run(&request);
            let open: Vec<_> = done
                .out
                .lines()
                .filter(|file| !HARMLESS.iter().any(|known| file.starts_with(known)))
                .collect();
            assert_eq!(open, ["end"], "{:?} {user:?}", bench.who);
        }
    }
}

/// CVE-2025-31133: what hides a file of the kernel is an empty device, not what an image has there.
#[test]
fn hidden_files_tell_nothing() {
    for bench in benches() {
        for user in USERS {
            let mut request = bench.script(
                "for file in /proc/kcore /proc/keys /proc/timer_list /proc/sched_debug \
                   /proc/latency_stats; do test -e $file && head -c 1 $file | wc -c; done; \
                 for folder in /proc/acpi /proc/asound /proc/dynamic_debug /proc/scsi /sys/firmware \
                   /sys/devices/virtual/powercap; do ls $folder 2>/dev/null; done; \
                 stat -c '%t %T' /dev/null; echo end",
            );
            request.user = user;
            let top = layer(&bench, &mut request, "masks");
            // An image with a /dev/null of its own does not come into it.
            std::fs::create_dir_all(top.join("dev")).unwrap();
            let _ = std::fs::remove_file(top.join("dev/null"));
            std::os::unix::fs::symlink("/proc/sys/kernel/core_pattern", top.join("dev/null"))
                .unwrap();
            let done = bench.run(&request);
            let lines: Vec<_> = done.out.lines().collect();
            let (masked, rest) = lines.split_at(lines.len() - 2);
            assert!(masked.iter().all(|count| *count == "0"), "{}", done.out);
            assert_eq!(rest, ["1 3", "end"], "{}", done.out);
        }
    }
}

/// Images whose /proc, /sys and /dev are links or files (CVE-2019-19921): these names are Sconce's.
#[test]
fn the_systems_folders_are_not_the_images() {
    for bench in benches() {
        let mut request = bench.script(
            "for name in proc sys dev etc tmp; do test -L /$name && echo $name; done; \
             stat -f -c %T /proc; test -d /sys/kernel && test -c /dev/null && cat /etc/hostname; ls /own",
        );
        let top = layer(&bench, &mut request, "folders");
        std::fs::create_dir(top.join("own")).unwrap();
        for name in ["proc", "sys", "dev", "etc", "tmp"] {
            std::os::unix::fs::symlink("/own", top.join(name)).unwrap();
        }
        let done = bench.run(&request);
        assert_eq!(done.out, format!("proc\n{}\n", request.id), "{}", done.err);
        assert_eq!(std::fs::read_dir(top.join("own")).unwrap().count(), 0);
    }
}

/// Nodes cannot be made, and those that an image or a mounted folder has do nothing.
#[test]
fn devices_of_others_cannot_be_opened() {
    let Some(root) = root_bench() else { return };
    let zero = root.folder.path().join("zero");
    let made = busybox(&root)
        .arg("mknod")
        .arg(&zero)
        .args(["c", "1", "5"])
        .status()
        .unwrap();
    let readable = made.success() && std::fs::File::open(&zero).is_ok();
    if !readable {
        sconce_testkit::report_skip("tmp-nodev", "the temporary folder has no devices");
        return;
    }
    for bench in benches() {
        // crun mounts the root again without `nodev`. Then the list of devices is the wall, in which
        // the kernel's log is not.
        let number = match bench.runtime {
            Runtime::Crun => "11",
            _ => "5",
        };
        for user in USERS {
            let mut request = bench.script(
                "for path in /zero /project/zero; do test -c $path && (exec 3<$path) && echo read; done; \
                 mknod /tmp/a c 1 5 && echo made; mknod /tmp/b b 7 0 && echo made; \
                 mknod /dev/c c 1 5 && echo made; echo end",
            );
            request.user = user;
            let top = layer(&bench, &mut request, "nodes");
            request.mounts.push(bench.work_mount(false));
            for folder in [&top, &bench.work()] {
                let node = folder.join("zero");
                if !node.exists() {
                    let node = busybox(&root)
                        .args(["mknod", "-m", "666"])
                        .arg(node)
                        .args(["c", "1", number])
                        .status();
                    assert!(node.unwrap().success());
                }
            }
            let done = bench.run(&request);
            assert_eq!(done.out, "end\n", "{:?} {}", bench.who, done.err);
            assert!(done.err.matches("ermi").count() >= 5, "{}", done.err);
        }
    }
}

/// A program in the image, or in a mounted folder, that makes whoever starts it root.
#[test]
fn set_user_id_programs_give_nothing() {
    let Some(bench) = root_bench() else { return };
    let mut request = bench.script("given who; /project/given who; probe who");
    let top = layer(&bench, &mut request, "setuid");
    std::fs::create_dir(top.join("bin")).unwrap();
    with_probe(&bench, &mut request);
    request.mounts.push(bench.work_mount(false));
    for path in [top.join("bin/given"), bench.work().join("given")] {
        std::fs::copy(env!("CARGO_BIN_EXE_probe"), &path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
    }
    let done = bench.run(&request);
    assert_eq!(done.out, "1000\n1000\n1000\n", "{}", done.err);
    // Outside it makes anyone root, unless the disk forbids.
    let outside = Command::new(top.join("bin/given"))
        .arg("who")
        .uid(NOBODY_IN_PARTICULAR)
        .gid(NOBODY_IN_PARTICULAR)
        .output()
        .unwrap();
    if outside.stdout != b"0\n" {
        sconce_testkit::report_skip("tmp-nosuid", "the temporary folder gives no rights away");
    }
}

/// Root inside, started by root, is the folder's owner and not root on its disk.
#[test]
fn root_inside_owns_what_the_folders_owner_owns() {
    let Some(bench) = root_bench() else { return };
    let owner = Some(NOBODY_IN_PARTICULAR);
    chown(bench.work(), owner, owner).unwrap();
    let mut request = bench.script("echo made > /project/file");
    request.user = sconce_schema::request::ContainerUser::Root;
    request.mounts.push(bench.work_mount(false));
    let done = bench.run(&request);
    if done
        .event("unenforced")
        .is_some_and(|said| said.to_string().contains("owner of"))
    {
        sconce_testkit::report_skip("idmapped-mounts", "this machine's disk cannot map owners");
        return;
    }
    let made = bench.work().join("file").metadata().unwrap();
    assert_eq!(
        (Some(made.uid()), Some(made.gid())),
        (owner, owner),
        "{}",
        done.err
    );
}
