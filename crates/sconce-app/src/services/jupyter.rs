//! `[services.jupyter]`.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use sconce_schema::request::{ContainerUser, Mount, RunRequest};
use sconce_schema::service::RunService;
use sconce_schema::spec::Jupyter;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::files::{self, CONTAINER_DIR, PrivateDirectory};
use super::{Listens, ServiceInputs, reader, token};
use crate::failure::Result;

/// The service's name.
pub const NAME: &str = "jupyter";
const CONFIG: &str = "config.json";
/// The page asks once whether it may fetch news, unless the settings of all users say so. Where
/// they lie: jupyterlab_server, `settings_handler.py`.
const SETTINGS: &str = "/etc/jupyter/labconfig/default_setting_overrides.json";
/// Beside the folder that the run sees: where the server is asked from outside.
const ADDRESS_FILE: &str = "jupyter.json";

/// How often idle kernels are looked for, seconds.
const CULL_INTERVAL_S: u64 = 60;
/// How long the server may take to say which kernels it has.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A thousand kernels need a quarter of it, bytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// What is needed to ask a server.
#[derive(Debug, Serialize, Deserialize)]
struct JupyterEndpoint {
    /// `HOST:PORT`
    address: String,
    token: String,
}

/// The kernels of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JupyterKernels {
    /// All.
    pub all: usize,
    /// Those that execute something.
    pub busy: usize,
}

/// The server as a service of `request`, with its files written and mounted.
pub(super) fn build_service(
    given: &ServiceInputs<'_>,
    jupyter: &Jupyter,
    request: &mut RunRequest,
) -> Result<RunService> {
    let listens = Listens::on(NAME, jupyter.port_or_default(), request.network)?;
    let token = token()?;
    let folder = PrivateDirectory::create(given.private, NAME, reader(request.user))?;
    let config = config(jupyter, &listens, &token, request);
    folder.write(CONFIG, 0o600, config.to_string().as_bytes())?;
    let reached = JupyterEndpoint {
        address: listens.reached(),
        token: token.clone(),
    };
    let text = serde_json::to_vec(&reached).unwrap_or_default();
    files::replace_file(&given.private.join(ADDRESS_FILE), 0o600, &text)?;
    let settings = json!({
        "@jupyterlab/apputils-extension:notification": { "fetchNews": "false", "checkForUpdates": false },
    });
    let settings = folder.write("settings.json", 0o644, settings.to_string().as_bytes())?;
    let inside = Path::new(CONTAINER_DIR).join(NAME);
    let mounts = [
        (folder.path().to_owned(), inside.clone()),
        (settings, SETTINGS.into()),
    ];
    request.mounts.extend(mounts.map(|(source, target)| Mount {
        source,
        target,
        read_only: true,
    }));
    let config = inside.join(CONFIG);
    let command = vec![
        "jupyter-lab".to_owned(),
        format!("--config={}", config.display()),
    ];
    let mut service = RunService::new(NAME, command);
    service.ports = vec![listens.outside];
    service.links = vec![format!("http://{}/lab?token={token}", listens.reached())];
    // The one address that is answered without a token; it tells the version alone.
    service.health = listens.http("/api");
    Ok(service)
}

/// The server's configuration. What is not here is at its default: requests of other pages are
/// refused (XSRF, `allow_origin`).
fn config(jupyter: &Jupyter, listens: &Listens, token: &str, request: &RunRequest) -> Value {
    let root = request
        .workdir
        .join(jupyter.folder.as_deref().unwrap_or_default());
    let mut config = json!({
        "ServerApp": {
            "ip": listens.address.to_string(),
            "port": listens.port,
            // Another port than the one that was said is nobody's.
            "port_retries": 0,
            "open_browser": false,
            "root_dir": root.to_string_lossy(),
            "allow_root": request.user == ContainerUser::Root,
            // Requests that name another host are refused on the loopback (DNS rebinding).
            "allow_remote_access": !listens.outside.host_ip.is_loopback(),
        },
        // A token that is set here is not printed into the log.
        "IdentityProvider": { "token": token },
        // Sockets in a private folder: on TCP any user of the machine could read what is printed.
        "KernelManager": { "transport": "ipc" },
        // Neither is asked for from inside an environment.
        "LabApp": {
            "news_url": null,
            "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        },
    });
    if let Some(hash) = &jupyter.password_hash {
        config["PasswordIdentityProvider"] = json!({ "hashed_password": hash });
    }
    if let Some(minutes) = jupyter.cull_idle_minutes {
        config["MappingKernelManager"] = json!({
            "cull_idle_timeout": minutes.saturating_mul(60),
            "cull_interval": CULL_INTERVAL_S,
            // A forgotten tab of a browser keeps no card's memory.
            "cull_connected": true,
        });
    }
    config
}

/// How many kernels the JupyterLab of a run has, whose private folder is `private`. `None` where the
/// run has no JupyterLab, or it does not answer as one does.
pub fn query_kernels(private: &Path) -> Option<JupyterKernels> {
    let text = crate::input::read_text(&private.join(ADDRESS_FILE)).ok()?;
    let reached: JupyterEndpoint = serde_json::from_str(&text).ok()?;
    // No proxy, whatever the environment names: it is this machine.
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(RESPONSE_TIMEOUT))
        .proxy(None)
        .max_redirects(0)
        .build()
        .new_agent();
    let url = format!("http://{}/api/kernels?no_track_activity=1", reached.address);
    let login = format!("token {}", reached.token);
    let mut answer = agent.get(&url).header("Authorization", login).call().ok()?;
    let mut text = String::new();
    let body = answer.body_mut().as_reader();
    body.take(MAX_ANSWER_BYTES).read_to_string(&mut text).ok()?;
    count(&text)
}

