//! What the fetcher makes of servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sconce_fetch::{Credential, FetchConfig, FetchError, Fetcher, Proxies};
use sconce_schema::Hint as _;

use crate::server::{Server, answer, serve, serve_some};

/// Settings that do not make a test wait.
pub(crate) fn quick() -> FetchConfig {
    FetchConfig {
        pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(5),
        idle_timeout: Duration::from_secs(10),
        ..FetchConfig::default()
    }
}

pub(crate) fn fetcher() -> Fetcher {
    Fetcher::new(quick()).unwrap()
}

/// Bytes that do not repeat with any small period.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

#[test]
fn a_document_arrives_whole() {
    let bytes = noise(300_000);
    let server = Server::file(bytes.clone());
    assert_eq!(fetcher().get(&server.url("x"), 300_000).unwrap(), bytes);
    let request = &server.requests()[0];
    assert_eq!(request.header("accept-encoding"), Some("identity"));
    assert_eq!(request.from, None);
}

#[test]
fn a_document_over_the_limit_is_refused() {
    let server = Server::start(|request, stream| match request.path.as_str() {
        "/told" => serve(request, stream, &noise(1001)),
        // Without a length the bytes themselves have to be counted.
        _ => answer_unsized(stream, &noise(100_000)),
    });
    for path in ["told", "untold"] {
        let e = fetcher().get(&server.url(path), 1000).unwrap_err();
        assert!(
            matches!(e, FetchError::TooLarge { limit: 1000, .. }),
            "{e:?}"
        );
    }
}

fn answer_unsized(stream: &mut std::net::TcpStream, body: &[u8]) {
    use std::io::Write as _;
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        .and_then(|()| stream.write_all(body));
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let server = Server::start(|_, stream| answer_unsized(stream, &noise(5000)));
    let body = fetcher().open(&server.url("x"), 0).unwrap();
    assert_eq!(body.total_bytes(), None);
    assert_eq!(fetcher().get(&server.url("x"), 5000).unwrap(), noise(5000));
}

#[test]
fn reading_begins_at_an_offset() {
    let bytes = noise(10_000);
    let server = Server::file(bytes.clone());
    let mut body = fetcher().open(&server.url("x"), 9_000).unwrap();
    assert_eq!(body.total_bytes(), Some(10_000));
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut body, &mut out).unwrap();
    assert_eq!(out, bytes[9_000..]);
}

#[test]
fn a_dropped_connection_goes_on_by_range() {
    let bytes = noise(2_000_000);
    let served = bytes.clone();
    let server =
        Server::start(move |request, stream| serve_some(request, stream, &served, 450_000));
    assert_eq!(fetcher().get(&server.url("x"), 3_000_000).unwrap(), bytes);
    let offsets: Vec<_> = server.requests().iter().map(|r| r.from).collect();
    assert_eq!(
        offsets,
        [
            None,
            Some(450_000),
            Some(900_000),
            Some(1_350_000),
            Some(1_800_000)
        ]
    );
}

#[test]
fn a_server_without_ranges_is_read_again_from_its_beginning() {
    let bytes = noise(900_000);
    let served = bytes.clone();
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |request, stream| {
        let mut whole = request.clone();
        whole.from = None;
        let most = 500_000 + 250_000 * calls.fetch_add(1, Ordering::Relaxed);
        serve_some(&whole, stream, &served, most);
    });
    assert_eq!(fetcher().get(&server.url("x"), 1_000_000).unwrap(), bytes);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_connection_that_never_gets_further_is_given_up() {
    let server = Server::start(|request, stream| serve_some(request, stream, &noise(1000), 0));
    let e = fetcher().get(&server.url("x"), 1000).unwrap_err();
    assert!(
        matches!(
            e,
            FetchError::BrokeOff {
                at: 0,
                total: Some(1000),
                tries: 5,
                ..
            }
        ),
        "{e:?}"
    );
    assert_eq!(server.requests().len(), 5);
    assert_eq!(e.exit_code(), sconce_schema::exit::FETCH);
}

#[test]
fn a_wrong_range_is_refused() {
    for said in [
        "bytes 0-999/1000",
        "bytes 501-999/1000",
        "nonsense",
        "bytes 500-999/900",
    ] {
        let server = Server::start(move |request, stream| match request.from {
            None => serve_some(request, stream, &noise(1000), 500),
            Some(_) => {
                let head = format!("206 Partial Content\r\nContent-Range: {said}");
                answer(stream, &head, 500, &noise(1000)[500..]);
            }
        });
        let e = fetcher().get(&server.url("x"), 1000).unwrap_err();
        assert!(
            matches!(e, FetchError::WrongRange { wanted: 500, .. }),
            "{said}: {e:?}"
        );
    }
}

