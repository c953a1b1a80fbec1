//! pip's own settings of this machine: its configuration files and variables, in pip's order.
//! (pip documentation, "Configuration": global, user, `PIP_CONFIG_FILE`, environment.)

pub mod conf;

use std::collections::BTreeMap;
use std::path::PathBuf;

use sconce_base::Env;
use sconce_resolve::python::IndexSettings;

use conf::parse_options;

/// The index settings that the machine's pip would use.
pub fn read_index_settings(env: &Env) -> IndexSettings {
    let mut values = BTreeMap::new();
    for file in files(env) {
        if let Ok(text) = crate::input::read_text(&file) {
            values.extend(parse_options(&text));
        }
    }
    for (name, value) in env.iter_utf8() {
        if let Some(name) = name.strip_prefix("PIP_") {
            let name = name.to_ascii_lowercase().replace('_', "-");
            values.insert(name, value.to_owned());
        }
    }
    from_options(&values)
}

/// Whether uv has a configuration of its own, which then decides alone.
pub fn uv_is_configured(env: &Env) -> bool {
    let named = env.path_var("UV_CONFIG_FILE");
    let system = [PathBuf::from("/etc/uv/uv.toml")];
    let user = config_home(env).map(|folder| folder.join("uv/uv.toml"));
    named
        .into_iter()
        .chain(system)
        .chain(user)
        .any(|file| file.is_file())
}

fn config_home(env: &Env) -> Option<PathBuf> {
    let named = env.path_var("XDG_CONFIG_HOME").filter(|p| p.is_absolute());
    named.or_else(|| Some(env.home_dir()?.join(".config")))
}

fn files(env: &Env) -> Vec<PathBuf> {
    let mut files = vec![
        PathBuf::from("/etc/xdg/pip/pip.conf"),
        PathBuf::from("/etc/pip.conf"),
    ];
    files.extend(env.home_dir().map(|home| home.join(".pip/pip.conf")));
    files.extend(config_home(env).map(|folder| folder.join("pip/pip.conf")));
    files.extend(env.path_var("PIP_CONFIG_FILE"));
    files
}

fn from_options(values: &BTreeMap<String, String>) -> IndexSettings {
    let list = |name: &str| -> Vec<String> {
        let words = values.get(name).map(|value| value.split_whitespace());
        words.into_iter().flatten().map(str::to_owned).collect()
    };
    let truth = |value: &String| {
        matches!(
            value.to_ascii_lowercase().as_str(),
            "1" | "true" | "yes" | "on"
        )
    };
    IndexSettings {
        index_url: values.get("index-url").cloned(),
        extra_index_urls: list("extra-index-url"),
        explicit_index_urls: Vec::new(),
        find_links: list("find-links"),
        no_index: values.get("no-index").is_some_and(truth),
        ca_file: values.get("cert").map(PathBuf::from),
        trusted_hosts: list("trusted-host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pip_conf_is_read_as_pip_reads_it() {
        let text = "# mine\n[global]\nindex_url = https://a.example.org/simple\n\
                    extra-index-url =\n    https://b.example.org/x\n    https://c.example.org/x\n\
                    [install]\nno-index = true\n[list]\nindex-url = https://no.example.org\n";
        let settings = from_options(&parse_options(text));
        assert_eq!(
            settings.index_url.as_deref(),
            Some("https://a.example.org/simple")
        );
        assert_eq!(
            settings.extra_index_urls,
            ["https://b.example.org/x", "https://c.example.org/x"]
        );
        assert!(settings.no_index);
        assert!(from_options(&parse_options("")).is_empty());
    }
}
