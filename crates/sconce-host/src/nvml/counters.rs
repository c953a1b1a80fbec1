//! Counters of a card's links, in one call. nvml-wrapper asks for fields without saying of which link.
#![expect(unsafe_code, reason = "NVML's fields of links have no safe interface")]

use std::ffi::c_int;

use nvml_wrapper::Device;
use nvml_wrapper::sys_exports::field_id;

/// Bytes to the card and from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TransferBytes {
    pub(super) received: u64,
    pub(super) sent: u64,
}

/// Since the driver was loaded, as far as card and driver count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Bytes over PCIe.
    pub(super) pcie: Option<TransferBytes>,
    /// Bytes over all NVLinks.
    pub(super) nvlink: Option<TransferBytes>,
}

/// `UINT_MAX` as the scope of a link's field: all links together (nvml.h).
const ALL_LINKS: u32 = u32::MAX;
/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`. A counter of 32 bits would be round in a moment.
const WIDE: u32 = 3;

pub(super) fn read(device: &Device<'_>) -> Counters {
    let asked = [
        (field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
        (field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
        (field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
        (field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
    ];
    let Ok(function) = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref() else {
        return Counters::default();
    };
    let mut values = zeroed(function);
    for (value, (field, scope)) in values.iter_mut().zip(asked) {
        value.fieldId = field;
        value.scopeId = scope;
    }
    // SAFETY: the handle is used while the library that gave it is borrowed and started; the function
    // fills as many structures as it is told there are, and keeps nothing (nvml.h).
    let result = unsafe { function(device.handle(), asked.len() as c_int, values.as_mut_ptr()) };
    if result != 0 {
        return Counters::default();
    }
    let [pcie_in, pcie_out, link_in, link_out] = values.map(|value| {
        // SAFETY: all members are numbers, and the structure was zeros: any of them may be read.
        let wide = unsafe { value.value.ullVal };
        (value.nvmlReturn == 0 && value.valueType == WIDE).then_some(wide)
    });
    let pair = |received: Option<u64>, sent: Option<u64>, unit: u64| {
        let (received, sent) = received.zip(sent)?;
        Some(TransferBytes {
            received: received.saturating_mul(unit),
            sent: sent.saturating_mul(unit),
        })
    };
    Counters {
        pcie: pair(pcie_in, pcie_out, 1),
        nvlink: pair(link_in, link_out, 1024),
    }
}

/// Four structures of the kind that `function` fills. The wrapper does not name the type.
fn zeroed<D, T: Copy, R>(_function: &unsafe extern "C" fn(D, c_int, *mut T) -> R) -> [T; 4] {
    // SAFETY: only called for `nvmlFieldValue_t`: numbers, and a union of numbers, for which zeros are
    // values.
    unsafe { std::mem::zeroed() }
}
