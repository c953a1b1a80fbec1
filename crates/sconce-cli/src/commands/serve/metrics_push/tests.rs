use proptest::prelude::*;

use super::*;

#[test]
fn secrets_of_options_are_not_shown() {
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
    fn hostile_options_are_read(text in ".{0,80}") {
        let _ = (target(&text).is_ok(), every(&text));
    }
}
