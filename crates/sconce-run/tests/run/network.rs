//! A network of its own, and ports that lead there.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use sconce_schema::request::{Network, Port};

use crate::bench::{Bench, benches, eventually};

fn isolated(bench: &Bench, script: &str, ports: Vec<Port>) -> sconce_schema::RunRequest {
    sconce_schema::RunRequest {
        network: Network::None,
        ports,
        ..bench.script(script)
    }
}

fn port(host: u16, container: u16) -> Port {
    Port {
        host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host,
        container,
    }
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn only_a_loopback_that_works() {
    for bench in benches() {
        let script = "ip -o link | cut -d' ' -f2; ping -c 1 -W 2 127.0.0.1 >/dev/null 2>&1; \
                      ip -o addr show lo | grep -c 127.0.0.1; cat /etc/resolv.conf 2>&1 | head -1; \
                      ping -c 1 -W 1 192.0.2.1 2>&1 | tail -1";
        let done = bench.run(&isolated(&bench, script, Vec::new()));
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!(lines[..2], ["lo:", "1"], "{}", done.out);
        assert!(!done.out.contains("nameserver"));
    }
}

#[test]
fn a_port_leads_inside() {
    for bench in benches() {
        let host = free_port();
        let request = isolated(&bench, "nc -ll -p 8888 -e cat", vec![port(host, 8888)]);
        let mut child = bench.start(&request);
        bench.wait_for(&request, "started");
        // A host's port accepts at once; inside, the server may still be starting.
        let answered = || {
            let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, host)) else {
                return false;
            };
            let mut answer = String::new();
            stream.write_all(b"there and back").is_ok()
                && stream.shutdown(std::net::Shutdown::Write).is_ok()
                && stream.read_to_string(&mut answer).is_ok()
                && answer == "there and back"
        };
        eventually("an answer through the port", answered);
        // Several at once, more than a buffer each.
        let long = vec![b'x'; 1 << 20];
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let long = long.clone();
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, host)).unwrap();
                    let mut reader = stream.try_clone().unwrap();
                    let length = long.len();
                    let writer = std::thread::spawn(move || {
                        stream.write_all(&long).unwrap();
                        stream.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                    let mut answer = Vec::new();
                    reader.read_to_end(&mut answer).unwrap();
                    writer.join().unwrap();
                    assert_eq!(answer.len(), length);
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        child.wait().unwrap();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, host)).is_err());
        bench.assert_clean();
    }
}

#[test]
fn a_port_in_use_is_named_before_the_start() {
    for bench in benches() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let number = taken.local_addr().unwrap().port();
        let done = bench.run(&isolated(&bench, "echo started", vec![port(number, 80)]));
        assert_eq!((done.code, done.out.as_str()), (125, ""));
        assert!(
            done.err.contains(&format!("port {number} is in use")),
            "{}",
            done.err
        );
        bench.assert_clean();
    }
}

#[test]
fn ports_need_a_network_of_their_own() {
    let Some(bench) = benches().pop() else { return };
    let mut request = isolated(&bench, "true", vec![port(free_port(), 80)]);
    request.network = Network::Host;
    let done = bench.run(&request);
    assert_eq!(done.code, 125);
    assert!(done.err.contains("network of its own"), "{}", done.err);
}
