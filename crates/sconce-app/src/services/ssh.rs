//! `[services.ssh]`: OpenSSH's server for one user, with keys and nothing else.
//!
//! It runs as the run's own user, who has one id and no capabilities. Such a server lets in only
//! this very user, needs no account and no folder for the separation of privileges, and every session
//! has the walls of the run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sconce_image::system::PLAIN_NAME;
use sconce_schema::request::{ContainerUser, Mount, RunRequest, RunRoot};
use sconce_schema::service::{HealthCheck, HealthTest, RunService};
use sconce_schema::spec::Ssh;
use sconce_schema::{EnvironmentLayers, Lock};
use sha2::Digest as _;

use super::files::{CONTAINER_DIR, PrivateDirectory};
use super::keys::{self, HostKey};
use super::{Listens, ServiceError, ServiceInputs, reader};
use crate::failure::Result;

const NAME: &str = "ssh";
/// What a login shell reads after it has set `PATH` anew.
const PROFILE: &str = "/etc/profile.d/sconce-environment.sh";
const GROUPS: &str = "/etc/group";
/// What a session has of its own.
const OF_SESSIONS: [&str; 10] = [
    "HOME", "LOGNAME", "MAIL", "NO_COLOR", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "USER",
];

/// The server, and what is to be said of it.
pub(super) struct SshService {
    pub(super) service: RunService,
    pub(super) note: String,
}

/// The server as a service of `request`, with its files written and mounted.
pub(super) fn build_service(
    given: &ServiceInputs<'_>,
    ssh: &Ssh,
    request: &mut RunRequest,
) -> Result<SshService> {
    if request.user == ContainerUser::Root {
        return Err(ServiceError::Root.into());
    }
    let listens = Listens::on(NAME, ssh.port_or_default(), request.network)?;
    let allowed = keys::read_authorized_keys(&ssh.keys, given.folder, given.home, given.tell_wait)?;
    let host_key = HostKey::load_or_create(&given.host_keys.join(environment(given)))?;
    let folder = PrivateDirectory::create(given.private, NAME, reader(request.user))?;
    let variables = variables(request);
    let config = config(&listens, &variables, given.lock);
    folder.write("sshd_config", 0o600, config.as_bytes())?;
    folder.write("authorized_keys", 0o600, allowed.as_bytes())?;
    folder.write("ssh_host_ed25519_key", 0o600, host_key.text.as_bytes())?;
    let profile = folder.write("profile.sh", 0o644, profile(&variables).as_bytes())?;
    let mut mount = |source: PathBuf, target: &Path| {
        request.mounts.push(Mount {
            source,
            target: target.to_owned(),
            read_only: true,
        });
    };
    let inside = Path::new(CONTAINER_DIR).join(NAME);
    mount(folder.path().to_owned(), &inside);
    mount(profile, Path::new(PROFILE));
    if let RunRoot::Image(image) = &request.root
        && let Some(groups) = groups(image)
    {
        let groups = folder.write("group", 0o644, groups.as_bytes())?;
        mount(groups, Path::new(GROUPS));
    }
    let config = inside.join("sshd_config").display().to_string();
    let command = ["/usr/sbin/sshd", "-D", "-e", "-f", &config];
    let mut service = RunService::new(NAME, command.map(str::to_owned).to_vec());
    service.user = Some(ContainerUser::Plain);
    service.ports = vec![listens.outside];
    service.links = vec![format!(
        "ssh -p {} {PLAIN_NAME}@{}",
        listens.outside.host,
        listens.reached_at()
    )];
    service.health = Some(HealthCheck::new(listening(listens.port)));
    Ok(SshService {
        service,
        note: format!("ssh: the host key is {} (ED25519)", host_key.fingerprint),
    })
}

/// A name for the folder of an environment's host key: for people, and unlike that of any other.
fn environment(given: &ServiceInputs<'_>) -> String {
    let digest = sha2::Sha256::digest(given.folder.as_os_str().as_encoded_bytes());
    let digest: String = digest
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}-{digest}", given.name)
}

/// That something listens there. No connection is made: the server would note each in its log.
/// Format: proc_pid_net(5), `tcp`; state 0A is TCP_LISTEN.
fn listening(port: u16) -> HealthTest {
    let pattern = format!(":{port:04X} 0+:0000 0A ");
    let command = ["grep", "-Eqs", &pattern, "/proc/net/tcp", "/proc/net/tcp6"];
    HealthTest::Command(command.map(str::to_owned).to_vec())
}

