//! The accounts of an image, and a name for the user that a run has: much asks for it
//! (`getpass.getuser`, torch's cache of compiled kernels, ssh) and fails where there is none.

use std::io;
use std::path::PathBuf;

use sconce_base::direct_io::MTIME;
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::{Hint, Sha256, exit};
use sconce_store::scoped_root::{OnConflict, ScopedRoot, ScopedRootError, set_modified};
use sconce_store::{Store, StoreError, TreeBuildError};
use sha2::Digest as _;

use crate::system::{PLAIN_ID, PLAIN_NAME};
use crate::unpack::OverlayLookup;

/// Kind of the trees with accounts in the store.
const KIND: &str = "accounts";
/// Counts up whenever the same accounts would give another tree.
const FORMAT: u32 = 1;
/// No account file that is read is longer, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why an image's accounts could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// A file of the image could not be read.
    #[error("cannot read the image's {file}")]
    Read {
        /// The file, as the image has it.
        file: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The tree could not be written.
    #[error(transparent)]
    Write(#[from] ScopedRootError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hint for AccountsError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Write(error) => error.hint(),
            Self::Read { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Write(error) => error.exit_code(),
            Self::Read { .. } => exit::STORE,
        }
    }
}

/// passwd(5) and group(5) of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    passwd: Vec<u8>,
    group: Vec<u8>,
}

impl Accounts {
    /// Of what an image shows. A file that is missing, or no file, or too large, counts as empty.
    ///
    /// # Errors
    /// [`AccountsError::Read`].
    pub fn read(image: &OverlayLookup<'_>) -> Result<Self, AccountsError> {
        let read = |file: &'static str| -> Result<Vec<u8>, AccountsError> {
            let bytes = image.read(file.as_bytes(), MAX_FILE_BYTES);
            let failed = |source| AccountsError::Read { file, source };
            Ok(bytes.map_err(failed)?.unwrap_or_default())
        };
        Ok(Self {
            passwd: read("/etc/passwd")?,
            group: read("/etc/group")?,
        })
    }

    /// Of the files' bytes.
    #[must_use]
    pub fn parse(passwd: &[u8], group: &[u8]) -> Self {
        Self {
            passwd: passwd.to_vec(),
            group: group.to_vec(),
        }
    }

    /// The id of an account.
    #[must_use]
    pub fn uid(&self, name: &str) -> Option<u32> {
        let found = lines(&self.passwd).find(|fields| fields[0] == name.as_bytes())?;
        number(found.get(2)?)
    }

    /// The home of the first account with this id.
    #[must_use]
    pub fn home(&self, uid: u32) -> Option<String> {
        let found = lines(&self.passwd).find(|fields| has_id(fields, uid))?;
        String::from_utf8(found.get(5)?.to_vec()).ok()
    }

    /// A tree that gives the run's user a name, for the top of an image that has none for it.
    ///
    /// # Errors
    /// [`AccountsError::Write`], [`AccountsError::Store`].
    pub fn build_user_layer(
        &self,
        home: &str,
        store: &Store,
    ) -> Result<Option<LayerTree>, AccountsError> {
        if lines(&self.passwd).any(|fields| has_id(&fields, PLAIN_ID)) {
            return Ok(None);
        }
        let mut passwd = format!("{PLAIN_NAME}:x:{PLAIN_ID}:{PLAIN_ID}::{home}:/bin/sh\n");
        let mut group = format!("{PLAIN_NAME}:x:{PLAIN_ID}:\n");
        if self.uid("root").is_none() {
            passwd.insert_str(0, "root:x:0:0:root:/root:/bin/sh\n");
        }
        if lines(&self.group).any(|fields| has_id(&fields, PLAIN_ID)) {
            group.clear();
        }
        let files = [
            ("etc/passwd", with(&self.passwd, &passwd)),
            ("etc/group", with(&self.group, &group)),
        ];
        let mut hash = sha2::Sha256::new();
        hash.update(format!("{FORMAT} {}\n", files[0].1.len()));
        files.iter().for_each(|(_, bytes)| hash.update(bytes));
        let key = Sha256(hash.finalize().into()).to_string();
        let built = store.build_tree(KIND, &key, |root| {
            let mut tree = ScopedRoot::new(root, OnConflict::Stay);
            files.iter().try_for_each(|(name, bytes)| {
                let path = tree.write(name.as_bytes(), bytes, 0o644)?;
                set_modified(&path, MTIME.cast_signed())
            })
        });
        let path: PathBuf = built.map_err(|error| match error {
            TreeBuildError::Store(error) => AccountsError::Store(error),
            TreeBuildError::Build(error) => AccountsError::Write(error),
        })?;
        Ok(Some(LayerTree {
            name: "accounts".to_owned(),
            path,
        }))
    }
}

/// The fields of each line.
fn lines(text: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    text.split(|&b| b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| line.split(|&b| b == b':').collect())
}

/// Both files have the id in their third field.
fn has_id(fields: &[&[u8]], id: u32) -> bool {
    fields.get(2).is_some_and(|field| number(field) == Some(id))
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// `text` and `more`, as lines.
fn with(text: &[u8], more: &str) -> Vec<u8> {
    let mut all = text.to_vec();
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend(more.as_bytes());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_looked_up() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n\nshort:x\nbad:x:-1:0::/:\n\
            \xff:x:7:7::/seven:\nlate:x:8:8::\xff:\nsame:x:0:0::/other:/bin/sh";
        let accounts = Accounts::parse(passwd, b"");
        assert_eq!(accounts.uid("root"), Some(0));
        assert_eq!(accounts.uid("same"), Some(0));
        for nobody in ["short", "bad", "x", ""] {
            assert_eq!(accounts.uid(nobody), None, "{nobody}");
        }
        assert_eq!(accounts.home(0).as_deref(), Some("/root"));
        assert_eq!(accounts.home(7).as_deref(), Some("/seven"));
        assert_eq!((accounts.home(8), accounts.home(9)), (None, None));
    }

    #[test]
    fn the_runs_user_gets_a_name_where_it_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let made = |passwd: &[u8], group: &[u8]| {
            let layer = Accounts::parse(passwd, group).build_user_layer("/home/sconce", &store);
            let layer = layer.unwrap()?;
            let read = |name: &str| std::fs::read_to_string(layer.path.join(name)).unwrap();
            Some((read("etc/passwd"), read("etc/group")))
        };
        let line = "sconce:x:1000:1000::/home/sconce:/bin/sh\n";
        let root = "root:x:0:0:root:/root:/bin/sh\n";
        let group = "sconce:x:1000:\n".to_owned();
        assert_eq!(
            made(b"", b""),
            Some((format!("{root}{line}"), group.clone()))
        );
        let there = made(b"root:x:0:0:::", b"root:x:0:\nstaff:x:1000:");
        let groups = "root:x:0:\nstaff:x:1000:\n".to_owned();
        assert_eq!(there, Some((format!("root:x:0:0:::\n{line}"), groups)));
        assert_eq!(
            made(b"ubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n", b""),
            None
        );
    }
}
