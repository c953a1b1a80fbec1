//! Folders of the host inside.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use sconce_schema::request::{ContainerUser, Mount};

use crate::bench::{Bench, Done, NOBODY_IN_PARTICULAR, Who, benches, root_bench};

fn with_work(bench: &Bench, script: &str, read_only: bool) -> sconce_schema::RunRequest {
    let mut request = bench.script(script);
    request.mounts.push(bench.work_mount(read_only));
    request.workdir = "/project".into();
    request
}

/// Whether the folder's file system can map owners at all (tmpfs can from Linux 6.3 on).
fn cannot_map(done: &Done) -> bool {
    let said = done.event("unenforced").map(ToString::to_string);
    let cannot = said.filter(|said| said.contains("owner of"));
    if let Some(said) = &cannot {
        sconce_testkit::report_skip("idmapped-mounts", said);
    }
    cannot.is_some()
}

#[test]
fn what_is_written_belongs_to_the_folders_owner() {
    for bench in benches() {
        for user in [ContainerUser::Plain, ContainerUser::Root] {
            let script =
                "mkdir -p made && echo text > made/file && cat made/file && stat -c %u made/file .";
            let mut request = with_work(&bench, script, false);
            request.user = user;
            let done = bench.run(&request);
            if cannot_map(&done) {
                continue;
            }
            let id = if user == ContainerUser::Plain {
                "1000"
            } else {
                "0"
            };
            assert_eq!(
                done.out,
                format!("text\n{id}\n{id}\n"),
                "{:?} {}",
                bench.who,
                done.err
            );
            let (folder, file) = (bench.work(), bench.work().join("made/file"));
            let owner = |path: &std::path::Path| {
                let metadata = path.metadata().unwrap();
                (metadata.uid(), metadata.gid())
            };
            assert_eq!(owner(&file), owner(&folder));
            std::fs::remove_dir_all(bench.work().join("made")).unwrap();
        }
    }
}