/// The run's variables, as a session is to have them. A session is not the run's command: what it
/// does is not accounted.
fn variables(request: &RunRequest) -> BTreeMap<String, String> {
    let edits = request.edits.iter().flat_map(|edits| &edits.env);
    let edits = edits.filter_map(|edit| edit.split_once('='));
    let own = request
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let usable = |name: &str, value: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let of_session = OF_SESSIONS.contains(&name) || name.starts_with("SSH_");
        !name.is_empty()
            && name.bytes().all(good)
            && !of_session
            && !value.chars().any(char::is_control)
    };
    own.chain(edits)
        .filter(|(name, value)| usable(name, value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// sshd_config(5).
fn config(listens: &Listens, variables: &BTreeMap<String, String>, lock: &Lock) -> String {
    let folder = Path::new(CONTAINER_DIR).join(NAME).display().to_string();
    let mut text = format!(
        "ListenAddress {address}\n\
         HostKey {folder}/ssh_host_ed25519_key\n\
         AuthorizedKeysFile {folder}/authorized_keys\n\
         # The keys lie in a mount that nobody inside can change; folders above it may belong to\n\
         # whoever owns the store, whom sshd does not know.\n\
         StrictModes no\n\
         PidFile none\n\
         AuthenticationMethods publickey\n\
         PubkeyAuthentication yes\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         HostbasedAuthentication no\n\
         PermitRootLogin no\n\
         AllowUsers {PLAIN_NAME}\n\
         UsePAM no\n\
         # What editors need to work in a session: ports and sockets inside, and no others.\n\
         AllowTcpForwarding local\n\
         AllowStreamLocalForwarding local\n\
         # Editors open many sessions in one connection, and jobs many connections at once.\n\
         MaxSessions 128\n\
         MaxStartups 128\n\
         GatewayPorts no\n\
         PermitTunnel no\n\
         X11Forwarding no\n\
         Subsystem sftp internal-sftp\n\
         PrintMotd no\n\
         PrintLastLog no\n",
        address = std::net::SocketAddr::new(listens.address, listens.port),
    );
    if has_penalties(lock) {
        // Every connection comes from the loopback: one slip would shut the others out.
        text.push_str("PerSourcePenalties no\n");
    }
    if !variables.is_empty() {
        // One line: of several, the first counts.
        text.push_str("SetEnv");
        for (name, value) in variables {
            let _ = write!(
                text,
                " \"{name}={}\"",
                value.replace('\\', "\\\\").replace('"', "\\\"")
            );
        }
        text.push('\n');
    }
    text
}

/// Whether the server punishes addresses: since OpenSSH 9.8.
fn has_penalties(lock: &Lock) -> bool {
    let server = lock.debs.iter().find(|deb| deb.name == "openssh-server");
    let Some(server) = server else {
        return false;
    };
    let version = server
        .version
        .split_once(':')
        .map_or(&*server.version, |(_, rest)| rest);
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (9, 8),
        _ => false,
    }
}

/// Debian's /etc/profile sets `PATH` anew in every login shell. Afterwards it is the run's again.
fn profile(variables: &BTreeMap<String, String>) -> String {
    let path = variables
        .get("PATH")
        .map(|path| path.replace('\'', "'\\''"));
    path.map_or_else(String::new, |path| format!("export PATH='{path}'\n"))
}

/// The groups of the environment without `tty`. sshd gives a terminal to that group where there is
/// one, and where the run's user has one id, there is no other to give it to.
fn groups(image: &EnvironmentLayers) -> Option<String> {
    let mut layers = image.layers.iter().rev();
    let path = layers.find_map(|layer| {
        let path = layer.path.join(GROUPS.trim_start_matches('/'));
        path.symlink_metadata()
            .is_ok_and(|meta| meta.is_file())
            .then_some(path)
    })?;
    let text = crate::input::read_text(&path).ok()?;
    let others = text.lines().filter(|line| !line.starts_with("tty:"));
    Some(others.map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    use crate::services::tests::{ServiceFixture, base_request, lock};
    use sconce_schema::environment_layers::LayerTree;
    use sconce_schema::request::NetworkMode;

    #[test]
    fn nothing_but_keys_lets_in() {
        let made = ServiceFixture::new("[services.ssh]");
        let (request, laid) = made.prepare_request(base_request());
        let service = &request.services[0];
        assert_eq!(service.links, ["ssh -p 2222 sconce@127.0.0.1"]);
        assert_eq!(service.command[..2], ["/usr/sbin/sshd", "-D"]);
        assert!(laid.notes[0].contains("SHA256:"), "{laid:?}");
        let ssh = made.private_dir().join("ssh");
        let config = std::fs::read_to_string(ssh.join("sshd_config")).unwrap();
        for line in [
            "ListenAddress 127.0.0.1:2222",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "AuthenticationMethods publickey",
            "PermitRootLogin no",
            "UsePAM no",
            "AllowUsers sconce",
        ] {
            assert!(
                config.lines().any(|other| other == line),
                "{line}\n{config}"
            );
        }
        for name in ["sshd_config", "authorized_keys", "ssh_host_ed25519_key"] {
            let mode = ssh.join(name).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600, "{name}");
        }
        let targets: Vec<_> = request
            .mounts
            .iter()
            .map(|mount| mount.target.display().to_string())
            .collect();
        assert_eq!(targets, ["/run/sconce/services/ssh", PROFILE, GROUPS]);
        assert!(request.mounts.iter().all(|mount| mount.read_only));
    }

    #[test]
    fn the_same_environment_has_the_same_host_key() {
        let made = ServiceFixture::new("[services.ssh]");
        let first = made.prepare_request(base_request()).1.notes.clone();
        assert_eq!(first, made.prepare_request(base_request()).1.notes);
    }

    #[test]
    fn root_is_not_let_in() {
        let made = ServiceFixture::new("[services.ssh]");
        let mut request = RunRequest {
            user: ContainerUser::Root,
            ..base_request()
        };
        let error = made
            .with_inputs(|given| given.apply_to(&mut request))
            .err()
            .unwrap();
        let text = error.to_plain_text();
        assert!(text.contains("lets nobody in as root"), "{text}");
    }

    #[test]
    fn variables_are_quoted_and_sessions_keep_their_own() {
        let mut request = RunRequest {
            network: NetworkMode::Own,
            ..base_request()
        };
        for (name, value) in [
            ("PATH", "/opt/venv/bin:/it's/bin"),
            ("A", "b \"c\" \\ # d"),
            ("HOME", "/root"),
            ("SSH_AUTH_SOCK", "/x"),
            ("LINES", "a\nMatch all\n"),
            ("B C", "x"),
        ] {
            request.env.insert(name.to_owned(), value.to_owned());
        }
        request.edits.push(sconce_schema::request::ContainerEdits {
            env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
            ..Default::default()
        });
        let made = ServiceFixture::new("[services.ssh]\nport = \"2200:22\"");
        let (_, _laid) = made.prepare_request(request);
        let ssh = made.private_dir().join("ssh");
        let config = std::fs::read_to_string(ssh.join("sshd_config")).unwrap();
        let last = config.lines().last().unwrap();
        assert_eq!(
            last,
            "SetEnv \"A=b \\\"c\\\" \\\\ # d\" \"NVIDIA_VISIBLE_DEVICES=void\" \"PATH=/opt/venv/bin:/it's/bin\""
        );
        assert!(config.starts_with("ListenAddress 127.0.0.1:22\n"));
        let profile = std::fs::read_to_string(ssh.join("profile.sh")).unwrap();
        assert_eq!(profile, "export PATH='/opt/venv/bin:/it'\\''s/bin'\n");
    }

    #[test]
    fn no_group_of_terminals() {
        let dir = tempfile::tempdir().unwrap();
        let layer = |name: &str, text: Option<&str>| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.join("etc")).unwrap();
            if let Some(text) = text {
                std::fs::write(path.join("etc/group"), text).unwrap();
            }
            LayerTree {
                name: name.to_owned(),
                path,
            }
        };
        let image = EnvironmentLayers {
            layers: vec![
                layer("base", Some("root:x:0:\ntty:x:5:\nttys:x:6:\n")),
                layer("top", None),
            ],
            env: BTreeMap::new(),
        };
        assert_eq!(groups(&image).unwrap(), "root:x:0:\nttys:x:6:\n");
    }

    #[test]
    fn penalties_are_known_by_the_version() {
        for (version, penalties) in [
            ("1:10.0p1-7+deb13u4", true),
            ("1:9.8p1-1", true),
            ("1:9.2p1-2+deb12u6", false),
            ("9.10", true),
            ("x", false),
            ("", false),
        ] {
            assert_eq!(has_penalties(&lock(version)), penalties, "{version}");
        }
        let mut without = lock("1:10.0p1-7");
        without.debs.clear();
        assert!(!has_penalties(&without));
    }
}
