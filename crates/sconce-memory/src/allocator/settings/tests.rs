//! What torch 2.15.0+cu132 answered to `torch._C._accelerator_setAllocatorSettings(text)`, each in
//! a process of its own. Up to 2.8 from its source.

use super::*;
use proptest::prelude::*;

/// Part of the message; `"index"` stands for its internal assertion about a missing word.
const ANSWERS: &[(&str, Result<(), &str>)] = &[
    ("", Ok(())),
    (" ", Ok(())),
    ("expandable_segments:True", Ok(())),
    ("expandable_segments\n:\tTrue", Ok(())),
    ("expandable_segments,True", Ok(())),
    ("max_split_size_mb:64:expandable_segments:True", Ok(())),
    ("max_split_size_mb:64,", Ok(())),
    (
        "expandable_segments:true",
        Err("at index 2 in ConfigTokenizer but got 'true'"),
    ),
    (
        "expandable_segments True",
        Err("Unrecognized key 'expandable_segmentsTrue'"),
    ),
    ("expandable_segments:", Err("index")),
    ("expandable_segments", Err("index")),
    ("expandable_segments::True", Err("but got ':'")),
    ("expandable_segments:[True]", Err("but got '['")),
    ("expandable_segments:True\u{a0}", Err("at index 2")),
    (
        "foo:1",
        Err("Unrecognized key 'foo' in Accelerator allocator config."),
    ),
    ("foo", Err("Unrecognized key 'foo'")),
    ("foo:[1,2", Err("Unrecognized key 'foo'")),
    ("\0", Err("Unrecognized key '\0'")),
    ("MAX_SPLIT_SIZE_MB:64", Err("Unrecognized key")),
    (",max_split_size_mb:64", Err("Unrecognized key ','")),
    (":", Err("Unrecognized key ':'")),
    (
        "max_split_size_mb:64,,expandable_segments:True",
        Err("Unrecognized key ','"),
    ),
    (
        "max_split_size_mb:64;expandable_segments:True",
        Err("Unrecognized key 'True'"),
    ),
    (
        "max_split_size_mb:19",
        Err("max_split_size_mb too small, must be >= 20"),
    ),
    ("max_split_size_mb:20x", Ok(())),
    ("max_split_size_mb: 6 4", Ok(())),
    ("max_split_size_mb:-1", Ok(())),
    ("max_split_size_mb:x", Err("stoull")),
    ("max_split_size_mb:[64]", Err("stoull")),
    ("max_split_size_mb::", Err("stoull")),
    ("max_split_size_mb:0x20", Err("too small")),
    ("max_split_size_mb:18446744073709551616", Err("stoull")),
    (
        "max_split_size_mb:-18446744073709551610",
        Err("too small, must be >= 20"),
    ),
    (
        "max_non_split_rounding_mb:19",
        Err("max_non_split_rounding_mb too small, must be >= 20"),
    ),
    (
        "large_segment_size_mb:10",
        Err("large_segment_size_mb must be > 10 MB"),
    ),
    ("large_segment_size_mb:11", Ok(())),
    ("large_segment_size_mb:-1", Ok(())),
    ("large_segment_size_mb", Err("index")),
    ("large_segment_size_mb:12,max_split_size_mb:12", Ok(())),
    (
        "large_segment_size_mb:12,max_split_size_mb:11",
        Err("must be >= 12"),
    ),
    (
        "max_split_size_mb:30,large_segment_size_mb:40",
        Err("must be >= 40"),
    ),
    (
        "large_segment_size_mb:40,max_split_size_mb:30,large_segment_size_mb:12",
        Ok(()),
    ),
    ("foo:1,large_segment_size_mb:1", Err("must be > 10 MB")),
    (
        "foo:1;large_segment_size_mb:40,max_split_size_mb:30",
        Err("Unrecognized key 'foo'"),
    ),
    (
        "expandable_segments_reserve:large_segment_size_mb",
        Err("index"),
    ),
    (
        "garbage_collection_threshold:0",
        Err("set it in (0.0, 1.0)"),
    ),
    (
        "garbage_collection_threshold:1",
        Err("set it in (0.0, 1.0)"),
    ),
    (
        "garbage_collection_threshold:nan",
        Err("set it in (0.0, 1.0)"),
    ),
    ("garbage_collection_threshold:5e-1zzz", Ok(())),
    ("garbage_collection_threshold:1e-310", Err("stod")),
    ("garbage_collection_threshold:x", Err("stod")),
    ("roundup_power2_divisions:8", Ok(())),
    (
        "roundup_power2_divisions:0",
        Err("divisions has to be power of 2"),
    ),
    (
        "roundup_power2_divisions:-8",
        Err("divisions has to be power of 2"),
    ),
    ("roundup_power2_divisions:[]", Ok(())),
    ("roundup_power2_divisions:[1 : 4 , 2\t:8]", Ok(())),
    ("roundup_power2_divisions:[1:4:2:8]", Ok(())),
    ("roundup_power2_divisions:[1,4]", Ok(())),
    ("roundup_power2_divisions:[1:4,]", Ok(())),
    ("roundup_power2_divisions:[1:4]x", Ok(())),
    (
        "roundup_power2_divisions:[1:4]expandable_segments:True",
        Err("Unrecognized key ':'"),
    ),
    ("roundup_power2_divisions:[>:4,1:8]", Ok(())),
    ("roundup_power2_divisions:[9223372036854775808:4]", Ok(())),
    ("roundup_power2_divisions:[1:0]", Ok(())),
    (
        "roundup_power2_divisions:[1:3]",
        Err("power of 2 or 0 to disable roundup"),
    ),
    (
        "roundup_power2_divisions:[3:4]",
        Err("intervals have to be power of 2"),
    ),
    (
        "roundup_power2_divisions:[0:4]",
        Err("intervals have to be power of 2"),
    ),
    ("roundup_power2_divisions:[x:1]", Err("stoull")),
    ("roundup_power2_divisions:[1:4", Err("index")),
    ("roundup_power2_divisions:[1:4,", Err("closing bracket")),
    ("roundup_power2_divisions:[1]", Err("index")),
    ("roundup_power2_divisions:[>]", Err("index")),
    ("backend:native", Ok(())),
    ("backend:foo", Err("options are native and cudaMallocAsync")),
    ("backend", Err("index")),
    ("release_lock_on_hipmalloc:False", Ok(())),
    ("release_lock_on_cudamalloc:1", Err("at index 2")),
    (
        "release_lock_on_cudamalloc:x,max_split_size_mb:1",
        Err("too small"),
    ),
    (
        "max_split_size_mb:64,release_lock_on_cudamalloc:x",
        Err("at index 6"),
    ),
    ("pinned_use_hip_host_register:True", Ok(())),
    ("pinned_use_background_threads:false", Err("at index 2")),
    ("pinned_num_register_threads:128", Ok(())),
    (
        "pinned_num_register_threads:3",
        Err("has to be power of 2, got 3"),
    ),
    (
        "pinned_num_register_threads:256",
        Err("less than or equal to 128, got 256"),
    ),
    (
        "pinned_reserve_segment_size_mb:0",
        Err("has to be greater than 0"),
    ),
    ("pinned_max_round_threshold_mb:3", Ok(())),
    ("pinned_max_cached_size_mb:0", Ok(())),
    ("pinned_max_round_threshold_mb:x", Err("stoull")),
    ("max_round_threshold:64", Err("Unrecognized key")),
    ("pinned_free_catch_all:True", Ok(())),
    ("graph_capture_record_stream_reuse:True", Ok(())),
    ("throw_on_cudamalloc_oom:True", Ok(())),
    ("per_process_memory_fraction:-0", Ok(())),
    (
        "per_process_memory_fraction:1.1",
        Err("set it in [0.0, 1.0]"),
    ),
    (
        "per_process_memory_fraction:nan",
        Err("set it in [0.0, 1.0]"),
    ),
    ("per_process_memory_fraction:[0.5]", Err("stod")),
    ("expandable_segments_reserve:x", Ok(())),
    ("expandable_segments_reserve:40G", Ok(())),
    (
        "expandable_segments_reserve:[0.5]",
        Err("Unrecognized key ']' in CUDA allocator config."),
    ),
    ("expandable_segments_reserve_by_class:[a:0.5,b:40G]", Ok(())),
    ("expandable_segments_reserve_by_class:[]", Ok(())),
    ("expandable_segments_reserve_by_class:[a]", Err("index")),
    (
        "expandable_segments_reserve_by_class:[a:0.5",
        Err("closing bracket"),
    ),
    ("expandable_segments_reserve_by_class:0.5", Err("index")),
];