#[test]
fn root_can_run_in_another_users_folder() {
    let Some(bench) = root_bench() else { return };
    chown(
        bench.work(),
        Some(NOBODY_IN_PARTICULAR),
        Some(NOBODY_IN_PARTICULAR + 1),
    )
    .unwrap();
    std::fs::set_permissions(bench.work(), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(bench.work().join("roots"), "").unwrap();
    let script = "echo > mine; stat -c %u:%g mine roots; rm -f roots && echo removed";
    let done = bench.run(&with_work(&bench, script, false));
    if cannot_map(&done) {
        return;
    }
    assert_eq!(done.out, "1000:1000\n0:0\nremoved\n", "{}", done.err);
    let made = bench.work().join("mine").metadata().unwrap();
    assert_eq!(
        (made.uid(), made.gid()),
        (NOBODY_IN_PARTICULAR, NOBODY_IN_PARTICULAR + 1)
    );
}

#[test]
fn an_owner_of_the_same_number_needs_no_map() {
    let Some(bench) = root_bench() else { return };
    chown(bench.work(), Some(1000), Some(1000)).unwrap();
    let done = bench.run(&with_work(&bench, "echo > mine; stat -c %u:%g mine", false));
    assert_eq!(done.out, "1000:1000\n", "{}", done.err);
    assert_eq!(bench.work().join("mine").metadata().unwrap().uid(), 1000);
}

/// /proc is a file system that cannot map owners.
#[test]
fn a_file_system_that_cannot_map_owners_is_said() {
    let Some(bench) = root_bench() else { return };
    let mut request = bench.script("cat /host/ostype");
    request.mounts.push(Mount {
        source: "/proc/sys/kernel".into(),
        target: "/host".into(),
        read_only: true,
    });
    let done = bench.run(&request);
    assert_eq!(done.out, "Linux\n", "{}", done.err);
    let said = done.event("unenforced").unwrap().to_string();
    assert!(said.contains("owner of /host"), "{said}");
    assert_eq!(bench.run_strictly(&request).code, 8);
}

#[test]
fn read_only_is_read_only() {
    for bench in benches() {
        std::fs::write(bench.work().join("given"), "data").unwrap();
        let done = bench.run(&with_work(
            &bench,
            "cat given; echo > given; echo > new; rm given",
            true,
        ));
        assert_eq!(done.out, "data");
        assert_eq!(
            done.err.matches("Read-only file system").count(),
            3,
            "{}",
            done.err
        );
    }
}

#[test]
fn files_and_nested_targets() {
    for bench in benches() {
        std::fs::create_dir(bench.work().join("data")).unwrap();
        std::fs::write(bench.work().join("data/one"), "one").unwrap();
        if bench.who == Who::Plain {
            let data = bench.work().join("data");
            let _ = chown(data, Some(NOBODY_IN_PARTICULAR), Some(NOBODY_IN_PARTICULAR));
        }
        let mut request = with_work(&bench, "cat /project/deep/er/one /single", false);
        for (source, target) in [("data", "/project/deep/er"), ("data/one", "/single")] {
            request.mounts.push(Mount {
                source: bench.work().join(source),
                target: target.into(),
                read_only: false,
            });
        }
        let done = bench.run(&request);
        assert_eq!(done.out, "oneone", "{}", done.err);
        // The place for the inner mount was made in the outer folder, for its owner.
        let (place, folder) = (bench.work().join("deep/er"), bench.work());
        assert_eq!(
            place.metadata().unwrap().uid(),
            folder.metadata().unwrap().uid()
        );
    }
}

#[test]
fn a_missing_source_is_an_error_before_anything_starts() {
    for bench in benches() {
        let mut request = bench.script("echo started");
        request.mounts.push(Mount {
            source: bench.folder.path().join("nothing"),
            target: "/data".into(),
            read_only: false,
        });
        let done = bench.run(&request);
        assert_eq!((done.code, done.out.as_str()), (125, ""));
        assert!(
            done.err.contains("/nothing") && done.err.contains("No such file"),
            "{}",
            done.err
        );
        assert_eq!(done.events.len(), 0);
        bench.assert_clean();
    }
}

#[test]
fn links_do_not_lead_a_mount_out() {
    for bench in benches() {
        let outside = bench.folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, bench.folder.path().join("base/absolute")).unwrap();
        symlink(
            "../../../../../../../..",
            bench.folder.path().join("base/up"),
        )
        .unwrap();
        symlink(&outside, bench.work().join("link")).unwrap();
        for target in ["/absolute/place", "/project/link/place", "/up/place"] {
            let mut request = with_work(&bench, "true", false);
            request.mounts.push(Mount {
                source: bench.folder.path().join("events"),
                target: target.into(),
                read_only: false,
            });
            let done = bench.run(&request);
            // Inside, the first two lead to a folder that is not there; the third to the root.
            let code = if target == "/up/place" { 0 } else { 125 };
            assert_eq!(done.code, code, "{target}: {}", done.err);
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{target}");
            assert!(!std::path::Path::new("/place").exists());
        }
        bench.assert_clean();
    }
}

#[test]
fn a_folder_does_not_fit_on_a_file() {
    let Some(bench) = benches().pop() else { return };
    let mut request = with_work(&bench, "true", false);
    request.mounts.push(Mount {
        source: bench.work(),
        target: "/etc/passwd".into(),
        read_only: false,
    });
    let done = bench.run(&request);
    assert_eq!(done.code, 125);
    assert!(
        done.err.contains("cannot mount at /etc/passwd"),
        "{}",
        done.err
    );
    for target in ["/", "/proc", "/proc/sys", "/sys", "/dev"] {
        request.mounts[1].target = target.into();
        let done = bench.run(&request);
        assert!(
            done.err.contains("nothing can be mounted at"),
            "{}",
            done.err
        );
    }
}
