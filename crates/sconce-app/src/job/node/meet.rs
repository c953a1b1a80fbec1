//! How a task finds the others of its job, and meets them ([`meeting`](crate::job::meeting)): the first listens, the
//! others look for it by the job's directory, by its name and where `srun` was called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sconce_host::addresses::{is_reachable, list_addresses};
use sconce_schema::spec::LaunchMode;

use super::NodePart;
use crate::failure::Result;
use crate::job::meeting::{
    Follower, JobKey, Leader, MeetingError, MeetingLimits, MeetingPoint, NodeFailure, NodeIdentity,
};
use crate::reporter::AppEvent;

/// How long a node that has met the others may say nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// The ports at which first nodes listen: of each job a few, so that others find it where no file tells.
const FIRST_PORT: u16 = 21_000;
/// How many there are, of all jobs.
const PORTS: u32 = 8_000;
/// How many a job tries.
const PORTS_OF_A_JOB: u32 = 8;

impl NodePart<'_> {
    /// Meets the other tasks; `None` where this one is alone.
    pub(super) fn meet(&self) -> Result<Option<Meeting>> {
        let allocation = self.allocation;
        if allocation.tasks == 1 {
            return Ok(None);
        }
        let me = NodeIdentity {
            index: allocation.place.task,
            name: self.task_name(allocation.place.task),
            lock: self.job.lock.to_string(),
        };
        let key = JobKey::new(&self.dir.read_key()?, &allocation.start);
        let limits = MeetingLimits {
            arrival: Duration::from_millis(self.job.meet_within_ms),
            silence: SILENCE,
        };
        let ports = ports_of(allocation.job);
        if me.index == 0 {
            let listener = listen(&ports)?;
            let names: Vec<String> = (0..allocation.tasks)
                .map(|task| self.task_name(task))
                .collect();
            if let Ok(address) = listener.local_addr() {
                self.publish(address.port())?;
            }
            let leader = Leader::gather(listener, &me, &names, &key, limits)?;
            for remark in &leader.remarks {
                self.context.report(&AppEvent::JobRemark(remark));
            }
            return Ok(Some(Meeting::Leader(leader)));
        }
        let leader = allocation.node_of(0).to_owned();
        let resolved = resolve(&leader, ports[0]);
        let addresses = || self.addresses(&ports, &resolved);
        let follower = Follower::join(&me, &leader, &key, limits, addresses)?;
        Ok(Some(Meeting::Follower(follower)))
    }

    fn task_name(&self, task: u32) -> String {
        let node = self.allocation.node_of(task);
        match self.job.layout.launch {
            LaunchMode::TaskPerGpu => format!("{node} (task {task})"),
            LaunchMode::Torchrun | LaunchMode::Node => node.to_owned(),
        }
    }

    /// Tells the others, by the job's folder, where this node listens.
    fn publish(&self, port: u16) -> Result<()> {
        let addresses = list_addresses().unwrap_or_default();
        let addresses = addresses
            .iter()
            .map(|one| SocketAddr::new(one.address, port));
        self.dir
            .write_leader(&self.allocation.start, &addresses.collect::<Vec<_>>())
    }

    /// Where the first node may be: by the job's folder, by its name, and where `srun` was called.
    fn addresses(&self, ports: &[u16], resolved: &Mutex<Vec<IpAddr>>) -> Vec<SocketAddr> {
        let is_one_machine = self.allocation.nodes.len() == 1;
        let mut addresses = self.dir.read_leader(&self.allocation.start);
        let resolved = resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let named = resolved.iter().copied().chain(self.allocation.launcher);
        let mut named: Vec<IpAddr> = named.filter(|address| is_reachable(*address)).collect();
        if is_one_machine {
            named = vec![Ipv4Addr::LOCALHOST.into()];
        }
        for address in named {
            let at_ports = ports.iter().map(|port| SocketAddr::new(address, *port));
            addresses.extend(at_ports);
        }
        addresses
    }
}

/// A task that has met the others.
pub(super) enum Meeting {
    Leader(Leader),
    Follower(Follower),
}

impl Meeting {
    pub(super) fn go(self) -> Result<MeetingPoint, MeetingError> {
        match self {
            Self::Leader(leader) => leader.go(),
            Self::Follower(follower) => follower.go(),
        }
    }

    pub(super) fn fail(self, failure: NodeFailure) {
        match self {
            Self::Leader(leader) => leader.fail(failure),
            Self::Follower(follower) => follower.fail(failure),
        }
    }
}

fn ports_of(job: u32) -> Vec<u16> {
    let first = job.wrapping_mul(PORTS_OF_A_JOB) % PORTS;
    let ports = (first..first + PORTS_OF_A_JOB).map(|port| port % PORTS);
    ports
        .map(|port| FIRST_PORT + u16::try_from(port).unwrap_or_default())
        .collect()
}

/// The first of `ports` that is free.
fn listen(ports: &[u16]) -> Result<TcpListener, MeetingError> {
    let mut failed = None;
    for port in ports {
        let any = [
            IpAddr::from(Ipv6Addr::UNSPECIFIED),
            Ipv4Addr::UNSPECIFIED.into(),
        ];
        for address in any {
            match TcpListener::bind((address, *port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => failed = Some(error),
            }
        }
    }
    Err(MeetingError::System {
        action: "listen for the job's other nodes",
        source: failed.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()),
    })
}

/// Looks a name up, which may take long, beside everything else.
fn resolve(name: &str, port: u16) -> Arc<Mutex<Vec<IpAddr>>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let (kept, name) = (Arc::clone(&found), name.to_owned());
    std::thread::spawn(move || {
        if let Ok(addresses) = (name.as_str(), port).to_socket_addrs() {
            let addresses = addresses.map(|address| address.ip());
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = addresses.collect();
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_next_to_each_other_have_other_ports() {
        let (one, next) = (ports_of(17), ports_of(18));
        assert_eq!(one.len(), 8);
        assert!(
            one.iter()
                .all(|port| !next.contains(port) && *port >= 21_000)
        );
        assert_eq!(ports_of(u32::MAX).len(), 8);
    }
}
