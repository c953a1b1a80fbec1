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

/// A server on the machine's own address, which only a way out reaches.
fn own_address() -> Option<Ipv4Addr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent: the kernel only chooses the address it would send from.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}

#[test]
fn a_network_of_its_own_has_a_way_out_or_says_that_it_has_none() {
    for bench in benches() {
        let outside = own_address().map(|address| TcpListener::bind((address, 0)).unwrap());
        let local = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let loopback = local.local_addr().unwrap().port();
        let reach = match &outside {
            Some(listener) => {
                let address = listener.local_addr().unwrap();
                let listener = listener.try_clone().unwrap();
                std::thread::spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(b"from outside\n").unwrap();
                });
                format!("nc -w 5 {} {} </dev/null", address.ip(), address.port())
            }
            None => "echo from outside".to_owned(),
        };
        // The machine's loopback is closed to it, also at the address that stands for it.
        let script = format!(
            "{reach}; grep -c 10.0.2.3 /etc/resolv.conf; \
             nc -w 1 10.0.2.2 {loopback} </dev/null && echo reached; sleep 0.1"
        );
        let mut request = isolated(&bench, &script, Vec::new());
        request.network = Network::Own;
        let done = bench.run(&request);
        if let Some(said) = done.event("unenforced") {
            eprintln!("skipped as {:?}: {said}", bench.who);
            assert_eq!(said[0]["what"], "network");
            // So that the server's thread ends.
            if let Some(listener) = outside {
                let _ = TcpStream::connect(listener.local_addr().unwrap());
            }
            continue;
        }
        assert_eq!(done.out, "from outside\n1\n", "{}", done.err);
        bench.assert_clean();
    }
}

#[test]
fn the_way_out_ends_with_the_run_however_it_ends() {
    for bench in benches() {
        let mut request = isolated(&bench, "sleep 60", Vec::new());
        request.network = Network::Own;
        let mut child = bench.start(&request);
        let started = bench.wait_for(&request, "started");
        let first = started["init"].as_u64().unwrap().to_string();
        // Its argument is the process in whose network it is.
        let helpers = || {
            let processes = std::fs::read_dir("/proc").unwrap().flatten();
            let lines = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
            lines
                .filter(|line| {
                    let words: Vec<_> = line.split(|b| *b == 0).collect();
                    words[0].ends_with(b"slirp4netns") && words.contains(&first.as_bytes())
                })
                .count()
        };
        let had = helpers();
        assert_eq!(had > 0, bench.told(&request, "unenforced").is_none());
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        child.wait().unwrap();
        eventually("the helper is gone", || helpers() == 0);
    }
}
