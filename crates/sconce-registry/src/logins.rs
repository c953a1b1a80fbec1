//! Logins: from the texts of Docker's `config.json` and podman's `auth.json`, and from their
//! credential helpers.
//!
//! The keys are those of docker-cli's `cli/config/configfile` and of containers-auth.json(5). The
//! library is given the texts; which files they come from is for the program to say.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sconce_schema::{Hint, exit};
use serde::Deserialize;

use super::helper::{CredentialHelpers, HelperError};

/// The largest file of logins that is read, bytes.
const MAX_FILE_BYTES: usize = 1 << 20;
/// The most parts of a repository's path that are looked up.
const MAX_PATH_PARTS: usize = 32;

/// Says who one is.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// A user and a password or access token.
    Basic {
        /// User.
        user: String,
        /// Password.
        password: String,
    },
    /// An OAuth2 refresh token.
    Identity {
        /// The token.
        token: String,
    },
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic { .. } => "Basic(…)",
            Self::Identity { .. } => "Identity(…)",
        })
    }
}

/// Why a text holds no logins.
#[derive(Debug, thiserror::Error)]
pub enum LoginsError {
    /// More than a megabyte.
    #[error("a file of logins has {bytes} bytes; {MAX_FILE_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not JSON of that shape. What is at fault is not shown: it can be a password.
    #[error("a file of logins does not read: line {line}, column {column}")]
    Malformed {
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
}

impl Hint for LoginsError {
    fn hint(&self) -> Option<String> {
        Some("mend the file, or log in again with the tool that wrote it".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// What one file says.
#[derive(Default)]
struct File {
    /// By key as written.
    auths: BTreeMap<String, Login>,
    /// Helper by registry.
    helpers: BTreeMap<String, String>,
    /// Helper for every other registry.
    store: Option<String>,
}

/// Where logins are looked for.
#[derive(Clone, Default)]
pub struct LoginSources {
    known: HashMap<String, Login>,
    files: Vec<Arc<File>>,
    helpers: Option<Arc<dyn CredentialHelpers>>,
    found: Arc<Mutex<HashMap<(String, String), LoginLookup>>>,
}

impl fmt::Debug for LoginSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logins({} files)", self.files.len())
    }
}

/// What looking for a login came to.
#[derive(Debug, Clone, Default)]
pub(super) struct LoginLookup {
    pub(super) login: Option<Login>,
    /// Why a helper that should know gave nothing.
    pub(super) trouble: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfigFile {
    #[serde(default)]
    auths: Option<BTreeMap<String, Auth>>,
    #[serde(default)]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Auth {
    auth: Option<String>,
    identitytoken: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

impl LoginSources {
    /// No login anywhere.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds a login for `host` (`HOST[:PORT]`) that goes before every file.
    #[must_use]
    pub fn with_login(mut self, host: &str, login: Login) -> Self {
        self.known.insert(host.to_ascii_lowercase(), login);
        self
    }

    /// Adds a file's text. Earlier files go before later ones.
    ///
    /// # Errors
    /// [`LoginsError`].
    pub fn with_file(mut self, text: &str) -> Result<Self, LoginsError> {
        self.files.push(Arc::new(File::parse(text)?));
        Ok(self)
    }

    /// How the credential helpers are asked that the files name. Without it they are not.
    #[must_use]
    pub fn with_helpers(mut self, helpers: Arc<dyn CredentialHelpers>) -> Self {
        self.helpers = Some(helpers);
        self
    }

    /// The login for a repository of a registry, looked for once.
    pub(super) fn find_login(&self, host: &str, path: &str) -> LoginLookup {
        let key = (host.to_owned(), path.to_owned());
        // Held while a helper runs: it may ask the user, and should do so once.
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found
            .entry(key)
            .or_insert_with(|| self.look(host, path))
            .clone()
    }

    fn look(&self, host: &str, path: &str) -> LoginLookup {
        if let Some(login) = self.known.get(host) {
            return LoginLookup {
                login: Some(login.clone()),
                trouble: None,
            };
        }
        let mut trouble = None;
        for file in &self.files {
            let helper = file.helpers.get(host).or(file.store.as_ref());
            if let (Some(name), Some(helpers)) = (helper, &self.helpers) {
                match ask(&**helpers, name, host) {
                    Ok(Some(login)) => {
                        return LoginLookup {
                            login: Some(login),
                            trouble: None,
                        };
                    }
                    Ok(None) => {}
                    Err(e) => trouble = trouble.or(Some(e.to_string())),
                }
            }
            if let Some(login) = file.login(host, path) {
                return LoginLookup {
                    login: Some(login.clone()),
                    trouble: None,
                };
            }
        }
        LoginLookup {
            login: None,
            trouble,
        }
    }
}

impl File {
    fn parse(text: &str) -> Result<Self, LoginsError> {
        if text.len() > MAX_FILE_BYTES {
            return Err(LoginsError::TooLarge { bytes: text.len() });
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let written: DockerConfigFile =
            serde_json::from_str(text).map_err(|e| LoginsError::Malformed {
                line: e.line(),
                column: e.column(),
            })?;
        let auths = written.auths.unwrap_or_default().into_iter();
        let helpers = written.cred_helpers.unwrap_or_default().into_iter();
        Ok(Self {
            auths: auths
                .filter_map(|(key, auth)| Some((key, auth.login()?)))
                .collect(),
            helpers: helpers.filter(|(_, name)| !name.is_empty()).collect(),
            store: written.creds_store.filter(|name| !name.is_empty()),
        })
    }

    /// The login of the longest key that covers the repository.
    fn login(&self, host: &str, path: &str) -> Option<&Login> {
        let parts: Vec<&str> = path.split('/').take(MAX_PATH_PARTS).collect();
        let scoped = (1..=parts.len())
            .rev()
            .map(|count| format!("{host}/{}", parts[..count].join("/")))
            .chain([host.to_owned()]);
        for key in scoped {
            if let Some(login) = self.auths.get(&key) {
                return Some(login);
            }
        }
        // Old tools wrote the address of an interface: https://HOST/v1/.
        let of_interface = |key: &str| {
            let mut schemes = ["https://", "http://"].iter();
            let bare = schemes.find_map(|scheme| key.strip_prefix(scheme));
            let bare = bare.unwrap_or(key);
            let (name, rest) = bare.split_once('/').unwrap_or((bare, ""));
            let rest = rest.trim_end_matches('/');
            name.eq_ignore_ascii_case(host) && matches!(rest, "" | "v1" | "v2")
        };
        let mut keys = self.auths.iter();
        keys.find(|(key, _)| of_interface(key))
            .map(|(_, login)| login)
    }
}

impl Auth {
    fn login(self) -> Option<Login> {
        if let Some(token) = self.identitytoken.filter(|token| !token.is_empty()) {
            return Some(Login::Identity { token });
        }
        if let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) {
            let loose = GeneralPurpose::new(
                &alphabet::STANDARD,
                GeneralPurposeConfig::new()
                    .with_decode_padding_mode(DecodePaddingMode::Indifferent),
            );
            let text = String::from_utf8(loose.decode(auth.trim()).ok()?).ok()?;
            let (user, password) = text.split_once(':')?;
            // Docker's own reader does the same: old files are filled up with zeros.
            return basic(user, password.trim_end_matches('\0'));
        }
        basic(&self.username?, &self.password?)
    }
}

fn basic(user: &str, password: &str) -> Option<Login> {
    let ok = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    // A colon would end the user's name early (RFC 7617, section 2).
    (ok(user) && ok(password) && !user.contains(':')).then(|| Login::Basic {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

/// Asks a helper; `None` when it knows nothing of the registry.
fn ask(
    helpers: &dyn CredentialHelpers,
    name: &str,
    host: &str,
) -> Result<Option<Login>, HelperError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct HelperOutput {
        username: String,
        secret: String,
    }
    let Some(text) = helpers.get(name, host)? else {
        return Ok(None);
    };
    let answer: HelperOutput = serde_json::from_str(&text).map_err(|_| HelperError::Answer {
        name: name.to_owned(),
    })?;
    if answer.secret.is_empty() {
        return Ok(None);
    }
    // docker-credential-helpers' README: this user marks an identity token.
    if answer.username == "<token>" {
        return Ok(Some(Login::Identity {
            token: answer.secret,
        }));
    }
    basic(&answer.username, &answer.secret)
        .map(Some)
        .ok_or_else(|| HelperError::Answer {
            name: name.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(logins: &LoginSources, host: &str, path: &str) -> Option<String> {
        match logins.find_login(host, path).login? {
            Login::Basic { user, password } => Some(format!("{user}/{password}")),
            Login::Identity { token } => Some(format!("<token>/{token}")),
        }
    }

    /// Made by hand after what `docker login` and `podman login` write.
    const CONFIG: &str = r#"{
        "auths": {
            "registry.example.org": {"auth": "bWU6cGE6c3M="},
            "https://old.example.org/v1/": {"auth": "bzpw"},
            "token.example.org": {"auth": "MDA6", "identitytoken": "refresh"},
            "scoped.example.org": {"auth": "YTph"},
            "scoped.example.org/team": {"auth": "Yjpi"},
            "scoped.example.org/team/image": {"auth": "Yzpj"},
            "only.example.org/team": {"auth": "ZDpk"},
            "port.example.org:5000": {"username": "u", "password": "w"},
            "empty.example.org": {},
            "nopad.example.org": {"auth": "bWU6cGE6c3M"},
            "broken.example.org": {"auth": "%%%"}
        },
        "HttpHeaders": {"User-Agent": "x"}
    }"#;

    #[test]
    fn files_are_read_as_their_writers_mean_them() {
        let logins = LoginSources::empty().with_file(CONFIG).unwrap();
        for (host, path, want) in [
            ("registry.example.org", "a", Some("me/pa:ss")),
            ("nopad.example.org", "a", Some("me/pa:ss")),
            ("registry.example.org:5000", "a", None),
            ("old.example.org", "a", Some("o/p")),
            ("token.example.org", "a", Some("<token>/refresh")),
            ("scoped.example.org", "other", Some("a/a")),
            ("scoped.example.org", "team/other", Some("b/b")),
            ("scoped.example.org", "team/image", Some("c/c")),
            ("scoped.example.org", "team/image/deep", Some("c/c")),
            ("scoped.example.org", "teams", Some("a/a")),
            ("only.example.org", "team/x", Some("d/d")),
            ("only.example.org", "other", None),
            ("port.example.org:5000", "a", Some("u/w")),
            ("empty.example.org", "a", None),
            ("broken.example.org", "a", None),
        ] {
            assert_eq!(user(&logins, host, path).as_deref(), want, "{host}/{path}");
        }
        let first = LoginSources::empty()
            .with_login("registry.example.org", basic("x", "y").unwrap())
            .with_file(CONFIG)
            .unwrap();
        assert_eq!(
            user(&first, "registry.example.org", "a").as_deref(),
            Some("x/y")
        );
    }

    struct Played;

    impl CredentialHelpers for Played {
        fn get(&self, name: &str, host: &str) -> Result<Option<String>, HelperError> {
            let text = match (name, host) {
                ("a", "one.example.org") => r#"{"ServerURL":"","Username":"u","Secret":"s"}"#,
                ("b", "two.example.org") => r#"{"Username":"<token>","Secret":"t"}"#,
                ("b", "odd.example.org") => r#"{"Username":"u\n","Secret":"s"}"#,
                ("b", "bad.example.org") => "secret words",
                ("gone", _) => {
                    return Err(HelperError::Missing {
                        name: name.to_owned(),
                    });
                }
                _ => return Ok(None),
            };
            Ok(Some(text.to_owned()))
        }
    }

    #[test]
    fn helpers_go_before_the_file() {
        let logins = LoginSources::empty()
            .with_file(
                r#"{"auths": {"one.example.org": {}, "file.example.org": {"auth": "ZjpmCg=="},
                    "plain.example.org": {"auth": "ZjpmZg=="}},
                    "credsStore": "b",
                    "credHelpers": {"one.example.org": "a", "x.example.org": "gone"}}"#,
            )
            .unwrap()
            .with_helpers(Arc::new(Played));
        assert_eq!(
            user(&logins, "one.example.org", "i").as_deref(),
            Some("u/s")
        );
        assert_eq!(
            user(&logins, "two.example.org", "i").as_deref(),
            Some("<token>/t")
        );
        assert_eq!(
            user(&logins, "plain.example.org", "i").as_deref(),
            Some("f/ff")
        );
        // A line end in a password is no header's.
        assert_eq!(user(&logins, "file.example.org", "i"), None);
        for host in ["odd.example.org", "bad.example.org", "x.example.org"] {
            let found = logins.find_login(host, "i");
            assert_eq!(found.login, None);
            let trouble = found.trouble.expect(host);
            assert!(!trouble.contains("secret"), "{trouble}");
        }
    }

    #[test]
    fn broken_files_show_no_password() {
        for text in [
            "[",
            r#"{"auths": {"a": {"auth": 5}}}"#,
            r#"{"auths": {"a": {"password": {"hunter2": 1}}}}"#,
        ] {
            let error = LoginSources::empty().with_file(text).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(LoginSources::empty().with_file("").is_ok());
        assert!(
            LoginSources::empty()
                .with_file(&" ".repeat(MAX_FILE_BYTES + 1))
                .is_err()
        );
        assert!(!format!("{:?}", basic("me", "hunter2")).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn mutations_do_not_panic(at in 0usize..900, byte in any::<u8>()) {
            let mut bytes = CONFIG.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes)
                && let Ok(logins) = LoginSources::empty().with_file(&text)
            {
                logins.find_login("scoped.example.org", "team/image");
            }
        }
    }
}
