//! An OCI bundle (runtime-spec 1.0.2, config.md and config-linux.md) for runc and crun: the run's
//! folder, with config.json beside the root.
//!
//! The bundle has no mounts but, for runc, /dev: the root is complete before the engine starts, by the code
//! that makes it where Sconce starts the command itself, so that owners, hidden files and what is
//! read-only are the same. The namespaces are those in which the engine runs; it adds one for its
//! own mounts, and crun one in which a plain user is uid 1000.

use std::ffi::OsString;

use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use super::{EngineContext, PATH, Start, log, pid_file, write_private};
use crate::error::{InvalidRequest, RunError};
use crate::seccomp;

/// The newest version whose fields are used: `errnoRet` of seccomp.
const SPEC: &str = "1.0.2";

/// Writes config.json, and gives the engine's command line.
pub(super) fn write_config(asked: &EngineContext<'_>) -> Result<Start, RunError> {
    let config = config(asked)?.to_string();
    write_private(&asked.scratch.join("config.json"), config.as_bytes())?;
    let mut command: Vec<OsString> = vec![asked.engine.program.clone().into()];
    let mut word = |word: &str| command.push(word.into());
    if asked.engine.traits.works_without_cgroup && asked.cgroup().is_none() {
        word("--cgroup-manager=disabled");
    }
    word("--log-format=json");
    word("--log");
    command.push(log(asked).into());
    // Its own list of containers, which goes with the run.
    command.push("--root".into());
    command.push(asked.scratch.join("engine").into());
    command.extend(["run", "--pid-file"].map(Into::into));
    command.push(pid_file(asked).into());
    command.push("--bundle".into());
    command.push(asked.scratch.into());
    command.push(asked.request.id.clone().into());
    Ok(Start {
        command,
        env: vec![PATH.into()],
    })
}

/// /dev as it is, for runc, which would fill it otherwise. crun leaves what is there, and would bind
/// it without what is mounted in it.
fn mounts(asked: &EngineContext<'_>) -> Value {
    match asked.engine.traits.leaves_dev {
        true => json!([]),
        false => json!([{
            "destination": "/dev",
            "type": "bind",
            "source": asked.scratch.join("root/dev"),
            "options": ["rbind", "rprivate"],
        }]),
    }
}

