//! Mounts that lead to Sconce's own folders by a bind mount, of which no path tells.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a script in the home, where what it mounts is its own. Its exit code, and what it said; `None` where this
/// machine does not let it mount.
fn in_own_mounts(home: &Path, script: &str) -> Option<(i32, String)> {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["--mount", "--propagation", "private", "sh", "-euc", script])
        .current_dir(home)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", home)
        .env("sconce", env!("CARGO_BIN_EXE_sconce"))
        .stdin(Stdio::null())
        .output()
        .expect("util-linux is there");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("unshare failed") || said.contains("mount: ") {
        sconce_testkit::report_skip("own-mounts", &said);
        return None;
    }
    Some((output.status.code().expect("an exit code"), said))
}

#[test]
fn no_bind_mount_leads_to_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().canonicalize().expect("it is there");
    let store = ".local/share/sconce";
    for path in [store, "big/sconce", "big/other", "data", "project/data"] {
        fs::create_dir_all(home.join(path)).expect("room");
    }
    fs::write(home.join("project/sconce.toml"), "").expect("room");
    let mounting = |source: &str| format!("\"$sconce\" run -v {source}:/x oci:none -- true");
    let project = "cd project; \"$sconce\" run -- true".to_owned();
    for (mounted, call, refused) in [
        // The store is on a larger disk, and the disk is mounted.
        (format!("big/sconce {store}"), mounting("big"), true),
        (format!("big/sconce {store}"), mounting("big/sconce"), true),
        // The store shows below the project.
        (format!("{store} project/data"), project, true),
        (format!("{store} project/data"), mounting("project"), true),
        // The home has another path, with the larger disk over the store and without.
        (". data".to_owned(), mounting("data"), true),
        (
            format!(". data; mount --bind big/sconce {store}"),
            mounting("data/.local/share"),
            true,
        ),
        // What is beside may be mounted, and what is only read.
        (format!("big/sconce {store}"), mounting("big/other"), false),
        (format!("big/sconce {store}"), mounting("project"), false),
        (
            format!("big/sconce {store}"),
            "\"$sconce\" run -v big:/x:ro oci:none -- true".to_owned(),
            false,
        ),
    ] {
        let script = format!("mount --bind {mounted}; {call}");
        let Some((code, said)) = in_own_mounts(&home, &script) else {
            return;
        };
        let names_store = said.contains("the store");
        match refused {
            true => assert!(code == 3 && names_store, "{script}: {said}"),
            // There is no such image.
            false => assert!(
                code != 0 && !names_store && said.contains("none"),
                "{script}: {said}"
            ),
        }
    }
}
