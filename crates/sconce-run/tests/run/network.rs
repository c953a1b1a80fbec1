//! A network of its own, and ports that lead there.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use sconce_schema::request::{NetworkMode, PublishedPort};

use crate::bench::{Bench, Who, benches, eventually, helpers, helpers_of};
use crate::tun::{CLOSED_TUN, NO_TUN, OPEN_TUN};

fn isolated(bench: &Bench, script: &str, ports: Vec<PublishedPort>) -> sconce_schema::RunRequest {
    sconce_schema::RunRequest {
        network: NetworkMode::None,
        ports,
        ..bench.script(script)
    }
}

fn port(host: u16, container: u16) -> PublishedPort {
    PublishedPort {
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
    request.network = NetworkMode::Host;
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

/// Whether the machine has an IPv6 address that leads anywhere.
fn has_ipv6() -> bool {
    let routes = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    let zeros = "0".repeat(32);
    let default = |line: &str| line.starts_with(&format!("{zeros} 00 ")) && !line.ends_with(" lo");
    routes.lines().any(default)
}

#[test]
fn a_network_of_its_own_has_a_way_out() {
    for (bench, helper) in with_helpers() {
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
                // It keeps its half open: see `faulty` of the way out.
                format!("sleep 1 | nc -w 5 {} {}", address.ip(), address.port())
            }
            None => "echo from outside".to_owned(),
        };
        // The machine's loopback is closed to it, also at the addresses that could stand for it.
        let script = format!(
            "{reach}; grep -c 10.0.2.3 /etc/resolv.conf; \
             for at in 127.0.0.1 10.0.2.2 10.0.2.3; do \
             nc -w 1 $at {loopback} </dev/null && echo reached $at; done; sleep 0.1"
        );
        let mut request = isolated(&bench, &script, Vec::new());
        request.network = NetworkMode::Own;
        let done = bench.run_by(helper, &request);
        // pasta needs a machine that has a way out itself.
        if helper == "pasta" && outside.is_none() && done.event("way-out").is_none() {
            sconce_testkit::report_skip("machine-without-network", "pasta has nowhere to lead");
            continue;
        }
        assert_eq!(done.out, "from outside\n1\n", "{helper}: {}", done.err);
        assert_eq!(done.event("way-out"), Some(&helper.into()));
        bench.assert_clean();
    }
}

#[test]
fn the_machines_ipv6_leads_out_too() {
    for (bench, helper) in with_helpers() {
        // slirp4netns has none without a flag that its manual calls experimental.
        if helper != "pasta" {
            continue;
        }
        if !has_ipv6() {
            sconce_testkit::report_skip("ipv6", "this machine has no IPv6 that leads anywhere");
            continue;
        }
        let script = "for i in 1 2 3 4 5 6 7 8 9; do \
                      ip -6 route | grep -q ^default && break; sleep 0.1; done; \
                      ip -6 route | grep -c ^default; ip -6 addr | grep -c 'scope global'";
        let mut request = isolated(&bench, script, Vec::new());
        request.network = NetworkMode::Own;
        let done = bench.run_by(helper, &request);
        assert_eq!(done.out, "1\n1\n", "{}", done.err);
    }
}

#[test]
fn without_a_helper_it_is_said_that_nothing_leads_out() {
    let Some(bench) = benches().pop() else { return };
    let mut request = isolated(&bench, "ip -o link | wc -l", Vec::new());
    request.network = NetworkMode::Own;
    let done = bench.run_by("none", &request);
    assert_eq!(done.out, "1\n", "{}", done.err);
    let said = &done.event("unenforced").unwrap()[0];
    assert_eq!(said["what"], "network");
    assert!(
        said["why"]
            .as_str()
            .unwrap()
            .contains("neither slirp4netns nor pasta"),
        "{said}"
    );
    assert_eq!(done.event("way-out"), None);
}

/// Every helper for everybody, where /dev/net/tun is open to them: as root the tests make one of their own
/// for each run ([`Bench::command_by`]), so that they do not depend on the machine's.
fn with_helpers() -> Vec<(Bench, &'static str)> {
    let mut all = Vec::new();
    for helper in helpers() {
        all.extend(benches().into_iter().map(|bench| (bench, helper)));
    }
    if let Some((bench, _)) = all.first()
        && let Err(why) = bench.has_tun()
    {
        sconce_testkit::report_skip("tun", why);
        return Vec::new();
    }
    all
}

