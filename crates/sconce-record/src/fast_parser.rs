//! Lines as their writer wrote them, read fast.
//!
//! A day's record is a gigabyte of text, and most of the time of reading it went into what JSON may hold
//! at each byte, and into which key of a type a text is. A writer's own line has no space, no escape and
//! no fraction where readings are, and its keys stand in the order of the types' fields, which serde
//! tells. This reader knows that much and no more. What it reads is what `serde_json` reads; of any other
//! text it says nothing, and `serde_json` decides what that is.

use std::fmt;

use sconce_schema::event::{ProcessSample, RecordLine};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// As many digits make no number that is too large.
const MAX_DIGITS: usize = 19;

/// The line that `text` begins with, where it is one that a writer wrote, and what comes after it: its end
/// is found by reading it. What processes did can be left out; a text that says it in no way of a writer's
/// is none then either.
pub(crate) fn parse_line(text: &[u8], processes: ProcessDetail) -> Option<(RecordLine, &[u8])> {
    let mut reader = Reader {
        rest: text,
        begun: false,
        processes,
    };
    let line = RecordLine::deserialize(&mut reader).ok()?;
    Some((line, reader.rest))
}

/// What becomes of `by-process`, a sixth of a record, which most readers do not look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessDetail {
    Read,
    LeaveOut,
    /// Of this line they were.
    LeftOut,
}

/// Not a text of a writer's, or none that this reader knows; why, nobody asks.
#[derive(Debug)]
struct Unusual;

impl fmt::Display for Unusual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not as a writer writes it")
    }
}

impl std::error::Error for Unusual {}

impl Error for Unusual {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

struct Reader<'de> {
    rest: &'de [u8],
    /// The line's own object has begun: what follows lies in it.
    begun: bool,
    processes: ProcessDetail,
}

impl<'de> Reader<'de> {
    /// Goes over `bytes`, where they come next.
    #[inline]
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(bytes);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    #[inline]
    fn expect(&mut self, bytes: &[u8]) -> Result<(), Unusual> {
        self.skip(bytes).then_some(()).ok_or(Unusual)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, Unusual> {
        let (mut value, mut at) = (0_u64, 0);
        if let Some(eight) = self.rest.first_chunk().and_then(|text| eight_digits(*text)) {
            (value, at) = (eight, 8);
        }
        while let Some(digit) = (self.rest.get(at)).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            if at == MAX_DIGITS {
                return Err(Unusual);
            }
            value = value * 10 + u64::from(digit);
            at += 1;
        }
        // JSON has no number that begins with a zero but the zero.
        if at == 0 || (at > 1 && self.rest[0] == b'0') {
            return Err(Unusual);
        }
        self.rest = &self.rest[at..];
        Ok(value)
    }

    /// What stands between two quotation marks, the first of which was read.
    #[inline]
    fn text(&mut self) -> Result<&'de str, Unusual> {
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..b' ');
        let end = self.rest.iter().position(ends).ok_or(Unusual)?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix(b"\"").ok_or(Unusual)?;
        std::str::from_utf8(text).map_err(|_| Unusual)
    }

    /// Goes over what processes did.
    fn leave_out(&mut self) -> Result<(), Unusual> {
        if self.processes == ProcessDetail::LeftOut {
            return Err(Unusual);
        }
        self.processes = ProcessDetail::LeftOut;
        self.expect(b"[")?;
        let mut within = Within::begin(self, b']');
        while within.next()? {
            ProcessSample::deserialize(&mut *within.reader)?;
        }
        Ok(())
    }

    fn map<V: Visitor<'de>>(
        &mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unusual> {
        let outermost = !std::mem::replace(&mut self.begun, true);
        let mut map = Map {
            within: Within::begin(self, b'}'),
            outermost,
            fields,
            next: 0,
        };
        let value = visitor.visit_map(&mut map)?;
        map.within.end(value)
    }

    fn seq<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Unusual> {
        let mut within = Within::begin(self, b']');
        let value = visitor.visit_seq(&mut within)?;
        within.end(value)
    }
}

