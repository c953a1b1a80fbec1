//! How an image is run: what its configuration says (image specification, "Image Configuration"),
//! and what a run of Sconce makes of it.
//!
//! Who the command is inside is not the image's to say: uid 1000, or root where the caller asks for
//! it. Started by the machine's root that is a real uid, and an image could name that of a person.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use sconce_schema::lock::LockedVersions;

use crate::system::{PLAIN_HOME, PLAIN_ID};
use sconce_oci as oci;

mod accounts;

pub use accounts::{Accounts, AccountsError};

/// Where programs are looked for in an image that does not say: what other engines take.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Set by Sconce alone: which cards a run gets is not the image's to say.
const OURS: [&str; 1] = ["NVIDIA_VISIBLE_DEVICES"];

/// How an image is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageExecution {
    /// What is always run; the command follows as its arguments.
    pub entrypoint: Vec<String>,
    /// What is run unless something else is asked for.
    pub default_command: Vec<String>,
    /// Variables, `HOME` among them.
    pub env: BTreeMap<String, String>,
    /// Absolute, without `..`.
    pub workdir: PathBuf,
    /// Ports that it says it listens on, such as `8888/tcp`. Nothing is published for it.
    pub ports: Vec<String>,
    /// What a person should know: wishes of the image that are not granted.
    pub notes: Vec<String>,
}

impl ImageExecution {
    /// Of an image's configuration. `accounts` are those that the image has.
    #[must_use]
    pub fn from_image_config(
        image: &oci::ImageConfiguration,
        accounts: &Accounts,
        as_root: bool,
    ) -> Self {
        let config = image.config.clone().unwrap_or_default();
        let mut notes = Vec::new();
        let mut env = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]);
        let mut odd = 0;
        for variable in config.env.iter().flatten() {
            match variable.split_once('=') {
                Some((name, value)) if is_name(name) && !value.contains('\0') => {
                    env.insert(name.to_owned(), value.to_owned());
                }
                _ => odd += 1,
            }
        }
        if odd > 0 {
            notes.push(format!(
                "{odd} variables of the image are none and are left out"
            ));
        }
        for name in OURS {
            env.remove(name);
        }
        let user = config.user.as_deref().unwrap_or_default();
        let wanted = ImageUser::of(user, accounts);
        if !as_root {
            notes.extend(wanted.note(user));
        }
        let home = wanted.home(env.get("HOME"), accounts, as_root);
        env.insert("HOME".to_owned(), home);
        Self {
            entrypoint: config.entrypoint.unwrap_or_default(),
            default_command: config.cmd.unwrap_or_default(),
            env,
            workdir: straight(config.working_dir.as_deref().unwrap_or_default()),
            ports: config
                .exposed_ports
                .unwrap_or_default()
                .into_keys()
                .collect(),
            notes,
        }
    }

    /// The whole command: the image's entrypoint, then `asked`, or the image's own command where
    /// nothing is asked for. Empty where the image has neither.
    #[must_use]
    pub fn resolve_command(&self, asked: &[String]) -> Vec<String> {
        let rest = match asked {
            [] => &self.default_command,
            asked => asked,
        };
        [&self.entrypoint, rest].concat()
    }

    /// The working directory that `asked` means: one that is not absolute is below the image's own.
    #[must_use]
    pub fn resolve_workdir(&self, asked: Option<&str>) -> PathBuf {
        match asked {
            Some(asked) => self.workdir.join(asked),
            None => self.workdir.clone(),
        }
    }
}

