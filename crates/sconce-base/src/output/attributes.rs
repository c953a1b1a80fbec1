//! What a file that takes another's place keeps of it.

use std::fs::File;
use std::io;

use rustix::fs::{
    Gid, Mode, Stat, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr, fremovexattr,
    fsetxattr, fstat, fstatfs,
};
use rustix::io::Errno;

/// Permissions that stay. Set-id bits go, as they do when a file is written (write(2)).
const PERMISSIONS: u32 = 0o777;
/// Where Linux keeps a POSIX access list (acl(5), xattr(7)).
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Attributes are not larger (xattr(7)).
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;
/// File systems that may find out when a file is closed that there is no room for it (linux/magic.h; Lustre and
/// GPFS in their own sources): NFS, CIFS, SMB2, FUSE, 9P, Ceph, Lustre, GPFS.
const REMOTE: [u32; 8] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x4750_4653,
];

/// Gives a file the owner and group of another.
pub(super) fn copy_owner(file: &File, of: &Stat) -> io::Result<()> {
    let own = fstat(file)?;
    let user = (own.st_uid != of.st_uid).then(|| Uid::from_raw(of.st_uid));
    let group = (own.st_gid != of.st_gid).then(|| Gid::from_raw(of.st_gid));
    match (user, group) {
        (None, None) => Ok(()),
        (user, group) => Ok(fchown(file, user, group)?),
    }
}

/// Gives a file the owner, access list, permissions and, as far as it may, the attributes of another: the user's
/// own, the SELinux label. Not those that say what the old bytes were (capabilities, signatures).
pub(super) fn copy_metadata(file: &File, of: &File) -> io::Result<()> {
    let stat = fstat(of)?;
    copy_owner(file, &stat)?;
    // Before the mode, whose group bits are an access list's mask.
    access_list(file, of)?;
    // Some file systems have one mode for all, and refuse to be told it.
    let mode = stat.st_mode & PERMISSIONS;
    if fstat(file)?.st_mode & PERMISSIONS != mode {
        fchmod(file, Mode::from_raw_mode(mode))?;
    }
    // Whoever may not set one still gets the file.
    let _ = attributes(file, of);
    Ok(())
}

/// Lets everybody read it.
pub(super) fn make_world_readable(file: &File) -> io::Result<()> {
    Ok(fchmod(file, Mode::from_raw_mode(0o644))?)
}

/// Gives a file the access list (acl(5)) of another, or none: a new file has its folder's default one, which may let
/// in who could not read the old file. An error where that cannot be: without its list, a file's group bits say
/// what nobody was given.
fn access_list(file: &File, of: &File) -> io::Result<()> {
    let mut value = vec![0_u8; MAX_ATTRIBUTE_BYTES];
    let done = match fgetxattr(of, ACCESS_LIST, &mut value[..]) {
        Ok(length) => fsetxattr(file, ACCESS_LIST, &value[..length], XattrFlags::empty()),
        Err(Errno::NODATA | Errno::NOTSUP) => match fremovexattr(file, ACCESS_LIST) {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            removed => removed,
        },
        Err(error) => Err(error),
    };
    Ok(done?)
}

fn attributes(file: &File, of: &File) -> io::Result<()> {
    let mut room = vec![0_u8; MAX_ATTRIBUTE_BYTES];
    let length = flistxattr(of, &mut room[..])?;
    let names = room[..length].split(|byte| *byte == 0);
    for name in names.filter_map(|name| std::str::from_utf8(name).ok()) {
        let kept = name.starts_with("user.") || name == "security.selinux";
        let mut value = vec![0_u8; MAX_ATTRIBUTE_BYTES];
        if kept && let Ok(length) = fgetxattr(of, name, &mut value[..]) {
            let _ = fsetxattr(file, name, &value[..length], XattrFlags::empty());
        }
    }
    Ok(())
}

/// Has a file system that is elsewhere say now whether it took everything.
pub(super) fn flush_remote(file: &File) -> io::Result<()> {
    let kind = fstatfs(file)?.f_type as u32;
    match REMOTE.contains(&kind) {
        true => file.sync_data(),
        false => Ok(()),
    }
}
