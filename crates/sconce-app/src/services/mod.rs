//! The services of a spec, on their way into a run: what each is started with, the files that it
//! reads, and what a person opens to use it.
//!
//! Everything that is secret or private lies in one folder of the run, closed to everybody else, and
//! reaches a service as a mount: no token is in an argument, a variable or the record.

pub(crate) mod files;
pub mod jupyter;
mod keys;
mod ssh;
mod tensorboard;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use sconce_schema::request::{ContainerUser, NetworkMode, PublishedPort, RunRequest};
use sconce_schema::service::{HealthCheck, HealthTest};
use sconce_schema::spec::{PortSpec, ServicesSpec};
use sconce_schema::{Hint, Lock, RunService, exit};

use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::input::WaitMessage;
use crate::run_temp_dir::RunTempDir;

/// What the services of a run are made from, beside its request.
pub struct ServiceInputs<'a> {
    /// The services.
    pub services: &'a ServicesSpec,
    /// Names their packages.
    pub lock: &'a Lock,
    /// The environment's name.
    pub name: &'a str,
    /// The spec's folder.
    pub folder: &'a Path,
    /// The caller's home, where the caller has one.
    pub home: Option<&'a Path>,
    /// Where host keys are kept, a folder for each environment.
    pub host_keys: &'a Path,
    /// A folder of this run alone, which is made and stays as long as what [`ServiceInputs::apply_to`] gives.
    /// It ends in `.private`.
    pub private: &'a Path,
    /// Hears that a file of keys is a FIFO that is waited for.
    pub tell_wait: WaitMessage<'a>,
}

/// Services in a request, for as long as this is.
#[derive(Debug)]
pub struct PreparedServices {
    /// What a person has to be told.
    pub notes: Vec<String>,
    _private: RunTempDir,
}

impl ServiceInputs<'_> {
    /// Adds every service, and the mounts of its files, to a request that is complete but for them.
    ///
    /// # Errors
    /// [`ServiceError`], and what cannot be written.
    pub fn apply_to(&self, request: &mut RunRequest) -> Result<PreparedServices> {
        let private = RunTempDir::create(self.private)?;
        let mut notes = Vec::new();
        if let Some(jupyter) = &self.services.jupyter {
            let service = jupyter::build_service(self, jupyter, request)?;
            request.services.push(service);
        }
        if let Some(ssh) = &self.services.ssh {
            let made = ssh::build_service(self, ssh, request)?;
            request.services.push(made.service);
            notes.push(made.note);
        }
        if let Some(board) = &self.services.tensorboard {
            let service = tensorboard::build_service(board, request)?;
            request.services.push(service);
        }
        for (name, program) in &self.services.programs {
            for port in &program.ports {
                Listens::on("the service", *port, request.network)?;
            }
            request.services.push(program.to_run_service(name));
        }
        Ok(PreparedServices {
            notes,
            _private: private,
        })
    }
}

/// What keeps a service from being given to a run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each is what its message says")]
pub enum ServiceError {
    #[error(
        "{name} would listen on port {inside} inside and {outside} of the machine, which are one on the machine's network"
    )]
    TwoPorts {
        name: &'static str,
        inside: u16,
        outside: u16,
    },
    #[error("ssh lets nobody in as root, and the run's user is root")]
    Root,
    #[error("there is no public key that may log in: none in {}", folder.display())]
    NoKeys { folder: PathBuf },
    #[error("there is no public key that may log in: no home folder to look in")]
    NoHome,
    #[error("{}, line {line}: not a public key", path.display())]
    NotAKey { path: PathBuf, line: usize },
    #[error("{} holds a private key", path.display())]
    PrivateKey { path: PathBuf },
    #[error("{} has no public key", path.display())]
    Empty { path: PathBuf },
    #[error("{} is not a host key that Sconce made", path.display())]
    HostKey { path: PathBuf },
}

