use std::io::{Read, Write as _};
use std::net::TcpListener;

use proptest::prelude::*;

use super::*;

/// A collector that answers each request with the next of `answers`, and what it was sent.
fn receiver(answers: &'static [&'static str]) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let receive = move || {
        let one = |answer: &&str| {
            let (mut connection, _) = listener.accept().unwrap();
            let sent = request(&mut connection);
            let head = "content-length: 0\r\nconnection: close\r\n";
            let answer = match answer.split_once('\n') {
                Some((status, body)) => format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                ),
                None => format!("HTTP/1.1 {answer}\r\n{head}\r\n"),
            };
            connection.write_all(answer.as_bytes()).unwrap();
            sent
        };
        answers.iter().map(one).collect()
    };
    (url, thread::spawn(receive))
}

fn request(from: &mut impl Read) -> String {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let count = from.read(&mut chunk).unwrap();
        all.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&all);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse().unwrap())
        });
        if body.len() >= length.unwrap_or(0) || count == 0 {
            return text.into_owned();
        }
    }
}

fn collector(url: &str, headers: &[&str]) -> OtlpCollector {
    let args = MetricsPushArgs {
        to: Some(url.to_owned()),
        headers: headers.iter().map(|&text| text.to_owned()).collect(),
        every: Duration::from_secs(1),
    };
    let network = FetchConfig::default();
    args.build_collector(&network).unwrap().unwrap()
}

#[test]
fn a_request_is_as_the_specification_says() {
    let (url, receiving) = receiver(&["200 OK\n{}"]);
    let sent = collector(&url, &["Authorization=Bearer abc=="]).send("{\"resourceMetrics\":[]}");
    sent.unwrap();
    let request = receiving.join().unwrap().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/metrics http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("authorization: bearer abc=="), "{head}");
    assert_eq!(body, "{\"resourceMetrics\":[]}");
}

#[test]
fn what_a_collector_refuses_is_said_and_secrets_are_not() {
    let (url, receiving) = receiver(&[
        "503 Busy",
        "401 Who?",
        "302 Elsewhere",
        "200 OK\n{\"partialSuccess\":{\"rejectedDataPoints\":\"3\",\"errorMessage\":\"\\u001b[2J\"}}",
        "200 OK\n<html>",
    ]);
    let collector = collector(&url, &["x-key=hunter2"]);
    let said = |sent: std::result::Result<(), PushError>| with_causes(&sent.unwrap_err());
    assert_eq!(said(collector.send("{}")), "it answered 503");
    assert_eq!(said(collector.send("{}")), "it answered 401");
    assert_eq!(said(collector.send("{}")), "it answered 302");
    assert_eq!(said(collector.send("{}")), "it left 3 figures out");
    collector.send("{}").unwrap();
    receiving.join().unwrap();
    assert!(!format!("{:?}", collector.headers).contains("hunter2"));
    let args = MetricsPushArgs {
        to: Some("http://me:hunter2@a".to_owned()),
        headers: vec!["x-key hunter2".to_owned()],
        every: Duration::from_secs(1),
    };
    assert!(!format!("{args:?}").contains("hunter2"));
    let Err(failure) = args.build_collector(&FetchConfig::default()) else {
        panic!("a user in the URL");
    };
    assert!(!format!("{failure:?}").contains("hunter2"));
}

#[test]
fn nobody_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = collector(&url, &["x-key=hunter2"]).send("{}").unwrap_err();
    let said = with_causes(&error);
    assert!(
        said.starts_with("no answer: ") && !said.contains("hunter2"),
        "{said}"
    );
}

#[test]
fn targets() {
    let shown = |text| target(text).map(|target| target.0.to_string());
    for (text, whole) in [
        ("http://a:4318", "http://a:4318/v1/metrics"),
        ("https://a/", "https://a/v1/metrics"),
        ("https://a/?key=1", "https://a/v1/metrics?key=1"),
        ("http://[::1]:4318/otlp/x", "http://[::1]:4318/otlp/x"),
    ] {
        assert_eq!(shown(text).as_deref(), Ok(whole));
    }
    for wrong in [
        "",
        "a",
        "ftp://a",
        "http://",
        "/v1",
        "http://me:hunter2@a/",
        "http://a b",
    ] {
        let why = shown(wrong).unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
    }
    assert_eq!(
        format!("{:?}", target("http://a/x?key=1").unwrap()),
        "http://a/x"
    );
}

#[test]
fn headers_and_times() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "Bearer x\nmore").unwrap();
    let Header(name, value) = header(&format!("authorization=@{}", file.display())).unwrap();
    assert_eq!(
        (name.as_str(), value.to_str().unwrap()),
        ("authorization", "Bearer x")
    );
    assert!(value.is_sensitive());
    for wrong in [
        "",
        "x",
        "=x",
        "a b=x",
        "a=hunter2\r\nb: c",
        "a=@/nowhere/at/all",
    ] {
        let why = header(wrong).err().unwrap();
        assert!(!why.contains("hunter2"), "{why}");
    }
    assert_eq!(every("10s"), Ok(Duration::from_secs(10)));
    assert_eq!(every("60m"), Ok(Duration::from_secs(3600)));
    for wrong in [
        "",
        "0s",
        "61m",
        "s",
        "1",
        "-1s",
        "1é",
        "99999999999999999999m",
    ] {
        assert!(every(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn hostile_answers_and_options_are_read(text in ".{0,80}") {
        prop_assert!(left_out(&text) >= 0);
        let _ = (target(&text), every(&text));
    }
}
