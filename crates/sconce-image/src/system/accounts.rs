//! `/etc/passwd`, `group`, `shadow` and `gshadow`: what the maintainer scripts of base-passwd and
//! passwd would have made, and the account that commands run as.

use super::SystemError;
use super::files::SystemTree;

/// Where base-passwd keeps the accounts that every system has.
pub(super) const MASTER_PASSWD: &str = "usr/share/base-passwd/passwd.master";

/// uid and gid of the plain user inside.
pub const PLAIN_ID: u32 = 1000;
/// Its name.
pub const PLAIN_NAME: &str = "sconce";
/// Its home.
pub const PLAIN_HOME: &str = "/home/sconce";

/// Writes the four account files.
pub(super) fn write_accounts(tree: &mut SystemTree) -> Result<(), SystemError> {
    let passwd = tree.read_text(MASTER_PASSWD)?;
    let group = tree.read_text("usr/share/base-passwd/group.master")?;
    let passwd = with_line(
        &passwd,
        &format!("{PLAIN_NAME}:x:{PLAIN_ID}:{PLAIN_ID}::{PLAIN_HOME}:/bin/bash"),
    );
    let group = with_line(&group, &format!("{PLAIN_NAME}:x:{PLAIN_ID}:"));
    tree.write_text("etc/shadow", &locked(&passwd, ":*:1::::::"), 0o640)?;
    tree.write_text("etc/gshadow", &locked(&group, ":*::"), 0o640)?;
    tree.write_text("etc/passwd", &shadowed(&passwd), 0o644)?;
    tree.write_text("etc/group", &shadowed(&group), 0o644)
}

fn with_line(text: &str, line: &str) -> String {
    format!("{}\n{line}\n", text.trim_end())
}

/// A shadow file in which every account of `accounts` has no usable password. The day of the last
/// change is 1 (1970-01-02): 0 would ask for a new password, and today would not be reproducible.
fn locked(accounts: &str, rest: &str) -> String {
    names(accounts)
        .map(|name| format!("{name}{rest}\n"))
        .collect()
}

/// `accounts` with its password field pointing to the shadow file, as `shadowconfig on` does.
fn shadowed(accounts: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let Some(password) = fields.get_mut(1) {
            *password = "x";
        }
        fields.join(":") + "\n"
    };
    accounts
        .lines()
        .filter(|l| !l.is_empty())
        .map(line)
        .collect()
}

fn names(accounts: &str) -> impl Iterator<Item = &str> {
    accounts
        .lines()
        .filter_map(|line| line.split(':').next())
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_locked_and_the_plain_user_is_there() {
        let root = tempfile::tempdir().unwrap();
        let masters = root.path().join("usr/share/base-passwd");
        std::fs::create_dir_all(&masters).unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::fs::write(
            masters.join("passwd.master"),
            "root:*:0:0:root:/root:/bin/bash\n",
        )
        .unwrap();
        std::fs::write(masters.join("group.master"), "root:*:0:\n").unwrap();
        write_accounts(&mut SystemTree::new(root.path())).unwrap();
        let etc = |name| std::fs::read_to_string(root.path().join("etc").join(name)).unwrap();
        assert_eq!(
            etc("passwd"),
            "root:x:0:0:root:/root:/bin/bash\nsconce:x:1000:1000::/home/sconce:/bin/bash\n"
        );
        assert_eq!(etc("group"), "root:x:0:\nsconce:x:1000:\n");
        assert_eq!(etc("shadow"), "root:*:1::::::\nsconce:*:1::::::\n");
        assert_eq!(etc("gshadow"), "root:*::\nsconce:*::\n");
    }
}
