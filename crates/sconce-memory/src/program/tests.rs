use std::error::Error as _;

use insta::assert_snapshot;

use super::*;
use crate::allocator::{SimulatedGpu, TorchVersion};
use sconce_schema::Hint as _;

fn runner(conf: &str, mib: u64) -> Runner {
    let settings = AllocatorSettings::parse(conf, TorchVersion::MAX_KNOWN).unwrap();
    let device = SimulatedGpu::new(mib << 20).unwrap();
    Runner::new(Allocator::new(settings, device, TorchVersion::MAX_KNOWN))
}

/// The answers, with what ended the program.
fn answers(runner: &mut Runner, program: &str) -> String {
    let mut all = String::new();
    for line in program.lines() {
        match runner.run_line(line.as_bytes()) {
            Ok(Some(answer)) => all += &serde_json::to_string(&answer).unwrap(),
            Ok(None) => continue,
            Err(error) => {
                let source = error.source().unwrap();
                all += &format!("{error}: {source} (hint: {:?})", error.hint());
            }
        }
        all.push('\n');
    }
    all
}

#[test]
fn a_program_is_answered_line_by_line() {
    let mut runner = runner("", 32);
    let program = r#"{"op":"alloc","id":1,"bytes":1048576,"stream":0}
{"op":"alloc","id":2,"bytes":3145728}

{"op":"alloc","id":3,"bytes":12582912}
{"op":"free","id":2}
{"op":"alloc","id":4,"bytes":8388608}
{"op":"free","id":3}
{"op":"alloc","id":5,"bytes":0}
{"op":"alloc","id":6,"bytes":12582912}
{"op":"alloc","id":2,"bytes":18446744073709551615}
{"op":"empty_cache"}
"#;
    assert_snapshot!(answers(&mut runner, program), @r#"
    {"line":1,"address":1099511627776}
    {"line":2,"address":1099513724928}
    {"line":4,"address":1099516870656}
    {"line":5}
    {"line":6,"error":{"kind":"out_of_memory","requested":8388608,"rounded":8388608,"tried_to_allocate":20971520,"total":33554432,"free":10485760,"allocated":13631488,"reserved":23068672,"reserved_unallocated":9437184,"in_private_pools":0,"message":"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 32.00 MiB of which 10.00 MiB is free. Of the allocated memory 13.00 MiB is allocated by PyTorch, and 9.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."}}
    {"line":7}
    {"line":8,"address":0}
    {"line":9,"address":1099513724928}
    {"line":10,"error":{"kind":"exabyte","requested":18446744073709551615,"rounded":18446744073709551615,"tried_to_allocate":18446744073709551615,"total":33554432,"free":10485760,"allocated":13631488,"reserved":23068672,"reserved_unallocated":9437184,"in_private_pools":0,"message":"CUDA out of memory. Tried to allocate more than 1EB memory."}}
    {"line":11}
    "#);
    let stats = runner.allocator().stats();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
}

#[test]
fn streams_wait_for_events() {
    let mut runner = runner("", 64);
    let program = r#"{"op":"alloc","id":1,"bytes":20971520,"stream":7}
{"op":"record_stream","id":1,"stream":8}
{"op":"free","id":1}
{"op":"alloc","id":2,"bytes":20971520,"stream":7}
{"op":"complete","stream":8}
{"op":"alloc","id":1,"bytes":20971520,"stream":7}
{"op":"set_fraction","fraction":0.5}
{"op":"settings","conf":"expandable_segments:True"}
{"op":"begin_pool","pool":[0,1],"stream":7,"captures":true}
{"op":"end_pool","pool":[0,1]}
{"op":"release_pool","pool":[0,1]}
{"op":"empty_cache","pool":[0,1]}
{"op":"create_pool","pool":[1,0],"use_on_oom":true}
{"op":"events","at_once":true}
{"op":"synchronize"}
{"op":"reset_peaks"}
{"op":"reset_accumulated"}
"#;
    assert_snapshot!(answers(&mut runner, program), @r#"
    {"line":1,"address":1099511627776}
    {"line":2}
    {"line":3}
    {"line":4,"address":1099532599296}
    {"line":5}
    {"line":6,"address":1099511627776}
    {"line":7}
    {"line":8}
    {"line":9}
    {"line":10}
    {"line":11}
    {"line":12}
    {"line":13}
    {"line":14}
    {"line":15}
    {"line":16}
    {"line":17}
    "#);
    let Some(LineResult { given, .. }) = runner.run_line(br#"{"op":"stats"}"#).unwrap() else {
        panic!("there is an answer");
    };
    let CallResult::Stats(stats) = given else {
        panic!("{given:?} are no counters");
    };
    assert_eq!(stats["allocated_bytes.all.peak"], 41_943_040);
    assert_eq!(stats["num_device_alloc"], 0);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let mut runner = runner("", 64);
    let program = r#"{"op":"alloc","id":1,"bytes":1,"steam":0}
{"op":"alloc","id":1}
{"op":"alloc","id":1,"bytes":-1}
{"op":"alloc","id":1,"bytes":1.5}
{"op":"malloc","id":1,"bytes":1}
{"op":"synchronize","id":1}
[]
{"op":"free","id":1} x
{"op":"free","id":1}
{"op":"alloc","id":1,"bytes":1}
{"op":"alloc","id":1,"bytes":1}
{"op":"set_fraction","fraction":1.5}
{"op":"settings","conf":"foo:1"}
{"op":"begin_pool","pool":[0,0]}
{"op":"end_pool","pool":[0,1]}
{"op":"release_pool","pool":[0,1]}
"#;
    assert_snapshot!(answers(&mut runner, program), @r#"
    line 1: no call of the allocator: unknown field `steam`, expected one of `id`, `bytes`, `stream` (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 2: no call of the allocator: missing field `bytes` (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 3: no call of the allocator: invalid value: integer `-1`, expected u64 (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 4: no call of the allocator: invalid type: floating point `1.5`, expected u64 (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 5: no call of the allocator: unknown variant `malloc`, expected one of `alloc`, `free`, `record_stream`, `complete`, `synchronize`, `events`, `empty_cache`, `set_fraction`, `settings`, `create_pool`, `begin_pool`, `end_pool`, `release_pool`, `reset_peaks`, `reset_accumulated`, `stats` (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 6: no call of the allocator: unknown field `id`, there are no fields (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 7: no call of the allocator: missing field `op` (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 8: no call of the allocator: trailing characters (hint: Some("a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"))
    line 9: there is no block 1 (hint: Some("`alloc` gives a block its number, `free` ends it"))
    {"line":10,"address":1099511627776}
    line 11: block 1 is allocated already (hint: None)
    line 12: the fraction 1.5 is not from 0 to 1 (hint: None)
    line 13: Unrecognized key 'foo' in Accelerator allocator config. (hint: None)
    line 14: pool 0_0 is the default pool (hint: None)
    line 15: no requests go to pool 0_1 (hint: None)
    line 16: there is no pool 0_1 (hint: None)
    "#);
    let long = vec![b' '; MAX_LINE_BYTES + 1];
    let error = runner.run_line(&long).unwrap_err();
    assert!(matches!(error.source, LineError::TooLong), "{error:?}");
    assert!(runner.run_line(b"\xff").is_err());
}

#[test]
fn streams_and_pools_are_counted() {
    let mut runner = runner("", 64);
    for stream in 0..MAX_STREAMS as u64 {
        runner
            .run_call(&AllocatorCall::Alloc {
                id: stream,
                bytes: 0,
                stream,
            })
            .unwrap();
    }
    let more = runner.run_call(&AllocatorCall::Alloc {
        id: 1 << 40,
        bytes: 0,
        stream: 1 << 40,
    });
    assert!(matches!(more, Err(LineError::Streams)), "{more:?}");
    let create = |pool| AllocatorCall::CreatePool {
        pool: PoolName(0, pool),
        own_allocator: false,
        use_on_oom: false,
        no_split: false,
    };
    for pool in 1..=MAX_POOLS as u64 {
        runner.run_call(&create(pool)).unwrap();
    }
    let more = runner.run_call(&create(0xffff));
    assert!(matches!(more, Err(LineError::Pools)), "{more:?}");
}

#[test]
fn calls_are_written_as_they_are_read() {
    for text in [
        r#"{"op":"alloc","id":1,"bytes":2,"stream":3}"#,
        r#"{"op":"complete","stream":1}"#,
        r#"{"op":"empty_cache"}"#,
        r#"{"op":"synchronize"}"#,
        r#"{"op":"begin_pool","pool":[0,1],"stream":7,"captures":true}"#,
    ] {
        let op: AllocatorCall = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&op).unwrap(), text);
    }
}
