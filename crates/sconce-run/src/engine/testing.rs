//! A run for the tests of what engines are told.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use sconce_schema::Runtime;
use sconce_schema::environment_layers::EnvironmentLayers;
use sconce_schema::request::{
    ContainerEdits, ContainerUser, DeviceNode, NetworkMode, RunRequest, RunRoot,
};

use super::{ContainerEngine, EngineContext};
use crate::capabilities;
use crate::init_config::{Credentials, InitMount};
use crate::sys::mount::RDONLY;

/// The parts of an [`EngineContext`], to be changed by a test.
pub(super) struct EngineFixture {
    pub(super) engine: ContainerEngine,
    pub(super) request: RunRequest,
    pub(super) command: Vec<OsString>,
    pub(super) env: Vec<OsString>,
    pub(super) mounts: Vec<InitMount>,
    pub(super) root: bool,
    pub(super) folder: tempfile::TempDir,
}

impl EngineFixture {
    pub(super) fn new(runtime: Runtime, user: ContainerUser, root: bool) -> Self {
        let node = DeviceNode {
            path: "/dev/nvidia0".to_owned(),
            host_path: String::new(),
            r#type: "c".to_owned(),
            major: 195,
            minor: 0,
        };
        let image = RunRoot::Image(EnvironmentLayers {
            layers: Vec::new(),
            env: BTreeMap::new(),
        });
        let mount = |target: &str| InitMount {
            source: target.into(),
            target: target.into(),
            attributes: RDONLY,
            owners: None,
        };
        Self {
            engine: ContainerEngine {
                runtime,
                traits: super::traits::engine_traits(runtime).unwrap(),
                program: Path::new("/usr/bin").join(runtime.name()),
                version: "1".to_owned(),
            },
            request: RunRequest {
                workdir: "/workspace".into(),
                network: NetworkMode::Host,
                user,
                edits: vec![ContainerEdits {
                    device_nodes: vec![node],
                    ..ContainerEdits::default()
                }],
                ..RunRequest::new("a-1", image, vec!["true".to_owned()])
            },
            command: vec!["python".into(), "-c".into(), "1".into()],
            env: vec!["HF_TOKEN=hf_secret".into()],
            mounts: ["/dev/nvidia0", "/usr/lib/libcuda.so", "/proc/driver/nvidia"]
                .map(mount)
                .into(),
            root,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn engine_context(&self) -> EngineContext<'_> {
        let (uid, kept) = match self.request.user {
            ContainerUser::Plain => (1000, 0),
            ContainerUser::Root => (0, capabilities::ROOT_INSIDE.bits()),
        };
        EngineContext {
            engine: &self.engine,
            request: &self.request,
            command: &self.command,
            env: &self.env,
            credentials: Credentials {
                uid,
                gid: uid,
                change: self.root,
                capabilities: kept,
            },
            root: self.root,
            hostname: &self.request.id,
            shm_bytes: 1 << 20,
            mounts: &self.mounts,
            scratch: self.folder.path(),
            cgroups: None,
            v2: None,
        }
    }
}
