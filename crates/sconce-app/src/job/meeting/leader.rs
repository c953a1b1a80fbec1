//! The job's first node, to which the others come.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::wire::{JobKey, LeaderMessage, NodeFailure, NodeMessage, new_nonce, receive, send};
use super::{HEARTBEAT, MeetingError, MeetingLimits, MeetingPoint, NodeIdentity, system};
use crate::run_id::unix_ms;
use sconce_schema::Hint as _;

/// The longest that another takes for its first words.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Clocks that differ by more are said.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// The first node, when all others have come.
#[derive(Debug)]
pub(in crate::job) struct Leader {
    own: IpAddr,
    /// To the thread that has the others.
    ready: Sender<MeetingEvent>,
    end: Receiver<Result<(), MeetingError>>,
    /// What is to be told of the others, which is no error.
    pub(in crate::job) remarks: Vec<String>,
}

/// What the thread that has the others is told.
enum MeetingEvent {
    Joined(Box<Member>),
    Said(u32, NodeMessage),
    Gone(u32),
    /// This node is ready, and the ranks meet at this port.
    OwnReady(u16),
    /// This node cannot go on.
    OwnFailed(NodeFailure),
}

/// Another node.
struct Member {
    who: NodeIdentity,
    stream: TcpStream,
    /// This node's address, as the other reaches it.
    here: IpAddr,
    clock_offset_ms: i64,
    heard: Instant,
    is_ready: bool,
}

impl Leader {
    /// Waits at `listener` for all of `names`, this node's own first.
    ///
    /// # Errors
    /// Some have not come in time, or one does not belong here.
    pub(in crate::job) fn gather(
        listener: TcpListener,
        me: &NodeIdentity,
        names: &[String],
        key: &JobKey,
        limits: MeetingLimits,
    ) -> Result<Self, MeetingError> {
        let (told, events) = channel();
        let (key, joining) = (key.clone(), told.clone());
        // It ends with the process: who comes late finds somebody who says nothing.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (key, told) = (key.clone(), joining.clone());
                thread::spawn(move || welcome(stream, &key, &told));
            }
        });
        let mut members = Members {
            me: me.clone(),
            names: names.to_vec(),
            all: BTreeMap::new(),
            silence: limits.silence,
        };
        let result = members.gather(&events, limits.arrival);
        if let Err(error) = &result {
            members.stop(error);
        }
        result?;
        let own = members.all.values().next().map(|member| member.here);
        let own = own.ok_or_else(|| MeetingError::NoAddress {
            name: me.name.clone(),
        })?;
        let remarks = members.clock_remarks();
        let (ended, end) = channel();
        let thread = thread::Builder::new().spawn(move || {
            let result = members.until_ready(&events);
            let _ = ended.send(result);
        });
        thread.map_err(system("start a thread"))?;
        Ok(Self {
            own,
            ready: told,
            end,
            remarks,
        })
    }

    /// This node is ready: waits for the others.
    pub(in crate::job) fn go(self) -> Result<MeetingPoint, MeetingError> {
        let free = TcpListener::bind((self.own, 0)).and_then(|listener| listener.local_addr());
        let master = free.map_err(system("find a port for the ranks"))?;
        let _ = self.ready.send(MeetingEvent::OwnReady(master.port()));
        match self.end.recv() {
            Ok(result) => result?,
            Err(_) => unreachable!("the thread says how it ended"),
        }
        Ok(MeetingPoint {
            master,
            own: self.own,
        })
    }

    /// This node cannot go on; the others are told why.
    pub(in crate::job) fn fail(self, failure: NodeFailure) {
        let _ = self.ready.send(MeetingEvent::OwnFailed(failure));
        let _ = self.end.recv();
    }
}

struct Members {
    me: NodeIdentity,
    names: Vec<String>,
    all: BTreeMap<u32, Member>,
    silence: Duration,
}