impl Hint for ServiceError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TwoPorts { inside, .. } => format!(
                "write `port = {inside}`, or give the run a network of its own: `network = \"own\"`"
            ),
            Self::Root => "leave `user = \"root\"` out of [run], or --root of the command".to_owned(),
            Self::NoKeys { .. } | Self::NoHome => {
                "make one with `ssh-keygen`, or name one: `keys = [\"team.keys\"]` in [services.ssh]"
                    .to_owned()
            }
            Self::NotAKey { .. } | Self::Empty { .. } => {
                "a line for each key, as in ~/.ssh/authorized_keys: `ssh-ed25519 AAAA… name`".to_owned()
            }
            Self::PrivateKey { path } => format!("name the public one: {}.pub", path.display()),
            Self::HostKey { path } => {
                format!("remove {}: the next start makes another", path.display())
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Where a service listens: on the machine's network as it is reached, on any other on the loopback
/// address inside, from which the port is published.
struct Listens {
    address: IpAddr,
    port: u16,
    /// As it is reached.
    outside: PublishedPort,
}

impl Listens {
    fn on(name: &'static str, port: PortSpec, network: NetworkMode) -> Result<Self, ServiceError> {
        let shared = network == NetworkMode::Host;
        if shared && port.host != port.container {
            return Err(ServiceError::TwoPorts {
                name,
                inside: port.container,
                outside: port.host,
            });
        }
        Ok(Self {
            address: match shared {
                true => port.host_ip,
                false => IpAddr::V4(Ipv4Addr::LOCALHOST),
            },
            port: port.container,
            outside: port.into(),
        })
    }

    /// `HOST:PORT` for a link. An address that means "every one" is written as the loopback.
    fn reached(&self) -> String {
        std::net::SocketAddr::new(self.reached_at(), self.outside.host).to_string()
    }

    fn reached_at(&self) -> IpAddr {
        match self.outside.host_ip {
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            ip => ip,
        }
    }

    /// A check by HTTP, which goes to the loopback address: `None` where nothing listens there.
    fn http(&self, path: &str) -> Option<HealthCheck> {
        let there =
            self.address == IpAddr::V4(Ipv4Addr::LOCALHOST) || self.address.is_unspecified();
        there.then(|| {
            HealthCheck::new(HealthTest::Http {
                port: self.port,
                path: path.to_owned(),
            })
        })
    }
}

/// Where a service is reached, as it may stand in a record: links without what follows their path, where
/// a token may be, and without a name and a password before their host; else its ports.
pub fn redacted_links(service: &RunService) -> Vec<String> {
    let plain = |link: &String| {
        let Some((scheme, rest)) = link.split_once("://") else {
            // A command to type: `ssh -p 2222 …`.
            return link.clone();
        };
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = path.split_at(path.find('/').unwrap_or(path.len()));
        let host = host.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}{path}")
    };
    if !service.links.is_empty() {
        return service.links.iter().map(plain).collect();
    }
    (service.ports.iter())
        .map(|port| std::net::SocketAddr::new(port.host_ip, port.host).to_string())
        .collect()
}

/// The folder of what is private of the services of the run `id`.
pub fn private_folder(places: &SconceDirs, id: &str) -> PathBuf {
    places.scratch.join(format!("{id}.private"))
}

/// Who is to read what the run's user reads: their uid on this machine, where it is another than
/// the caller's. Under the machine's root the run's user is uid 1000 on the machine, too.
fn reader(user: ContainerUser) -> Option<u32> {
    let by_root = rustix::process::geteuid().is_root();
    (by_root && user == ContainerUser::Plain).then_some(sconce_image::system::PLAIN_ID)
}

