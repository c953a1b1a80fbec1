//! Where Slurm's `oci.conf` is. A node without one runs the command of `--container` in no container, and nobody is
//! told (tried with 22.05).

use std::path::{Path, PathBuf};

use sconce_base::Env;

use crate::error::SubmitError;

/// Its name, beside slurm.conf.
const FILE_NAME: &str = "oci.conf";
/// Where slurm.conf is when nothing says so: Slurm's own default and Debian's.
const DEFAULT_DIRECTORIES: [&str; 3] = ["/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc"];

/// Finds the file by which nodes start containers, as this machine sees it.
///
/// # Errors
/// [`SubmitError::NoOciConf`].
pub fn find_oci_conf(env: &Env) -> Result<PathBuf, SubmitError> {
    let named = env.var("SLURM_CONF").map(Path::new).and_then(Path::parent);
    let directories: Vec<&Path> = match named {
        Some(directory) => vec![directory],
        None => DEFAULT_DIRECTORIES.iter().map(Path::new).collect(),
    };
    let mut files = directories
        .iter()
        .map(|directory| directory.join(FILE_NAME));
    match files.find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => Err(SubmitError::NoOciConf {
            searched: directories
                .iter()
                .map(|directory| directory.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_slurm_conf() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let env = Env::from_variables([("SLURM_CONF", conf.to_str().unwrap())]);
        let missing = find_oci_conf(&env).unwrap_err().to_string();
        assert!(
            missing.contains(folder.path().to_str().unwrap()),
            "{missing}"
        );
        std::fs::write(folder.path().join("oci.conf"), "").unwrap();
        assert_eq!(find_oci_conf(&env).unwrap(), folder.path().join("oci.conf"));
    }
}
