//! Files and values that people write: the spec, the lock, units, requests.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use sconce_schema::spec::{GpuRequest, MountSpec, PortSpec};
use sconce_schema::units::{Bytes, ComputeCapability, CudaVersion, DriverVersion, Millicores};
use sconce_schema::{Hint as _, Lock, RunRequest, Sha256, Spec};

use crate::bytes::{fixtures, text};

pub(crate) fn spec(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Spec::parse(text) {
        Ok(spec) => {
            let written = toml::to_string(&spec).expect("a spec is plain data");
            assert_eq!(Spec::parse(&written).as_ref(), Ok(&spec), "{written}");
            let inputs = spec.lock_inputs();
            // What stages need beside the environment is written in another form.
            if spec.stage_requirements().is_empty() {
                let again = Spec::parse(&inputs).expect("lock inputs are a spec");
                assert_eq!(again.lock_inputs(), inputs);
            }
            for (name, program) in &spec.services.programs {
                assert_eq!(
                    program.to_run_service(name).health.is_some(),
                    program.health.is_some()
                );
            }
        }
        Err(error) => {
            let (_, _) = (error.to_string(), error.hint());
            use sconce_schema::spec::SpecError::{UnknownKey, Value};
            if let UnknownKey { line, .. } | Value { line, .. } = error {
                assert!(
                    (1..=text.split('\n').count()).contains(&line),
                    "line {line}"
                );
            }
        }
    }
}

pub(crate) fn spec_seeds() -> Vec<Vec<u8>> {
    let mut seeds = fixtures(&[
        "examples/digits/sconce.toml",
        "examples/resnet50/sconce.toml",
    ]);
    seeds.push(
        b"version = 1\nname = \"n\"\n[python]\nversion = \"3.13\"\nrequirements = \"r.txt\"\n\
          index = \"https://a.example.org\"\nextra-index = [\"https://b.example.org\"]\n\
          [system]\nrelease = \"debian/bookworm\"\npackages = [\"git\"]\nmirror = \"m\"\n\
          security-mirror = \"s\"\n[run]\ncommand = [\"x\"]\ngpus = [0, \"GPU-1\"]\ncpus = 0.5\n\
          memory = \"4GiB\"\nshm = 1024\nmounts = [\"./a:/b:ro\"]\nports = [\"127.0.0.1:1:2\"]\n\
          workdir = \"/w\"\n[run.env]\nA = \"b\"\n"
            .to_vec(),
    );
    seeds.push(
        b"[services.jupyter]\nport = 8899\nfolder = \"n\"\ncull-idle-minutes = 30\n\
          password-hash = \"argon2:$argon2id$v=19$m=1,t=1,p=1$cw$aA\"\n[services.ssh]\n\
          port = \"0.0.0.0:2222:22\"\nkeys = [\"~/.ssh/id_ed25519.pub\"]\n\
          [services.tensorboard]\nlogdir = \"runs\"\n[services.web]\ncommand = [\"x\"]\n\
          ports = [8000]\nworkdir = \"/w\"\nuser = \"plain\"\nrestart = \"always\"\n\
          grace-s = 3\nstop-signal = \"INT\"\nafter = [\"jupyter\"]\n[services.web.health]\n\
          http = \"/\"\ninterval-s = 1\ntimeout-s = 1\nretries = 1\nstart-period-s = 0\n\
          restart = true\n[services.web.env]\nA = \"b\"\n"
            .to_vec(),
    );
    seeds
}

pub(crate) fn units(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let _ = text.parse::<Bytes>().map(|bytes| bytes.to_string());
    survives::<Millicores>(text);
    survives::<CudaVersion>(text);
    survives::<ComputeCapability>(text);
    survives::<DriverVersion>(text);
    survives::<Sha256>(text);
    survives::<MountSpec>(text);
    survives::<PortSpec>(text);
    if let Ok(gpus) = text.parse::<GpuRequest>() {
        let written = serde_json::to_string(&gpus).expect("it is plain data");
        assert_eq!(
            serde_json::from_str::<GpuRequest>(&written).ok(),
            Some(gpus)
        );
    }
}

/// What is read and printed reads as the same value.
fn survives<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok().as_ref(), Some(&value));
    }
}

pub(crate) fn unit_seeds() -> Vec<Vec<u8>> {
    [
        "4GiB",
        "512 MiB",
        "1.5g",
        "0.001",
        "2.5",
        "580.65.06",
        "13.2",
        "./a:/b:ro",
        "[::1]:8888:80",
        "127.0.0.1:1:2",
        "device=0,GPU-1a",
        "all",
        "65536",
        "sha256:c1fda9e7c1fda9e7c1fda9e7c1fda9e7c1fda9e7c1fda9e7c1fda9e7c1fda9e7",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn lock(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match Lock::parse(text) {
        Ok(lock) => {
            let written = lock.to_text();
            assert_eq!(
                Lock::parse(&written).ok().as_ref(),
                Some(&lock),
                "{written}"
            );
        }
        Err(error) => drop((error.to_string(), error.hint())),
    }
}

pub(crate) fn lock_seeds() -> Vec<Vec<u8>> {
    let digest = "c1fda9e7".repeat(8);
    vec![
        format!(
            "version = 1\ninputs = \"{digest}\"\n[target]\nrelease = \"debian/trixie\"\n\
             architecture = \"amd64\"\npython = \"3.13\"\n[versions]\npython = \"3.13.5-2\"\n\
             glibc = \"2.41-12\"\ntorch = \"2.15.0\"\ncuda = \"13.2\"\nlowest-driver = \"580.65.06\"\n\
             [[wheel]]\nname = \"demo\"\nversion = \"1.0\"\nfile = \"demo-1.0-py3-none-any.whl\"\n\
             url = \"https://a.example.org/demo-1.0-py3-none-any.whl\"\nsize = 10\nsha256 = \"{digest}\"\n\
             [[deb]]\nname = \"git\"\nversion = \"1:2\"\nsource = \"g\"\nsource-version = \"2\"\narchitecture = \"all\"\n\
             url = \"https://a.example.org/pool/git.deb\"\nsize = 10\nsha256 = \"{digest}\"\n"
        )
        .into_bytes(),
    ]
}

pub(crate) fn request(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<RunRequest>(data) {
        let written = serde_json::to_vec(&request).expect("a request is plain data");
        assert_eq!(
            serde_json::from_slice::<RunRequest>(&written).ok(),
            Some(request)
        );
    }
}

pub(crate) fn request_seeds() -> Vec<Vec<u8>> {
    vec![
        br#"{"id":"a","command":["x"],"root":{"image":{"layers":[{"name":"n","path":"/p"}],"env":{"A":"b"}}},"workdir":"/w","env":{"A":"b"},"limits":{"cpus":2.0,"memory":1,"shm":1,"pids":1},"mounts":[{"source":"/a","target":"/b","read-only":true}],"network":"host","ports":[{"host-ip":"127.0.0.1","host":1,"container":2}],"user":"plain","edits":[{"env":["A=b"],"deviceNodes":[],"mounts":[]}],"terminal":false}"#.to_vec(),
        br#"{"id":"a","command":["x"],"root":"host","workdir":"/w","env":{},"limits":{},"mounts":[],"network":"none","ports":[],"user":"root","edits":[],"terminal":true}"#.to_vec(),
    ]
}
