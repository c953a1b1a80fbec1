//! What a command cannot do.

use sconce_schema::request::ContainerUser;
use sconce_schema::units::Bytes;

use crate::bench::{Who, benches};

#[test]
fn privileges_are_gone() {
    for bench in benches() {
        let done = bench.run(&bench.script("id -u; cat /proc/self/status"));
        assert!(done.out.starts_with("1000\n"), "{}", done.out);
        let field = |name: &str| {
            let line = done
                .out
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap();
            line.split_ascii_whitespace().nth(1).unwrap().to_owned()
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(
            (field("NoNewPrivs").as_str(), field("Seccomp:").as_str()),
            ("1", "2")
        );
    }
}

#[test]
fn root_inside_keeps_what_installing_needs_and_no_more() {
    for bench in benches() {
        let mut request = bench.script(
            "id -u; grep CapEff /proc/self/status; touch /etc/a && chown 0:0 /etc/a && echo owned; \
             mknod /tmp/d c 1 3 2>&1; mount -t tmpfs x /tmp 2>&1; echo 1 > /proc/sys/kernel/panic",
        );
        request.user = ContainerUser::Root;
        let done = bench.run(&request);
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!(lines[0], "0");
        // chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service, chroot,
        // setfcap: bits 0 1 3 4 5 6 7 10 18 31.
        assert_eq!(lines[1], "CapEff:\t00000000800404fb");
        assert_eq!(lines[2], "owned");
        assert!(lines[3].contains("Operation not permitted"), "{}", lines[3]);
        assert!(
            lines[4].contains("permission denied") || lines[4].contains("not permitted"),
            "{}",
            lines[4]
        );
        assert!(done.err.contains("Read-only file system"), "{}", done.err);
    }
}

#[test]
fn the_kernel_and_the_machine_are_out_of_reach() {
    for bench in benches() {
        for (script, says) in [
            ("echo 1 > /proc/sys/kernel/panic", "Read-only file system"),
            ("mknod /tmp/null c 1 3", "Operation not permitted"),
            ("unshare -r true", "Operation not permitted"),
            ("mount -t tmpfs none /tmp", "ermi"),
            ("mkdir /sys/kernel/x", "Read-only file system"),
            (": >> /proc/1/exe", "Permission denied"),
            ("cat /proc/1/environ", "Permission denied"),
            ("hostname other", "not permitted"),
            ("dmesg", "not permitted"),
            ("kill -9 1; sleep 0.1; echo alive >&2", "alive"),
        ] {
            let done = bench.run(&bench.script(script));
            assert!(
                done.err.contains(says),
                "{:?} {script}: {} {}",
                bench.who,
                done.out,
                done.err
            );
        }
    }
}

/// The overwrite of CVE-2019-5736: a command that is Sconce itself finds its own file read-only,
/// even as root inside.
#[test]
fn sconce_itself_cannot_be_overwritten() {
    for bench in benches() {
        let mut request = bench.script(
            "(exec 3>>/proc/1/exe) 2>&1; (exec 3</proc/1/mem) 2>&1; (exec 3</proc/1/fd/3) 2>&1; \
             ls /proc/1/root/ 2>&1",
        );
        request.user = ContainerUser::Root;
        let done = bench.run(&request);
        assert_eq!(
            done.out.matches("ermission denied").count(),
            4,
            "{}",
            done.out
        );
    }
}

#[test]
fn only_its_own_processes_descriptors_and_devices_are_seen() {
    for bench in benches() {
        let done = bench.run(&bench.script("ls /proc/self/fd; ls /dev; ps -o pid | wc -l"));
        let lines: Vec<_> = done.out.lines().collect();
        // Three streams, and the folder that ls itself reads.
        assert_eq!(lines[..4], ["0", "1", "2", "3"]);
        let devices = [
            "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
            "tty", "urandom", "zero",
        ];
        assert_eq!(lines[4..17], devices);
        assert!(
            lines[17].trim().parse::<u32>().unwrap() <= 6,
            "{}",
            lines[17]
        );
        let out = bench.run(&bench.script(
            "head -c 4 /dev/urandom | wc -c; echo x > /dev/null; ls -d /root /home/sconce",
        ));
        assert!(
            out.out.starts_with("4\n") && out.out.contains("/home/sconce"),
            "{}",
            out.out
        );
    }
}

#[test]
fn shared_memory_has_its_size() {
    for bench in benches() {
        let mut request = bench.script(
            "df -k /dev/shm | tail -1; head -c 9m /dev/zero > /dev/shm/x; wc -c < /dev/shm/x",
        );
        request.limits.shm = Some(Bytes::from_mib(8));
        let done = bench.run(&request);
        assert_eq!(
            done.out.split_ascii_whitespace().nth(1),
            Some("8192"),
            "{}",
            done.out
        );
        assert!(done.out.ends_with("\n8388608\n"), "{}", done.out);
    }
}

#[test]
fn the_image_stays_as_it_was() {
    for bench in benches() {
        let mut request =
            bench.script("echo mine > /tmp/a; rm /bin/vi; echo > /etc/passwd; cat /tmp/a");
        request.user = ContainerUser::Root;
        assert_eq!(bench.run(&request).out, "mine\n");
        assert!(bench.folder.path().join("base/bin/vi").is_symlink());
        let passwd = std::fs::read_to_string(bench.folder.path().join("base/etc/passwd")).unwrap();
        assert!(passwd.starts_with("root:"));
        assert_eq!(bench.run(&bench.script("ls /tmp")).out, "");
        bench.assert_clean();
    }
}

#[test]
fn many_layers_with_long_names() {
    for bench in benches() {
        let mut request = bench.script("cat /n | wc -l; ls /many | wc -l");
        let sconce_schema::request::RunRoot::Image(image) = &mut request.root else {
            panic!()
        };
        let deep = bench
            .folder
            .path()
            .join("x".repeat(200))
            .join("y".repeat(200));
        for number in 0..300 {
            let path = deep.join(format!("{number:064}"));
            std::fs::create_dir_all(path.join("many")).unwrap();
            std::fs::write(path.join("many").join(number.to_string()), "").unwrap();
            std::fs::write(path.join("n"), "\n".repeat(number + 1)).unwrap();
            image
                .layers
                .push(sconce_schema::environment_layers::LayerTree {
                    name: number.to_string(),
                    path,
                });
        }
        let done = bench.run(&request);
        assert_eq!(
            done.out.split_ascii_whitespace().collect::<Vec<_>>(),
            ["300", "300"],
            "{}",
            done.err
        );
    }
}

#[test]
fn a_missing_layer_is_named() {
    let Some(bench) = benches().pop() else { return };
    let mut request = bench.request(&["true"]);
    let sconce_schema::request::RunRoot::Image(image) = &mut request.root else {
        panic!()
    };
    image.layers[1].path = "/no/such/tree".into();
    let done = bench.run(&request);
    assert_eq!(done.code, 125);
    assert!(done.err.contains("layer /no/such/tree"), "{}", done.err);
    bench.assert_clean();
}

#[test]
fn devices_and_driver_files_of_edits_are_there() {
    use sconce_schema::request::{ContainerEdits, DeviceNode, EditMount};
    for bench in benches() {
        let library = bench.folder.path().join("libcuda.so.580.65.06");
        std::fs::write(&library, "driver").unwrap();
        let mut request = bench.script(
            "cat /usr/lib/libcuda.so; echo x > /usr/lib/libcuda.so; head -c 3 /dev/nvidia0 | wc -c",
        );
        request.edits.push(ContainerEdits {
            device_nodes: vec![DeviceNode {
                path: "/dev/nvidia0".to_owned(),
                host_path: "/dev/zero".to_owned(),
                r#type: "c".to_owned(),
                major: 1,
                minor: 5,
            }],
            mounts: vec![EditMount {
                host_path: library.to_str().unwrap().to_owned(),
                container_path: "/usr/lib/libcuda.so.580.65.06".to_owned(),
                options: ["ro", "nosuid", "nodev", "bind"].map(str::to_owned).into(),
            }],
            links: vec![
                (
                    "libcuda.so.580.65.06".to_owned(),
                    "/usr/lib/libcuda.so.1".to_owned(),
                ),
                ("libcuda.so.1".to_owned(), "/usr/lib/libcuda.so".to_owned()),
            ],
            ..ContainerEdits::default()
        });
        let done = bench.run(&request);
        assert_eq!(done.out, "driver3\n", "{:?} {}", bench.who, done.err);
        // A plain user's own files are the run's user's; there the mount alone stops writing.
        let refusal = if bench.who == Who::Root {
            "Permission denied"
        } else {
            "Read-only"
        };
        assert!(
            done.err.contains(refusal) || done.err.contains("Read-only"),
            "{}",
            done.err
        );
        assert_eq!(std::fs::read_to_string(&library).unwrap(), "driver");
    }
}
