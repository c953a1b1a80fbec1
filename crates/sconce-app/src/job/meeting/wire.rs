//! What nodes say to each other: JSON, a line each.

use std::io::{self, BufRead, Write};
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest line, in bytes.
const MAX_LINE_BYTES: u64 = 16 << 10;

/// What a node says to the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NodeMessage {
    /// Its first words.
    Hello {
        /// That it has the key, by the challenge.
        proof: String,
        /// What the first is to prove it with.
        nonce: String,
        /// Its place.
        index: u32,
        /// Its name.
        name: String,
        /// Digest of its lock.
        lock: String,
        /// Its clock.
        unix_ms: u64,
    },
    /// It lives.
    Alive,
    /// All that it runs is there.
    Ready,
    /// It cannot go on.
    Failed(NodeFailure),
}

/// What the first node says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LeaderMessage {
    /// Its first words: what the other is to prove the key with.
    Challenge(String),
    /// That it has the key itself.
    Welcome(String),
    /// It lives.
    Alive,
    /// All nodes are ready: the port at which ranks meet.
    Go(u16),
    /// Nothing is started.
    Stop(NodeFailure),
}

/// Why a node, or all of them, cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::job) struct NodeFailure {
    /// In words.
    pub(in crate::job) why: String,
    /// What its program exits with, which the others do too: it is the job's.
    pub(in crate::job) exit: u8,
}

/// What the nodes of one start of a job have, and nobody else.
#[derive(Clone)]
pub(in crate::job) struct JobKey {
    secret: String,
    /// Which start it is: a node of an earlier one is nobody.
    start: String,
}

impl JobKey {
    /// Of the text in the job's folder, and of what tells its starts apart.
    pub(in crate::job) fn new(secret: &str, start: &str) -> Self {
        Self {
            secret: secret.to_owned(),
            start: start.to_owned(),
        }
    }

    /// What only who has the key can answer to `nonce`; `role` keeps one's answer from being the other's.
    pub(super) fn prove(&self, role: &str, nonce: &str) -> String {
        let mut digest = Sha256::new();
        for part in [&self.secret, &self.start, role, nonce] {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            digest.update(part);
        }
        sconce_schema::Sha256(digest.finalize().into()).to_string()
    }
}

/// Text that nobody said before.
pub(super) fn new_nonce() -> String {
    sconce_base::random_name()
}

pub(super) fn send(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The next message; `None` where the other has ended.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut limited = io::Read::take(&mut *from, MAX_LINE_BYTES);
    if limited.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_before() {
        let failure = || NodeFailure {
            why: "no card".into(),
            exit: 11,
        };
        let node = [
            NodeMessage::Hello {
                proof: "p".into(),
                nonce: "n".into(),
                index: 1,
                name: "n2".into(),
                lock: "aa".into(),
                unix_ms: 2,
            },
            NodeMessage::Alive,
            NodeMessage::Ready,
            NodeMessage::Failed(failure()),
        ];
        let leader = [
            LeaderMessage::Challenge("c".into()),
            LeaderMessage::Welcome("w".into()),
            LeaderMessage::Alive,
            LeaderMessage::Go(29_500),
            LeaderMessage::Stop(failure()),
        ];
        let node = node.iter().map(|one| serde_json::to_value(one).unwrap());
        let leader = leader.iter().map(|one| serde_json::to_value(one).unwrap());
        let all: Vec<_> = node.chain(leader).collect();
        crate::golden::goldens().assert_lines("job-messages.jsonl", &all);
    }

    #[test]
    fn a_line_is_bounded() {
        let long = vec![b'a'; 1 << 20];
        assert!(receive::<NodeMessage>(&mut &long[..]).is_err());
        assert!(receive::<NodeMessage>(&mut &b""[..]).unwrap().is_none());
    }
}
