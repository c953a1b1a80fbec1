//! What engines are told, and what they cannot.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::process::{Pid, Signal, kill_process};
use sconce_schema::Runtime;
use sconce_schema::request::ContainerUser;

use super::runtimes::each;
use crate::bench::{Bench, root_bench};

/// A program that says it is runc, by a script; gives its exit code and standard error.
fn stand_in(bench: &Bench, script: &str) -> (Option<i32>, String) {
    let program = bench.folder.path().join("engine");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let request = bench.request(&["true"]);
    let mut command = bench.command(&request, false);
    command.arg("--runtime=runc");
    command.arg(format!("--program={}", program.display()));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

#[test]
fn an_engine_that_does_not_work_is_named() {
    let Some(bench) = root_bench() else { return };
    let says = "[ $1 = --version ] && echo runc version";
    for (script, text) in [
        ("echo hello", "does not say its version"),
        ("exit 1", "does not say its version"),
        (
            "echo runc version 1.0.3",
            "runc 1.0.3 is too old: 1.1 or newer is needed",
        ),
        (
            &format!("{says} 1.1.5 && exit\nexit 1"),
            "runc could not start the container\n",
        ),
        (
            &format!("{says} 1.1.5 && exit\necho '{{\"msg\":\"no room\"}}' > $3; exit 1"),
            "runc could not start the container: no room\n",
        ),
    ] {
        let (code, said) = stand_in(&bench, script);
        assert_eq!(code, Some(125), "{said}");
        assert!(
            said.contains(text) && said.contains("hint: "),
            "{script}: {said}"
        );
    }
    bench.assert_clean();
}

#[test]
fn services_are_sconces_own() {
    each(|bench| {
        if bench.runtime == Runtime::Sconce {
            return;
        }
        let mut request = bench.request(&["true"]);
        request
            .services
            .push(sconce_schema::RunService::new("a", vec!["true".to_owned()]));
        let done = bench.run(&request);
        assert_eq!(done.code, 125);
        let says = format!("{} cannot hold services", bench.runtime);
        assert!(done.err.contains(&says) && done.err.contains("hint: leave `runtime` out"));
    });
}

/// The files that an engine is told the environment by are nobody else's to read.
#[test]
fn what_engines_are_told_is_private() {
    each(|bench| {
        if bench.runtime == Runtime::Sconce {
            return;
        }
        let mut request = bench.script("echo ready; sleep 100");
        request
            .env
            .insert("HF_TOKEN".to_owned(), "hf_secret".to_owned());
        let mut child = bench.start(&request);
        let mut line = [0_u8; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let lines = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = lines.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let told = lines.filter(|line| line.windows(9).any(|part| part == b"hf_secret"));
        assert_eq!(told.count(), 0, "{:?}", bench.runtime);
        let scratch = bench.state().join(&request.id);
        assert_eq!(scratch.metadata().unwrap().mode() & 0o777, 0o700);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(bench.finish(&request, child).code, 143);
    });
}

/// Where Debian's golang-github-opencontainers-specs-dev has runtime-spec's schema.
const SCHEMA: &str =
    "/usr/share/gocode/src/github.com/opencontainers/runtime-spec/schema/config-schema.json";

/// Validates standard input by the schema that is named.
const VALIDATE: &str = "
import json, pathlib, sys, jsonschema
path = pathlib.Path(sys.argv[1])
schema = json.loads(path.read_text())
resolver = jsonschema.RefResolver(path.as_uri(), schema)
jsonschema.Draft4Validator(schema, resolver=resolver).validate(json.load(sys.stdin))
";

#[test]
fn a_bundle_is_what_runtime_specs_schema_says() {
    let validate = |config: std::process::Stdio| {
        let mut python = std::process::Command::new("python3");
        python.args(["-W", "ignore", "-c", VALIDATE, SCHEMA]);
        python.stdin(config).output()
    };
    let empty = validate(std::process::Stdio::null());
    let has = empty.is_ok_and(|done| !String::from_utf8_lossy(&done.stderr).contains("No module"));
    if !std::path::Path::new(SCHEMA).exists() || !has {
        let why = "no schema of runtime-spec, or no jsonschema for python3";
        sconce_testkit::report_skip("runtime-schema", why);
        return;
    }
    each(|bench| {
        if matches!(bench.runtime, Runtime::Sconce | Runtime::Podman) {
            return;
        }
        for user in [ContainerUser::Plain, ContainerUser::Root] {
            let mut request = bench.script("echo ready; sleep 100");
            request.user = user;
            let mut child = bench.start(&request);
            let mut line = [0_u8; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            let config = bench.state().join(&request.id).join("config.json");
            let done = validate(std::fs::File::open(config).unwrap().into()).unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(
                done.status.success(),
                "{:?} {user:?}: {said}",
                bench.runtime
            );
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            bench.finish(&request, child);
        }
    });
}
