//! Killed at any moment, the store stays usable.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use sconce_schema::NoProgress;
use sconce_store::Store;

use crate::archive::{demo_with, entry, locked, sha256};
use crate::fetching::{fetcher, noise};
use crate::server::{Server, serve};

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