/// The number that eight digits are, all at once: pairs of neighbours are joined three times.
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);
    const HIGH: u64 = u64::from_le_bytes([0xf0; 8]);
    let word = u64::from_le_bytes(text);
    // The digits' upper half is a 3, and stays one when 6 is added; of what comes after them it does not.
    let upper = |word: u64| word & HIGH == ZEROS;
    let sixes = u64::from_le_bytes([6; 8]);
    if !upper(word) || !upper(word.wrapping_add(sixes)) {
        return None;
    }
    let word = word - ZEROS;
    let word = (word * 10 + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let word = (word * 100 + (word >> 16)) & 0x0000_ffff_0000_ffff;
    Some((word * 10_000 + (word >> 32)) & 0xffff_ffff)
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Unusual;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        if self.skip(b"\"") {
            return visitor.visit_borrowed_str(self.text()?);
        }
        visitor.visit_u64(self.number()?)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        if self.skip(b"null") {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unusual> {
        if self.skip(b"[") {
            return self.seq(visitor);
        }
        self.expect(b"{")?;
        self.map(fields, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        self.expect(b"{")?;
        self.map(&[], visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unusual> {
        self.expect(b"[")?;
        self.seq(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Unusual> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unusual> {
        self.expect(b"\"")?;
        visitor.visit_enum(BorrowedStrDeserializer::new(self.text()?))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unusual> {
        Err(Unusual)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct tuple_struct identifier
    }
}

/// What lies between a bracket and its other one.
struct Within<'r, 'de> {
    reader: &'r mut Reader<'de>,
    close: u8,
    /// Something was read of it.
    begun: bool,
    ended: bool,
}

impl<'r, 'de> Within<'r, 'de> {
    fn begin(reader: &'r mut Reader<'de>, close: u8) -> Self {
        Self {
            reader,
            close,
            begun: false,
            ended: false,
        }
    }

    /// Whether there is one more. Some ask again when there was none.
    #[inline]
    fn next(&mut self) -> Result<bool, Unusual> {
        if self.ended {
            return Ok(false);
        }
        self.ended = self.reader.skip(&[self.close]);
        if !self.ended && self.begun {
            self.reader.expect(b",")?;
        }
        self.begun = true;
        Ok(!self.ended)
    }

    /// The value that was made of it, if that took all there is.
    fn end<T>(&mut self, value: T) -> Result<T, Unusual> {
        match self.next()? {
            false => Ok(value),
            true => Err(Unusual),
        }
    }
}

impl<'de> SeqAccess<'de> for Within<'_, 'de> {
    type Error = Unusual;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Unusual> {
        if !self.next()? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

struct Map<'r, 'de> {
    within: Within<'r, 'de>,
    outermost: bool,
    /// The keys that serde told, and which of them comes next at the earliest.
    fields: &'static [&'static str],
    next: usize,
}

impl<'de> MapAccess<'de> for Map<'_, 'de> {
    type Error = Unusual;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unusual> {
        if !self.within.next()? {
            return Ok(None);
        }
        let reader = &mut *self.within.reader;
        reader.expect(b"\"")?;
        for at in self.next..self.fields.len() {
            let field = self.fields[at].as_bytes();
            // Most that are not it are told by the first letter.
            if reader.rest.first() != field.first() {
                continue;
            }
            let rest = reader.rest.strip_prefix(field);
            if let Some(rest) = rest.and_then(|rest| rest.strip_prefix(b"\":")) {
                (reader.rest, self.next) = (rest, at + 1);
                // serde's own readers take the number of a field for its name.
                return seed.deserialize((at as u64).into_deserializer()).map(Some);
            }
        }
        let key = reader.text()?;
        reader.expect(b":")?;
        if self.outermost && key == "by-process" && reader.processes != ProcessDetail::Read {
            reader.leave_out()?;
            return self.next_key_seed(seed);
        }
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unusual> {
        seed.deserialize(&mut *self.within.reader)
    }
}

#[cfg(test)]
#[path = "quick_tests.rs"]
mod tests;
