//! Which indexes uv asks. They reach uv through its environment, as a command line can be read by
//! every user of the machine and indexes can hold credentials.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use super::compile::names_indexes;
use sconce_base::text::redact_url_credentials;

/// Settings of indexes, as pip has them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct IndexSettings {
    /// The index, instead of the usual one.
    pub index_url: Option<String>,
    /// Further indexes. uv takes a project from the first index that has it, these before
    /// [`IndexSettings::index_url`].
    pub extra_index_urls: Vec<String>,
    /// Indexes that serve what a `pyproject.toml` names for them, and nothing else.
    pub explicit_index_urls: Vec<String>,
    /// Folders and pages with wheels.
    pub find_links: Vec<String>,
    /// Ask no index, only [`IndexSettings::find_links`].
    pub no_index: bool,
    /// A PEM file of certificate authorities to trust.
    pub ca_file: Option<PathBuf>,
    /// Hosts whose certificates are not checked.
    pub trusted_hosts: Vec<String>,
}

impl fmt::Debug for IndexSettings {
    // The addresses can hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clean = |urls: &[String]| {
            urls.iter()
                .map(|url| redact_url_credentials(url))
                .collect::<Vec<_>>()
        };
        f.debug_struct("IndexSettings")
            .field(
                "index_url",
                &self.index_url.as_deref().map(redact_url_credentials),
            )
            .field("extra_index_urls", &clean(&self.extra_index_urls))
            .field("explicit_index_urls", &clean(&self.explicit_index_urls))
            .field("find_links", &clean(&self.find_links))
            .field("no_index", &self.no_index)
            .field("ca_file", &self.ca_file)
            .field("trusted_hosts", &self.trusted_hosts)
            .finish()
    }
}

impl IndexSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What has to be said on uv's command line: there is no variable for it.
    pub(super) fn uv_args(&self) -> Vec<&'static str> {
        if self.no_index {
            vec!["--no-index"]
        } else {
            Vec::new()
        }
    }

    /// The settings that count: these, or `pip`'s where nothing else says anything; `None` where the
    /// environment does.
    pub(crate) fn effective_settings<'a>(
        &'a self,
        pip: &'a Self,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Option<&'a Self> {
        if !self.is_empty() {
            return Some(self);
        }
        (!names_indexes(environment)).then_some(pip)
    }

    /// The variables to set for uv besides `environment`. These settings, the spec's, come
    /// before what the environment says; `pip`'s only count when neither says anything.
    pub(super) fn uv_variables(
        &self,
        pip: &Self,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let mut variables = Vec::new();
        if !self.is_empty() {
            // The older names would still count.
            for name in ["UV_INDEX_URL", "UV_EXTRA_INDEX_URL"] {
                if environment.contains_key(OsStr::new(name)) {
                    variables.push((name, OsString::new()));
                }
            }
        }
        let Some(chosen) = self.effective_settings(pip, environment) else {
            return with_certificates(variables, pip, environment);
        };
        let mut set = |name, value: String| {
            if !value.is_empty() {
                variables.push((name, OsString::from(value)));
            }
        };
        set(
            "UV_DEFAULT_INDEX",
            chosen.index_url.clone().unwrap_or_default(),
        );
        set("UV_INDEX", chosen.extra_index_urls.join(" "));
        // pip passes over a folder that is not there, uv does not.
        let links = chosen
            .find_links
            .iter()
            .filter(|l| l.contains("://") || Path::new(l).exists());
        set(
            "UV_FIND_LINKS",
            links.map(String::as_str).collect::<Vec<_>>().join(","),
        );
        set("UV_INSECURE_HOST", chosen.trusted_hosts.join(" "));
        with_certificates(
            variables,
            if chosen.ca_file.is_some() {
                chosen
            } else {
                pip
            },
            environment,
        )
    }
}

fn with_certificates(
    mut variables: Vec<(&'static str, OsString)>,
    settings: &IndexSettings,
    environment: &BTreeMap<OsString, OsString>,
) -> Vec<(&'static str, OsString)> {
    if let Some(file) = &settings.ca_file
        && !environment.contains_key(OsStr::new("SSL_CERT_FILE"))
    {
        variables.push(("SSL_CERT_FILE", file.clone().into()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(url: &str) -> IndexSettings {
        IndexSettings {
            index_url: Some(url.to_owned()),
            ..IndexSettings::default()
        }
    }

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs
            .iter()
            .map(|(k, v)| (OsString::from(k), OsString::from(v)))
            .collect()
    }

    #[test]
    fn spec_before_environment_before_pip() {
        let (spec, pip, none) = (
            index("https://spec.example"),
            index("https://pip.example"),
            IndexSettings::default(),
        );
        let own = environment(&[("UV_INDEX_URL", "https://uv.example")]);
        let is = |value: &str| OsString::from(value);
        assert_eq!(
            spec.uv_variables(&pip, &own),
            [
                ("UV_INDEX_URL", is("")),
                ("UV_DEFAULT_INDEX", is("https://spec.example"))
            ]
        );
        assert_eq!(none.uv_variables(&pip, &own), []);
        assert_eq!(
            none.uv_variables(&pip, &environment(&[])),
            [("UV_DEFAULT_INDEX", is("https://pip.example"))]
        );
    }

    #[test]
    fn every_setting_has_its_variable() {
        let folder = tempfile::tempdir().unwrap();
        let links = folder.path().to_str().unwrap().to_owned();
        let settings = IndexSettings {
            index_url: Some("https://a.example".into()),
            extra_index_urls: vec!["https://b.example".into(), "https://c.example".into()],
            explicit_index_urls: vec!["https://f.example".into()],
            find_links: vec![
                links.clone(),
                "/no/such/folder".into(),
                "https://d.example/x".into(),
            ],
            no_index: true,
            ca_file: Some("/ca.pem".into()),
            trusted_hosts: vec!["e.example".into()],
        };
        let variables: BTreeMap<_, _> = settings
            .uv_variables(&IndexSettings::default(), &environment(&[]))
            .into_iter()
            .collect();
        let text = |name: &str| variables[name].to_str().unwrap().to_owned();
        assert_eq!(text("UV_DEFAULT_INDEX"), "https://a.example");
        assert_eq!(text("UV_INDEX"), "https://b.example https://c.example");
        assert_eq!(
            text("UV_FIND_LINKS"),
            format!("{links},https://d.example/x")
        );
        assert_eq!(text("UV_INSECURE_HOST"), "e.example");
        assert_eq!(text("SSL_CERT_FILE"), "/ca.pem");
        assert_eq!(settings.uv_args(), ["--no-index"]);
    }

    #[test]
    fn the_machines_own_certificates_stay() {
        let pip = IndexSettings {
            ca_file: Some("/pip.pem".into()),
            ..IndexSettings::default()
        };
        let own = environment(&[("SSL_CERT_FILE", "/own.pem")]);
        assert_eq!(IndexSettings::default().uv_variables(&pip, &own), []);
    }

    #[test]
    fn passwords_are_not_printed() {
        let text = format!("{:?}", index("https://me:secret@example.org/simple"));
        assert!(
            text.contains("example.org") && !text.contains("secret"),
            "{text}"
        );
    }
}
