//! What is read, what is refused, and that nothing makes the reader fall.

use proptest::prelude::*;

use super::*;

/// Writes down what it is given, so that a test can compare it.
#[derive(Default)]
struct Shown(Vec<String>);

impl Shown {
    fn add(&mut self, text: String) -> Result<PickleNode, PickleRejection> {
        self.0.push(text);
        Ok(PickleNode((self.0.len() - 1) as u32))
    }

    fn value(&self, value: &PickleValue) -> String {
        match value {
            PickleValue::Node(node) => self.0[node.as_u32() as usize].clone(),
            PickleValue::OpenList(_) | PickleValue::OpenDict(_) => {
                unreachable!("builders never see it")
            }
            other => format!("{other:?}"),
        }
    }

    fn values(&self, values: &[PickleValue]) -> String {
        let shown: Vec<String> = values.iter().map(|value| self.value(value)).collect();
        shown.join(" ")
    }
}

impl PickleBuilder for Shown {
    type List = Vec<String>;

    fn text(&mut self, text: &str) -> Result<PickleNode, PickleRejection> {
        self.add(format!("{text:?}"))
    }

    fn dict(&mut self, pairs: &[PickleValue]) -> Result<PickleNode, PickleRejection> {
        self.add(format!("{{{}}}", self.values(pairs)))
    }

    fn extend_dict(
        &mut self,
        dict: PickleNode,
        pairs: &[PickleValue],
    ) -> Result<(), PickleRejection> {
        let more = self.values(pairs);
        self.0[dict.as_u32() as usize] += &format!("+{{{more}}}");
        Ok(())
    }

    fn append(
        &mut self,
        list: &mut Vec<String>,
        items: &[PickleValue],
    ) -> Result<(), PickleRejection> {
        list.extend(items.iter().map(|item| self.value(item)));
        Ok(())
    }

    fn list(&mut self, list: &mut Vec<String>) -> Result<PickleNode, PickleRejection> {
        let items = std::mem::take(list).join(" ");
        self.add(format!("[{items}]"))
    }

    fn tuple(&mut self, items: &[PickleValue]) -> Result<PickleNode, PickleRejection> {
        self.add(format!("({})", self.values(items)))
    }
}

fn shown(bytes: &[u8]) -> Result<String, PickleError> {
    let mut build = Shown::default();
    let value = read(bytes, &mut build, &PickleLimits::default())?;
    Ok(build.value(&value))
}

fn body(body: &[u8]) -> Vec<u8> {
    [b"\x80\x04", body, b"."].concat()
}

fn said(bytes: &[u8]) -> String {
    shown(bytes).unwrap_or_else(|error| error.to_string())
}