/// The versions that an image of Sconce says it has, in its labels.
#[must_use]
pub fn versions_from_labels(image: &oci::ImageConfiguration) -> Option<LockedVersions> {
    let labels = image.config.as_ref()?.labels.as_ref()?;
    let get = |name: &str| {
        let value = labels.get(&format!("dev.sconce.{name}"));
        value.filter(|value| value.len() <= 100).cloned()
    };
    Some(LockedVersions {
        python: get("python")?,
        glibc: get("glibc")?,
        torch: get("torch"),
        cuda: get("cuda").and_then(|text| text.parse().ok()),
        cudnn: get("cudnn"),
        nccl: get("nccl"),
        triton: get("triton"),
        lowest_driver: get("lowest-driver").and_then(|text| text.parse().ok()),
    })
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

/// An absolute path without `..`, as other engines make of what images say.
fn straight(path: &str) -> PathBuf {
    let mut straight = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => straight.push(name),
            Component::ParentDir => drop(straight.pop()),
            _ => {}
        }
    }
    straight
}

/// Who an image wants to be.
enum ImageUser {
    Root,
    /// The uid where it is known, and the home that the image has for it.
    Other {
        uid: Option<u32>,
        home: Option<String>,
    },
}

impl ImageUser {
    /// Of `user`, `uid`, and either with `:group`.
    fn of(user: &str, accounts: &Accounts) -> Self {
        let name = user.split(':').next().unwrap_or_default();
        let uid = match name {
            "" => Some(0),
            name => accounts.uid(name).or_else(|| name.parse().ok()),
        };
        match uid {
            Some(0) => Self::Root,
            uid => Self::Other {
                uid,
                home: uid.and_then(|uid| accounts.home(uid)),
            },
        }
    }

    fn note(&self, user: &str) -> Option<String> {
        let plain = format!("the command runs as uid {PLAIN_ID}");
        match self {
            Self::Root => Some(format!(
                "the image's user is root; {plain} (--root: as root inside)"
            )),
            Self::Other { uid, .. } if *uid == Some(PLAIN_ID) => None,
            Self::Other { .. } => {
                let user: String = user.chars().take(40).flat_map(char::escape_debug).collect();
                Some(format!("the image's user is {user}; {plain}"))
            }
        }
    }

    /// The home: one in /home, as the run makes that and gives it to its user.
    fn home(&self, said: Option<&String>, accounts: &Accounts, as_root: bool) -> String {
        if as_root {
            let homes = [said.cloned(), accounts.home(0)];
            let own = homes
                .into_iter()
                .flatten()
                .find(|home| home.starts_with('/'));
            return own.unwrap_or_else(|| "/root".to_owned());
        }
        let (said, own) = match self {
            Self::Root => (None, None),
            Self::Other { home, .. } => (said.cloned(), home.clone()),
        };
        [accounts.home(PLAIN_ID), said, own]
            .into_iter()
            .flatten()
            .find(|home| is_plain_home(home))
            .unwrap_or_else(|| PLAIN_HOME.to_owned())
    }
}

