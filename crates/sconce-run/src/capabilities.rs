//! Capabilities (capabilities(7)).

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};

/// What root inside keeps: what container engines give by default, without raw sockets (they
/// would reach the host's network), device nodes, the audit log and changing its own sets.
pub(crate) const ROOT_INSIDE: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// By their names in runtime-spec; those of [`ROOT_INSIDE`], in order.
const NAMED: [(CapabilitySet, &str); 10] = [
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::FOWNER, "CAP_FOWNER"),
    (CapabilitySet::FSETID, "CAP_FSETID"),
    (CapabilitySet::KILL, "CAP_KILL"),
    (CapabilitySet::NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"),
    (CapabilitySet::SETFCAP, "CAP_SETFCAP"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SYS_CHROOT, "CAP_SYS_CHROOT"),
];

/// The names of those in a set that a run can keep.
pub(crate) fn names(set: CapabilitySet) -> Vec<&'static str> {
    let has = NAMED.into_iter().filter(|(one, _)| set.contains(*one));
    has.map(|(_, name)| name).collect()
}

/// The highest number that a kernel could know.
const NUMBERS: std::ops::Range<u32> = 0..64;

fn each(set: CapabilitySet) -> impl Iterator<Item = CapabilitySet> {
    NUMBERS
        .map(|number| CapabilitySet::from_bits_retain(1 << number))
        .filter(move |one| set.contains(*one))
}

/// Keeps everything that this process has across an exec, also where it is not uid 0. Plain
/// system calls only.
///
/// # Errors
/// The kernel's.
pub(crate) fn keep_across_exec() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    each(sets.permitted).try_for_each(|one| configure_capability_in_ambient_set(one, true))
}

/// Takes every capability but `kept` out of the bounding set, so that no later exec brings it
/// back, and empties the ambient set.
///
/// # Errors
/// The kernel's.
pub(crate) fn restrict_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    clear_ambient_capability_set()?;
    for one in each(!kept) {
        match remove_capability_from_bounding_set(one) {
            // The kernel knows no higher one.
            Err(io::Errno::INVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

/// Reduces what this process has to `kept`; nothing is inherited.
///
/// # Errors
/// The kernel's.
pub(crate) fn drop_all_except(kept: CapabilitySet) -> io::Result<()> {
    let has = capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: has,
        permitted: has,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

/// Whether this process has all of `wanted` now.
pub(crate) fn has_effective(wanted: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_that_a_run_can_keep_has_a_name() {
        let named = NAMED.iter().map(|(one, _)| *one);
        let all = named.fold(CapabilitySet::empty(), CapabilitySet::union);
        assert_eq!(all, ROOT_INSIDE);
        assert_eq!(names(CapabilitySet::empty()), Vec::<&str>::new());
    }
}