#[test]
fn a_range_of_another_file_is_refused() {
    let server = Server::start(|request, stream| {
        let length = if request.from.is_none() { 1000 } else { 1200 };
        serve_some(request, stream, &noise(length), 500);
    });
    let e = fetcher().get(&server.url("x"), 2000).unwrap_err();
    assert!(
        matches!(
            e,
            FetchError::SizeChanged {
                first: 1000,
                then: 1200,
                ..
            }
        ),
        "{e:?}"
    );
}

#[test]
fn more_bytes_than_the_range_says_are_not_read() {
    let bytes = noise(1000);
    let served = bytes.clone();
    let server = Server::start(move |request, stream| match request.from {
        None => serve_some(request, stream, &served, 500),
        Some(from) => {
            let mut body = served[from..].to_vec();
            body.extend_from_slice(&[0; 77]);
            let head = format!("206 Partial Content\r\nContent-Range: bytes {from}-999/1000");
            answer(stream, &head, body.len(), &body);
        }
    });
    assert_eq!(fetcher().get(&server.url("x"), 2000).unwrap(), bytes);
}

#[test]
fn each_status_has_its_own_error() {
    let server = Server::start(|request, stream| {
        let status = request.path.trim_start_matches('/').to_owned();
        answer(stream, &format!("{status} Status"), 0, b"");
    });
    let error = |status: u16| {
        fetcher()
            .get(&server.url(&status.to_string()), 10)
            .unwrap_err()
    };
    for status in [401, 403] {
        let e = error(status);
        assert!(
            matches!(e, FetchError::Refused { status: s, .. } if s == status),
            "{e:?}"
        );
    }
    for status in [404, 410] {
        let e = error(status);
        assert!(
            matches!(e, FetchError::NotFound { status: s, .. } if s == status),
            "{e:?}"
        );
    }
    assert!(matches!(error(418), FetchError::Status { status: 418, .. }));
    assert!(matches!(error(206), FetchError::WrongRange { .. }));
    assert_eq!(
        server.requests().len(),
        6,
        "none of these is worth asking again"
    );
    let e = error(429);
    assert!(matches!(e, FetchError::TooMany { tries: 5, .. }), "{e:?}");
    let e = error(503);
    assert!(
        matches!(
            e,
            FetchError::Server {
                status: 503,
                tries: 5,
                ..
            }
        ),
        "{e:?}"
    );
    assert!(e.to_string().contains("/503"), "{e}");
    assert_eq!(server.requests().len(), 16);
}

#[test]
fn a_busy_server_is_asked_again() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |request, stream| {
        match calls.fetch_add(1, Ordering::Relaxed) {
            // An hour: the longest pause of the settings holds.
            0 => answer(stream, "429 Busy\r\nRetry-After: 3600", 0, b""),
            1 => answer(stream, "502 Bad", 0, b""),
            _ => serve(request, stream, b"here"),
        }
    });
    assert_eq!(fetcher().get(&server.url("x"), 10).unwrap(), b"here");
}

#[test]
fn a_silent_server_is_given_up() {
    let server = Server::start(|_, _| std::thread::sleep(Duration::from_secs(2)));
    let config = FetchConfig {
        idle_timeout: Duration::from_millis(50),
        retries: 1,
        ..quick()
    };
    let e = Fetcher::new(config)
        .unwrap()
        .get(&server.url("x"), 10)
        .unwrap_err();
    assert!(matches!(e, FetchError::Transport { tries: 2, .. }), "{e:?}");
}

#[test]
fn a_server_that_falls_silent_in_the_middle_is_asked_again() {
    let bytes = noise(10_000);
    let served = bytes.clone();
    let server = Server::start(move |request, stream| match request.from {
        None => {
            serve_some(request, stream, &served, 5_000);
            std::thread::sleep(Duration::from_secs(2));
        }
        Some(_) => serve(request, stream, &served),
    });
    let config = FetchConfig {
        idle_timeout: Duration::from_millis(100),
        ..quick()
    };
    let got = Fetcher::new(config)
        .unwrap()
        .get(&server.url("x"), 10_000)
        .unwrap();
    assert_eq!(got, bytes);
}

#[test]
fn nobody_there_is_a_transport_error() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = FetchConfig {
        retries: 0,
        ..quick()
    };
    let url = format!("http://127.0.0.1:{port}/x");
    let e = Fetcher::new(config).unwrap().get(&url, 10).unwrap_err();
    assert!(matches!(e, FetchError::Transport { tries: 1, .. }), "{e:?}");
}

#[test]
fn encoded_bytes_are_refused() {
    let server =
        Server::start(|_, stream| answer(stream, "200 OK\r\nContent-Encoding: gzip", 3, b"abc"));
    let e = fetcher().get(&server.url("x"), 10).unwrap_err();
    assert!(matches!(e, FetchError::Encoded { .. }), "{e:?}");
}