impl Members {
    fn gather(
        &mut self,
        events: &Receiver<MeetingEvent>,
        within: Duration,
    ) -> Result<(), MeetingError> {
        let deadline = Instant::now() + within;
        while self.all.len() + 1 < self.names.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            match events.recv_timeout(left.min(HEARTBEAT)) {
                Ok(event) => self.take(event)?,
                Err(_) if left.is_zero() => return Err(self.missing(within)),
                Err(_) => self.check_alive()?,
            }
        }
        Ok(())
    }

    fn until_ready(&mut self, events: &Receiver<MeetingEvent>) -> Result<(), MeetingError> {
        let mut port = None;
        let result = loop {
            if let Some(port) = port
                && self.all.values().all(|member| member.is_ready)
            {
                self.tell(&LeaderMessage::Go(port));
                return Ok(());
            }
            let event = match events.recv_timeout(HEARTBEAT) {
                Ok(MeetingEvent::OwnReady(own)) => {
                    port = Some(own);
                    continue;
                }
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => match self.check_alive() {
                    Ok(()) => continue,
                    Err(error) => break error,
                },
                Err(RecvTimeoutError::Disconnected) => unreachable!("the listener has a sender"),
            };
            if let Err(error) = self.take(event) {
                break error;
            }
        };
        self.stop(&result);
        Err(result)
    }

    fn take(&mut self, event: MeetingEvent) -> Result<(), MeetingError> {
        match event {
            MeetingEvent::Joined(member) => self.add(*member),
            MeetingEvent::Said(index, message) => {
                let Some(member) = self.all.get_mut(&index) else {
                    return Ok(());
                };
                member.heard = Instant::now();
                match message {
                    NodeMessage::Ready => member.is_ready = true,
                    NodeMessage::Failed(failure) => {
                        let name = member.who.name.clone();
                        return Err(MeetingError::NodeFailed { name, failure });
                    }
                    NodeMessage::Alive | NodeMessage::Hello { .. } => {}
                }
                Ok(())
            }
            MeetingEvent::Gone(index) => match self.all.get(&index) {
                Some(member) => Err(MeetingError::Gone {
                    name: member.who.name.clone(),
                }),
                None => Ok(()),
            },
            MeetingEvent::OwnFailed(failure) => Err(MeetingError::NodeFailed {
                name: self.me.name.clone(),
                failure,
            }),
            MeetingEvent::OwnReady(_) => Ok(()),
        }
    }

    fn add(&mut self, member: Member) -> Result<(), MeetingError> {
        let who = &member.who;
        let known = match self.all.get(&who.index) {
            Some(known) => Some(&known.who),
            None => (who.index == self.me.index).then_some(&self.me),
        };
        if let Some(known) = known {
            return Err(MeetingError::Twice {
                index: who.index,
                first: known.name.clone(),
                second: who.name.clone(),
            });
        }
        if who.lock != self.me.lock {
            return Err(MeetingError::OtherLock {
                name: who.name.clone(),
                leader: self.me.name.clone(),
                other: who.lock.clone(),
                lock: self.me.lock.clone(),
            });
        }
        tracing::info!(
            node = who.name,
            index = who.index,
            "a node of the job has come"
        );
        self.all.insert(who.index, member);
        Ok(())
    }

    fn check_alive(&self) -> Result<(), MeetingError> {
        let silence = self.silence;
        let silent = |member: &&Member| member.heard.elapsed() > silence;
        if let Some(member) = self.all.values().find(silent) {
            let name = member.who.name.clone();
            return Err(MeetingError::Silent { name, silence });
        }
        self.tell(&LeaderMessage::Alive);
        Ok(())
    }

    fn stop(&self, error: &MeetingError) {
        self.tell(&LeaderMessage::Stop(NodeFailure {
            why: error.to_string(),
            exit: error.exit_code(),
        }));
    }

    fn tell(&self, message: &LeaderMessage) {
        for member in self.all.values() {
            // Its own thread hears that it is gone.
            let _ = send(&member.stream, message);
        }
    }

    fn missing(&self, within: Duration) -> MeetingError {
        let there = |index: usize| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            index == self.me.index || self.all.contains_key(&index)
        };
        let names = self.names.iter().enumerate();
        let names: Vec<String> = names
            .filter(|(index, _)| !there(*index))
            .map(|(_, name)| name.clone())
            .collect();
        MeetingError::Missing {
            names,
            nodes: u32::try_from(self.names.len()).unwrap_or(u32::MAX),
            within,
        }
    }

    fn clock_remarks(&self) -> Vec<String> {
        let tolerance = i64::try_from(CLOCK_TOLERANCE.as_millis()).unwrap_or(i64::MAX);
        let wrong = self.all.values();
        let wrong = wrong.filter(|member| member.clock_offset_ms.abs() > tolerance);
        wrong
            .map(|member| {
                let seconds = member.clock_offset_ms / 1000;
                let (name, leader) = (&member.who.name, &self.me.name);
                let (by, way) = match seconds < 0 {
                    true => (-seconds, "behind"),
                    false => (seconds, "ahead of"),
                };
                format!("the clock of node {name} is {by} s {way} that of {leader}")
            })
            .collect()
    }
}

/// Hears one connection to its end.
fn welcome(stream: TcpStream, key: &JobKey, told: &Sender<MeetingEvent>) {
    let Some((member, mut reader)) = shake_hands(stream, key) else {
        return;
    };
    let index = member.who.index;
    if told.send(MeetingEvent::Joined(Box::new(member))).is_err() {
        return;
    }
    while let Ok(Some(message)) = receive::<NodeMessage>(&mut reader) {
        if told.send(MeetingEvent::Said(index, message)).is_err() {
            return;
        }
    }
    let _ = told.send(MeetingEvent::Gone(index));
}

/// `None` for who does not have the key.
fn shake_hands(stream: TcpStream, key: &JobKey) -> Option<(Member, BufReader<TcpStream>)> {
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT)).ok()?;
    let here: SocketAddr = stream.local_addr().ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let challenge = new_nonce();
    send(&stream, &LeaderMessage::Challenge(challenge.clone())).ok()?;
    let NodeMessage::Hello {
        proof,
        nonce,
        index,
        name,
        lock,
        unix_ms: clock,
    } = receive(&mut reader).ok()??
    else {
        return None;
    };
    if proof != key.prove("node", &challenge) {
        return None;
    }
    send(
        &stream,
        &LeaderMessage::Welcome(key.prove("leader", &nonce)),
    )
    .ok()?;
    stream.set_read_timeout(None).ok()?;
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let member = Member {
        who: NodeIdentity { index, name, lock },
        here: here.ip().to_canonical(),
        clock_offset_ms: signed(clock).saturating_sub(signed(unix_ms())),
        heard: Instant::now(),
        is_ready: false,
        stream,
    };
    Some((member, reader))
}
