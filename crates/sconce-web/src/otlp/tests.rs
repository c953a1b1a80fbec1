use std::io::{Read, Write as _};
use std::net::TcpListener;

use proptest::prelude::*;

use ureq::http::HeaderName;

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

fn collector(url: &str, headers: &[(&'static str, &'static str)]) -> OtlpCollector {
    let headers = headers.iter().map(|&(name, value)| {
        let mut value = HeaderValue::from_static(value);
        value.set_sensitive(true);
        (HeaderName::from_static(name), value)
    });
    let network = FetchConfig::default();
    let every = Duration::from_secs(1);
    OtlpCollector::new(url.parse().unwrap(), headers.collect(), every, &network).unwrap()
}

#[test]
fn a_request_is_as_the_specification_says() {
    let (url, receiving) = receiver(&["200 OK\n{}"]);
    let sent =
        collector(&url, &[("authorization", "Bearer abc==")]).send("{\"resourceMetrics\":[]}");
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
    let collector = collector(&url, &[("x-key", "hunter2")]);
    let said = |sent: Result<(), PushError>| with_causes(&sent.unwrap_err());
    assert_eq!(said(collector.send("{}")), "it answered 503");
    assert_eq!(said(collector.send("{}")), "it answered 401");
    assert_eq!(said(collector.send("{}")), "it answered 302");
    assert_eq!(said(collector.send("{}")), "it left 3 figures out");
    collector.send("{}").unwrap();
    receiving.join().unwrap();
    assert!(!format!("{:?}", collector.headers).contains("hunter2"));
}

#[test]
fn nobody_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = collector(&url, &[("x-key", "hunter2")])
        .send("{}")
        .unwrap_err();
    let said = with_causes(&error);
    assert!(
        said.starts_with("no answer: ") && !said.contains("hunter2"),
        "{said}"
    );
}

#[test]
fn targets() {
    let shown = |text: &str| {
        let url = text.parse::<CollectorUrl>();
        url.map(|url| url.0.to_string())
            .map_err(|error| error.to_string())
    };
    for (text, whole) in [
        ("http://a:4318", "http://a:4318/v1/metrics"),
        ("https://a/", "https://a/v1/metrics"),
        ("https://a/?key=1", "https://a/v1/metrics?key=1"),
        ("http://[::1]:4318/otlp/x", "http://[::1]:4318/otlp/x"),
    ] {
        assert_eq!(shown(text), Ok(whole.to_owned()));
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
        format!("{:?}", "http://a/x?key=1".parse::<CollectorUrl>().unwrap()),
        "http://a/x"
    );
}

proptest! {
    #[test]
    fn hostile_answers_and_urls_are_read(text in ".{0,80}") {
        prop_assert!(left_out(&text) >= 0);
        let _ = text.parse::<CollectorUrl>().is_ok();
    }
}
