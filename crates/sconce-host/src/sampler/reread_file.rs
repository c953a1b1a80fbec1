//! Files that are read again and again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Grown by this much; more than any file of a cgroup but `cgroup.procs` and `memory.numa_stat`.
const BUFFER_STEP_BYTES: usize = 4096;
/// Nothing read here is longer (some 200,000 process ids).
const MAX_FILE_BYTES: usize = 2 << 20;

/// A file that stays open and is read from its beginning each time.
#[derive(Debug)]
pub(super) struct RereadFile(Option<File>);

impl RereadFile {
    /// A file that is absent or closed to the caller reads as nothing, always.
    pub(super) fn open(path: &Path) -> Self {
        Self(File::open(path).ok())
    }

    pub(super) fn without_file() -> Self {
        Self(None)
    }

    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// The whole file, in `buffer`. `None` when it cannot be read, as after the cgroup is gone.
    pub(super) fn read<'b>(&self, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        read_whole(self.0.as_ref()?, buffer)
    }
}

/// Reads a whole file into a buffer that is kept from call to call.
pub(super) fn read_whole<'b>(file: &File, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    let mut filled = 0;
    loop {
        if buffer.len() < filled + BUFFER_STEP_BYTES / 2 {
            if filled >= MAX_FILE_BYTES {
                return None;
            }
            buffer.resize(filled + BUFFER_STEP_BYTES, 0);
        }
        match file.read_at(&mut buffer[filled..], filled as u64) {
            Ok(0) => return Some(&buffer[..filled]),
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_whole_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let long = "0123456789".repeat(2000);
        std::fs::write(&path, &long).unwrap();
        let (file, mut buffer) = (RereadFile::open(&path), Vec::new());
        assert_eq!(file.read(&mut buffer), Some(long.as_bytes()));
        std::fs::write(&path, "short").unwrap();
        assert_eq!(file.read(&mut buffer), Some(&b"short"[..]));
        assert!(!RereadFile::open(&folder.path().join("none")).is_open());
        assert_eq!(RereadFile::without_file().read(&mut buffer), None);
    }

    #[test]
    fn an_endless_file_is_given_up() {
        let zero = RereadFile::open(Path::new("/dev/zero"));
        assert_eq!(zero.read(&mut Vec::new()), None);
    }
}