/// config.json.
fn config(asked: &EngineContext<'_>) -> Result<Value, RunError> {
    let texts = |list: &[OsString]| {
        let text = |text: &OsString| text.to_str().map(str::to_owned);
        let texts: Option<Vec<String>> = list.iter().map(text).collect();
        texts.ok_or(RunError::Request(InvalidRequest::Engine {
            runtime: asked.engine.runtime,
            what: "words that are no UTF-8",
        }))
    };
    let (uid, gid) = asked.user();
    let capabilities = asked.capabilities();
    let mut namespaces = vec![json!({ "type": "mount" })];
    let mut linux = json!({ "seccomp": seccomp::build_oci_filter() });
    // Of the one user that there is in the engine's namespace, another name.
    if !asked.root && uid != 0 {
        namespaces.push(json!({ "type": "user" }));
        linux["uidMappings"] = json!([{ "containerID": uid, "hostID": 0, "size": 1 }]);
        linux["gidMappings"] = json!([{ "containerID": gid, "hostID": 0, "size": 1 }]);
    }
    let mut process = json!({
        "terminal": asked.request.terminal,
        "user": { "uid": uid, "gid": gid, "umask": 0o022 },
        "args": texts(asked.command)?,
        "env": texts(asked.env)?,
        "cwd": asked.request.workdir,
        "capabilities": {
            "bounding": capabilities,
            "effective": capabilities,
            "permitted": capabilities,
        },
        "noNewPrivileges": true,
    });
    // Engines take the size over only when the command has begun.
    if let (true, Ok(size)) = (asked.request.terminal, tcgetwinsize(rustix::stdio::stdin())) {
        process["consoleSize"] = json!({ "height": size.ws_row, "width": size.ws_col });
    }
    linux["namespaces"] = namespaces.into();
    if let Some((_, cgroup)) = asked.cgroup() {
        linux["cgroupsPath"] = json!(cgroup);
        if asked.root {
            linux["resources"] = json!({ "devices": crate::cgroup::oci_devices(asked.request) });
        }
    }
    Ok(json!({
        "ociVersion": SPEC,
        "process": process,
        "root": { "path": "root" },
        "mounts": mounts(asked),
        "linux": linux,
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::PermissionsExt;

    use sconce_schema::request::ContainerUser;

    use sconce_schema::Runtime;

    use super::super::testing::EngineFixture;
    use super::*;

    fn texts(list: &Value) -> Vec<&str> {
        let list = list.as_array().unwrap().iter();
        list.map(|text| text.as_str().unwrap()).collect()
    }

    /// What runtime-spec's schema asks of the fields that are there, for every kind of run.
    #[test]
    fn every_bundle_is_one() {
        for runtime in [Runtime::Runc, Runtime::Crun] {
            for user in [ContainerUser::Plain, ContainerUser::Root] {
                for root in [true, false] {
                    let made = EngineFixture::new(runtime, user, root);
                    let start = write_config(&made.engine_context()).unwrap();
                    let path = made.folder.path().join("config.json");
                    let mode = path.metadata().unwrap().permissions().mode();
                    assert_eq!(mode & 0o777, 0o600, "variables may be secrets");
                    let text = std::fs::read(&path).unwrap();
                    let config: Value = serde_json::from_slice(&text).unwrap();
                    assert_eq!(config["ociVersion"], "1.0.2");
                    assert_eq!(config["root"]["path"], "root");
                    let process = &config["process"];
                    assert_eq!(texts(&process["args"]), ["python", "-c", "1"]);
                    assert_eq!(process["cwd"], "/workspace");
                    assert_eq!(process["noNewPrivileges"], true);
                    let kept = if user == ContainerUser::Root { 10 } else { 0 };
                    for set in ["bounding", "effective", "permitted"] {
                        let names = texts(&process["capabilities"][set]);
                        assert_eq!(names.len(), kept);
                        assert!(names.iter().all(|name| name.starts_with("CAP_")));
                    }
                    let kinds = config["linux"]["namespaces"].as_array().unwrap().iter();
                    let kinds: Vec<_> = kinds.map(|n| n["type"].as_str().unwrap()).collect();
                    let mapped = runtime == Runtime::Crun && user == ContainerUser::Plain && !root;
                    let expected: &[&str] = match mapped {
                        true => &["mount", "user"],
                        false => &["mount"],
                    };
                    assert_eq!(kinds, expected);
                    let map = json!([{ "containerID": 1000, "hostID": 0, "size": 1 }]);
                    let maps = &config["linux"]["uidMappings"];
                    assert_eq!(*maps, if mapped { map } else { Value::Null });
                    let line = format!("{:?}", start.command);
                    assert!(!line.contains("hf_secret"), "{line}");
                }
            }
        }
    }

    #[test]
    fn bundle_is_as_before() {
        for (runtime, user, root, name) in [
            (
                Runtime::Runc,
                ContainerUser::Root,
                true,
                "config-runc-root.json",
            ),
            (
                Runtime::Crun,
                ContainerUser::Plain,
                false,
                "config-crun-plain.json",
            ),
        ] {
            let made = EngineFixture::new(runtime, user, root);
            let mut config = config(&made.engine_context()).unwrap();
            // Which calls those are differs by architecture; `seccomp.rs` has them.
            config["linux"]["seccomp"]["syscalls"] = Value::Null;
            config["linux"]["seccomp"]["architectures"] = Value::Null;
            let text = serde_json::to_string_pretty(&config).unwrap() + "\n";
            let text = text.replace(&*made.folder.path().to_string_lossy(), "/scratch");
            crate::golden::goldens().assert_same(name, text);
        }
    }

    #[test]
    fn words_that_json_cannot_say_are_refused() {
        let mut made = EngineFixture::new(Runtime::Runc, ContainerUser::Plain, true);
        made.command.push(OsString::from_vec(vec![0xff]));
        let error = write_config(&made.engine_context()).err().unwrap();
        assert!(error.to_string().contains("no UTF-8"), "{error}");
    }
}