/// Jupyter Server's REST API, `/api/kernels`.
fn count(answer: &str) -> Option<JupyterKernels> {
    #[derive(Deserialize)]
    struct Kernel {
        #[serde(default)]
        execution_state: String,
    }
    let kernels: Vec<Kernel> = serde_json::from_str(answer).ok()?;
    let busy = kernels
        .iter()
        .filter(|kernel| kernel.execution_state == "busy");
    Some(JupyterKernels {
        all: kernels.len(),
        busy: busy.count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    use crate::services::tests::{ServiceFixture, base_request};
    use sconce_schema::request::NetworkMode;
    use sconce_schema::service::HealthTest;

    #[test]
    fn the_token_is_in_private_files_and_the_link_alone() {
        let made =
            ServiceFixture::new("[services.jupyter]\ncull-idle-minutes = 30\nfolder = \"notes\"");
        let (request, laid) = made.prepare_request(base_request());
        let service = &request.services[0];
        let token = service.links[0]
            .strip_prefix("http://127.0.0.1:8888/lab?token=")
            .unwrap();
        assert!(token.len() >= 32, "{token}");
        let told = format!(
            "{:?} {:?} {:?} {:?}",
            service.command, service.env, request.env, laid.notes
        );
        assert!(!told.contains(token), "{told}");
        let file = made.private_dir().join("jupyter/config.json");
        let config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(config["IdentityProvider"]["token"], token);
        let server = &config["ServerApp"];
        assert_eq!(server["ip"], "127.0.0.1");
        assert_eq!(server["root_dir"], "/workspace/notes");
        assert_eq!(
            (&server["allow_root"], &server["allow_remote_access"]),
            (&json!(false), &json!(false))
        );
        assert_eq!(config["MappingKernelManager"]["cull_idle_timeout"], 1800);
        assert!(config.get("PasswordIdentityProvider").is_none());
        let check = service.health.as_ref().map(|health| health.check.clone());
        assert_eq!(
            check,
            Some(HealthTest::Http {
                port: 8888,
                path: "/api".into()
            })
        );
        let targets: Vec<_> = request.mounts.iter().map(|mount| &*mount.target).collect();
        let inside = Path::new("/run/sconce/services/jupyter");
        assert_eq!(targets, [inside, Path::new(SETTINGS)]);
        assert!(request.mounts.iter().all(|mount| mount.read_only));
    }

    #[test]
    fn from_elsewhere_it_is_reached_only_where_that_was_asked() {
        let hash = "argon2:$argon2id$v=19$m=1,t=1,p=1$cw$aA";
        let made = ServiceFixture::new(&format!(
            "[services.jupyter]\nport = \"0.0.0.0:9000:8888\"\npassword-hash = \"{hash}\""
        ));
        let (request, _laid) = made.prepare_request(RunRequest {
            network: NetworkMode::Own,
            user: ContainerUser::Root,
            ..base_request()
        });
        let service = &request.services[0];
        assert!(service.links[0].starts_with("http://127.0.0.1:9000/lab?token="));
        let file = made.private_dir().join("jupyter/config.json");
        let config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(
            (&config["ServerApp"]["ip"], &config["ServerApp"]["port"]),
            (&json!("127.0.0.1"), &json!(8888))
        );
        assert_eq!(
            (
                &config["ServerApp"]["allow_root"],
                &config["ServerApp"]["allow_remote_access"]
            ),
            (&json!(true), &json!(true))
        );
        assert_eq!(config["PasswordIdentityProvider"]["hashed_password"], hash);
    }

    /// A server that answers one request with `text`; gives the request.
    fn answered(text: &'static str) -> (Option<JupyterKernels>, String) {
        let private = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let reached = JupyterEndpoint {
            address,
            token: "abc".to_owned(),
        };
        std::fs::write(
            private.path().join(ADDRESS_FILE),
            serde_json::to_vec(&reached).unwrap(),
        )
        .unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap();
            let _ = stream.write_all(text.as_bytes());
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        let kernels = query_kernels(private.path());
        (kernels, server.join().unwrap())
    }

    #[test]
    fn kernels_are_counted_where_the_server_says_them() {
        let (kernels, asked) = answered(
            "HTTP/1.1 200 OK\r\nContent-Length: 88\r\n\r\n\
             [{\"id\":\"a\",\"execution_state\":\"busy\"},{\"id\":\"b\",\"execution_state\":\"idle\"},{\"id\":\"c\"}]     ",
        );
        assert_eq!(kernels, Some(JupyterKernels { all: 3, busy: 1 }));
        let asked = asked.to_lowercase();
        assert!(
            asked.starts_with("get /api/kernels?no_track_activity=1 "),
            "{asked}"
        );
        assert!(asked.contains("authorization: token abc"), "{asked}");
        for answer in [
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n[]",
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            "SSH-2.0-OpenSSH\r\n",
            "",
        ] {
            assert_eq!(answered(answer).0, None, "{answer}");
        }
        let empty = answered("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").0;
        assert_eq!(empty, Some(JupyterKernels { all: 0, busy: 0 }));
        assert_eq!(super::query_kernels(Path::new("/nowhere")), None);
    }

    #[test]
    fn what_is_written_of_a_server_is_as_before() {
        let reached = JupyterEndpoint {
            address: "127.0.0.1:8888".to_owned(),
            token: "t".to_owned(),
        };
        let kernels = JupyterKernels { all: 2, busy: 1 };
        crate::golden::goldens().assert_values("jupyter.jsonl", &[&reached, &kernels]);
        let text = crate::golden::goldens().read_text("jupyter.jsonl");
        let read: JupyterEndpoint = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!((read.address, read.token), (reached.address, reached.token));
    }
}
