//! Programs: calls to the allocator as JSON lines, and its answers as JSON lines.
//!
//! One call a line: `{"op":"alloc","id":1,"bytes":1048576,"stream":0}`. The calls are those of
//! [`AllocatorCall`]; a key that a call does not have is an error with the line's number. Empty lines count
//! for nothing. What the program calls a block is its own number for it, free to be used again
//! once the block was freed.

mod allocator_call;
mod call_result;

use std::collections::{BTreeSet, HashMap};

use crate::allocator::{
    Allocator, AllocatorSettings, InvalidCall, PoolId, PoolOptions, PoolScope, SettingsError,
};

pub use allocator_call::{AllocatorCall, PoolName};
pub use call_result::{CallResult, LineResult};

/// A line longer than this, in bytes, is refused.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// More streams than this are refused; a process has some hundred at most.
pub const MAX_STREAMS: usize = 4096;
/// More private pools than this at a time are refused.
pub const MAX_POOLS: usize = 4096;

/// A program that cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("line {line}")]
pub struct ProgramError {
    /// The line's number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub source: LineError,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not a call.
    #[error("no call of the allocator: {reason}")]
    Call {
        /// What the reader of JSON says.
        reason: String,
    },
    /// Too long to be one.
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// Nothing was allocated under that number.
    #[error("there is no block {id}")]
    NoBlock {
        /// The number.
        id: u64,
    },
    /// The number is in use.
    #[error("block {id} is allocated already")]
    BlockExists {
        /// The number.
        id: u64,
    },
    /// More streams than a program may have.
    #[error("more than {MAX_STREAMS} streams")]
    Streams,
    /// More private pools than a program may have.
    #[error("more than {MAX_POOLS} private pools")]
    Pools,
    /// What the allocator does not do.
    #[error(transparent)]
    Misuse(#[from] InvalidCall),
    /// Settings that PyTorch refuses.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl sconce_schema::Hint for ProgramError {
    fn hint(&self) -> Option<String> {
        let hint = match &self.source {
            LineError::Call { .. } => {
                "a call is one line, such as {\"op\":\"alloc\",\"id\":1,\"bytes\":512}"
            }
            LineError::NoBlock { .. } => "`alloc` gives a block its number, `free` ends it",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    fn exit_code(&self) -> u8 {
        sconce_schema::exit::BAD_INPUT
    }
}

/// Runs programs on one allocator.
#[derive(Debug)]
pub struct Runner {
    allocator: Allocator,
    line: u64,
    /// Addresses by the program's numbers; absent: memory had run out.
    blocks: HashMap<u64, Option<u64>>,
    streams: BTreeSet<u64>,
    pools: BTreeSet<PoolId>,
}

impl Runner {
    /// Nothing was called yet.
    #[must_use]
    pub fn new(allocator: Allocator) -> Self {
        Self {
            allocator,
            line: 0,
            blocks: HashMap::new(),
            streams: BTreeSet::new(),
            pools: BTreeSet::new(),
        }
    }

    /// The allocator as the calls left it.
    #[must_use]
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Lines so far.
    #[must_use]
    pub fn line_count(&self) -> u64 {
        self.line
    }

    /// Runs the next line, with or without its end. Absent: the line is empty.
    ///
    /// # Errors
    /// [`ProgramError`], after which the allocator is as it was before the line.
    pub fn run_line(&mut self, text: &[u8]) -> Result<Option<LineResult>, ProgramError> {
        self.line += 1;
        let fail = |source| ProgramError {
            line: self.line,
            source,
        };
        if text.len() > MAX_LINE_BYTES {
            return Err(fail(LineError::TooLong));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let op = AllocatorCall::parse(text).map_err(fail)?;
        let line = self.line;
        let given = self.run_call(&op);
        let given = given.map_err(|source| ProgramError { line, source })?;
        Ok(Some(LineResult { line, given }))
    }

    /// Runs one call.
    ///
    /// # Errors
    /// [`LineError`]; nothing was done then.
    pub fn run_call(&mut self, op: &AllocatorCall) -> Result<CallResult, LineError> {
        match *op {
            AllocatorCall::Alloc { id, bytes, stream } => return self.alloc(id, bytes, stream),
            AllocatorCall::Free { id } => {
                let address = self.block(id)?;
                if let Some(address) = address {
                    self.allocator.free(address)?;
                }
                self.blocks.remove(&id);
                return Ok(address.map_or(CallResult::NoMemory, |_| CallResult::Done));
            }
            AllocatorCall::RecordStream { id, stream } => {
                let address = self.block(id)?;
                self.known_stream(stream)?;
                return Ok(match address {
                    Some(address) => {
                        self.allocator.record_stream(address, stream)?;
                        CallResult::Done
                    }
                    None => CallResult::NoMemory,
                });
            }
            AllocatorCall::Complete { stream, events } => {
                self.allocator.complete_events(stream, events)
            }
            AllocatorCall::Synchronize {} => self.allocator.synchronize(),
            AllocatorCall::Events { at_once } => self.allocator.complete_at_once(at_once),
            AllocatorCall::EmptyCache { pool: None } => self.allocator.empty_cache(),
            AllocatorCall::EmptyCache { pool: Some(pool) } => {
                self.allocator.empty_pool(pool.into())
            }
            AllocatorCall::SetFraction { fraction } => self.allocator.set_fraction(fraction)?,
            AllocatorCall::Settings { ref conf } => {
                let now = self.allocator.settings();
                let settings: AllocatorSettings = now.with_conf(conf, self.allocator.version())?;
                self.allocator.set_settings(settings);
            }
            AllocatorCall::CreatePool {
                pool,
                own_allocator,
                use_on_oom,
                no_split,
            } => {
                self.known_pool(pool.into())?;
                let options = PoolOptions {
                    own_allocator,
                    use_on_oom,
                    no_split,
                };
                self.allocator.create_pool(pool.into(), options)?;
            }
            AllocatorCall::BeginPool {
                pool,
                stream,
                captures,
            } => {
                self.known_pool(pool.into())?;
                let takes = stream.map_or(PoolScope::All, PoolScope::Stream);
                self.allocator.begin_pool(pool.into(), takes, captures)?;
            }
            AllocatorCall::EndPool { pool } => self.allocator.end_pool(pool.into())?,
            AllocatorCall::ReleasePool { pool } => self.allocator.release_pool(pool.into())?,
            AllocatorCall::ResetPeaks {} => self.allocator.stats_mut().reset_peaks(),
            AllocatorCall::ResetAccumulated {} => self.allocator.stats_mut().reset_accumulated(),
            AllocatorCall::Stats {} => {
                return Ok(CallResult::Stats(self.allocator.stats().counters_by_name()));
            }
        }
        Ok(CallResult::Done)
    }

    fn alloc(&mut self, id: u64, bytes: u64, stream: u64) -> Result<CallResult, LineError> {
        if self.blocks.contains_key(&id) {
            return Err(LineError::BlockExists { id });
        }
        self.known_stream(stream)?;
        let got = self.allocator.malloc(bytes, stream);
        self.blocks.insert(id, got.ok());
        Ok(match got {
            Ok(address) => CallResult::Address(address),
            Err(error) => CallResult::OutOfMemory(Box::new(error)),
        })
    }

    fn block(&self, id: u64) -> Result<Option<u64>, LineError> {
        let address = self.blocks.get(&id).copied();
        address.ok_or(LineError::NoBlock { id })
    }

    fn known_stream(&mut self, stream: u64) -> Result<(), LineError> {
        if self.streams.len() < MAX_STREAMS {
            self.streams.insert(stream);
        }
        match self.streams.contains(&stream) {
            true => Ok(()),
            false => Err(LineError::Streams),
        }
    }

    fn known_pool(&mut self, pool: PoolId) -> Result<(), LineError> {
        if self.pools.len() < MAX_POOLS {
            self.pools.insert(pool);
        }
        match self.pools.contains(&pool) {
            true => Ok(()),
            false => Err(LineError::Pools),
        }
    }
}

#[cfg(test)]
mod tests;
