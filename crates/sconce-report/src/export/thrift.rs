//! Thrift's compact protocol, as far as Parquet's headers need it
//! (github.com/apache/thrift, `doc/specs/thrift-compact-protocol.md`).

/// A struct in the making; fields come in rising order.
#[derive(Debug, Default)]
pub(super) struct ThriftStruct {
    bytes: Vec<u8>,
    last: i16,
}

impl ThriftStruct {
    fn field(&mut self, id: i16, kind: u8) {
        let step = id - self.last;
        debug_assert!((1..16).contains(&step), "fields rise by 1 to 15");
        self.bytes.push((step as u8) << 4 | kind);
        self.last = id;
    }

    pub(super) fn write_i32(&mut self, id: i16, value: i32) {
        self.field(id, 5);
        write_varint(zigzag(value.into()), &mut self.bytes);
    }

    pub(super) fn write_i64(&mut self, id: i16, value: i64) {
        self.field(id, 6);
        write_varint(zigzag(value), &mut self.bytes);
    }

    pub(super) fn write_string(&mut self, id: i16, text: &str) {
        self.field(id, 8);
        binary(text, &mut self.bytes);
    }

    pub(super) fn write_struct(&mut self, id: i16, inner: Self) {
        self.field(id, 12);
        self.bytes.extend(inner.into_bytes());
    }

    pub(super) fn write_struct_list(
        &mut self,
        id: i16,
        items: impl ExactSizeIterator<Item = Self>,
    ) {
        self.list(id, 12, items.len());
        self.bytes.extend(items.flat_map(Self::into_bytes));
    }

    pub(super) fn write_i32_list(&mut self, id: i16, items: &[i32]) {
        self.list(id, 5, items.len());
        for item in items {
            write_varint(zigzag((*item).into()), &mut self.bytes);
        }
    }

    pub(super) fn write_string_list(&mut self, id: i16, items: &[&str]) {
        self.list(id, 8, items.len());
        for item in items {
            binary(item, &mut self.bytes);
        }
    }

    fn list(&mut self, id: i16, kind: u8, count: usize) {
        self.field(id, 9);
        if count < 15 {
            self.bytes.push((count as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            write_varint(count as u64, &mut self.bytes);
        }
    }

    /// Its bytes, with the stop at their end.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn binary(text: &str, bytes: &mut Vec<u8>) {
    write_varint(text.len() as u64, bytes);
    bytes.extend(text.as_bytes());
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// An unsigned number, seven bits a byte, the lowest first.
pub(super) fn write_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
