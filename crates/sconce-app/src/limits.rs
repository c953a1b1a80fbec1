//! Where on its machine a run is placed, and the programs that it needs there.

use std::path::PathBuf;

use sconce_base::Env;
use sconce_host::{GpuDevice, HostProfile, Roots, numa};
use sconce_schema::Millicores;
use sconce_schema::request::{NetworkMode, NumaPlacement};

/// The part of `host` that is next to `cards`, where that says anything.
pub fn place_near_gpus(
    cards: &[&GpuDevice],
    host: &HostProfile,
    cpus: Option<Millicores>,
) -> Option<NumaPlacement> {
    if cards.is_empty() {
        return None;
    }
    let roots = Roots::default();
    let on = numa::nodes_of(cards, &roots);
    numa::place_near_gpus(
        &numa::read_nodes(&roots),
        &on,
        host.allowed_cpus.as_ref(),
        cpus,
    )
}

/// Folders of programs that nobody but root can change. A PATH that root has from somebody else's
/// environment may name others, and what is found there would run as root.
const TRUSTED_PROGRAM_DIRS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// The programs that give a network of its own a way out, for a run that needs one, the better
/// first.
pub fn ways_out(network: NetworkMode, env: &Env) -> Vec<PathBuf> {
    if network != NetworkMode::Own {
        return Vec::new();
    }
    sconce_run::WAYS_OUT
        .iter()
        .filter_map(|name| find_helper_program(name, env))
        .collect()
}

/// Where a program is that a run needs: root's in [`TRUSTED_PROGRAM_DIRS`] alone, others' on PATH.
pub fn find_helper_program(name: &str, env: &Env) -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let found = folders(root, env).into_iter();
    found
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn folders(root: bool, env: &Env) -> Vec<PathBuf> {
    let mut folders = match root {
        true => TRUSTED_PROGRAM_DIRS.map(PathBuf::from).to_vec(),
        false => env.search_path(),
    };
    folders.retain(|folder| folder.is_absolute());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_helper_is_not_looked_for_on_path() {
        let path = Env::from_variables([("PATH", "/home/anna/bin:.:/usr/local/bin:")]);
        let own = ["/home/anna/bin", "/usr/local/bin"].map(PathBuf::from);
        assert_eq!(folders(false, &path), own);
        assert_eq!(
            folders(true, &path),
            TRUSTED_PROGRAM_DIRS.map(PathBuf::from)
        );
    }
}