/// A new token: 192 bits of chance in hexadecimal digits.
fn token() -> Result<String> {
    Ok(files::random_bytes::<24>()?
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sconce_schema::environment_layers::{EnvironmentLayers, LayerTree};
    use sconce_schema::lock::{Deb, LockTarget, LockedVersions};
    use sconce_schema::request::RunRoot;
    use sconce_schema::{Sha256, Spec};

    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJAz6eGO/ogyzZ5PXbqXZJ3rXg2pIhdGp5UsXvqxqLX0 me";

    /// A spec, and folders of a machine.
    pub(super) struct ServiceFixture {
        folder: tempfile::TempDir,
        spec: Spec,
    }

    impl ServiceFixture {
        pub(super) fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let ssh = folder.path().join("home/.ssh");
            std::fs::create_dir_all(&ssh).unwrap();
            std::fs::write(ssh.join("id_ed25519.pub"), KEY).unwrap();
            let spec = Spec::parse(text).unwrap();
            Self { folder, spec }
        }

        pub(super) fn private_dir(&self) -> PathBuf {
            self.folder.path().join("run.private")
        }

        pub(super) fn with_inputs<T>(&self, ask: impl FnOnce(&ServiceInputs<'_>) -> T) -> T {
            let here = |name: &str| self.folder.path().join(name);
            ask(&ServiceInputs {
                services: &self.spec.services,
                lock: &lock("1:10.0p1-7+deb13u4"),
                name: "env",
                folder: &here("spec"),
                home: Some(&here("home")),
                host_keys: &here("keys"),
                private: &self.private_dir(),
                tell_wait: &|_| {},
            })
        }

        pub(super) fn prepare_request(
            &self,
            mut request: RunRequest,
        ) -> (RunRequest, PreparedServices) {
            let etc = self.folder.path().join("layer/etc");
            std::fs::create_dir_all(&etc).unwrap();
            std::fs::write(etc.join("group"), "root:x:0:\ntty:x:5:\n").unwrap();
            request.root = RunRoot::Image(EnvironmentLayers {
                layers: vec![LayerTree {
                    name: "base".to_owned(),
                    path: self.folder.path().join("layer"),
                }],
                env: BTreeMap::new(),
            });
            let laid = self.with_inputs(|given| given.apply_to(&mut request));
            let laid = laid.unwrap_or_else(|failure| panic!("{}", failure.to_plain_text()));
            (request, laid)
        }
    }

    pub(super) fn base_request() -> RunRequest {
        RunRequest {
            workdir: PathBuf::from("/workspace"),
            network: NetworkMode::Host,
            ..RunRequest::new("env-1", RunRoot::Host, Vec::new())
        }
    }

    /// A lock that has openssh-server in that version.
    pub(super) fn lock(version: &str) -> Lock {
        let sha256 = Sha256([0; 32]);
        Lock {
            version: 2,
            inputs: sha256,
            target: LockTarget {
                release: "debian/trixie".to_owned(),
                architecture: "amd64".to_owned(),
                python: "3.13".to_owned(),
            },
            versions: LockedVersions::default(),
            wheels: Vec::new(),
            debs: vec![Deb {
                name: "openssh-server".to_owned(),
                version: version.to_owned(),
                source: None,
                source_version: None,
                architecture: "amd64".to_owned(),
                url: String::new(),
                size: 1,
                sha256,
            }],
            stages: Vec::new(),
            interpreter: None,
        }
    }

    #[test]
    fn all_services_of_a_spec_are_given() {
        let text = "[services.tensorboard]\nlogdir = \"/data/logs\"\n[services.jupyter]\n\
                    [services.web]\ncommand = [\"x\"]\nports = [8000]\nafter = [\"jupyter\"]";
        let made = ServiceFixture::new(text);
        let (request, laid) = made.prepare_request(base_request());
        let names: Vec<&str> = request
            .services
            .iter()
            .map(|service| &*service.name)
            .collect();
        assert_eq!(names, ["jupyter", "tensorboard", "web"]);
        assert_eq!(laid.notes, [""; 0]);
        assert!(made.private_dir().is_dir());
        drop(laid);
        assert!(!made.private_dir().exists());
        let board = &request.services[1];
        assert_eq!(
            board.command,
            [
                "tensorboard",
                "--logdir",
                "/data/logs",
                "--host",
                "127.0.0.1",
                "--port",
                "6006"
            ]
        );
        assert_eq!(board.links, ["http://127.0.0.1:6006/"]);
        assert_eq!(request.services[2].after, ["jupyter"]);
    }

    #[test]
    fn on_the_machines_network_a_port_is_one() {
        for name in ["jupyter", "tensorboard", "ssh"] {
            let made = ServiceFixture::new(&format!("[services.{name}]\nport = \"9000:8888\""));
            let error = made
                .with_inputs(|given| given.apply_to(&mut base_request()))
                .err()
                .unwrap();
            let text = error.to_plain_text();
            assert!(text.contains("write `port = 8888`"), "{text}");
        }
    }

    #[test]
    fn a_service_listens_where_it_is_reached() {
        let on = |port: &str, network| Listens::on("x", port.parse().unwrap(), network);
        let host = on("8888", NetworkMode::Host).unwrap();
        assert_eq!(
            (host.address.to_string(), host.port),
            ("127.0.0.1".into(), 8888)
        );
        assert!(host.http("/").is_some());
        let own = on("0.0.0.0:9000:8888", NetworkMode::Own).unwrap();
        assert_eq!(
            (own.address.to_string(), own.port),
            ("127.0.0.1".into(), 8888)
        );
        assert_eq!(own.reached(), "127.0.0.1:9000");
        let far = on("10.0.0.7:8888:8888", NetworkMode::Host).unwrap();
        assert_eq!(far.reached(), "10.0.0.7:8888");
        assert!(far.http("/").is_none());
    }

    #[test]
    fn what_a_record_says_of_a_service_has_no_token() {
        let mut service = RunService::new("x", vec!["x".to_owned()]);
        service.ports = vec!["127.0.0.1:9000:8888".parse::<PortSpec>().unwrap().into()];
        assert_eq!(redacted_links(&service), ["127.0.0.1:9000"]);
        for (link, plain) in [
            (
                "http://127.0.0.1:8888/lab?token=abc",
                "http://127.0.0.1:8888/lab",
            ),
            ("http://127.0.0.1:8888/#token=abc", "http://127.0.0.1:8888/"),
            ("http://127.0.0.1:8888?token=abc", "http://127.0.0.1:8888"),
            ("https://me:word@[::1]:1/a@b", "https://[::1]:1/a@b"),
            (
                "ssh -p 2222 sconce@127.0.0.1",
                "ssh -p 2222 sconce@127.0.0.1",
            ),
        ] {
            service.links = vec![link.to_owned()];
            assert_eq!(redacted_links(&service), [plain], "{link}");
        }
    }

    #[test]
    fn a_token_is_new_each_time() {
        let (one, other) = (token().ok().unwrap(), token().ok().unwrap());
        assert_eq!(one.len(), 48);
        assert_ne!(one, other);
    }
}
