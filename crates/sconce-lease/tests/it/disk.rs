//! The database under many users, and under a writer that is killed.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Barrier;

use sconce_lease::{
    AcquireRequest, Database, GpuSelection, LeaseError, LeaseRefusal, LeaseRequest, LeaseResponse,
    Overview, Policy,
};

use crate::tools::{MINUTE, Played, user};

fn take(cards: u32, minutes: Option<u64>) -> LeaseRequest {
    LeaseRequest::Take(AcquireRequest {
        wanted: GpuSelection::Any {
            cards,
            memory: None,
        },
        for_ms: minutes.map(|minutes| minutes * MINUTE),
        while_alive: minutes.is_none(),
        wait: true,
    })
}

fn look(database: &mut Database, world: &Played) -> Overview {
    let answer =
        database.apply_request(&Policy::default(), world, &user(9), 1, &LeaseRequest::Look);
    match answer.unwrap() {
        LeaseResponse::Overview(overview) => overview,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hundred_at_once_by_twenty_users_on_eight_cards() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(8);
    let policy = Policy::default();
    let barrier = Barrier::new(100);
    let answers: Vec<LeaseResponse> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..100)
            .map(|n| {
                let (world, policy, barrier) = (&world, &policy, &barrier);
                // Each with a database of its own, as 100 programs have.
                let mut database = Database::new(folder.path());
                scope.spawn(move || {
                    barrier.wait();
                    let ask = take(1, Some(30));
                    database
                        .apply_request(policy, world, &user(n % 20), 1000 + n, &ask)
                        .unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut cards = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for answer in answers {
        match answer {
            LeaseResponse::Granted(lease) => {
                assert!(ids.insert(lease.id));
                assert!(
                    lease.cards.into_iter().all(|card| cards.insert(card)),
                    "twice"
                );
            }
            LeaseResponse::Queued(waiting) => assert!(ids.insert(waiting.id)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((cards.len(), ids.len()), (8, 100));
    // Then they go on in the order of the queue, until all had theirs.
    let mut database = Database::new(folder.path());
    let mut had = BTreeSet::new();
    for _ in 0..20 {
        let before = look(&mut database, &world);
        had.extend(before.leases.iter().map(|lease| lease.id));
        world.pass(30 * MINUTE);
        let after = look(&mut database, &world);
        let next: BTreeSet<u64> = before.queue.iter().take(8).map(|w| w.id).collect();
        let users: BTreeSet<u32> = before.queue.iter().map(|w| w.uid).collect();
        let got: BTreeSet<u64> = after.leases.iter().map(|lease| lease.id).collect();
        // Within one user's requests, and while nobody else had more, the order is that of arrival.
        assert!(got == next || users.len() > 1, "{got:?} {next:?}");
        assert_eq!(got.len(), before.queue.len().min(8));
    }
    assert_eq!(had, ids, "everybody had theirs");
}

#[test]
fn a_writer_killed_at_any_byte_gives_nothing_twice_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("leases.log");
    let world = Played::new(2);
    let policy = Policy::default();
    let mut database = Database::new(folder.path());
    database
        .apply_request(&policy, &world, &user(1), 11, &take(1, Some(30)))
        .unwrap();
    let before = fs::read(&log).unwrap();
    database
        .apply_request(&policy, &world, &user(2), 12, &take(1, Some(30)))
        .unwrap();
    let after = fs::read(&log).unwrap();
    assert!(after.starts_with(&before));
    for length in before.len()..=after.len() {
        fs::write(&log, &after[..length]).unwrap();
        let mut next = Database::new(folder.path());
        let held = look(&mut next, &world).leases.len();
        assert_eq!(
            held,
            if length == after.len() { 2 } else { 1 },
            "{length} bytes"
        );
        // The next one writes on what counts, not on what was torn.
        let answer = next
            .apply_request(&policy, &world, &user(3), 13, &take(1, Some(30)))
            .unwrap();
        assert_eq!(matches!(answer, LeaseResponse::Granted(_)), held == 1);
        assert_eq!(
            look(&mut Database::new(folder.path()), &world).leases.len(),
            2
        );
        // One who had read before the end was torn off reads anew.
        let known = look(&mut database, &world);
        assert_eq!(known.leases.len(), 2, "{length} bytes");
    }
    // Killed while compacting: a new log that was never renamed is nothing.
    fs::write(&log, &after).unwrap();
    fs::write(folder.path().join("leases.log.new"), b"half of").unwrap();
    assert_eq!(
        look(&mut Database::new(folder.path()), &world).leases.len(),
        2
    );
}

#[test]
fn a_long_log_is_compacted_and_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(2);
    let policy = Policy::default();
    let (mut one, mut other) = (Database::new(folder.path()), Database::new(folder.path()));
    let kept = one
        .apply_request(&policy, &world, &user(7), 5, &take(1, Some(100_000)))
        .unwrap();
    assert!(matches!(kept, LeaseResponse::Granted(_)));
    let mut compacted = 0;
    let mut size = 0;
    for round in 0..600 {
        world.pass(MINUTE);
        let database = if round % 3 == 0 { &mut other } else { &mut one };
        let answer = database.apply_request(&policy, &world, &user(1), 11, &take(1, Some(5)));
        let LeaseResponse::Granted(lease) = answer.unwrap() else {
            panic!("round {round}");
        };
        let back = LeaseRequest::Return { id: lease.id };
        one.apply_request(&policy, &world, &user(1), 11, &back)
            .unwrap();
        let now = fs::metadata(folder.path().join("leases.log"))
            .unwrap()
            .len();
        compacted += u32::from(now < size);
        size = now;
    }
    assert!(compacted >= 1 && size < 200_000, "{compacted} {size}");
    let leases = look(&mut other, &world).leases;
    assert_eq!((leases.len(), leases[0].uid), (1, 7));
    assert!(folder.path().join("leases.log.1").is_file());
}

#[test]
fn another_log_in_the_same_file_is_read_from_its_start() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = Played::new(4);
    let policy = Policy::default();
    let fill = |database: &mut Database, uid, count| {
        for _ in 0..count {
            let answer =
                database.apply_request(&policy, &world, &user(uid), 11, &take(1, Some(60)));
            assert!(matches!(answer.unwrap(), LeaseResponse::Granted(_)));
        }
    };
    let mut known = Database::new(folder.path());
    fill(&mut known, 1, 1);
    fill(&mut Database::new(other.path()), 2, 3);
    // A file's number is given again once the file is gone: here, two compactions later, to a log
    // that is longer than what was read of the old one.
    let log = folder.path().join("leases.log");
    let later = fs::read(other.path().join("leases.log")).unwrap();
    assert!(later.len() as u64 > fs::metadata(&log).unwrap().len());
    fs::write(&log, later).unwrap();
    let shown = look(&mut known, &world);
    let users: Vec<u32> = shown.leases.iter().map(|lease| lease.uid).collect();
    assert_eq!(users, [2, 2, 2]);
}

#[test]
fn a_users_queue_has_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(1);
    let policy = Policy::parse("[default]\nqueue = 2\n").unwrap();
    let mut database = Database::new(folder.path());
    let mut ask = |uid, ask: &LeaseRequest| {
        database
            .apply_request(&policy, &world, &user(uid), 11, ask)
            .unwrap()
    };
    assert!(matches!(
        ask(1, &take(1, Some(60))),
        LeaseResponse::Granted(_)
    ));
    let LeaseResponse::Queued(first) = ask(1, &take(1, Some(60))) else {
        panic!("a free place");
    };
    assert!(matches!(
        ask(1, &take(1, Some(60))),
        LeaseResponse::Queued(_)
    ));
    let full = LeaseRefusal::QueueFull {
        user: "user1".to_owned(),
        waiting: 2,
        limit: 2,
    };
    assert_eq!(
        ask(1, &take(1, Some(60))),
        LeaseResponse::Refused(full.clone())
    );
    assert_eq!(
        full.to_string(),
        "2 requests of user1 wait already, and 2 at once may"
    );
    assert!(matches!(
        ask(2, &take(1, Some(60))),
        LeaseResponse::Queued(_)
    ));
    ask(1, &LeaseRequest::Return { id: first.id });
    assert!(matches!(
        ask(1, &take(1, Some(60))),
        LeaseResponse::Queued(_)
    ));
    assert_eq!(look(&mut database, &world).queue.len(), 3);
}

#[test]
fn the_holder_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(1);
    let policy = Policy::default();
    let mut database = Database::new(folder.path());
    database
        .apply_request(&policy, &world, &user(1), 11, &take(1, None))
        .unwrap();
    let queued = database
        .apply_request(&policy, &world, &user(2), 12, &take(1, None))
        .unwrap();
    let LeaseResponse::Queued(queued) = queued else {
        panic!("{queued:?}");
    };
    assert_eq!(queued.start_s, None, "the holder said no end");
    database
        .apply_request(&policy, &world, &user(3), 13, &take(1, Some(5)))
        .unwrap();
    // The one who waits is killed as well: the third has the card.
    world.kill(12);
    world.kill(11);
    let shown = look(&mut database, &world);
    assert_eq!((shown.leases[0].uid, shown.queue.len()), (3, 0));
}

#[test]
fn a_reboot_and_a_clock_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(2);
    let policy = Policy::default();
    let mut database = Database::new(folder.path());
    database
        .apply_request(&policy, &world, &user(1), 11, &take(1, None))
        .unwrap();
    database
        .apply_request(&policy, &world, &user(2), 12, &take(1, Some(60)))
        .unwrap();
    // An administrator sets the clock back by a day: nobody has a day more.
    world.clock.lock().unwrap().wall_ms -= 24 * 60 * MINUTE;
    world.pass(10 * MINUTE);
    let shown = look(&mut database, &world);
    assert_eq!(shown.leases[1].until_s, Some(shown.now_s + 50 * 60));
    // Written down, then 20 minutes of darkness.
    database
        .apply_request(
            &policy,
            &world,
            &user(2),
            12,
            &LeaseRequest::Extend {
                id: 1,
                by_ms: MINUTE,
            },
        )
        .unwrap();
    {
        let mut clock = world.clock.lock().unwrap();
        clock.wall_ms += 20 * MINUTE;
        clock.boot = "second".to_owned();
        clock.boot_ms = 5_000;
    }
    let shown = look(&mut Database::new(folder.path()), &world);
    assert_eq!(shown.leases.len(), 1, "the process did not survive");
    assert_eq!(shown.leases[0].until_s, Some(shown.now_s + 31 * 60));
    assert_eq!(
        shown.remarks,
        ["lease 0 of user1 ended with the machine's restart: its process is gone"]
    );
    // A machine whose battery is empty wakes up in the past: no time passed, and that is told.
    database
        .apply_request(
            &policy,
            &world,
            &user(2),
            12,
            &LeaseRequest::Extend {
                id: 1,
                by_ms: MINUTE,
            },
        )
        .unwrap();
    {
        let mut clock = world.clock.lock().unwrap();
        clock.wall_ms = 1_000;
        clock.boot = "third".to_owned();
    }
    let shown = look(&mut Database::new(folder.path()), &world);
    assert_eq!(shown.leases[0].until_s, Some(shown.now_s + 32 * 60));
}

#[test]
fn a_card_falls_off_the_bus() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(2);
    let policy = Policy::default();
    let mut database = Database::new(folder.path());
    let answer = database
        .apply_request(&policy, &world, &user(1), 11, &take(2, Some(60)))
        .unwrap();
    assert!(matches!(answer, LeaseResponse::Granted(_)));
    let lost = world.cards.lock().unwrap().remove(0);
    let shown = look(&mut database, &world);
    assert_eq!(shown.leases[0].lost, std::slice::from_ref(&lost.key));
    let answer = database
        .apply_request(&policy, &world, &user(2), 12, &take(2, Some(60)))
        .unwrap();
    let LeaseResponse::Refused(LeaseRefusal::TooFew { there: 1, .. }) = answer else {
        panic!("{answer:?}");
    };
    let answer = database
        .apply_request(&policy, &world, &user(2), 12, &take(1, Some(60)))
        .unwrap();
    assert!(matches!(answer, LeaseResponse::Queued(_)));
    // It comes back, and is still the holder's; then it goes to the next.
    world.cards.lock().unwrap().push(lost);
    assert_eq!(look(&mut database, &world).leases[0].lost, [""; 0]);
    world.pass(60 * MINUTE);
    let shown = look(&mut database, &world);
    assert_eq!((shown.leases.len(), shown.leases[0].uid), (1, 2));
}

#[test]
fn what_cannot_be_read_or_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let world = Played::new(1);
    let policy = Policy::default();
    let mut database = Database::new(folder.path());
    database
        .apply_request(&policy, &world, &user(1), 11, &take(1, Some(60)))
        .unwrap();
    database
        .apply_request(&policy, &world, &user(1), 11, &take(1, Some(60)))
        .unwrap();
    let log = folder.path().join("leases.log");
    let good = fs::read(&log).unwrap();
    let mut bytes = good.clone();
    bytes[20] ^= 1;
    fs::write(&log, bytes).unwrap();
    let error = Database::new(folder.path()).apply_request(
        &policy,
        &world,
        &user(1),
        11,
        &LeaseRequest::Look,
    );
    assert!(
        matches!(error, Err(LeaseError::Damaged { line: 1, .. })),
        "{error:?}"
    );
    fs::write(folder.path().join("file"), "").unwrap();
    let mut nowhere = Database::new(folder.path().join("file/below"));
    let error = nowhere.apply_request(&policy, &world, &user(1), 11, &LeaseRequest::Look);
    assert!(matches!(error, Err(LeaseError::File { .. })), "{error:?}");
}
