//! How many files and folders a run makes on the disk, counted by the numbers that a file system in
//! memory gives: one after the other, also to those that are gone at once and those of the kernel's own
//! (tmpfs, `shmem_get_inode` in mm/shmem.c).

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use sconce_schema::request::Mount;

use crate::bench::{Bench, NOBODY_IN_PARTICULAR, Who, benches};

/// What overlayfs makes for itself in a volatile writable layer (`ovl_make_workdir` in
/// fs/overlayfs/super.c), and the run's lock and folder with three in it.
const MAX_INODES: u64 = 12;

/// Runs with the state folder in memory, and gives how many inodes were made in it.
fn inodes_of(bench: &Bench, request: &sconce_schema::RunRequest, more: &str) -> (u64, String) {
    let state = bench.state();
    let state = state.display();
    let script = format!(
        "mount -t tmpfs none {state}; : > {state}/a; \"$@\" {more}; code=$?; : > {state}/b; \
         stat -c %i {state}/a {state}/b; exit $code"
    );
    let done = bench.run_from(request, false, &script);
    assert_eq!(done.code, 0, "{}", done.err);
    let numbers: Vec<u64> = (done.out.lines().rev().take(2))
        .map(|line| line.parse().unwrap())
        .collect();
    (numbers[0] - numbers[1] - 1, done.out)
}

#[test]
fn a_run_that_writes_nothing_makes_few_inodes() {
    for bench in benches() {
        let mut request = bench.request(&["true"]);
        // Places that the image has, that it has not, and below another mount.
        for target in ["/var", "/project", "/run/sconce/python", "/project/inner"] {
            let source = bench.work();
            std::fs::create_dir_all(source.join("inner")).unwrap();
            request.mounts.push(Mount {
                source,
                target: target.into(),
                read_only: true,
            });
        }
        let (inodes, _) = inodes_of(&bench, &request, "--shared=/run/sconce/account");
        assert!(inodes <= MAX_INODES, "{:?}: {inodes} inodes", bench.who);
    }
}

#[test]
fn what_is_in_memory_looks_like_the_image() {
    for bench in benches() {
        let base = bench.folder.path().join("base");
        let mode = std::os::unix::fs::PermissionsExt::from_mode;
        std::fs::create_dir_all(base.join("srv/deep")).unwrap();
        std::fs::write(base.join("srv/deep/file"), "of the image").unwrap();
        std::fs::set_permissions(base.join("srv"), mode(0o1755)).unwrap();
        std::os::unix::fs::symlink("/srv", base.join("link")).unwrap();
        // In a user's own store everything is that user's.
        if bench.who == Who::Plain && rustix::process::geteuid().is_root() {
            let owner = Some(NOBODY_IN_PARTICULAR);
            for folder in ["srv", "srv/deep"] {
                chown(base.join(folder), owner, owner).unwrap();
            }
        }
        let script = "cat /srv/deep/file; stat -c ' %a' /srv; ls -A /srv /srv/deep /link/; \
                      ls -Ad /link; cat /etc/hostname > /dev/null && ls -A /etc";
        let mut request = bench.script(script);
        for target in ["/srv/deep/place", "/link/other"] {
            request.mounts.push(Mount {
                target: target.into(),
                ..bench.work_mount(true)
            });
        }
        request.user = sconce_schema::request::ContainerUser::Root;
        let done = bench.run(&request);
        // Names are resolved as the machine does it, if it does.
        let resolver = match Path::new("/etc/resolv.conf").exists() {
            true => "resolv.conf\n",
            false => "",
        };
        assert_eq!(
            done.out,
            format!(
                "of the image 1755\n/link/:\ndeep\nother\n\n/srv:\ndeep\nother\n\n/srv/deep:\nfile\nplace\n\
                 /link\nhostname\nhosts\npasswd\n{resolver}"
            ),
            "{:?} {}",
            bench.who,
            done.err
        );
    }
}

