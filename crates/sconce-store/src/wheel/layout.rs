//! Where the entries of a wheel go (the binary distribution format, "Installing a wheel").

use std::fmt::Write as _;

use sconce_schema::environment_layers::VENV;

use super::error::WheelError;

/// Where files of a wheel for one Python version go. All paths are relative to the image's root,
/// without a leading slash.
#[derive(Debug, Clone)]
pub(super) struct WheelLayout {
    /// `opt/venv`.
    venv: &'static str,
    /// `opt/venv/lib/python3.13/site-packages`.
    site: String,
    /// `opt/venv/include/site/python3.13`.
    headers: String,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryDestination {
    /// A file at this path.
    File(String),
    /// A file in `bin`, whose first line may have to name the image's interpreter.
    Script(String),
    /// A file of the `.dist-info` folder that is read and kept.
    Metadata(String),
    /// The list of files, which is read and written anew.
    Record,
    /// A file that the installer writes, so that the wheel's own is left out.
    Dropped,
}

impl WheelLayout {
    /// For `python`, a major and minor version.
    pub(super) fn new(python: &str) -> Self {
        let venv = VENV.trim_start_matches('/');
        Self {
            venv,
            site: format!("{venv}/lib/python{python}/site-packages"),
            headers: format!("{venv}/include/site/python{python}"),
        }
    }

    /// `opt/venv/lib/python3.13/site-packages`.
    pub(super) fn site_packages(&self) -> &str {
        &self.site
    }

    /// The path of the script `name`.
    pub(super) fn script_path(&self, name: &str) -> String {
        format!("{}/bin/{name}", self.venv)
    }

    /// Where the entry `name` goes. `project` names the folder of its headers.
    pub(super) fn entry_destination(
        &self,
        name: &str,
        project: &str,
    ) -> Result<EntryDestination, WheelError> {
        check_name(name)?;
        let unusable = |why| WheelError::Name {
            name: printable(name),
            why,
        };
        let Some((top, rest)) = name.split_once('/') else {
            return Ok(EntryDestination::File(format!("{}/{name}", self.site)));
        };
        if top.ends_with(".data") {
            let (scheme, rest) = rest
                .split_once('/')
                .ok_or_else(|| unusable("it is in no scheme of the data folder"))?;
            let path = match scheme {
                "purelib" | "platlib" => format!("{}/{rest}", self.site),
                "headers" => format!("{}/{project}/{rest}", self.headers),
                "scripts" => self.script_path(rest),
                "data" => format!("{}/{rest}", self.venv),
                _ => return Err(unusable("its scheme of the data folder is unknown")),
            };
            if self.is_reserved(&path) {
                return Err(unusable("it would replace the interpreter"));
            }
            return Ok(if scheme == "scripts" {
                EntryDestination::Script(path)
            } else {
                EntryDestination::File(path)
            });
        }
        let path = format!("{}/{name}", self.site);
        Ok(match rest {
            _ if !top.ends_with(".dist-info") => EntryDestination::File(path),
            "RECORD" => EntryDestination::Record,
            "RECORD.jws" | "RECORD.p7s" | "INSTALLER" | "REQUESTED" | "direct_url.json" => {
                EntryDestination::Dropped
            }
            "WHEEL" | "entry_points.txt" => EntryDestination::Metadata(path),
            _ => EntryDestination::File(path),
        })
    }

    /// `path` as `RECORD` names it: relative to `site-packages`.
    pub(super) fn record_path(&self, path: &str) -> String {
        match path
            .strip_prefix(&self.site)
            .and_then(|p| p.strip_prefix('/'))
        {
            Some(inside) => inside.to_owned(),
            None => {
                let below = path.strip_prefix(self.venv).unwrap_or(path);
                format!("../../..{below}")
            }
        }
    }

    /// What belongs to the environment itself.
    pub(super) fn is_reserved(&self, path: &str) -> bool {
        let Some(inside) = path
            .strip_prefix(self.venv)
            .and_then(|p| p.strip_prefix('/'))
        else {
            return false;
        };
        inside == "pyvenv.cfg"
            || inside
                .strip_prefix("bin/python")
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    }
}

/// Refuses names that lead out of the tree or that programs read in different ways. A folder's
/// name ends with a slash.
pub(super) fn check_name(name: &str) -> Result<(), WheelError> {
    let inside = name.strip_suffix('/').unwrap_or(name);
    let why = if name.starts_with('/') {
        "it is absolute"
    } else if name.contains('\\') {
        "it has a backslash"
    } else if name.chars().any(char::is_control) {
        "it has a control character"
    } else if name.len() > 4000 {
        "it is too long"
    } else if let Some(part) = inside
        .split('/')
        .find(|part| matches!(*part, "" | "." | "..") || part.len() > 255)
    {
        match part {
            "" => "it has an empty part",
            "." | ".." => "it has a part that leads elsewhere",
            _ => "it has a part that is too long",
        }
    } else {
        return Ok(());
    };
    Err(WheelError::Name {
        name: printable(name),
        why,
    })
}

/// `name` cut to 200 characters, with control characters made visible.
fn printable(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().take(200) {
        if sconce_base::text::is_unprintable(c) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(name: &str) -> Result<EntryDestination, String> {
        WheelLayout::new("3.13")
            .entry_destination(name, "demo")
            .map_err(|e| e.to_string())
    }

    #[test]
    fn entries_go_where_the_format_says() {
        const SITE: &str = "opt/venv/lib/python3.13/site-packages";
        let file = |path: &str| Ok(EntryDestination::File(path.to_owned()));
        assert_eq!(goal("demo/a.py"), file(&format!("{SITE}/demo/a.py")));
        assert_eq!(goal("top.py"), file(&format!("{SITE}/top.py")));
        assert_eq!(goal("d-1.data/purelib/a.py"), file(&format!("{SITE}/a.py")));
        assert_eq!(goal("d-1.data/platlib/a.so"), file(&format!("{SITE}/a.so")));
        assert_eq!(goal("d-1.data/data/share/x"), file("opt/venv/share/x"));
        assert_eq!(
            goal("d-1.data/headers/x.h"),
            file("opt/venv/include/site/python3.13/demo/x.h")
        );
        assert_eq!(
            goal("d-1.data/scripts/run"),
            Ok(EntryDestination::Script("opt/venv/bin/run".to_owned()))
        );
        assert_eq!(goal("d-1.dist-info/RECORD"), Ok(EntryDestination::Record));
        assert_eq!(
            goal("d-1.dist-info/direct_url.json"),
            Ok(EntryDestination::Dropped)
        );
        assert_eq!(
            goal("d-1.dist-info/WHEEL"),
            Ok(EntryDestination::Metadata(format!(
                "{SITE}/d-1.dist-info/WHEEL"
            )))
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [
            "../a",
            "a/../b",
            "/etc/passwd",
            "a//b",
            "./a",
            "a/.",
            "a\\..\\b",
            "a\0b",
            "d-1.data/scripts/../../x",
            "d-1.data/scripts/python3",
            "d-1.data/data/bin/python3.13",
            "d-1.data/data/pyvenv.cfg",
            "d-1.data/other/x",
            "d-1.data/x",
            "",
        ] {
            assert!(goal(name).is_err(), "{name}");
        }
    }

    #[test]
    fn record_names_are_relative_to_site_packages() {
        let layout = WheelLayout::new("3.13");
        let site = layout.site_packages().to_owned();
        assert_eq!(layout.record_path(&format!("{site}/a/b.py")), "a/b.py");
        assert_eq!(
            layout.record_path(&layout.script_path("x")),
            "../../../bin/x"
        );
    }
}
