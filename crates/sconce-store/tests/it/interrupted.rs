//! Killed at any moment, the store stays usable.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use sconce_schema::NoProgress;
use sconce_store::Store;

use crate::archive::{demo_with, entry, locked, sha256};
use crate::fetching::{fetcher, noise};
use crate::server::{Server, answer, serve, serve_some};
use sconce_store::wheel::{InstallOptions, SlowThreshold};

/// A wheel whose bytes both processes can make.
fn wheel_bytes() -> Vec<u8> {
    demo_with(vec![
        entry("demo/first.bin", &noise(3_000_000)),
        entry("demo/second.bin", &noise(100_000)),
    ])
}

/// Not a test by itself: the process that [`killed_while_installing`] starts and kills. It gets
/// the store's folder, the wheel's URL and what the lock says of it in its environment.
#[test]
#[ignore = "run as a child of the test that kills it"]
fn child() {
    let given = |name| std::env::var(name).expect("this is not started by hand");
    let store = Store::open(given("STORE_UNDER_TEST").as_ref()).unwrap();
    let mut wheel = locked(&given("URL_UNDER_TEST"), b"");
    wheel.sha256 = given("SHA256_UNDER_TEST").parse().unwrap();
    wheel.size = None;
    store
        .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
        .unwrap();
}

fn start_child(root: &std::path::Path, url: &str, bytes: &[u8]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "interrupted::child"])
        .env("STORE_UNDER_TEST", root)
        .env("URL_UNDER_TEST", url)
        .env("SHA256_UNDER_TEST", sha256(bytes).to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_while_installing() {
    let bytes = wheel_bytes();
    // In the middle of the first file, after it, and before the last byte.
    for stop_at in [1_000_000, 3_050_000, bytes.len() - 1] {
        let (reached, wait) = mpsc::sync_channel(1);
        let served = bytes.clone();
        let server = Server::start(move |_, stream| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                served.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&served[..stop_at]).unwrap();
            let _ = reached.try_send(());
            // The child waits for the rest until it is killed.
            let _ = std::io::Read::read(stream, &mut [0]);
        });
        let folder = tempfile::tempdir().unwrap();
        let mut child = start_child(folder.path(), &server.url("demo.whl"), &bytes);
        wait.recv_timeout(Duration::from_secs(60)).unwrap();
        // It holds the lock from before its first request on, so the work folder is there.
        let tmp = folder.path().join("tmp");
        assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 1);
        child.kill().unwrap();
        child.wait().unwrap();

        let good = Server::start({
            let bytes = bytes.clone();
            move |request, stream| serve(request, stream, &bytes)
        });
        let wheel = locked(&good.url("demo.whl"), &bytes);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(
            std::fs::read_dir(&tmp).unwrap().count(),
            0,
            "the next open cleans up"
        );
        assert_eq!(store.wheel_tree(&wheel, "3.13"), None);
        let trees = store
            .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
            .unwrap();
        let first = trees[0].join("opt/venv/lib/python3.13/site-packages/demo/first.bin");
        assert!(std::fs::read(first).unwrap() == noise(3_000_000));
    }
}

#[test]
fn killed_at_any_moment() {
    let bytes = wheel_bytes();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::file(bytes.clone());
    let wheel = locked(&server.url("demo.whl"), &bytes);
    // Wherever the kill falls, what is seen afterwards is the whole tree or none.
    for round in 0..16 {
        let mut child = start_child(folder.path(), &server.url("demo.whl"), &bytes);
        let begun = std::time::Instant::now();
        while server.requests().len() <= round && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round as u64 * 9));
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Store::open(folder.path()).unwrap();
        if let Some(tree) = store.wheel_tree(&wheel, "3.13") {
            let site = tree.join("opt/venv/lib/python3.13/site-packages");
            assert!(std::fs::read(site.join("demo/first.bin")).unwrap() == noise(3_000_000));
            assert!(site.join("demo-1.0.dist-info/RECORD").exists());
            std::fs::remove_dir_all(store.root().join("items")).unwrap();
        }
    }
    let store = Store::open(folder.path()).unwrap();
    store
        .ensure_wheels(
            &fetcher(),
            std::slice::from_ref(&wheel),
            "3.13",
            &NoProgress,
        )
        .unwrap();
    assert!(store.wheel_tree(&wheel, "3.13").is_some());
}