#[test]
fn settings_are_taken_and_refused_as_torch_does() {
    for &(text, answer) in ANSWERS {
        let got = AllocatorSettings::parse(text, TorchVersion::MAX_KNOWN);
        match (got, answer) {
            (Ok(_), Ok(())) => {}
            (Err(SettingsError::Ends { .. }), Err("index")) => {}
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{text}: {error}");
            }
            (got, answer) => panic!("{text}: {got:?}, not {answer:?}"),
        }
    }
}

#[test]
fn values_are_read() {
    let parse = |text| AllocatorSettings::parse(text, TorchVersion::MAX_KNOWN).unwrap();
    assert_eq!(parse(""), AllocatorSettings::default());
    // As torch 2.15.0 shows them in a snapshot.
    let list = parse("roundup_power2_divisions:[1:4,4:2,16:1,64:8,256:4,>:2]");
    assert_eq!(
        list.roundup_power2_divisions,
        [4, 0, 2, 0, 1, 0, 8, 0, 4, 2, 2, 2, 2, 2, 2, 2]
    );
    let below = parse("roundup_power2_divisions:[4:2,1:8]");
    assert_eq!(below.roundup_power2_divisions[..4], [8, 2, 2, 0]);
    let all = parse(
        "expandable_segments:True,max_split_size_mb:64,max_non_split_rounding_mb:48,\
         garbage_collection_threshold:0.6,large_segment_size_mb:40,per_process_memory_fraction:0.5,\
         throw_on_cudamalloc_oom:True,expandable_segments_reserve:0.5",
    );
    let expected = AllocatorSettings {
        expandable_segments: true,
        max_split_size: Some(64 * MIB),
        max_non_split_rounding: 48 * MIB,
        garbage_collection_threshold: Some(0.6),
        large_segment_size: 40 * MIB,
        per_process_memory_fraction: 0.5,
        throw_on_cudamalloc_oom: true,
        expandable_segments_reserve: Some(AddressReservation::Fraction(0.5)),
        ..AllocatorSettings::default()
    };
    assert_eq!(all, expected);
    // What is not named stays, but for three.
    let changed = all.with_conf("", TorchVersion::MAX_KNOWN).unwrap();
    let expected = AllocatorSettings {
        max_split_size: None,
        garbage_collection_threshold: None,
        ..expected
    };
    assert_eq!(changed, expected);
    assert_eq!(
        parse("max_split_size_mb:-1").max_split_size,
        Some(u64::MAX / MIB * MIB)
    );
}

