//! Who a user id is, as this machine knows it: files, LDAP or whatever its name service asks.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::subordinate_ids::SubordinateIds;
use super::types::{LeaseRequest, LeaseUser};
use super::{LeaseRefusal, Policy};

/// Room for one entry of the user database; a longer one is not read.
const ENTRY_BUFFER_BYTES: usize = 64 << 10;
/// A user with more groups is taken to be in these first ones.
const MAX_GROUPS: usize = 1024;
/// For so long a person is not looked up again.
const PERSON_CACHE_PERIOD: Duration = Duration::from_secs(60);
/// No more are kept: a user has thousands of user ids.
const MAX_CACHED_PEOPLE: usize = 4096;

/// The person with that user id. Whom the machine does not know has the number for a name, and no
/// groups.
#[must_use]
pub fn user_by_uid(uid: u32) -> LeaseUser {
    account(uid).unwrap_or_else(|| nameless(uid))
}

fn nameless(uid: u32) -> LeaseUser {
    LeaseUser {
        uid,
        name: uid.to_string(),
        groups: Vec::new(),
    }
}

/// The account with that user id; absent where the user database has none, or does not answer.
fn account(uid: u32) -> Option<LeaseUser> {
    let (name, uid, gid) = entry(&AccountKey::Uid(uid))?;
    let groups = group_ids(&name, gid).into_iter().filter_map(group_name);
    Some(LeaseUser {
        uid,
        groups: groups.collect(),
        name: name.to_string_lossy().into_owned(),
    })
}

/// The user id of the account with that name.
pub(super) fn uid_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    Some(entry(&AccountKey::Name(&name))?.1)
}

/// Whether the user database has an account of that name now.
#[must_use]
pub fn is_user(name: &str) -> bool {
    uid_of(name).is_some()
}

/// Whether the group database has a group of that name now.
#[must_use]
#[expect(unsafe_code, reason = "rustix does not ask the name service")]
pub fn is_group(name: &str) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    let mut buffer = vec![0 as c_char; ENTRY_BUFFER_BYTES];
    let mut found = ptr::null_mut();
    // SAFETY: group is a struct of numbers and pointers, for which zeros are a value.
    let mut record: libc::group = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a zero, `record` and `found` are written, `buffer` has the length
    // that is told.
    let code = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut record,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    // A group with more members than there is room for is one.
    code == libc::ERANGE || (code == 0 && !found.is_null())
}

/// Who asks, kept for a while: a name service may take long.
#[derive(Debug, Default)]
pub struct AccountCache {
    known: Mutex<BTreeMap<u32, (Instant, Option<LeaseUser>)>>,
    ranges: Mutex<SubordinateIds>,
}

impl AccountCache {
    /// Takes `text` for what `/etc/subuid` says (subuid(5)).
    pub fn set_subordinates(&self, text: &str) {
        let ranges = SubordinateIds::parse(text, &uid_of);
        *self.ranges.lock().unwrap_or_else(PoisonError::into_inner) = ranges;
    }

    /// The user whom a user id belongs to, as far as that can be told without the name service:
    /// of a subordinate one its owner.
    pub fn charged_uid(&self, uid: u32) -> u32 {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.owner(uid).unwrap_or(uid)
    }

    /// The account of that user id; of a subordinate one its owner's. Looked up again after a
    /// minute.
    pub fn find(&self, uid: u32) -> Option<LeaseUser> {
        let known = |people: &BTreeMap<u32, (Instant, Option<LeaseUser>)>| {
            let (since, person) = people.get(&uid)?;
            (since.elapsed() < PERSON_CACHE_PERIOD).then(|| person.clone())
        };
        let found = known(&self.known.lock().unwrap_or_else(PoisonError::into_inner));
        found.unwrap_or_else(|| {
            let owner = || account(Some(self.charged_uid(uid)).filter(|owner| *owner != uid)?);
            let person = account(uid).or_else(owner);
            let mut people = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if people.len() >= MAX_CACHED_PEOPLE {
                people.clear();
            }
            people.insert(uid, (Instant::now(), person.clone()));
            person
        })
    }

    /// In whose name a user id asks. Anybody may look; of the rest, an id without an account has
    /// what the policy gives to its number, and nothing where it gives nothing.
    ///
    /// # Errors
    /// [`LeaseRefusal::Stranger`].
    pub fn authorize_request(
        &self,
        uid: u32,
        policy: &Policy,
        ask: &LeaseRequest,
    ) -> Result<LeaseUser, LeaseRefusal> {
        admit(uid, self.find(uid), policy, ask)
    }
}

fn admit(
    uid: u32,
    found: Option<LeaseUser>,
    policy: &Policy,
    ask: &LeaseRequest,
) -> Result<LeaseUser, LeaseRefusal> {
    let stranger = || {
        let person = nameless(uid);
        let may = matches!(ask, LeaseRequest::Look) || policy.has_rules_for(&person.name);
        may.then_some(person)
    };
    found
        .or_else(stranger)
        .ok_or(LeaseRefusal::Stranger { uid })
}

/// What an account is looked for by.
enum AccountKey<'a> {
    Uid(u32),
    Name(&'a CStr),
}