#[test]
fn two_processes_want_the_same_wheel() {
    let bytes = wheel_bytes();
    let server = Server::file(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..2)
        .map(|_| start_child(folder.path(), &server.url("demo.whl"), &bytes))
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = Store::open(folder.path()).unwrap();
    assert!(
        store
            .wheel_tree(&locked(&server.url("x"), &bytes), "3.13")
            .is_some()
    );
    assert_eq!(server.requests().len(), 1);
}

/// Every download is slow.
fn kept() -> InstallOptions {
    InstallOptions {
        slow: SlowThreshold {
            after: Duration::ZERO,
            remaining: Duration::ZERO,
        },
        ..InstallOptions::default()
    }
}

/// A store in which a download of [`wheel_bytes`] broke off after `bytes` bytes.
fn broken_off(store: &Store, bytes: &[u8], at: usize) -> PathBuf {
    let served = bytes.to_vec();
    let server = Server::start(move |request, stream| match request.from {
        None => serve_some(request, stream, &served, at),
        Some(_) => answer(stream, "404 Not Found", 0, b""),
    });
    let wheel = locked(&server.url("demo.whl"), bytes);
    store
        .ensure_wheels_with(&fetcher(), &[wheel], "3.13", &NoProgress, kept())
        .unwrap_err();
    let mut parts = std::fs::read_dir(store.root().join("partial")).unwrap();
    parts.next().unwrap().unwrap().path()
}

fn go_on(store: &Store, bytes: &[u8]) -> Vec<Option<usize>> {
    let server = Server::file(bytes.to_vec());
    let wheel = locked(&server.url("demo.whl"), bytes);
    let trees = store
        .ensure_wheels_with(&fetcher(), &[wheel], "3.13", &NoProgress, kept())
        .unwrap();
    let first = trees[0].join("opt/venv/lib/python3.13/site-packages/demo/first.bin");
    assert!(std::fs::read(first).unwrap() == noise(3_000_000));
    let partial = store.root().join("partial");
    assert_eq!(std::fs::read_dir(partial).unwrap().count(), 0);
    server.requests().iter().map(|r| r.from).collect()
}

#[test]
fn a_slow_download_goes_on_where_it_broke_off() {
    let bytes = wheel_bytes();
    for at in [100_000, 1_000_000, 3_050_000, bytes.len() - 1] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        broken_off(&store, &bytes, at);
        let asked = go_on(&Store::open(folder.path()).unwrap(), &bytes);
        assert_eq!(asked, [None, Some(at)], "broke off at {at}");
    }
}

#[test]
fn kept_bytes_are_not_trusted() {
    let bytes = wheel_bytes();
    // Another byte in a file's data, in the archive's structure, and more than there can be.
    let spoil: [fn(&mut Vec<u8>); 3] = [
        |part| part[500_000] ^= 1,
        |part| part[8..2000].fill(0),
        |part| part.resize(8_000_000, 0),
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let path = broken_off(&store, &bytes, 1_000_000);
        let mut part = std::fs::read(&path).unwrap();
        spoil(&mut part);
        std::fs::write(&path, part).unwrap();
        let asked = go_on(&store, &bytes);
        // Started over, from the server alone.
        assert_eq!(
            asked.last(),
            Some(&None),
            "spoilt in way {number}: {asked:?}"
        );
    }
}

#[test]
fn bytes_that_nobody_wants_any_more_go() {
    let bytes = wheel_bytes();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let path = broken_off(&store, &bytes, 1_000_000);
    let age = |days: u64| {
        let then = std::time::SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        std::fs::File::open(&path)
            .unwrap()
            .set_modified(then)
            .unwrap();
        Store::open(folder.path()).unwrap();
        path.exists()
    };
    assert!(age(6));
    assert!(!age(8));
}
