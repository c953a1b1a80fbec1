//! Host names, looked up once.
//!
//! ureq asks the resolver for each request, also for those that go over a connection it has. A
//! download of forty wheels then asks forty times, several at once, and where one answer is lost
//! the C library waits 5 s before it asks again (resolv.conf(5), `timeout`): that was a third of
//! the time of a whole download. A fetcher lives for one command, so its answers do not age.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Remembers what the system's resolver said. One lookup at a time: whoever waits for the same
/// name gets the answer too.
#[derive(Default)]
pub(super) struct DnsCache {
    system: DefaultResolver,
    known: Mutex<HashMap<String, Vec<SocketAddr>>>,
}

impl fmt::Debug for DnsCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

impl Resolver for DnsCache {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let key = format!(
            "{}:{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map_or("", |authority| authority.as_str())
        );
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(addresses) = known.get(&key) {
            let mut answer = self.empty();
            addresses.iter().for_each(|address| answer.push(*address));
            return Ok(answer);
        }
        let answer = self.system.resolve(uri, config, timeout)?;
        known.insert(key, answer.iter().copied().collect());
        Ok(answer)
    }
}
