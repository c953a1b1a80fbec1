//! The service: who asks is what the socket says, whatever the request says.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sconce_host::Roots;
use sconce_lease::service::{self, ConnectionQuotas, LeaseServiceOptions, Peer};
use sconce_lease::{
    AcquireRequest, Database, GpuSelection, Handles, LeaseRefusal, LeaseRequest, LeaseResponse,
    LocalSystem, Policy,
};

use crate::tools::{MINUTE, Played, user};

fn take() -> LeaseRequest {
    LeaseRequest::Take(AcquireRequest {
        wanted: GpuSelection::Any {
            cards: 1,
            memory: None,
        },
        for_ms: Some(5 * MINUTE),
        while_alive: false,
        wait: true,
    })
}

#[test]
fn the_kernel_tells_who_is_there() {
    let (one, _other) = UnixStream::pair().unwrap();
    let peer = service::identify_peer(&one).unwrap();
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert_eq!(peer.pid, Some(std::process::id()));
    let machine = LocalSystem {
        roots: Roots::default(),
        cards: Vec::new(),
        handles: Handles::default(),
    };
    let process = peer.find_process(&machine).unwrap();
    assert_eq!(process.pid, std::process::id());
    let unseen = Peer { pid: None, ..peer };
    assert_eq!(unseen.find_process(&machine), None);
}

/// Its number may be another's by now: here it is that of this very test.
#[test]
fn a_process_that_ended_is_not_taken_for_the_one_with_its_number() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    child.wait().unwrap();
    let reused = Peer {
        uid: 0,
        pid: Some(std::process::id()),
        handle: Some(handle),
    };
    let machine = LocalSystem {
        roots: Roots::default(),
        cards: Vec::new(),
        handles: Handles::default(),
    };
    assert_eq!(reused.find_process(&machine), None);
}

/// Ends the service, however the test ends.
struct Ends<'a>(&'a AtomicBool, &'a std::path::Path);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(self.1);
    }
}

#[test]
fn two_users_and_hostile_ones() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let world = Played::new(1);
    let database = Mutex::new(Database::new(folder.path().join("leases")));
    let policy = Policy::default();
    // The test says who is there; the program has only `service::identify_peer`.
    let uid = AtomicU32::new(1);
    let identify = |_: &UnixStream| {
        Ok(Peer {
            uid: uid.load(Ordering::SeqCst),
            pid: Some(77),
            handle: None,
        })
    };
    let answer = |peer: &Peer, ask: &LeaseRequest| {
        let mut database = database.lock().unwrap();
        database.apply_request(&policy, &world, &user(peer.uid), 77, ask)
    };
    let ended = AtomicBool::new(false);
    let stop = || ended.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let serving = LeaseServiceOptions {
            bounds: ConnectionQuotas::default(),
            identify: &identify,
            charged: &|uid| uid,
            answer: &answer,
            stop: &stop,
        };
        let listener = &listener;
        let serving = scope.spawn(move || service::serve(listener, &serving));
        let ends = Ends(&ended, &socket);
        let LeaseResponse::Granted(lease) = service::send_request(&socket, &take()).unwrap() else {
            panic!()
        };
        uid.store(2, Ordering::SeqCst);
        assert!(matches!(
            service::send_request(&socket, &take()).unwrap(),
            LeaseResponse::Queued(_)
        ));
        let back = LeaseRequest::Return { id: lease.id };
        let refused = service::send_request(&socket, &back).unwrap();
        assert!(
            matches!(
                refused,
                LeaseResponse::Refused(LeaseRefusal::NotYours { .. })
            ),
            "{refused:?}"
        );
        // A request that names a user is none; nor is a long one, or one that never ends.
        for hostile in [
            &br#"{"format":1,"ask":{"return":{"id":0,"uid":1}}}"#[..],
            br#"{"format":1,"ask":"look","person":{"uid":0}}"#,
            &[b'['; 100_000],
            b"\0\0\0\n",
        ] {
            let mut stream = UnixStream::connect(&socket).unwrap();
            let _ = stream.write_all(hostile);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut said = String::new();
            let _ = stream.read_to_string(&mut said);
            // A hung-up answer may be lost with what was not read.
            assert!(said.is_empty() || said.contains("unreadable"), "{said}");
        }
        drop(UnixStream::connect(&socket).unwrap());
        uid.store(0, Ordering::SeqCst);
        let answer = service::send_request(&socket, &back).unwrap();
        assert_eq!(answer, LeaseResponse::Returned(lease.id), "the owner may");
        drop(ends);
        serving.join().unwrap().unwrap();
    });
    let gone = service::send_request(&folder.path().join("none"), &take()).unwrap_err();
    assert!(gone.to_string().ends_with("does not answer"), "{gone}");
}

