//! Mounts that an image or a shared folder would lead astray.

use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sconce_schema::request::Mount;

use crate::bench::{Bench, NOBODY_IN_PARTICULAR, Who, benches};
use crate::tools::{USERS, layer};

fn mount(source: &Path, target: &str) -> Mount {
    Mount {
        source: source.to_owned(),
        target: target.into(),
        read_only: false,
    }
}

/// A folder of the caller's with one file.
fn given(bench: &Bench) -> std::path::PathBuf {
    let folder = bench.folder.path().join("given");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mine"), "").unwrap();
    if bench.who == Who::Plain && rustix::process::geteuid().is_root() {
        chown(
            &folder,
            Some(NOBODY_IN_PARTICULAR),
            Some(NOBODY_IN_PARTICULAR),
        )
        .unwrap();
    }
    folder
}

/// CVE-2019-16884, CVE-2024-1753, CVE-2025-52881: a target that is a link in the image, to the kernel's
/// files, to the root, to what is outside.
#[test]
fn a_link_leads_no_mount_astray() {
    for bench in benches() {
        let given = given(&bench);
        let outside = bench.folder.path().join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        let mut base = bench.script("true");
        let top = layer(&bench, &mut base, "links");
        for (name, target) in [
            ("proc-link", "/proc"),
            ("sys-link", "sys"),
            ("kernel-link", "/proc/sys/kernel"),
            ("self-link", "/proc/self/root"),
            ("fd-link", "/proc/self/fd/0"),
            ("root-link", "/"),
            ("up-link", "../../../../.."),
        ] {
            symlink(target, top.join(name)).unwrap();
            for user in USERS {
                let mut request = bench.script("echo ran");
                layer(&bench, &mut request, "links");
                request.user = user;
                request.mounts.push(mount(&given, &format!("/{name}")));
                let done = bench.run(&request);
                assert_eq!(
                    (done.code, done.out.as_str()),
                    (125, ""),
                    "{name}: {}",
                    done.err
                );
                assert!(done.err.contains("cannot mount at"), "{name}: {}", done.err);
            }
        }
        // An absolute link means the image's root; there it may lead.
        symlink(&outside, top.join("out-link")).unwrap();
        symlink("/var", top.join("var-link")).unwrap();
        let mut request = bench.script("ls /var");
        layer(&bench, &mut request, "links");
        request.mounts.push(mount(&given, "/var-link"));
        assert_eq!(bench.run(&request).out, "mine\n");
        request.id += "-out";
        request.mounts[0].target = "/out-link/below".into();
        assert_eq!(bench.run(&request).code, 125);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        bench.assert_clean();
    }
}

#[test]
fn targets_go_straight_down() {
    for bench in benches() {
        let given = given(&bench);
        for target in ["/a/../../b", "relative", "/..", "/proc/../x"] {
            let mut request = bench.script("echo ran");
            request.mounts.push(mount(&given, target));
            let done = bench.run(&request);
            assert_eq!((done.code, done.out.as_str()), (125, ""), "{target}");
            assert!(done.err.contains(target), "{}", done.err);
        }
    }
}

/// A link within a mounted folder means a place inside, not the one outside.
#[test]
fn links_in_a_mounted_folder_stay_inside() {
    for bench in benches() {
        let secret = bench.folder.path().join("secret");
        std::fs::write(&secret, "outside").unwrap();
        symlink(&secret, bench.work().join("absolute")).unwrap();
        symlink("../secret", bench.work().join("relative")).unwrap();
        symlink("/etc/hostname", bench.work().join("hostname")).unwrap();
        let mut request = bench.script(
            "cat /project/absolute /project/relative; cat /project/hostname; cat /project/../secret",
        );
        request.mounts.push(bench.work_mount(false));
        let done = bench.run(&request);
        assert_eq!(done.out, format!("{}\n", request.id), "{}", done.err);
        // Outside they lead there.
        assert_eq!(
            std::fs::read_to_string(bench.work().join("relative")).unwrap(),
            "outside"
        );
    }
}

/// CVE-2021-30465, CVE-2019-19921: while runs begin, somebody who shares a folder with them exchanges a
/// mount's place in it for a link that leads out.
#[test]
fn a_place_that_is_exchanged_while_it_is_mounted() {
    for bench in benches() {
        let given = given(&bench);
        let outside = bench.folder.path().join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        let work = bench.work();
        for name in ["a/b", "other"] {
            std::fs::create_dir_all(work.join(name)).unwrap();
        }
        std::fs::remove_dir(work.join("other")).unwrap();
        symlink(&outside, work.join("other")).unwrap();
        if bench.who == Who::Plain && rustix::process::geteuid().is_root() {
            for name in ["a", "a/b"] {
                let owner = Some(NOBODY_IN_PARTICULAR);
                chown(work.join(name), owner, owner).unwrap();
            }
        }
        let (stop, exchanged) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU32::new(0)),
        );
        let racing = {
            let (stop, exchanged, work) = (stop.clone(), exchanged.clone(), work.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (one, other) = (work.join("a"), work.join("other"));
                    if renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok() {
                        exchanged.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let until = Instant::now() + Duration::from_secs(4);
        let (mut ran, mut refused) = (0, 0);
        while Instant::now() < until && ran + refused < 40 {
            let mut request = bench.script("echo ran");
            request.mounts.push(bench.work_mount(false));
            request.mounts.push(mount(&given, "/project/a/b/c"));
            let done = bench.run(&request);
            match (done.code, done.out.as_str()) {
                (0, "ran\n") => ran += 1,
                (125, "") => refused += 1,
                other => panic!("{other:?} {}", done.err),
            }
            // Neither what is mounted nor what is made for it came to be outside.
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        }
        stop.store(true, Ordering::Relaxed);
        racing.join().unwrap();
        assert!(
            exchanged.load(Ordering::Relaxed) > 100,
            "the race was not run"
        );
        assert!(ran + refused > 0);
        eprintln!("{:?}: {ran} ran, {refused} were refused", bench.who);
        bench.assert_clean();
    }
}