/// What is said where the device is closed, and where there is none.
#[test]
fn what_keeps_a_way_out_from_its_device_is_said() {
    for helper in helpers() {
        for bench in benches() {
            if bench.who == Who::Root {
                continue;
            }
            let cases = [
                (NO_TUN, "there is no /dev/net/tun", "modprobe tun"),
                (CLOSED_TUN, "has the mode 0600", "chmod 0666 /dev/net/tun"),
            ];
            for (script, cause, mend) in cases {
                let mut request = isolated(&bench, "true", Vec::new());
                request.network = NetworkMode::Own;
                let Some(mut command) = bench.command_after(&request, script) else {
                    sconce_testkit::report_skip(
                        "not-root",
                        "who is not root cannot hide /dev/net/tun",
                    );
                    continue;
                };
                command.arg(format!("--way-out={helper}"));
                assert!(command.status().unwrap().success());
                assert_eq!(bench.told(&request, "way-out"), None, "{script}");
                let said = bench.told(&request, "unenforced").unwrap();
                let text = |key: &str| said[0][key].as_str().unwrap().to_owned();
                assert_eq!(text("what"), "network");
                assert!(text("why").contains(cause), "{said}");
                assert!(text("hint").contains(mend), "{said}");
            }
        }
    }
}

/// Answers questions for names: every name has the address 192.0.2.77.
fn resolver(address: &str) -> Option<()> {
    let socket = std::net::UdpSocket::bind((address, 53)).ok()?;
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .ok()?;
    std::thread::spawn(move || {
        let mut question = [0_u8; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let asked = &question[..length];
            // The type stands before the class at the end: 1 is an address.
            let address = length > 16 && asked[length - 4..length - 2] == [0, 1];
            let mut answer = asked.to_vec();
            answer[2..4].copy_from_slice(&[0x81, 0x80]);
            if address {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 77]);
            }
            let _ = socket.send_to(&answer, from);
        }
    });
    Some(())
}

#[test]
fn names_are_resolved_as_the_machine_resolves_them() {
    // As systemd-resolved does it: the resolver is on the loopback, which is closed otherwise.
    const LOCAL: &str = "127.0.0.99";
    if resolver(LOCAL).is_none() {
        sconce_testkit::report_skip("port-53", "a resolver needs root, and its port free");
        return;
    }
    for (bench, helper) in with_helpers() {
        let mut request = isolated(
            &bench,
            "nslookup name.example. 2>&1 | grep -c 192.0.2.77",
            Vec::new(),
        );
        request.network = NetworkMode::Own;
        let file = bench.folder.path().join("resolv.conf");
        std::fs::write(&file, format!("nameserver {LOCAL}\n")).unwrap();
        if bench.who != Who::Root {
            continue;
        }
        let script = format!(
            "{OPEN_TUN}; mount --bind {} \"$(readlink -f /etc/resolv.conf)\"; exec \"$@\"",
            file.display()
        );
        let mut command = bench.command_from(&request, false, &script);
        command.arg(format!("--way-out={helper}"));
        let output = command.output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        let told = bench.told(&request, "way-out");
        if helper == "pasta" && own_address().is_none() {
            sconce_testkit::report_skip("machine-without-network", "pasta has nowhere to lead");
            continue;
        }
        assert!(told.is_some() && out == "1\n", "{helper}: {out} {output:?}");
    }
}

#[test]
fn the_way_out_ends_with_the_run_however_it_ends() {
    for (bench, helper) in with_helpers() {
        let mut request = isolated(&bench, "sleep 60", Vec::new());
        request.network = NetworkMode::Own;
        let mut child = bench.command_by(helper, &request).spawn().unwrap();
        bench.wait_for(&request, "started");
        let had = helpers_of(child.id());
        assert_eq!(
            had.len() == 1,
            bench.told(&request, "way-out").is_some(),
            "{had:?}"
        );
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        child.wait().unwrap();
        let gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        eventually("the helper is gone", || had.iter().all(gone));
    }
}