/// Whether it is a folder of /home itself.
fn is_plain_home(home: &str) -> bool {
    home.strip_prefix("/home/").is_some_and(|name| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        !name.is_empty() && !name.starts_with('.') && name.bytes().all(good)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\napp:x:999:999::/home/app:/bin/sh\n\
        far:x:998:998::/srv/far:/bin/sh\nbroken\nx:y:z\n";

    fn image(config: &str) -> oci::ImageConfiguration {
        let text = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{config},
                "rootfs":{{"type":"layers","diff_ids":[]}}}}"#
        );
        oci::ImageConfiguration::from_json(text.as_bytes()).unwrap()
    }

    fn execution(config: &str) -> ImageExecution {
        ImageExecution::from_image_config(&image(config), &Accounts::parse(PASSWD, b""), false)
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_entrypoint_stays_and_the_command_is_replaced() {
        let both = execution(r#"{"Entrypoint":["tini","--"],"Cmd":["python","a.py"]}"#);
        assert_eq!(both.resolve_command(&[]), ["tini", "--", "python", "a.py"]);
        assert_eq!(both.resolve_command(&words(&["sh"])), ["tini", "--", "sh"]);
        let one = execution(r#"{"Entrypoint":null,"Cmd":["sh"]}"#);
        assert_eq!(one.resolve_command(&[]), ["sh"]);
        assert!(execution("null").resolve_command(&[]).is_empty());
    }

    #[test]
    fn variables_are_taken_but_the_cards() {
        let run = execution(
            r#"{"Env":["A=1=2","PATH=/opt/bin","NVIDIA_VISIBLE_DEVICES=all","=x","B","C=a\u0000b"]}"#,
        );
        let home = ("HOME".to_owned(), "/home/sconce".to_owned());
        let path = ("PATH".to_owned(), "/opt/bin".to_owned());
        let wanted = [("A".to_owned(), "1=2".to_owned()), home, path];
        assert_eq!(run.env, wanted.into());
        assert!(run.notes[0].starts_with("3 variables"), "{:?}", run.notes);
        assert_eq!(execution("{}").env["PATH"], DEFAULT_PATH);
    }

    #[test]
    fn the_working_directory_is_straight() {
        for (said, asked, wanted) in [
            ("", None, "/"),
            ("/app", None, "/app"),
            ("app/./x", None, "/app/x"),
            ("/a/../../../b", None, "/b"),
            ("/app", Some("src"), "/app/src"),
            ("/app", Some("/tmp"), "/tmp"),
        ] {
            let config = serde_json::json!({ "WorkingDir": said }).to_string();
            assert_eq!(
                execution(&config).resolve_workdir(asked),
                Path::new(wanted),
                "{said}"
            );
        }
    }

    #[test]
    fn the_image_does_not_choose_who_it_is() {
        let told = |user: &str| {
            let config = serde_json::json!({ "User": user, "Env": ["HOME=/home/own"] });
            let run = execution(&config.to_string());
            (run.notes.first().cloned(), run.env["HOME"].clone())
        };
        for user in ["", "root", "0", "0:1000", "root:app"] {
            let (note, home) = told(user);
            let note = note.unwrap();
            assert!(
                note.contains("is root") && note.contains("--root"),
                "{user}: {note}"
            );
            assert_eq!(home, "/home/sconce", "{user}");
        }
        assert_eq!(told("1000:1000"), (None, "/home/own".to_owned()));
        for user in [
            "app",
            "999",
            "nobody-knows",
            "4294967295",
            "99999999999",
            "-1",
        ] {
            let (note, home) = told(user);
            let wanted = format!("the image's user is {user}; the command runs as uid 1000");
            assert_eq!((note, home.as_str()), (Some(wanted), "/home/own"), "{user}");
        }
        let home = |user: &str, env: &str| {
            let config = serde_json::json!({ "User": user, "Env": [env] });
            execution(&config.to_string()).env["HOME"].clone()
        };
        assert_eq!(home("app", "A=1"), "/home/app");
        for env in [
            "HOME=/",
            "HOME=/home",
            "HOME=/home/../etc",
            "HOME=/home/a/b",
            "HOME=",
        ] {
            assert_eq!(home("far", env), "/home/sconce", "{env}");
        }
        let image = image(r#"{"User":"app"}"#);
        let root = ImageExecution::from_image_config(&image, &Accounts::parse(PASSWD, b""), true);
        assert_eq!((root.notes.len(), root.env["HOME"].as_str()), (0, "/root"));
    }

    #[test]
    fn versions_come_from_our_labels() {
        let labels = r#"{"Labels":{"dev.sconce.python":"3.13.5-2","dev.sconce.glibc":"2.41-12",
            "dev.sconce.torch":"2.15.0","dev.sconce.cuda":"13.2","dev.sconce.lowest-driver":"x"}}"#;
        let found = versions_from_labels(&image(labels)).unwrap();
        assert_eq!(found.torch.as_deref(), Some("2.15.0"));
        assert!(found.cuda.is_some() && found.lowest_driver.is_none());
        assert_eq!(
            versions_from_labels(&image(r#"{"Labels":{"dev.sconce.python":"3"}}"#)),
            None
        );
        assert_eq!(versions_from_labels(&image("null")), None);
    }
}
