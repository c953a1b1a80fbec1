//! Functions of NVML that the wrapper crate declares and does not wrap.
#![expect(
    unsafe_code,
    reason = "five functions of NVML have no safe interface in nvml-wrapper"
)]

use nvml_wrapper::Device;

/// `NVML_SUCCESS` and `NVML_ERROR_NOT_SUPPORTED`.
const SUCCESS: u32 = 0;
const NOT_SUPPORTED: u32 = 3;

/// All of the card's memory and what of it is used, bytes, by `nvmlDeviceGetMemoryInfo`: the only
/// one of drivers before 510. What the driver keeps for itself counts as used.
pub(super) fn memory_usage(device: &Device<'_>) -> Option<(u64, u64)> {
    let function = device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref().ok()?;
    // SAFETY: the structure is numbers alone, for which zeros are values.
    let mut info = unsafe { std::mem::zeroed() };
    // SAFETY: as in `remapped_rows`; the function fills the one structure.
    let result = unsafe { function(device.handle(), &raw mut info) };
    (result == SUCCESS).then_some((info.total, info.used))
}

/// Rows of a card's memory that were replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemappedRows {
    /// Replaced after an error that could not be mended.
    pub(super) uncorrectable: u32,
    /// A replacement waits for a reset.
    pub(super) pending: bool,
    /// A row could not be replaced.
    pub(super) failed: bool,
}

/// `nvmlDeviceGetRemappedRows` (since Ampere).
pub(super) fn remapped_rows(device: &Device<'_>) -> Option<RemappedRows> {
    let function = device
        .nvml()
        .lib()
        .nvmlDeviceGetRemappedRows
        .as_ref()
        .ok()?;
    let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the handle is used while the library that gave it is borrowed and started; the
    // function writes four numbers and keeps nothing (nvml.h).
    let result = unsafe {
        function(
            device.handle(),
            &raw mut correctable,
            &raw mut uncorrectable,
            &raw mut pending,
            &raw mut failed,
        )
    };
    (result == SUCCESS).then_some(RemappedRows {
        uncorrectable,
        pending: pending != 0,
        failed: failed != 0,
    })
}

/// A card's registration with the fabric manager.
#[derive(Debug, Clone, Copy)]
pub(super) struct FabricRegistration {
    /// `nvmlGpuFabricState_t`.
    pub(super) state: u8,
    /// `nvmlReturn_t` of a registration that is over.
    pub(super) status: u32,
}

/// `nvmlDeviceGetGpuFabricInfo` (drivers since 525). A card that has no fabric says so by its
/// answer or by its state.
pub(super) fn fabric_registration(device: &Device<'_>) -> Option<FabricRegistration> {
    let function = device
        .nvml()
        .lib()
        .nvmlDeviceGetGpuFabricInfo
        .as_ref()
        .ok()?;
    // SAFETY: the structure is numbers alone, for which zeros are values.
    let mut info = unsafe { std::mem::zeroed() };
    // SAFETY: as in `remapped_rows`; the function fills the one structure whose size is that of
    // its declaration.
    let result = unsafe { function(device.handle(), &raw mut info) };
    match result {
        SUCCESS => Some(FabricRegistration {
            state: info.state,
            status: info.status,
        }),
        NOT_SUPPORTED => Some(FabricRegistration {
            state: 0,
            status: 0,
        }),
        _ => None,
    }
}

/// Which part of a card, and which part of that, an instance of a divided card is
/// (`nvmlDeviceGetGpuInstanceId`, `nvmlDeviceGetComputeInstanceId`; drivers since 450).
pub(super) fn instance_ids(part: &Device<'_>) -> Option<(u32, u32)> {
    let library = part.nvml().lib();
    let gpu = library.nvmlDeviceGetGpuInstanceId.as_ref().ok()?;
    let compute = library.nvmlDeviceGetComputeInstanceId.as_ref().ok()?;
    let (mut gpu_id, mut compute_id) = (0, 0);
    // SAFETY: as in `remapped_rows`; each function writes one number.
    let results = unsafe {
        [
            gpu(part.handle(), &raw mut gpu_id),
            compute(part.handle(), &raw mut compute_id),
        ]
    };
    (results == [SUCCESS; 2]).then_some((gpu_id, compute_id))
}