#[test]
fn offline_reads_files_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b");
    std::fs::write(&path, b"local").unwrap();
    let url = format!("file://{}", path.display()).replace(' ', "%20");
    let fetcher = Fetcher::new(FetchConfig {
        offline: true,
        ..quick()
    })
    .unwrap();
    assert_eq!(fetcher.get(&url, 10).unwrap(), b"local");
    let e = fetcher.get("https://example.org/x", 10).unwrap_err();
    assert!(matches!(e, FetchError::Offline { .. }), "{e:?}");
    let e = fetcher.get("file:///nowhere/at/all", 10).unwrap_err();
    assert!(matches!(e, FetchError::File { .. }), "{e:?}");
}

#[test]
fn credentials_stay_with_their_host() {
    let other = Server::file(b"end".to_vec());
    // The same machine under another name is another host.
    let away = other.url("end").replace("127.0.0.1", "localhost");
    let first = Server::start(move |request, stream| match request.path.as_str() {
        "/start" => answer(stream, "302 Found\r\nLocation: /again", 0, b""),
        _ => answer(stream, &format!("307 Away\r\nLocation: {away}"), 0, b""),
    });
    let config = FetchConfig {
        credentials: vec![Credential {
            host: "127.0.0.1".to_owned(),
            user: "me".to_owned(),
            password: "secret".to_owned(),
        }],
        ..quick()
    };
    assert!(!format!("{config:?}").contains("secret"));
    let got = Fetcher::new(config)
        .unwrap()
        .get(&first.url("start"), 10)
        .unwrap();
    assert_eq!(got, b"end");
    let sent: Vec<_> = first
        .requests()
        .iter()
        .map(|r| r.header("authorization").map(str::to_owned))
        .collect();
    let basic = Some("Basic bWU6c2VjcmV0".to_owned());
    assert_eq!(sent, [basic.clone(), basic]);
    assert_eq!(other.requests()[0].header("authorization"), None);
}

#[test]
fn credentials_in_a_url_are_used_and_not_told() {
    let server = Server::start(|request, stream| match request.path.as_str() {
        "/gone" => answer(stream, "404 Gone", 0, b""),
        _ => serve(request, stream, b"x"),
    });
    let url = |path| server.url(path).replace("http://", "http://me:secret@");
    fetcher().get(&url("x"), 10).unwrap();
    assert_eq!(
        server.requests()[0].header("authorization"),
        Some("Basic bWU6c2VjcmV0")
    );
    let e = fetcher().get(&url("gone"), 10).unwrap_err();
    assert!(!format!("{e} {e:?}").contains("secret"), "{e:?}");
}

#[test]
fn redirects_end() {
    let server = Server::start(|_, stream| answer(stream, "302 Found\r\nLocation: /x", 0, b""));
    let e = fetcher().get(&server.url("x"), 10).unwrap_err();
    assert!(matches!(e, FetchError::Redirect { .. }), "{e:?}");
    let server = Server::start(|_, stream| {
        answer(stream, "302 Found\r\nLocation: file:///etc/passwd", 0, b"")
    });
    let e = fetcher().get(&server.url("x"), 10).unwrap_err();
    assert!(matches!(e, FetchError::Redirect { .. }), "{e:?}");
}

#[test]
fn a_proxy_is_used_unless_bypassed() {
    let proxy = Server::file(b"by proxy".to_vec());
    let config = |bypass: &[&str]| FetchConfig {
        proxies: Proxies {
            http: Some(proxy.url("")),
            https: None,
            bypass: bypass.iter().map(|&s| s.to_owned()).collect(),
        },
        retries: 0,
        ..quick()
    };
    let get = |bypass: &[&str], url: &str| Fetcher::new(config(bypass)).unwrap().get(url, 20);
    // The proxy sees a tunnel or a request for another host; that it is asked is what counts.
    let _ = get(&["else.example.org"], "http://host.example.org/x");
    assert_eq!(proxy.requests().len(), 1);
    let direct = Server::file(b"direct".to_vec());
    assert_eq!(get(&["127.0.0.1"], &direct.url("x")).unwrap(), b"direct");
    assert_eq!(proxy.requests().len(), 1);
}

#[test]
fn unusable_settings_are_named() {
    let no_ca = FetchConfig {
        extra_ca: Some("/nowhere/ca.pem".into()),
        ..quick()
    };
    let e = Fetcher::new(no_ca).unwrap_err();
    assert!(
        matches!(
            e,
            FetchError::Setting {
                setting: "extra_ca",
                ..
            }
        ),
        "{e:?}"
    );
    let no_proxy = FetchConfig {
        proxies: Proxies {
            http: Some("::".to_owned()),
            ..Proxies::default()
        },
        ..quick()
    };
    let e = Fetcher::new(no_proxy).unwrap_err();
    assert!(
        matches!(
            e,
            FetchError::Setting {
                setting: "proxies.http",
                ..
            }
        ),
        "{e:?}"
    );
}