#[expect(unsafe_code, reason = "rustix does not ask the name service")]
fn entry(key: &AccountKey<'_>) -> Option<(CString, u32, libc::gid_t)> {
    let mut buffer = vec![0 as c_char; ENTRY_BUFFER_BYTES];
    let mut found = ptr::null_mut();
    // SAFETY: passwd is a struct of numbers and pointers, for which zeros are a value.
    let mut record: libc::passwd = unsafe { std::mem::zeroed() };
    let (to, room, length) = (&raw mut record, buffer.as_mut_ptr(), buffer.len());
    let code: c_int = match key {
        // SAFETY: `record` and `found` are written, `buffer` has the length that is told.
        AccountKey::Uid(uid) => unsafe { libc::getpwuid_r(*uid, to, room, length, &raw mut found) },
        // SAFETY: as above; the name ends with a zero.
        AccountKey::Name(name) => unsafe {
            libc::getpwnam_r(name.as_ptr(), to, room, length, &raw mut found)
        },
    };
    if code != 0 || found.is_null() || record.pw_name.is_null() {
        return None;
    }
    // SAFETY: the call succeeded: the name is a text in `buffer`, which is still there.
    let name = unsafe { CStr::from_ptr(record.pw_name) }.to_owned();
    Some((name, record.pw_uid, record.pw_gid))
}

#[expect(unsafe_code, reason = "rustix does not ask the name service")]
fn group_ids(name: &CStr, gid: libc::gid_t) -> Vec<libc::gid_t> {
    let mut groups = vec![0; MAX_GROUPS];
    let mut count = libc::c_int::try_from(MAX_GROUPS).unwrap_or(0);
    // SAFETY: `name` ends with a zero, `groups` has room for `count`, which is written.
    let _ = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    groups.truncate(usize::try_from(count).unwrap_or(0).min(MAX_GROUPS));
    groups
}

#[expect(unsafe_code, reason = "rustix does not ask the name service")]
fn group_name(gid: libc::gid_t) -> Option<String> {
    let mut buffer = vec![0 as c_char; ENTRY_BUFFER_BYTES];
    let mut found = ptr::null_mut();
    // SAFETY: group is a struct of numbers and pointers, for which zeros are a value.
    let mut record: libc::group = unsafe { std::mem::zeroed() };
    // SAFETY: `record` and `found` are written, `buffer` has the length that is told.
    let code = unsafe {
        libc::getgrgid_r(
            gid,
            &raw mut record,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    if code != 0 || found.is_null() || record.gr_name.is_null() {
        return None;
    }
    // SAFETY: the call succeeded: the name is a text in `buffer`, which is still there.
    let name = unsafe { CStr::from_ptr(record.gr_name) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcquireRequest, GpuSelection};

    #[test]
    fn root_has_a_name_and_a_stranger_a_number() {
        let root = user_by_uid(0);
        assert_eq!(root.name, "root");
        assert!(root.groups.contains(&"root".to_owned()), "{root:?}");
        assert_eq!(user_by_uid(4_000_000_000).name, "4000000000");
        assert_eq!((uid_of("root"), uid_of("no\0one")), (Some(0), None));
        assert!(is_user("root") && is_group("root"));
        for nobody in ["nobodyhere", "no\0one", ""] {
            assert!(!is_user(nobody) && !is_group(nobody), "{nobody}");
        }
    }

    fn take() -> LeaseRequest {
        LeaseRequest::Take(AcquireRequest {
            wanted: GpuSelection::Any {
                cards: 1,
                memory: None,
            },
            for_ms: Some(1),
            while_alive: false,
            wait: false,
        })
    }

    #[test]
    fn a_number_without_an_account_takes_nothing_unless_the_policy_names_it() {
        const NOBODY: u32 = 4_000_000_000;
        let people = AccountCache::default();
        let free = Policy::default();
        let refused = Err(LeaseRefusal::Stranger { uid: NOBODY });
        assert_eq!(people.authorize_request(NOBODY, &free, &take()), refused);
        assert_eq!(
            people.authorize_request(NOBODY, &free, &LeaseRequest::Return { id: 0 }),
            refused
        );
        assert!(
            people
                .authorize_request(NOBODY, &free, &LeaseRequest::Look)
                .is_ok()
        );
        assert!(people.authorize_request(0, &free, &take()).is_ok());
        let named = Policy::parse("[users.4000000000]\ncards = 1\n").expect("a policy");
        let person = people
            .authorize_request(NOBODY, &named, &take())
            .expect("it is named");
        assert_eq!((person.uid, person.name.as_str()), (NOBODY, "4000000000"));
    }

    #[test]
    fn a_subordinate_number_is_its_owners() {
        let people = AccountCache::default();
        people.set_subordinates("root:4000000000:10\n");
        let owner = people.authorize_request(4_000_000_009, &Policy::default(), &take());
        assert_eq!(owner.expect("root's").uid, 0);
        assert_eq!(people.charged_uid(4_000_000_009), 0);
        assert_eq!(people.charged_uid(4_000_000_010), 4_000_000_010);
    }
}