#[test]
fn before_2_9_separators_count() {
    let old = TorchVersion::new(2, 8);
    for (text, answer) in [
        ("expandable_segments:True,max_split_size_mb:64", Ok(())),
        ("max_split_size_mb:64,", Ok(())),
        ("expandable_segments,True", Err("expected :")),
        (
            "max_split_size_mb:64:expandable_segments:True",
            Err("expected ,"),
        ),
        ("max_split_size_mb:20", Err("must be > 20")),
        ("max_split_size_mb:99999999999", Err("stoi")),
        ("expandable_segments:1", Err("single True/False argument")),
        ("foo:1", Err("Unrecognized CachingAllocator option: foo")),
        (
            "large_segment_size_mb:40",
            Err("Unrecognized CachingAllocator option"),
        ),
        ("roundup_power2_divisions:[1:4:2:8]", Err("expected ,")),
        ("roundup_power2_divisions:[1:4", Err("end")),
        ("pinned_num_register_threads:8", Ok(())),
        ("backend:cudaMallocAsync", Ok(())),
    ] {
        let got = AllocatorSettings::parse(text, old).map(drop);
        match (got, answer) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{text}: {error}");
            }
            (got, answer) => panic!("{text}: {got:?}, not {answer:?}"),
        }
    }
    // `>` took the last listed interval with it, and still did when the parser had changed.
    for (version, second) in [
        (old, 1),
        (TorchVersion::new(2, 9), 1),
        (TorchVersion::new(2, 11), 8),
    ] {
        let list =
            AllocatorSettings::parse("roundup_power2_divisions:[1:4,2:8,>:1]", version).unwrap();
        assert_eq!(
            list.roundup_power2_divisions[..3],
            [4, second, 1],
            "{version}"
        );
    }
}

#[test]
fn keys_came_one_by_one() {
    for (text, minor) in [
        ("graph_capture_record_stream_reuse:True", 9),
        ("large_segment_size_mb:40", 10),
        ("expandable_segments_reserve:0.5", 15),
        ("expandable_segments_reserve_by_class:[a:1]", 15),
    ] {
        assert!(
            AllocatorSettings::parse(text, TorchVersion::new(2, minor)).is_ok(),
            "{text}"
        );
        assert!(
            AllocatorSettings::parse(text, TorchVersion::new(2, minor - 1)).is_err(),
            "{text}"
        );
    }
    let words = "a,".repeat(MAX_WORDS);
    assert_eq!(
        AllocatorSettings::parse(&words, TorchVersion::MAX_KNOWN),
        Err(SettingsError::TooLong)
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", old: bool) {
        let version = if old { TorchVersion::MIN_KNOWN } else { TorchVersion::MAX_KNOWN };
        let _ = AllocatorSettings::parse(&text, version);
    }

    #[test]
    fn no_words_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "max_split_size_mb", "roundup_power2_divisions", "expandable_segments_reserve_by_class",
                "large_segment_size_mb", "backend", ":", ",", "[", "]", ">", "1", "64", "True", "native",
            ]),
            0..12,
        ),
        old: bool,
    ) {
        let version = if old { TorchVersion::MIN_KNOWN } else { TorchVersion::MAX_KNOWN };
        let _ = AllocatorSettings::parse(&words.concat(), version);
    }
}
