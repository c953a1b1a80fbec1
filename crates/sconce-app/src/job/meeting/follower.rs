//! A node that comes to the first.

use std::io::BufReader;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::wire::{JobKey, LeaderMessage, NodeFailure, NodeMessage, new_nonce, receive, send};
use super::{HEARTBEAT, MeetingError, MeetingLimits, MeetingPoint, NodeIdentity, system};
use crate::run_id::unix_ms;

/// The longest that one address is tried at a time.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two rounds over all addresses.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// The longest that the other takes for one of its first words.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A node that has met the first.
#[derive(Debug)]
pub(in crate::job) struct Follower {
    stream: Arc<Mutex<TcpStream>>,
    heard: Receiver<LeaderMessage>,
    /// Ends the signs of life.
    _alive: Sender<()>,
    leader: IpAddr,
    own: IpAddr,
    leader_name: String,
    silence: Duration,
}

impl Follower {
    /// Looks for the first node, which is called `leader_name`, until it is found: `addresses` gives, each time anew,
    /// where it may be.
    ///
    /// # Errors
    /// It was not found in time, or refuses this node.
    pub(in crate::job) fn join(
        me: &NodeIdentity,
        leader_name: &str,
        key: &JobKey,
        limits: MeetingLimits,
        mut addresses: impl FnMut() -> Vec<SocketAddr>,
    ) -> Result<Self, MeetingError> {
        let start = Instant::now();
        let mut tried = Vec::new();
        loop {
            for address in addresses() {
                let shown = address.to_string();
                if !tried.contains(&shown) {
                    tried.push(shown);
                }
                let Ok(stream) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) else {
                    continue;
                };
                // Somebody else's service has no proof.
                if let Some(reader) = shake_hands(&stream, me, key) {
                    tracing::info!(%address, "the job's first node is found");
                    return Self::start(stream, reader, leader_name, limits);
                }
            }
            if start.elapsed() >= limits.arrival {
                return Err(MeetingError::NoLeader {
                    name: me.name.clone(),
                    leader: leader_name.to_owned(),
                    tried,
                    within: limits.arrival,
                });
            }
            thread::sleep(ROUND_PAUSE);
        }
    }

    fn start(
        stream: TcpStream,
        mut reader: BufReader<TcpStream>,
        leader_name: &str,
        limits: MeetingLimits,
    ) -> Result<Self, MeetingError> {
        let address = |found: std::io::Result<SocketAddr>| {
            found
                .map(|address| address.ip().to_canonical())
                .map_err(system("ask a connection for its address"))
        };
        let (own, leader) = (address(stream.local_addr())?, address(stream.peer_addr())?);
        let timeout = reader.get_ref().set_read_timeout(None);
        timeout.map_err(system("set up a connection"))?;
        let (said, heard) = channel();
        thread::spawn(move || {
            while let Ok(Some(message)) = receive::<LeaderMessage>(&mut reader) {
                if said.send(message).is_err() {
                    return;
                }
            }
        });
        let stream = Arc::new(Mutex::new(stream));
        let (alive, ended) = channel::<()>();
        let beating = Arc::clone(&stream);
        thread::spawn(move || {
            while ended.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                let stream = beating.lock().unwrap_or_else(PoisonError::into_inner);
                if send(&stream, &NodeMessage::Alive).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            stream,
            heard,
            _alive: alive,
            leader,
            own,
            leader_name: leader_name.to_owned(),
            silence: limits.silence,
        })
    }

    fn say(&self, message: &NodeMessage) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // Where it does not arrive, the first node is gone, which is heard.
        let _ = send(&stream, message);
    }

    /// This node is ready: waits for the others.
    pub(in crate::job) fn go(self) -> Result<MeetingPoint, MeetingError> {
        self.say(&NodeMessage::Ready);
        loop {
            let name = || self.leader_name.clone();
            match self.heard.recv_timeout(self.silence) {
                Ok(LeaderMessage::Go(port)) => {
                    return Ok(MeetingPoint {
                        master: SocketAddr::new(self.leader, port),
                        own: self.own,
                    });
                }
                Ok(LeaderMessage::Stop(failure)) => return Err(MeetingError::Stopped(failure)),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let silence = self.silence;
                    return Err(MeetingError::Silent {
                        name: name(),
                        silence,
                    });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(MeetingError::Gone { name: name() });
                }
            }
        }
    }

    /// This node cannot go on; the others are told why.
    pub(in crate::job) fn fail(self, failure: NodeFailure) {
        self.say(&NodeMessage::Failed(failure));
    }
}

impl Drop for Follower {
    /// The first node hears at once that this one has left: the thread that reads has the connection too.
    fn drop(&mut self) {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Both show that they have the key. `None` where the other does not.
fn shake_hands(
    stream: &TcpStream,
    me: &NodeIdentity,
    key: &JobKey,
) -> Option<BufReader<TcpStream>> {
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let LeaderMessage::Challenge(challenge) = receive(&mut reader).ok()?? else {
        return None;
    };
    let nonce = new_nonce();
    let hello = NodeMessage::Hello {
        proof: key.prove("node", &challenge),
        nonce: nonce.clone(),
        index: me.index,
        name: me.name.clone(),
        lock: me.lock.clone(),
        unix_ms: unix_ms(),
    };
    send(stream, &hello).ok()?;
    match receive(&mut reader).ok()?? {
        LeaderMessage::Welcome(proof) if proof == key.prove("leader", &nonce) => Some(reader),
        _ => None,
    }
}
