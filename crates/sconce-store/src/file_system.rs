//! What the file system of a folder promises: whether one machine alone uses it, and whether the others
//! see its locks.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, statfs, statx};

/// Mount options with which locks stay on the machine that takes them, though others use the files: of
/// nfs(5), mount.cifs(8), Lustre's mount, gfs2(5) and ocfs2's. flock(2) then works and tells others nothing.
const LOCAL_LOCKS: [&str; 6] = [
    "nolock",
    "local_lock=flock",
    "local_lock=all",
    "nobrl",
    "localflock",
    "localflocks",
];

/// Whether a folder is on a file system that one machine alone uses; not where it is not there.
#[must_use]
pub fn is_local(folder: &Path) -> bool {
    // A field of 32 bits that some machines widen with its sign.
    statfs(folder).is_ok_and(|stat| is_local_type(stat.f_type as u32))
}

/// By the type's number (`linux/magic.h`, and the file systems' own headers). Any that is not known may have
/// other machines.
fn is_local_type(number: u32) -> bool {
    const LOCAL: [u32; 13] = [
        0x0000_ef53, // ext2 to ext4
        0x5846_5342, // XFS
        0x9123_683e, // Btrfs
        0xca45_1a4e, // bcachefs
        0xf2f5_2010, // F2FS
        0x2fc1_2fc1, // ZFS
        0x3153_464a, // JFS
        0x5265_4973, // ReiserFS
        0x0000_3434, // NILFS2
        0x7366_746e, // NTFS
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x794c_7630, // overlayfs, as in containers
    ];
    LOCAL.contains(&number)
}

/// The name of the network file system that a folder is on, of those that clusters share among their nodes.
#[must_use]
pub fn network_file_system(folder: &Path) -> Option<&'static str> {
    network_type(statfs(folder).ok()?.f_type as u32)
}

/// By the type's number, of `linux/magic.h` and the file systems' own headers.
fn network_type(number: u32) -> Option<&'static str> {
    const NETWORK: [(u32, &str); 11] = [
        (0x0000_6969, "NFS"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x1983_0326, "BeeGFS"),
        (0x00c3_6400, "CephFS"),
        (0xff53_4d42, "SMB"),
        (0xfe53_4d42, "SMB"),
        (0x0000_517b, "SMB"),
        (0x2003_0528, "OrangeFS"),
        (0xaad7_aaea, "PanFS"),
        (0x5346_414f, "AFS"),
    ];
    let found = NETWORK.into_iter().find(|(known, _)| *known == number);
    found.map(|(_, name)| name)
}

/// Whether a folder is on a disk of this machine, which keeps what is written there.
#[must_use]
pub fn is_local_disk(folder: &Path) -> bool {
    const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
    statfs(folder).is_ok_and(|stat| {
        let number = stat.f_type as u32;
        is_local_type(number) && !MEMORY.contains(&number)
    })
}

/// The option that has locks in a folder seen by this machine alone, if it is mounted with one; `None` too
/// where the kernel does not tell.
pub(crate) fn local_locks(folder: &Path) -> Option<&'static str> {
    let folder = File::open(folder).ok()?;
    let stat = statx(&folder, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    // Linux 5.8 and later.
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID) {
        return None;
    }
    let table = fs::read("/proc/self/mountinfo").ok()?;
    local_locks_option(&String::from_utf8_lossy(&table), stat.stx_mnt_id)
}

/// Reads the kernel's table of mounts (proc_pid_mountinfo(5)) for the mount with this number: first on its
/// line, with the file system's own options at the end, behind ` - `, type and source.
fn local_locks_option(table: &str, mount: u64) -> Option<&'static str> {
    let line = table.lines().find(|line| {
        let number = line.split(' ').next();
        number.and_then(|number| number.parse().ok()) == Some(mount)
    })?;
    // Spaces in names stand as `\040`.
    let options = line.split_once(" - ")?.1.split(' ').nth(2)?;
    let mut options = options.split(',');
    options.find_map(|option| LOCAL_LOCKS.into_iter().find(|known| *known == option))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As Linux 6.1 writes such mounts, with the names changed.
    const TABLE: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
