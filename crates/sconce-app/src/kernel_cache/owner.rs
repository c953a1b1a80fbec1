//! Whose kernels a folder has, by which it is named.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use sconce_schema::Sha256;
use sconce_schema::request::ContainerUser;
use sha2::Digest as _;

/// More of /proc/cpuinfo is not read, bytes. What the first processor can do stands before.
const MAX_CPUINFO_BYTES: u64 = 16 << 10;

/// Whose kernels they are.
#[derive(Debug)]
pub struct KernelCacheOwner<'a> {
    /// Digest of the lock or of the image.
    pub environment: String,
    /// Folders and files of the machine that its code comes from.
    pub folders: Vec<&'a Path>,
    /// Who the command is inside.
    pub user: ContainerUser,
    /// Whether its cards are played: what is measured of them is not true of real ones.
    pub virtual_gpus: bool,
}

impl KernelCacheOwner<'_> {
    /// Names the folder by all that decides whether its code may be run.
    pub(super) fn cache_key(&self) -> String {
        self.key_on(&processor())
    }

    fn key_on(&self, processor: &str) -> String {
        let mut hash = sha2::Sha256::new();
        let user = match self.user {
            ContainerUser::Root => "root",
            ContainerUser::Plain => "plain",
        };
        let cards = if self.virtual_gpus { "virtual" } else { "own" };
        let mut parts = vec![self.environment.clone(), user.to_owned(), cards.to_owned()];
        // Code for this processor is an illegal instruction on another that shares the home.
        parts.push(processor.to_owned());
        for folder in &self.folders {
            parts.push(folder.to_string_lossy().into_owned());
            parts.push(identity(folder));
        }
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Sha256(hash.finalize().into()).to_string()[..40].to_owned()
    }
}

/// What tells a folder from another one that has its path later: its inode, and when that was made
/// where the file system knows it. Of a file, its folder's: editors save a file as another one.
fn identity(path: &Path) -> String {
    let real = path.canonicalize().ok();
    let folder = real.as_deref().and_then(|path| match path.is_dir() {
        true => Some(path),
        false => path.parent(),
    });
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    match folder.map(|folder| rustix::fs::statx(CWD, folder, AtFlags::empty(), wanted)) {
        Some(Ok(stat)) if stat.stx_mask & StatxFlags::BTIME.bits() != 0 => format!(
            "{} {} {}",
            stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec
        ),
        Some(Ok(stat)) => stat.stx_ino.to_string(),
        Some(Err(_)) | None => String::new(),
    }
}

/// What the first processor is and can do.
fn processor() -> String {
    let mut text = String::new();
    let read = File::open("/proc/cpuinfo")
        .and_then(|file| file.take(MAX_CPUINFO_BYTES).read_to_string(&mut text));
    read.map_or_else(|_| String::new(), |_| processor_of(&text))
}

fn processor_of(cpuinfo: &str) -> String {
    let lines = cpuinfo.lines().take_while(|line| !line.trim().is_empty());
    let named = lines.filter(|line| {
        let name = line.split(':').next().unwrap_or_default().trim();
        [
            "model name",
            "flags",
            "Features",
            "CPU implementer",
            "CPU part",
        ]
        .contains(&name)
    });
    named.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn owner<'a>(environment: &str, folder: &'a Path) -> KernelCacheOwner<'a> {
        KernelCacheOwner {
            environment: environment.to_owned(),
            folders: vec![folder],
            user: ContainerUser::Root,
            virtual_gpus: false,
        }
    }

    /// A clone with the same lock, and one in the place of another, may be anybody's code.
    #[test]
    fn every_project_has_its_own() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        let of = |owner: &KernelCacheOwner<'_>| owner.key_on("a");
        let first = of(&owner("lock", &one));
        assert_eq!(first, of(&owner("lock", &one)));
        assert_ne!(first, of(&owner("lock", &other)));
        assert_ne!(first, of(&owner("another lock", &one)));
        assert_ne!(first, owner("lock", &one).key_on("another processor"));
        let plain = KernelCacheOwner {
            user: ContainerUser::Plain,
            ..owner("lock", &one)
        };
        let played = KernelCacheOwner {
            virtual_gpus: true,
            ..owner("lock", &one)
        };
        assert!(of(&plain) != first && of(&played) != first);
        fs::rename(&one, place.path().join("before")).unwrap();
        fs::rename(&other, &one).unwrap();
        assert_ne!(first, of(&owner("lock", &one)));
    }

    /// `-v train.py:/train.py`, edited between two runs.
    #[test]
    fn a_file_that_is_saved_stays_the_same_project() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("project");
        fs::create_dir(&folder).unwrap();
        let script = folder.join("train.py");
        fs::write(&script, "1").unwrap();
        let first = owner("image", &script).key_on("a");
        fs::write(folder.join("saved"), "2").unwrap();
        fs::rename(folder.join("saved"), &script).unwrap();
        assert_eq!(first, owner("image", &script).key_on("a"));
        // In the place of its folder, somebody else's.
        fs::rename(&folder, place.path().join("before")).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(&script, "3").unwrap();
        assert_ne!(first, owner("image", &script).key_on("a"));
    }

    #[test]
    fn a_processor_is_what_it_can_do() {
        let text = |mhz, flags| {
            format!(
                "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: {mhz}\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: no\n"
            )
        };
        assert_eq!(
            processor_of(&text(1, "fpu avx2")),
            processor_of(&text(2, "fpu avx2"))
        );
        assert_ne!(
            processor_of(&text(1, "fpu avx2")),
            processor_of(&text(1, "fpu"))
        );
        assert_eq!(
            processor_of(&text(1, "fpu")),
            "model name\t: X\nflags\t\t: fpu"
        );
    }
}
