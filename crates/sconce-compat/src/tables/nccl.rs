//! What NCCL's own buffers take of a card.

use std::ops::RangeInclusive;

use sconce_schema::Bytes;

use super::GpuProduct;

/// What the buffers of one communicator take of a card, from the least to the most that is to be
/// expected. Sends and receives between single ranks, and all-to-all, come on top.
///
/// NCCL publishes no figure. Its maintainers tell that it grows with the number of channels, and these
/// with the bandwidth between cards; that a communicator of many nodes takes no more than one of two; and
/// that each communicator has its own (NVIDIA/nccl issues 864 and 986). One connection of one channel was
/// seen to take 10 MiB (issue 1685).
///
/// With NVLink: 544 MB for 2 and 688 MB for 4 A100 (issue 964), 1.6 GB for one communicator and 6 GB for
/// three or more (issue 864, perhaps with the contexts). Without: no report was found; 2 to 12 channels
/// with one to four connections of 10 MiB each.
#[must_use]
pub fn communicator_range(card: &GpuProduct) -> RangeInclusive<Bytes> {
    match card.nvlink {
        true => Bytes::from_mib(512)..=Bytes::from_mib(2048),
        false => Bytes::from_mib(20)..=Bytes::from_mib(480),
    }
}