#[test]
fn plain_data_is_read() {
    for (operations, value) in [
        (&b"N"[..], "None"),
        (b"\x88", "Bool(true)"),
        (b"K\xff", "Int(255)"),
        (b"M\x01\x02", "Int(513)"),
        (b"J\xff\xff\xff\xff", "Int(-1)"),
        (b"\x8a\x00", "Int(0)"),
        (b"\x8a\x01\x80", "Int(-128)"),
        (b"\x8a\x06\x00\x00\x00\x00\x2a\x7f", "Int(139818365353984)"),
        (
            b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00",
            "Unsigned(9223372036854775808)",
        ),
        (b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01", "Opaque"),
        (b"\x8b\x02\x00\x00\x00\x00\x01", "Int(256)"),
        (b"G\x3f\xe0\0\0\0\0\0\0", "Float(0.5)"),
        (b"\x8c\x02hi", "\"hi\""),
        (b"X\x02\0\0\0hi\x94", "\"hi\""),
        (b"\x8d\x02\0\0\0\0\0\0\0hi", "\"hi\""),
        (b"\x8c\x03\xed\xa0\x80", "\"\u{fffd}\u{fffd}\u{fffd}\""),
        (b"C\x02hi", "Opaque"),
        (b"]", "[]"),
        (
            b"]\x94(K\x01K\x02e(K\x03eK\x04a",
            "[Int(1) Int(2) Int(3) Int(4)]",
        ),
        (b"(K\x01K\x02l", "[Int(1) Int(2)]"),
        (b"}\x94(K\x01NK\x02Nu", "{Int(1) None Int(2) None}"),
        (b"}K\x01Ns(K\x02Nu", "{Int(1) None}+{Int(2) None}"),
        (b"(K\x01Nd", "{Int(1) None}"),
        (b")", "()"),
        (b"NN\x86\x94", "(None None)"),
        (b"(NNNNt", "(None None None None)"),
        // What is shared: a text, an empty list and dict, a list that a tuple has not taken yet.
        (b"](\x8c\x01a\x94h\x00e", "[\"a\" \"a\"]"),
        (b"(]\x94h\x00t", "([] [])"),
        (b"(}\x94h\x00h\x00t", "({} {} {})"),
        (b"(]\x94K\x01ah\x00t", "([Int(1)] [Int(1)])"),
        (b"](]q\x00K\x07a]q\x01h\x00ae", "[[Int(7)] [[Int(7)]]]"),
        (b"](]\x94(NeNh\x00h\x00e", "[[None] None [None] [None]]"),
        (b"\x95\x01\0\0\0\0\0\0\0N", "None"),
    ] {
        assert_eq!(said(&body(operations)), value, "{operations:x?}");
    }
}

/// Those that run code, import, or are no plain data, as `pickletools` names them.
const REFUSED: [(u8, &str); 28] = [
    (b'c', "GLOBAL"),
    (0x93, "STACK_GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'F', "FLOAT"),
    (b'S', "STRING"),
    (b'V', "UNICODE"),
    (b'p', "PUT"),
    (b'g', "GET"),
];

#[test]
fn what_is_no_plain_data_is_refused_by_name() {
    for (opcode, name) in REFUSED {
        let said = said(&body(&[b'N', opcode, b'N']));
        assert_eq!(
            said,
            format!("operation {name} at byte 3 is not plain data")
        );
    }
    // What `pickle.dumps` makes of an object whose `__reduce__` is `os.system("true")`.
    let hostile = b"\x80\x04\x95\x1f\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.";
    assert_eq!(
        said(hostile),
        "operation STACK_GLOBAL at byte 28 is not plain data"
    );
}

#[test]
fn every_other_byte_is_no_operation() {
    let is_known = |opcode| {
        said(&body(&[opcode])) != format!("byte {opcode:#04x} at 2 is no operation of a pickle")
    };
    let known = (0..=255u8).filter(|&opcode| is_known(opcode));
    // pickletools knows 68; all of them have a meaning here.
    assert_eq!(known.count(), 68);
}

#[test]
fn what_is_broken_is_said() {
    let broken = |at: u64, what: &str| format!("the pickle is broken at byte {at}: {what}");
    for (bytes, text) in [
        (
            &b""[..],
            "this is no pickle of protocol 2 to 5: it does not begin with byte 0x80".to_owned(),
        ),
        (
            b"{\"a\": 1}",
            "this is no pickle of protocol 2 to 5: it does not begin with byte 0x80".to_owned(),
        ),
        (
            b"\x80\x06N.",
            "this is a pickle of protocol 6; known are 2 to 5".to_owned(),
        ),
        (
            b"\x80\x04",
            "the pickle ends at byte 2, before it is complete".to_owned(),
        ),
        (b"\x80\x04.", broken(2, "it ends with values left over")),
        (b"\x80\x04NN.", broken(4, "it ends with values left over")),
        (b"\x80\x04a", broken(2, "a value is missing")),
        (b"\x80\x04(e", broken(3, "items without a list")),
        (b"\x80\x04N(e", broken(4, "items without a list")),
        (b"\x80\x04N(u", broken(4, "pairs without a dict")),
        (b"\x80\x04e", broken(2, "a MARK is missing")),
        (b"\x80\x04](a", broken(4, "a value is missing")),
        (b"\x80\x04}(Nu", broken(5, "a key without a value")),
        (
            b"\x80\x04h\x00",
            broken(2, "it refers to what was not stored"),
        ),
        (b"\x80\x04Nq\x00", broken(3, "it stores a plain value")),
        (
            b"\x80\x04]\x94h\x00a",
            broken(6, "a list grows after it was used"),
        ),
        (
            b"\x80\x04}\x94Nh\x00s",
            broken(7, "a dict grows after it was used"),
        ),
        (
            b"\x80\x04(]\x94h\x00Na",
            broken(8, "a list grows after it was used"),
        ),
        (b"\x80\x04]\x94\x94", broken(4, "it stores a list twice")),
        (b"\x80\x04}\x94\x94", broken(4, "it stores a dict twice")),
        (
            b"\x80\x04]q\x00}q\x00",
            broken(6, "it stores two things under one number"),
        ),
        (
            b"\x80\x04]r\xff\xff\x00\x00",
            broken(3, "it leaves out numbers of the memo"),
        ),
        (
            b"\x80\x04\x8b\xff\xff\xff\xff",
            broken(2, "a negative length"),
        ),
        (b"\x80\x04\x80\x04", broken(2, "it begins a second time")),
    ] {
        assert_eq!(said(bytes), text, "{bytes:x?}");
    }
}

#[test]
fn a_bomb_is_stopped_by_a_limit() {
    let limits = PickleLimits {
        memo: 50,
        stack: 200,
        depth: 20,
        open_lists: 30,
        text_bytes: 1000,
    };
    let said = |bytes: &[u8]| {
        let read = read(bytes, &mut Shown::default(), &limits);
        read.map_or_else(|error| error.to_string(), |_| "read".to_owned())
    };
    let stopped = |at: u64, what: &str, limit: u64| {
        format!("too many or too long at byte {at}: {what} (at most {limit})")
    };
    let many = |operations: &[u8]| body(&operations.repeat(1000));
    assert_eq!(
        said(&many(b"(")),
        stopped(22, "containers inside each other", 20)
    );
    assert_eq!(
        said(&many(b"]")),
        stopped(32, "lists that nothing has taken", 30)
    );
    assert_eq!(
        said(&many(b"]\x94")),
        stopped(62, "lists that nothing has taken", 30)
    );
    assert_eq!(
        said(&many(b"N")),
        stopped(202, "values that no container has taken", 200)
    );
    assert_eq!(
        said(&many(b"}\x94")),
        stopped(103, "entries of the memo", 50)
    );
    assert_eq!(
        said(b"\x80\x04]r\xff\xff\xff\xff"),
        stopped(3, "entries of the memo", 50)
    );
    // Lengths that nobody can have: nothing is made room for.
    let giant: [&[u8]; 6] = [
        b"X\xff\xff\xff\xff",
        b"B\xff\xff\xff\xff",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x8b\xff\xff\xff\x7f",
    ];
    for operation in giant {
        assert_eq!(
            said(&body(operation)),
            stopped(2, "bytes of one text", 1000)
        );
    }
}

#[test]
fn a_text_across_pieces_stays_whole() {
    let long = "é".repeat(400_000);
    let mut bytes = b"\x80\x04X".to_vec();
    bytes.extend(u32::try_from(long.len()).unwrap().to_le_bytes());
    bytes.extend(long.as_bytes());
    bytes.push(b'.');
    assert_eq!(said(&bytes), format!("{long:?}"));
}

#[test]
fn a_source_that_fails_is_no_short_file() {
    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let read = read(Failing, &mut Shown::default(), &PickleLimits::default());
    assert!(matches!(read, Err(PickleError::Read { offset: 0, .. })));
}

fn operation() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |bytes: &'static [u8]| Just(bytes.to_vec());
    prop_oneof![
        proptest::sample::select(&b"N\x88(]})aesultd\x85\x86\x87\x94"[..])
            .prop_map(|byte| vec![byte]),
        (0..9u8).prop_map(|number| vec![b'h', number]),
        (0..9u8).prop_map(|number| vec![b'q', number]),
        fixed(b"\x8c\x01a"),
        fixed(b"K\x07"),
    ]
}

proptest! {
    /// Programs of legal operations in any order: nothing panics, and builders never see what is open.
    #[test]
    fn any_program_is_read_or_refused(program in proptest::collection::vec(operation(), 0..60)) {
        let _ = said(&body(&program.concat()));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = said(&body(&bytes));
    }
}
