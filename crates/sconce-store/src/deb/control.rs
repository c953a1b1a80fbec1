//! A package's `control` file.

use super::{Alternative, DebError};

/// What a package says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebControl {
    /// Package name.
    pub package: String,
    /// Debian version.
    pub version: String,
    /// `amd64`, `all`, …
    pub architecture: String,
    /// Configuration files, absolute paths as the package names them.
    pub conffiles: Vec<String>,
    /// What its `postinst` asks `update-alternatives` for.
    pub alternatives: Vec<Alternative>,
    /// The whole `control` file.
    pub text: String,
}

/// Reads `control` (Debian policy, section 5) and `conffiles`.
pub(super) fn parse(text: &str, conffiles: &str) -> Result<DebControl, DebError> {
    let field = |name: &str| {
        text.lines()
            .take_while(|line| !line.is_empty())
            .find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
            .filter(|value| !value.is_empty())
            .ok_or_else(|| DebError::format(format!("its control file has no {name}")))
    };
    Ok(DebControl {
        package: field("Package")?,
        version: field("Version")?,
        architecture: field("Architecture")?,
        conffiles: conffiles
            .lines()
            .map(str::trim)
            // dpkg's `remove-on-upgrade` lines name files that the package no longer has.
            .filter(|line| line.starts_with('/'))
            .map(str::to_owned)
            .collect(),
        alternatives: Vec::new(),
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_captured_control_file() {
        let text = "Package: netbase\nVersion: 6.5\nArchitecture: all\nMulti-Arch: foreign\n\
                    Description: Basic TCP/IP networking system\n Package: not this\n";
        let control = parse(
            text,
            "/etc/protocols\n/etc/rpc\nremove-on-upgrade /etc/old\n",
        )
        .unwrap();
        assert_eq!(control.package, "netbase");
        assert_eq!(control.version, "6.5");
        assert_eq!(control.architecture, "all");
        assert_eq!(control.conffiles, ["/etc/protocols", "/etc/rpc"]);
        assert!(parse("Package: x\n", "").is_err());
    }
}