/// Two files are one where both numbers are equal, and one that is written to stays who it was.
#[test]
fn files_keep_their_numbers() {
    for bench in benches() {
        let script = "stat -c '%d %i' /etc/passwd /etc/hosts /etc; echo >> /etc/passwd; \
                      echo >> /etc/hosts; stat -c '%d %i' /etc/passwd /etc/hosts /etc; stat -c %d /";
        let mut request = bench.script(script);
        request.user = sconce_schema::request::ContainerUser::Root;
        let done = bench.run(&request);
        let lines: Vec<&str> = done.out.lines().collect();
        assert_eq!(lines.len(), 7, "{done:?}");
        let device = lines[6];
        assert!(
            lines[..6].iter().all(|line| line.starts_with(device)),
            "{done:?}"
        );
        // A plain user's overlay needs attributes on a file system in memory for that (Linux 6.6).
        if rustix::process::geteuid().is_root() && bench.who == Who::Root {
            assert_eq!(lines[..3], lines[3..6]);
        }
    }
}

/// What processes of the run write there is read by the supervisor, who has no path to it.
#[test]
fn the_shared_folder_is_in_memory() {
    for bench in benches() {
        let script = "stat -c %a /run/sconce/account; echo told > /run/sconce/account/by; \
                      df /run/sconce/account | tail -n 1 | cut -d ' ' -f 1";
        let request = bench.script(script);
        let mut command = bench.command(&request, false);
        let output = command
            .arg("--shared=/run/sconce/account")
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            out,
            "1777\ntmpfs\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let told = bench.told(&request, "shared").unwrap();
        assert_eq!(told, serde_json::json!(["by"]), "{:?}", bench.who);
        bench.assert_clean();
    }
}

/// A writable layer that is kept has what it always had, in what its disk is.
#[test]
fn a_kept_layer_has_what_every_container_has() {
    for bench in benches() {
        if bench.who != Who::Root {
            continue;
        }
        let kept = bench.folder.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        let mut request = bench.script("true");
        request.mounts.push(bench.work_mount(true));
        let mut command = bench.command(&request, false);
        let output = command.arg(format!("--keep={}", kept.display())).output();
        assert!(output.unwrap().status.success());
        for name in ["etc/hosts", "home/sconce", "tmp", "dev", "project"] {
            assert!(kept.join(name).exists(), "{name}");
        }
        assert_eq!(kept.join("home/sconce").metadata().unwrap().uid(), 1000);
    }
}

/// A folder of the image whose owner a user namespace has no name for stays as it is.
#[test]
fn a_folder_of_a_stranger_is_not_taken_over() {
    for bench in benches() {
        if bench.who != Who::Plain || !rustix::process::geteuid().is_root() {
            continue;
        }
        let base = bench.folder.path().join("base");
        std::fs::create_dir(base.join("srv")).unwrap();
        // The system itself is the user's own.
        let owner = Some(NOBODY_IN_PARTICULAR);
        chown(&base, owner, owner).unwrap();
        let mut request = bench.script("stat -c '%u %a' /srv; ls -Ad /srv/place");
        request.mounts.push(Mount {
            target: "/srv/place".into(),
            ..bench.work_mount(true)
        });
        let done = bench.run(&request);
        assert_eq!(done.code, 125, "{done:?}");
        assert!(
            done.err.contains("cannot mount at /srv/place"),
            "{}",
            done.err
        );
        request.mounts.clear();
        request.id += "-again";
        let done = bench.run(&request);
        assert!(done.out.starts_with("65534 755"), "{done:?}");
    }
}

/// As of a store that another user owns: none of its folders could have a place, and all that needs one would fail.
#[test]
fn a_system_of_another_user_has_places_for_mounts() {
    for bench in benches() {
        if bench.who != Who::Plain || !rustix::process::geteuid().is_root() {
            continue;
        }
        std::fs::create_dir(bench.folder.path().join("base/srv")).unwrap();
        let mut request = bench.script("ls -Ad /srv/place; touch /etc/passwd");
        request.mounts.push(Mount {
            target: "/srv/place".into(),
            ..bench.work_mount(true)
        });
        let done = bench.run(&request);
        assert_eq!(done.out, "/srv/place\n", "{done:?}");
        // What is in them stays that user's.
        assert!(
            done.code != 0 && done.err.contains("/etc/passwd"),
            "{done:?}"
        );
    }
}
