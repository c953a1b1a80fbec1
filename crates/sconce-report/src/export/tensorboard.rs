//! TensorBoard's event files: records as TensorFlow frames them
//! (`tensorflow/core/lib/io/record_writer.h`), each with one `Event`
//! (`tensorboard/compat/proto/event.proto`), written by hand: five fields of it are all that scalars need.

use std::io::{self, BufRead, Write};

use sconce_record::RecordReader;

use super::cells::{ColumnType, RowSink};
use super::rates::DerivedRates;
use super::{ExportError, ExportSummary, flat, walk};

/// Writes a record's figures as scalars. Readings have the milliseconds since the run began as their
/// step, steps of training their own number. What counts becomes a rate. A scalar is a 32-bit float.
///
/// # Errors
/// [`ExportError`].
pub fn write_tensorboard<R: BufRead>(
    record: RecordReader<R>,
    out: &mut impl Write,
) -> Result<ExportSummary, ExportError> {
    let began_s = record.started.unix_ms as f64 / 1e3;
    let at = |t_us: u64| began_s + t_us as f64 / 1e6;
    let mut version = Message::default();
    version.double(1, began_s);
    version.bytes(3, b"brain.Event:2");
    frame(&version.0, out)?;

    let mut rates = DerivedRates::default();
    let mut rows = 0;
    let (_, damaged_lines) = walk(record, u64::MAX, |line| {
        let Some(sample) = flat::sample_of_line(line) else {
            return Ok(());
        };
        for training in &sample.training {
            let prefix = format!("steps.{}.", flat::process_label(training));
            for step in &training.recent {
                let mut figures = Figures::default();
                flat::step_figures(&prefix, step, &mut figures);
                rows += event(at(step.t_us), step.step, &figures.0, out)?;
            }
        }
        rates.start_sample(line.t_us);
        flat::write_sample_figures(sample, &mut rates);
        rows += event(
            at(line.t_us),
            line.t_us / 1000,
            rates.current_figures(),
            out,
        )?;
        Ok(())
    })?;
    Ok(ExportSummary {
        rows,
        damaged_lines,
        columns_left_out: 0,
    })
}

/// Figures as they are.
#[derive(Default)]
struct Figures(Vec<(String, f64)>);

impl RowSink for Figures {
    fn number(&mut self, name: &str, _: ColumnType, value: Option<u64>) {
        (self.0).extend(value.map(|value| (name.to_owned(), value as f64)));
    }

    fn text(&mut self, _: &str, _: Option<&str>) {}

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One event with all figures of one moment; gives their number.
fn event(
    wall_s: f64,
    step: u64,
    figures: &[(String, f64)],
    out: &mut impl Write,
) -> io::Result<u64> {
    if figures.is_empty() {
        return Ok(0);
    }
    let mut summary = Message::default();
    for (name, value) in figures {
        let mut scalar = Message::default();
        // TensorBoard makes folders of what stands between slashes.
        scalar.bytes(1, name.replace('.', "/").as_bytes());
        scalar.float(2, *value as f32);
        summary.bytes(1, &scalar.0);
    }
    let mut event = Message::default();
    event.double(1, wall_s);
    // An int64; a step beyond it is no step.
    event.varint(2, step.min(i64::MAX as u64));
    event.bytes(5, &summary.0);
    frame(&event.0, out)?;
    Ok(figures.len() as u64)
}

/// A protobuf message (protobuf.dev/programming-guides/encoding).
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn raw(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn varint(&mut self, field: u64, number: u64) {
        self.raw(field << 3);
        self.raw(number);
    }

    fn double(&mut self, field: u64, number: f64) {
        self.raw(field << 3 | 1);
        self.0.extend(number.to_le_bytes());
    }

    fn float(&mut self, field: u64, number: f32) {
        self.raw(field << 3 | 5);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.raw(field << 3 | 2);
        self.raw(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

/// A record: its length, the length's checksum, the bytes, their checksum.
fn frame(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    let length = (bytes.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(&length).to_le_bytes())?;
    out.write_all(bytes)?;
    out.write_all(&masked(bytes).to_le_bytes())
}

/// TensorFlow's masked checksum (`tensorflow/core/lib/hash/crc32c.h`).
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C, Castagnoli's polynomial (RFC 3720, appendix B.4), one byte a time.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let mut value = n as u32;
            let mut bit = 0;
            while bit < 8 {
                let low = value & 1;
                value >>= 1;
                if low == 1 {
                    value ^= 0x82f6_3b78;
                }
                bit += 1;
            }
            table[n] = value;
            n += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| {
        crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn numbers_are_varints() {
        let mut message = Message::default();
        // The guide's own example.
        message.varint(1, 150);
        assert_eq!(message.0, [0x08, 0x96, 0x01]);
    }
}
