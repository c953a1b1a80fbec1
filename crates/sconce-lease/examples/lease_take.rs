//! What `bench/lease/take` runs: N requests at once by 20 users on 8 cards, through files and
//! through the service, each timed from asking to the answer.

use std::error::Error;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sconce_host::Roots;
use sconce_lease::service::{self, ConnectionQuotas, LeaseServiceOptions, Peer};
use sconce_lease::{
    AcquireRequest, Database, GpuSelection, Handles, LeaseGpu, LeaseRequest, LeaseResponse,
    LeaseUser, LocalSystem, Policy,
};

fn person(uid: u32) -> LeaseUser {
    LeaseUser {
        uid,
        name: format!("user{uid}"),
        groups: Vec::new(),
    }
}

fn machine() -> LocalSystem {
    let card = |index| LeaseGpu {
        key: format!("card {index}"),
        index,
        name: None,
        memory: None,
    };
    LocalSystem {
        roots: Roots::default(),
        cards: (0..8).map(card).collect(),
        handles: Handles::default(),
    }
}

fn ask() -> LeaseRequest {
    LeaseRequest::Take(AcquireRequest {
        wanted: GpuSelection::Any {
            cards: 1,
            memory: None,
        },
        for_ms: Some(3_600_000),
        while_alive: false,
        wait: true,
    })
}

/// Runs `one` in that many threads at once; the times, sorted, and how many were given cards.
fn at_once(count: u32, one: &(dyn Fn(u32) -> bool + Sync)) -> (Vec<Duration>, usize) {
    let barrier = Barrier::new(count as usize);
    let mut timed: Vec<(Duration, bool)> = std::thread::scope(|scope| {
        let start = |n| {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                let start = Instant::now();
                let given = one(n);
                (start.elapsed(), given)
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        let ended = threads.into_iter().filter_map(|thread| thread.join().ok());
        ended.collect()
    });
    timed.sort();
    let given = timed.iter().filter(|(_, given)| *given).count();
    (timed.into_iter().map(|(time, _)| time).collect(), given)
}

fn tell(what: &str, (times, given): &(Vec<Duration>, usize)) -> String {
    let ms = |at: usize| times[at].as_secs_f64() * 1000.0;
    format!(
        "{what}: {} at once, median {:.2} ms, slowest {:.2} ms, {given} were given cards",
        times.len(),
        ms(times.len() / 2),
        ms(times.len() - 1)
    )
}

fn files(folder: &Path, count: u32) -> (Vec<Duration>, usize) {
    let policy = Policy::default();
    at_once(count, &|n| {
        // As a program does that has read nothing yet.
        let machine = machine();
        let mut database = Database::new(folder);
        let pid = std::process::id();
        let answer = database.apply_request(&policy, &machine, &person(n % 20), pid, &ask());
        matches!(answer, Ok(LeaseResponse::Granted(_)))
    })
}

fn served(folder: &Path, count: u32) -> Result<(Vec<Duration>, usize), Box<dyn Error>> {
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket)?;
    let (policy, machine) = (Policy::default(), machine());
    let database = Mutex::new(Database::new(folder.join("leases")));
    let next = AtomicU32::new(0);
    let identify = |stream: &UnixStream| {
        let peer = service::identify_peer(stream)?;
        let uid = next.fetch_add(1, Ordering::Relaxed) % 20;
        Ok(Peer { uid, ..peer })
    };
    let answer = |peer: &Peer, ask: &LeaseRequest| {
        let person = person(peer.uid);
        let process = peer.find_process(&machine);
        let mut database = database.lock().unwrap_or_else(PoisonError::into_inner);
        let decided = database.write_decision(&policy, &machine, &person, process, ask)?;
        // The next one is answered while the disk writes.
        drop(database);
        decided.sync_to_disk()
    };
    let ended = AtomicBool::new(false);
    let stop = || ended.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let serving = LeaseServiceOptions {
            bounds: ConnectionQuotas::default(),
            identify: &identify,
            charged: &|uid| uid,
            answer: &answer,
            stop: &stop,
        };
        let listener = &listener;
        scope.spawn(move || service::serve(listener, &serving));
        let measured = at_once(count, &|_| {
            matches!(
                service::send_request(&socket, &ask()),
                Ok(LeaseResponse::Granted(_))
            )
        });
        ended.store(true, Ordering::Relaxed);
        drop(UnixStream::connect(&socket)?);
        Ok(measured)
    })
}

#[expect(clippy::print_stdout, reason = "it is a benchmark")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (folder, count) = (arguments.next(), arguments.next());
    let folder = folder.ok_or("lease_take FOLDER [COUNT]")?;
    let count = count.map_or(Ok(100), |count| count.parse())?;
    let folder = Path::new(&folder);
    println!("{}", tell("files", &files(&folder.join("files"), count)));
    std::fs::create_dir_all(folder.join("served"))?;
    println!(
        "{}",
        tell("service", &served(&folder.join("served"), count)?)
    );
    Ok(())
}
