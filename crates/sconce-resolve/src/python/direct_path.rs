//! Requirements whose address is a path of this machine: `name @ file:./libs/name`.

use std::path::{Path, PathBuf};

use sconce_fetch::{file_path, file_url};

/// What stands for the project's own folder in an address: hatch's field, and variables of PDM and of a shell.
const PROJECT_ROOT: [&str; 5] = [
    "{root:uri}",
    "{root}",
    "file:///${PROJECT_ROOT}",
    "file://${PROJECT_ROOT}",
    "file://${PWD}",
];

/// A requirement by a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRequirement<'a> {
    /// The name with its extras, as written.
    pub name: &'a str,
    /// The path, absolute where `folder` is.
    pub path: PathBuf,
    /// What stands behind the address: ` ; python_version > "3"`.
    marker: &'a str,
}

impl<'a> PathRequirement<'a> {
    /// Reads a requirement (PEP 508) of a project in `folder`, which relative paths are seen from. `None` for one
    /// that does not name a path.
    #[must_use]
    pub fn parse(text: &'a str, folder: &Path) -> Option<Self> {
        let (name, rest) = text.split_once('@')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "._-[], ".contains(c);
        if name.trim().is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let rest = rest.trim();
        let end = rest.find([' ', '\t']).unwrap_or(rest.len());
        let (address, marker) = rest.split_at(end);
        let address = address.split(['#', '?']).next().unwrap_or_default();
        Some(Self {
            name: name.trim(),
            path: path_of_address(address, folder)?,
            marker,
        })
    }

    /// The same with its whole path.
    #[must_use]
    pub fn with_whole_path(&self) -> String {
        format!("{} @ {}{}", self.name, file_url(&self.path), self.marker)
    }
}

fn path_of_address(address: &str, folder: &Path) -> Option<PathBuf> {
    let below = |folder: &Path, rest: &str| {
        let rest = file_path(&format!("file:/{}", rest.trim_start_matches('/')))?;
        Some(folder.join(rest.strip_prefix("/").ok()?))
    };
    if let Some(rest) = PROJECT_ROOT
        .iter()
        .find_map(|root| address.strip_prefix(root))
    {
        return below(folder, rest);
    }
    // `{root:parent:parent:uri}`
    if let Some((fields, rest)) = address
        .strip_prefix("{root:")
        .and_then(|rest| rest.split_once('}'))
    {
        let fields = fields.strip_suffix(":uri").unwrap_or(fields);
        let is_above = fields.split(':').all(|field| field == "parent");
        let above = folder.ancestors().nth(fields.split(':').count())?;
        return is_above.then(|| below(above, rest)).flatten();
    }
    match address.strip_prefix("file:") {
        Some(path) if !path.starts_with('/') => below(folder, path),
        Some(_) => file_path(address),
        None if address.starts_with(['.', '/']) => Some(folder.join(address)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_paths() {
        let path = |text: &str| {
            let found = PathRequirement::parse(text, Path::new("/here/app"));
            found.map(|one| (one.name.to_owned(), one.path.to_string_lossy().into_owned()))
        };
        for (text, name, expected) in [
            ("dep @ file:./libs/dep", "dep", "/here/app/libs/dep"),
            ("dep[a,b]@file:libs/dep", "dep[a,b]", "/here/app/libs/dep"),
            ("dep @ ../dep ; extra == 'x'", "dep", "/here/app/../dep"),
            ("six @ file:///here/my%20six#egg=six", "six", "/here/my six"),
            ("six @ file://localhost/here/six", "six", "/here/six"),
            ("six @ {root:uri}/libs/six", "six", "/here/app/libs/six"),
            ("six @ {root:parent:uri}/six", "six", "/here/six"),
            (
                "six @ file:///${PROJECT_ROOT}/libs/six",
                "six",
                "/here/app/libs/six",
            ),
            ("six @ file://${PWD}/six", "six", "/here/app/six"),
        ] {
            let expected = Some((name.to_owned(), expected.to_owned()));
            assert_eq!(path(text), expected, "{text}");
        }
        for text in [
            "six",
            "six @ https://example.org/six-1.tar.gz",
            "git+ssh://git@example.org/six",
            "git@example.org:a/six",
            "six @ file://host/six",
            "six @ {root:name:uri}/six",
            "@ file:///six",
            "six @ ",
        ] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_is_written_out_whole() {
        let one = PathRequirement::parse("w @ file:w-1.whl ; extra == 'x'", Path::new("/a b"));
        assert_eq!(
            one.unwrap().with_whole_path(),
            "w @ file:///a%20b/w-1.whl ; extra == 'x'"
        );
    }
}