/// Who is said to come, and how many came.
#[derive(Default)]
struct Door {
    uid: AtomicU32,
    came: AtomicU32,
}

/// A service for a test, which answers everybody that there is no lease 7.
fn answering(bounds: ConnectionQuotas, door: &Door, test: &dyn Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let ended = AtomicBool::new(false);
    let serving = LeaseServiceOptions {
        bounds,
        identify: &|_| {
            door.came.fetch_add(1, Ordering::SeqCst);
            Ok(Peer {
                uid: door.uid.load(Ordering::SeqCst),
                pid: None,
                handle: None,
            })
        },
        // Ids above 100 are subordinate ones of user 1.
        charged: &|uid| if uid > 100 { 1 } else { uid },
        answer: &|_, _| Ok(LeaseResponse::Refused(LeaseRefusal::NoLease { id: 7 })),
        stop: &|| ended.load(Ordering::SeqCst),
    };
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| service::serve(&listener, &serving));
        let ends = Ends(&ended, &socket);
        test(&socket);
        drop(ends);
        serving.join().unwrap().unwrap();
    });
}

#[test]
fn whoever_drips_is_hung_up_on() {
    let bounds = ConnectionQuotas {
        patience: Duration::from_millis(300),
        ..ConnectionQuotas::default()
    };
    answering(bounds, &Door::default(), &|socket| {
        let mut stream = UnixStream::connect(socket).unwrap();
        // Each byte alone is in time; a request of them would last for a minute.
        let hung_up = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            stream.write_all(b" ").is_err()
        });
        assert!(hung_up);
    });
}

#[test]
fn one_user_cannot_shut_the_service_for_another() {
    let bounds = ConnectionQuotas {
        patience: Duration::from_secs(60),
        at_once: 8,
        per_user: 2,
    };
    let door = Door::default();
    let crowded = LeaseResponse::Refused(LeaseRefusal::Crowded);
    answering(bounds, &door, &|socket| {
        let mut silent = Vec::new();
        for number in 0..20 {
            // Half of them as ids that are subordinate to the user.
            door.uid.store(1 + 100 * (number % 2), Ordering::SeqCst);
            let mut stream = UnixStream::connect(socket).unwrap();
            while door.came.load(Ordering::SeqCst) <= number {
                std::thread::sleep(Duration::from_millis(1));
            }
            if number >= 2 {
                let mut said = String::new();
                stream.read_to_string(&mut said).unwrap();
                assert_eq!(
                    serde_json::from_str::<LeaseResponse>(&said).unwrap(),
                    crowded
                );
            }
            silent.push(stream);
        }
        for other in [2, 0] {
            door.uid.store(other, Ordering::SeqCst);
            let answer = service::send_request(socket, &LeaseRequest::Look).unwrap();
            assert_eq!(
                answer,
                LeaseResponse::Refused(LeaseRefusal::NoLease { id: 7 })
            );
        }
        for mut stream in silent.drain(..2) {
            stream.write_all(b"{}\n").unwrap();
        }
    });
}
