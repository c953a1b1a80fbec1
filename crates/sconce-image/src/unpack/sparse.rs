//! Sparse files of GNU tar (its manual, "Storing Sparse Files"): a map of the parts that have data,
//! in the header (old format), in a pax header (0.1) or before the data (1.0).

use std::collections::BTreeMap;
use std::io;

use super::tar::{BLOCK, parse_decimal, parse_numeric_field};

/// No map that is taken has more parts.
const MAX_CHUNKS: usize = 1 << 16;

/// What is wrong with the map of a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SparseError {
    /// Not a number where one must be.
    #[error("its map cannot be read")]
    Map,
    /// More parts than anyone has.
    #[error("its map has more than {MAX_CHUNKS} parts")]
    TooMany,
    /// Parts overlap, lie behind the end, or are not what is stored.
    #[error("its parts do not fit it")]
    Parts,
    /// The first of pax's formats, which GNU tar gave up in 2006.
    #[error("it is of the format 0.0")]
    Format,
}

/// A sparse file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// Its size in bytes, holes included.
    pub(super) size: u64,
    /// Offset and length of each part that has data.
    pub(super) chunks: Vec<(u64, u64)>,
}

/// A sparse file as a pax header has it.
pub(super) struct PaxSparse {
    pub(super) size: u64,
    /// The map, where the header has it.
    pub(super) chunks: Option<Vec<(u64, u64)>>,
    /// Whether the map stands before the data.
    pub(super) in_data: bool,
}

impl SparseMap {
    /// Of the old format. `next` gives the blocks that follow the header.
    pub(super) fn of_gnu(
        header: &[u8; BLOCK],
        mut next: impl FnMut() -> io::Result<[u8; BLOCK]>,
    ) -> io::Result<Result<Self, SparseError>> {
        let mut chunks = Vec::new();
        let mut table = header[386..482].to_vec();
        let mut more = header[482] != 0;
        loop {
            for pair in table.chunks_exact(24) {
                if pair[0] == 0 {
                    break;
                }
                match (
                    parse_numeric_field(&pair[..12]),
                    parse_numeric_field(&pair[12..]),
                ) {
                    (Some(at), Some(length)) if at >= 0 && length >= 0 => {
                        chunks.push((at.cast_unsigned(), length.cast_unsigned()));
                    }
                    _ => return Ok(Err(SparseError::Map)),
                }
            }
            if !more {
                break;
            }
            if chunks.len() > MAX_CHUNKS {
                return Ok(Err(SparseError::TooMany));
            }
            let block = next()?;
            table = block[..504].to_vec();
            more = block[504] != 0;
            if more && table[0] == 0 {
                // An empty block that promises another one goes nowhere.
                return Ok(Err(SparseError::Map));
            }
        }
        Ok(match parse_numeric_field(&header[483..495]) {
            Some(size) if size >= 0 => Ok(Self {
                size: size.cast_unsigned(),
                chunks,
            }),
            _ => Err(SparseError::Map),
        })
    }

    /// Of the newer formats; `None` where the records are not of a sparse file.
    pub(super) fn of_pax(
        records: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<Option<PaxSparse>, SparseError> {
        let get = |key: &str| records.get(format!("GNU.sparse.{key}").as_bytes());
        let size = |key| {
            get(key)
                .and_then(|text| parse_decimal(text))
                .ok_or(SparseError::Map)
        };
        if get("major").is_some_and(|major| major == b"1") {
            return Ok(Some(PaxSparse {
                size: size("realsize")?,
                chunks: None,
                in_data: true,
            }));
        }
        if let Some(map) = get("map") {
            let numbers = map.split(|&b| b == b',').map(parse_decimal);
            let numbers: Vec<u64> = numbers.collect::<Option<_>>().ok_or(SparseError::Map)?;
            if !numbers.len().is_multiple_of(2) {
                return Err(SparseError::Map);
            }
            return Ok(Some(PaxSparse {
                size: size("size")?,
                chunks: Some(numbers.chunks_exact(2).map(|p| (p[0], p[1])).collect()),
                in_data: false,
            }));
        }
        match get("numblocks").or(get("offset")) {
            Some(_) => Err(SparseError::Format),
            None => Ok(None),
        }
    }

    /// The map of the format 1.0: decimal numbers, one a line, in whole blocks.
    pub(super) fn read_map(
        next: &mut dyn FnMut() -> io::Result<[u8; BLOCK]>,
    ) -> io::Result<Result<Vec<(u64, u64)>, SparseError>> {
        let mut numbers = Vec::new();
        let mut line = Vec::new();
        loop {
            for byte in next()? {
                if byte != b'\n' {
                    line.push(byte);
                    if line.len() > 20 {
                        return Ok(Err(SparseError::Map));
                    }
                    continue;
                }
                let Some(number) = parse_decimal(&line) else {
                    return Ok(Err(SparseError::Map));
                };
                line.clear();
                numbers.push(number);
                if numbers[0] > MAX_CHUNKS as u64 {
                    return Ok(Err(SparseError::TooMany));
                }
                if numbers.len() as u64 == 1 + 2 * numbers[0] {
                    let pairs = numbers[1..].chunks_exact(2);
                    return Ok(Ok(pairs.map(|p| (p[0], p[1])).collect()));
                }
            }
        }
    }
}

/// A sparse file's bytes, holes filled with zeros.
#[derive(Debug)]
pub(super) struct SparseReader {
    size: u64,
    /// Last first.
    chunks: Vec<(u64, u64)>,
    at: u64,
}

impl SparseReader {
    /// `stored` is how many bytes the archive has of it.
    pub(super) fn new(sparse: SparseMap, stored: u64) -> Result<Self, SparseError> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for &(at, length) in &sparse.chunks {
            let next = at.checked_add(length).ok_or(SparseError::Parts)?;
            if at < end || next > sparse.size {
                return Err(SparseError::Parts);
            }
            end = next;
            sum += length;
        }
        if sum != stored {
            return Err(SparseError::Parts);
        }
        let mut chunks = sparse.chunks;
        chunks.retain(|&(_, length)| length > 0);
        chunks.reverse();
        Ok(Self {
            size: sparse.size,
            chunks,
            at: 0,
        })
    }

    /// Reads on; `stored` gives what the archive has.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        stored: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let room = buffer.len();
        let most = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(room);
        let n = match self.chunks.last_mut() {
            Some((at, length)) if *at == self.at => {
                let most = most(*length);
                let n = stored(&mut buffer[..most])?;
                *at += n as u64;
                *length -= n as u64;
                if *length == 0 {
                    self.chunks.pop();
                }
                n
            }
            next => {
                let end = next.map_or(self.size, |(at, _)| *at);
                let n = most(end - self.at);
                buffer[..n].fill(0);
                n
            }
        };
        self.at += n as u64;
        Ok(n)
    }
}
