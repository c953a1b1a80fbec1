//! Writable layers that outlive their run.

use std::os::unix::fs::{FileTypeExt, MetadataExt, chown};

use sconce_schema::request::ContainerUser;

use crate::bench::{NOBODY_IN_PARTICULAR, Who, benches};

#[test]
fn what_a_command_changed_is_kept() {
    for bench in benches() {
        let kept = bench.folder.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        // The plain user renames into the folder that holds it.
        if bench.who == Who::Plain && rustix::process::geteuid().is_root() {
            let owner = Some(NOBODY_IN_PARTICULAR);
            chown(bench.folder.path(), owner, owner).unwrap();
            chown(&kept, owner, owner).unwrap();
        }
        let mut request = bench.script(
            "hostname; mkdir /made && echo text > /made/file && rm /etc/passwd && mv /var /moved \
             || exit 1",
        );
        request.user = ContainerUser::Root;
        let child = bench
            .command(&request, false)
            .arg(format!("--keep={}", kept.display()))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let done = bench.finish(&request, child);
        assert_eq!(
            (done.code, done.out.as_str()),
            (0, "build\n"),
            "{}",
            done.err
        );
        let meta = |name: &str| kept.join(name).symlink_metadata().unwrap();
        assert_eq!(
            std::fs::read_to_string(kept.join("made/file")).unwrap(),
            "text\n"
        );
        // A removed name is a device with the number 0, however it was removed.
        for gone in ["etc/passwd", "var"] {
            let meta = meta(gone);
            assert!(
                meta.file_type().is_char_device() && meta.rdev() == 0,
                "{:?} {gone}",
                bench.who
            );
        }
        assert!(meta("moved").is_dir());
        let mut names: Vec<_> = std::fs::read_dir(&kept)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !sconce_run::is_machinery(name.as_ref()))
            .collect();
        names.sort();
        let whiteout_and_rest = ["etc", "home", "made", "moved", "tmp", "var"];
        assert_eq!(names, whiteout_and_rest);
        bench.assert_clean();
    }
}
