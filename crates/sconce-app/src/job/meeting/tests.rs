use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use super::wire::{LeaderMessage, NodeMessage, receive, send};
use super::*;

const LIMITS: MeetingLimits = MeetingLimits {
    arrival: Duration::from_secs(20),
    silence: Duration::from_secs(20),
};
const SHORT: MeetingLimits = MeetingLimits {
    arrival: Duration::from_millis(300),
    silence: Duration::from_secs(20),
};

fn node(index: u32) -> NodeIdentity {
    NodeIdentity {
        index,
        name: format!("n{index}"),
        lock: "aa".into(),
    }
}

fn names(nodes: u32) -> Vec<String> {
    (0..nodes).map(|index| node(index).name).collect()
}

fn key() -> JobKey {
    JobKey::new("secret", "17.0")
}

fn failure(why: &str) -> NodeFailure {
    NodeFailure {
        why: why.to_owned(),
        exit: exit::NODE,
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn join(who: &NodeIdentity, key: &JobKey, at: SocketAddr) -> Result<Follower, MeetingError> {
    Follower::join(who, "n0", key, LIMITS, || vec![at])
}

#[test]
fn all_nodes_get_the_same_point() {
    let (listener, at) = listen();
    let others: Vec<_> = (1..4)
        .map(|index| thread::spawn(move || join(&node(index), &key(), at).unwrap().go()))
        .collect();
    let leader = Leader::gather(listener, &node(0), &names(4), &key(), LIMITS).unwrap();
    assert!(leader.remarks.is_empty());
    let point = leader.go().unwrap();
    for other in others {
        assert_eq!(other.join().unwrap().unwrap(), point);
    }
}

#[test]
fn a_node_that_does_not_come_is_named() {
    let (listener, at) = listen();
    let other = thread::spawn(move || join(&node(2), &key(), at).unwrap().go());
    let error = Leader::gather(listener, &node(0), &names(3), &key(), SHORT).unwrap_err();
    assert!(matches!(&error, MeetingError::Missing { names, .. } if *names == ["n1"]));
    let MeetingError::Stopped(why) = other.join().unwrap().unwrap_err() else {
        panic!("the other is told");
    };
    assert_eq!(why.why, error.to_string());
}

#[test]
fn a_first_node_that_is_nowhere_is_named_with_where_it_was_looked_for() {
    let (listener, at) = listen();
    drop(listener);
    let error = Follower::join(&node(1), "n0", &key(), SHORT, || vec![at]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("n0") && text.contains(&at.to_string()),
        "{text}"
    );
}

#[test]
fn what_one_node_cannot_stops_all_with_its_reason() {
    let (listener, at) = listen();
    let leader =
        thread::spawn(move || Leader::gather(listener, &node(0), &names(3), &key(), LIMITS)?.go());
    let good = join(&node(1), &key(), at).unwrap();
    let bad = join(&node(2), &key(), at).unwrap();
    bad.fail(failure("the disk is full"));
    let error = leader.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "node n2 cannot start: the disk is full");
    let other = good.go().unwrap_err();
    assert_eq!(other.to_string(), error.to_string());
    assert_eq!(
        (error.exit_code(), other.exit_code()),
        (exit::NODE, exit::NODE)
    );
}

#[test]
fn what_the_first_node_cannot_stops_all() {
    let (listener, at) = listen();
    let other = thread::spawn(move || join(&node(1), &key(), at).unwrap().go());
    let leader = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap();
    leader.fail(failure("no card"));
    let error = other.join().unwrap().unwrap_err().to_string();
    assert_eq!(error, "node n0 cannot start: no card");
}

#[test]
fn a_node_that_ends_and_one_that_is_silent_are_named() {
    let (listener, at) = listen();
    let other = thread::spawn(move || drop(join(&node(1), &key(), at).unwrap()));
    let leader = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap();
    other.join().unwrap();
    let error = leader.go().unwrap_err();
    assert!(
        matches!(&error, MeetingError::Gone { name } if name == "n1"),
        "{error}"
    );
    let limits = MeetingLimits {
        silence: Duration::from_millis(100),
        ..LIMITS
    };
    let (listener, at) = listen();
    let silent = thread::spawn(move || join(&node(1), &key(), at));
    let leader = Leader::gather(listener, &node(0), &names(2), &key(), limits).unwrap();
    let error = leader.go().unwrap_err();
    assert!(
        matches!(&error, MeetingError::Silent { name, .. } if name == "n1"),
        "{error}"
    );
    drop(silent.join().unwrap());
}

#[test]
fn another_lock_and_the_same_node_twice_are_refused() {
    let (listener, at) = listen();
    let other = NodeIdentity {
        lock: "bb".into(),
        ..node(1)
    };
    let joined = thread::spawn(move || join(&other, &key(), at).unwrap().go());
    let error = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap_err();
    assert!(matches!(error, MeetingError::OtherLock { .. }));
    assert!(joined.join().unwrap().is_err());
    let (listener, at) = listen();
    let twice = thread::spawn(move || join(&node(0), &key(), at).unwrap().go());
    let error = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap_err();
    assert!(matches!(error, MeetingError::Twice { index: 0, .. }));
    assert!(twice.join().unwrap().is_err());
}

#[test]
fn a_stranger_and_an_earlier_start_are_nobody() {
    let (listener, at) = listen();
    let strangers = thread::spawn(move || {
        for text in [
            "",
            "GET / HTTP/1.0\r\n\r\n",
            "{\"hello\":{}}\n",
            "\u{0}\u{0}\n",
        ] {
            let mut stream = TcpStream::connect(at).unwrap();
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let earlier = JobKey::new("secret", "16.0");
        let error = Follower::join(&node(1), "n0", &earlier, SHORT, || vec![at]).unwrap_err();
        assert!(matches!(error, MeetingError::NoLeader { .. }));
        join(&node(1), &key(), at).unwrap().go()
    });
    let leader = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap();
    let point = leader.go().unwrap();
    assert_eq!(strangers.join().unwrap().unwrap(), point);
}

#[test]
fn a_service_of_somebody_else_is_passed_over() {
    let (stranger, first) = listen();
    thread::spawn(move || {
        for mut stream in stranger.incoming().flatten() {
            let _ = stream.write_all(b"{\"challenge\":\"x\"}\n{\"welcome\":\"x\"}\n");
        }
    });
    let (listener, at) = listen();
    let other = thread::spawn(move || {
        let joined = Follower::join(&node(1), "n0", &key(), LIMITS, || vec![first, at]);
        joined.unwrap().go()
    });
    let leader = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap();
    assert_eq!(leader.go().unwrap(), other.join().unwrap().unwrap());
}

#[test]
fn a_clock_that_is_minutes_off_is_said() {
    let (listener, at) = listen();
    let other = thread::spawn(move || {
        let stream = TcpStream::connect(at).unwrap();
        let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
        let LeaderMessage::Challenge(challenge) = receive(&mut reader).unwrap().unwrap() else {
            panic!("the leader speaks first");
        };
        let hello = NodeMessage::Hello {
            proof: key().prove("node", &challenge),
            nonce: "n".into(),
            index: 1,
            name: "n1".into(),
            lock: "aa".into(),
            unix_ms: crate::run_id::unix_ms() - 301_000,
        };
        send(&stream, &hello).unwrap();
        (stream, reader)
    });
    let leader = Leader::gather(listener, &node(0), &names(2), &key(), LIMITS).unwrap();
    let [remark] = &leader.remarks[..] else {
        panic!("{:?}", leader.remarks);
    };
    assert!(remark.starts_with("the clock of node n1 is 30"), "{remark}");
    assert!(remark.ends_with(" s behind that of n0"), "{remark}");
    drop(other.join().unwrap());
}