30 22 0:45 / /home rw,relatime shared:15 - nfs4 files:/home rw,vers=4.2,rsize=1048576,hard,proto=tcp,local_lock=none,addr=10.0.0.2
31 22 0:46 / /three rw,relatime shared:16 - nfs files:/three rw,vers=3,hard,proto=tcp,mountproto=udp,local_lock=none,addr=10.0.0.2
32 22 0:47 / /no\\040lock rw,relatime shared:17 - nfs files:/three rw,vers=3,hard,nolock,proto=tcp,local_lock=all,addr=10.0.0.2
33 22 0:48 / /flock rw,relatime shared:18 - nfs files:/three rw,vers=3,hard,local_lock=flock,addr=10.0.0.2
34 22 0:49 / /posix rw,relatime shared:19 - nfs files:/three rw,vers=3,hard,local_lock=posix,addr=10.0.0.2
35 22 0:50 / /share rw,relatime shared:20 - cifs //files/share rw,vers=3.1.1,cache=strict,soft,nounix,nobrl,mapposix
36 22 0:51 / /scratch rw,relatime - lustre 10.0.0.3@tcp:/scratch rw,checksum,flock,nouser_xattr
37 22 0:52 / /scratch2 rw,relatime - lustre 10.0.0.3@tcp:/scratch rw,checksum,localflock,nouser_xattr
320 22 0:53 / /longer rw,relatime - nfs files:/nolock,local_lock=all rw,vers=3,local_lock=none
38 22 0:54 / /none rw,relatime shared:21 master:3 - nfs files:/three
";

    #[test]
    fn locks_that_others_do_not_see_are_found_by_the_mounts_options() {
        for (mount, option) in [
            (22, None),
            (30, None),
            (31, None),
            (32, Some("nolock")),
            (33, Some("local_lock=flock")),
            // flock(2) goes to the server.
            (34, None),
            (35, Some("nobrl")),
            (36, None),
            (37, Some("localflock")),
            (320, None),
            (38, None),
            (99, None),
        ] {
            assert_eq!(local_locks_option(TABLE, mount), option, "{mount}");
        }
    }

    #[test]
    fn what_is_no_table_says_nothing() {
        for text in [
            "",
            "7",
            "7 ",
            "7 - ",
            "7 - a b",
            "7 - nfs a  nolock",
            "x - nfs a nolock",
        ] {
            assert_eq!(local_locks_option(text, 7), None, "{text:?}");
        }
        // What lies before the last part is a name that somebody chose.
        let named = "7 1 0:1 /nolock /a,nolock rw,nolock shared:1 - nfs nolock rw";
        assert_eq!(local_locks_option(named, 7), None);
        let one = "7 1 0:1 / /a rw - nfs a nolock";
        assert_eq!(local_locks_option(one, 7), Some("nolock"));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(local_locks(folder.path()), None);
        assert_eq!(local_locks(&folder.path().join("absent")), None);
    }

    #[test]
    fn a_file_system_that_is_not_known_may_have_other_machines() {
        for local in [0xef53, 0x5846_5342, 0x0102_1994, 0xca45_1a4e] {
            assert!(is_local_type(local), "{local:#x}");
        }
        let (nfs, fuse, smb2, ceph, lustre) =
            (0x6969, 0x6573_5546, 0xfe53_4d42, 0x00c3_6400, 0x0bd0_0bd0);
        for shared in [nfs, fuse, smb2, ceph, lustre, 0] {
            assert!(!is_local_type(shared), "{shared:#x}");
            let named = network_type(shared).is_some();
            // What FUSE brings may be anything.
            assert_eq!(named, ![fuse, 0].contains(&shared), "{shared:#x}");
        }
        assert!(!is_local_disk(Path::new("/proc")));
        assert!(!is_local(Path::new("/nowhere/at/all")));
    }

    proptest! {
        #[test]
        fn no_table_panics(text in "([0-9]{1,3}|[ \\n,:/-]|nolock|\\PC){0,60}", mount: u64) {
            let _ = local_locks_option(&text, mount);
        }
    }
}
