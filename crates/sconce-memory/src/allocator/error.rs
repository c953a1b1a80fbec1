//! What an allocator answers when it cannot.

use std::fmt;

use sconce_schema::Hint;

use super::PoolId;

/// Memory ran out. The figures are those of PyTorch's own message, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Why the request was refused.
    pub why: AllocationFailure,
    /// What was asked for.
    pub requested: u64,
    /// What it was rounded to.
    pub rounded: u64,
    /// What the card was asked for: "Tried to allocate".
    pub tried: u64,
    /// The card's memory.
    pub total: u64,
    /// What of it is free.
    pub free: u64,
    /// What the process may have, where a fraction was set.
    pub allowed: Option<u64>,
    /// What is allocated. The message adds the private pools to it.
    pub allocated: u64,
    /// What is reserved of the card.
    pub reserved: u64,
    /// Free blocks of private pools.
    pub in_private_pools: u64,
    /// Whether the message recommends expandable segments.
    pub advice: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationFailure {
    /// Nothing that could be given back was enough.
    Exhausted,
    /// It is beyond the fraction, and `throw_on_cudamalloc_oom` is set.
    Rejected,
    /// It is for more than 2^60 bytes.
    Exabyte,
}

impl OutOfMemory {
    /// "reserved by PyTorch but unallocated", in bytes.
    #[must_use]
    pub fn reserved_unallocated(&self) -> u64 {
        let held = self.allocated.saturating_add(self.in_private_pools);
        self.reserved.saturating_sub(held)
    }
}

/// A size as PyTorch's messages write it.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..=1024 => write!(f, "{} bytes", self.0),
            1025..=0x10_0000 => write!(f, "{:.2} KiB", bytes / 1024.0),
            0x10_0001..=0x4000_0000 => write!(f, "{:.2} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", bytes / 1_073_741_824.0),
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            AllocationFailure::Exhausted => {}
            AllocationFailure::Rejected => {
                return write!(
                    f,
                    "CUDA out of memory. Allocation was preemptively rejected because it would \
                     exceed per_process_memory_fraction limit. Requested size: {}",
                    Size(self.tried)
                );
            }
            AllocationFailure::Exabyte => {
                return f.write_str("CUDA out of memory. Tried to allocate more than 1EB memory.");
            }
        }
        write!(
            f,
            "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which \
             {} is free. ",
            Size(self.tried),
            Size(self.total),
            Size(self.free)
        )?;
        if let Some(allowed) = self.allowed {
            write!(f, "{} allowed; ", Size(allowed))?;
        }
        let allocated = self.allocated.saturating_add(self.in_private_pools);
        write!(
            f,
            "Of the allocated memory {} is allocated by PyTorch, ",
            Size(allocated)
        )?;
        if self.in_private_pools > 0 {
            write!(
                f,
                "with {} allocated in private pools (e.g., CUDA Graphs), ",
                Size(self.in_private_pools)
            )?;
        }
        let rest = Size(self.reserved_unallocated());
        write!(f, "and {rest} is reserved by PyTorch but unallocated.")?;
        match self.advice {
            true => f.write_str(
                " If reserved but unallocated memory is large try setting \
                 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
            ),
            false => Ok(()),
        }
    }
}

impl std::error::Error for OutOfMemory {}

impl Hint for OutOfMemory {
    fn exit_code(&self) -> u8 {
        sconce_schema::exit::NO
    }
}

/// A call that PyTorch would end with an exception, or worse.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidCall {
    /// Nothing is allocated there.
    #[error("nothing is allocated at {address:#x}")]
    Address {
        /// The address.
        address: u64,
    },
    /// Not a part of the whole.
    #[error("the fraction {fraction} is not from 0 to 1")]
    Fraction {
        /// What was given.
        fraction: f64,
    },
    /// A pool that is not there.
    #[error("there is no pool {pool}")]
    NoPool {
        /// The pool.
        pool: PoolId,
    },
    /// A pool that everybody has released.
    #[error("pool {pool} was released")]
    Released {
        /// The pool.
        pool: PoolId,
    },
    /// A pool that is there already.
    #[error("there is a pool {pool} already")]
    PoolExists {
        /// The pool.
        pool: PoolId,
    },
    /// A pool that requests go to already.
    #[error("requests go to pool {pool} already")]
    Begun {
        /// The pool.
        pool: PoolId,
    },
    /// A pool that no requests go to.
    #[error("no requests go to pool {pool}")]
    NotBegun {
        /// The pool.
        pool: PoolId,
    },
    /// The name of the default pool.
    #[error("pool 0_0 is the default pool")]
    DefaultPool,
}

impl Hint for InvalidCall {
    fn exit_code(&self) -> u8 {
        sconce_schema::exit::BAD_INPUT
    }
}
