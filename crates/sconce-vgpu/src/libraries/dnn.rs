//! `cudnn.h`: descriptors that remember what they were told, plans, and the sizes that PyTorch asks.
//!
//! Which engine cuDNN's heuristics choose, and how much workspace it takes, NVIDIA's own library says
//! where it can be asked (`nvidia`), and a model where not (`model`).

mod backend;
mod model;
mod nvidia;
mod rnn;

use crate::abi::{Handle, InPointer, OutPointer, entries, made, nothing};
use crate::machine::{current_device, lock_state};

pub use self::backend::BackendDescriptor;
pub use self::nvidia::is_asking;
pub use self::rnn::Rnn;

/// A status of cuDNN (`cudnnStatus_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum CudnnStatus {
    BadParam = 2000,
    NotSupported = 3000,
    ArchMismatch = 3007,
}

pub type Result<T> = std::result::Result<T, CudnnStatus>;

/// What of cuDNN was carried out.
#[derive(Debug, Default, Clone, Copy)]
pub struct CudnnCounters {
    /// Plans: convolutions and attention.
    pub plans: u64,
    /// Of them, those whose workspace is the model's, and not NVIDIA's own answer.
    pub modelled: u64,
    /// The largest workspace, in bytes.
    pub workspace_bytes: u64,
    /// Recurrent networks, whose sizes are modelled.
    pub recurrent: u64,
}

fn status(answer: Result<()>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => why as i32,
    }
}

/// What a tensor or filter descriptor was told.
#[derive(Debug, Clone, Default)]
pub struct Tensor {
    kind: i32,
    format: i32,
    sizes: Vec<i32>,
    strides: Vec<i32>,
}

/// The most dimensions of a tensor (`CUDNN_DIM_MAX`).
const MAX_DIMENSIONS: usize = 8;

/// Numbers that a caller gives.
fn numbers(count: i32, from: InPointer<i32>) -> Vec<i32> {
    let count = usize::try_from(count).unwrap_or(0).min(MAX_DIMENSIONS);
    (0..count).filter_map(|at| from.read_at(at)).collect()
}

/// Writes as many numbers as the caller has room for.
fn write_numbers(to: Handle, wanted: i32, values: &[i32]) {
    if to == 0 {
        return;
    }
    let wanted = usize::try_from(wanted).unwrap_or(0);
    for (at, value) in values.iter().take(wanted).enumerate() {
        OutPointer::<i32>::from_address((to + 4 * at) as *mut i32).write(*value);
    }
}

made! {
    cudnnCreateTensorDescriptor cudnnCreateFilterDescriptor
    cudnnCreateConvolutionDescriptor cudnnCreateActivationDescriptor cudnnCreatePoolingDescriptor
    cudnnCreateDropoutDescriptor cudnnCreateCTCLossDescriptor
    cudnnCreateSpatialTransformerDescriptor
}

/// The first release without code for cards before Turing (cuDNN 9.11 release notes).
const WITHOUT_VOLTA: usize = 91_100;

entries! { status;
    fn cudnnCreate(made: OutPointer<Handle>) {
        let version = nvidia::cudnn_version().unwrap_or(0);
        let mut machine = lock_state();
        let device = machine.devices.get(current_device()).ok_or(CudnnStatus::NotSupported)?;
        if version >= WITHOUT_VOLTA && device.card.compute_capability() < 75 {
            return Err(CudnnStatus::ArchMismatch);
        }
        made.write(machine.next_handle());
        Ok(())
    }
    fn cudnnSetStream(handle: Handle, stream: Handle) {
        lock_state().blas_streams.insert(handle, stream);
        Ok(())
    }
    fn cudnnGetStream(handle: Handle, stream: OutPointer<Handle>) {
        stream.write(lock_state().blas_streams.get(&handle).copied().unwrap_or(0));
        Ok(())
    }
    fn cudnnDestroyTensorDescriptor(tensor: Handle) {
        lock_state().tensors.remove(&tensor);
        Ok(())
    }
    fn cudnnDestroyFilterDescriptor(filter: Handle) {
        lock_state().tensors.remove(&filter);
        Ok(())
    }
    fn cudnnSetTensorNdDescriptor(tensor: Handle, kind: i32, count: i32, sizes: InPointer<i32>, strides: InPointer<i32>) {
        let told = Tensor { kind, format: 0, sizes: numbers(count, sizes), strides: numbers(count, strides) };
        lock_state().tensors.insert(tensor, told);
        Ok(())
    }
    fn cudnnSetFilterNdDescriptor(filter: Handle, kind: i32, format: i32, count: i32, sizes: InPointer<i32>) {
        let told = Tensor { kind, format, sizes: numbers(count, sizes), strides: Vec::new() };
        lock_state().tensors.insert(filter, told);
        Ok(())
    }
    fn cudnnGetTensorNdDescriptor(tensor: Handle, wanted: i32, kind: OutPointer<i32>, count: OutPointer<i32>, sizes: Handle, strides: Handle) {
        let told = lock_state().tensors.get(&tensor).cloned().ok_or(CudnnStatus::BadParam)?;
        kind.write(told.kind);
        count.write(told.sizes.len() as i32);
        write_numbers(sizes, wanted, &told.sizes);
        write_numbers(strides, wanted, &told.strides);
        Ok(())
    }
    fn cudnnGetFilterNdDescriptor(filter: Handle, wanted: i32, kind: OutPointer<i32>, format: OutPointer<i32>, count: OutPointer<i32>, sizes: Handle) {
        let told = lock_state().tensors.get(&filter).cloned().ok_or(CudnnStatus::BadParam)?;
        kind.write(told.kind);
        format.write(told.format);
        count.write(told.sizes.len() as i32);
        write_numbers(sizes, wanted, &told.sizes);
        Ok(())
    }
    // Random states of a dropout: so many bytes for each thread that the card can run.
    fn cudnnDropoutGetStatesSize(handle: Handle, size: OutPointer<usize>) {
        let _ = handle;
        const STATE_BYTES: usize = 48;
        let machine = lock_state();
        let card = &machine.devices.get(current_device()).ok_or(CudnnStatus::NotSupported)?.card;
        let threads = card.multiprocessors as usize * card.multiprocessor_limits().threads as usize;
        size.write(STATE_BYTES * threads);
        Ok(())
    }
    fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle: Handle, mode: i32, ops: i32, activation: Handle, tensor: Handle, size: OutPointer<usize>) {
        let _ = (handle, mode, ops, activation, tensor);
        size.write(0);
        Ok(())
    }
    fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle: Handle, mode: i32, ops: i32, x: Handle, z: Handle, y: Handle, scale: Handle, activation: Handle, size: OutPointer<usize>) {
        let _ = (handle, mode, ops, x, z, y, scale, activation);
        size.write(0);
        Ok(())
    }
    fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle: Handle, mode: i32, ops: i32, x: Handle, y: Handle, dy: Handle, dz: Handle, dx: Handle, scale: Handle, activation: Handle, size: OutPointer<usize>) {
        let _ = (handle, mode, ops, x, y, dy, dz, dx, scale, activation);
        size.write(0);
        Ok(())
    }
    fn cudnnGetCTCLossWorkspaceSize(handle: Handle, probabilities: Handle, gradients: Handle, labels: Handle, label_lengths: Handle, lengths: Handle, algorithm: i32, loss: Handle, size: OutPointer<usize>) {
        let _ = (handle, probabilities, gradients, labels, label_lengths, lengths, algorithm, loss);
        size.write(0);
        Ok(())
    }
    fn cudnnGetCTCLossWorkspaceSize_v8(handle: Handle, algorithm: i32, loss: Handle, probabilities: Handle, gradients: Handle, size: OutPointer<usize>) {
        let _ = (handle, algorithm, loss, probabilities, gradients);
        size.write(0);
        Ok(())
    }
}

// What runs and what destroys: bytes that are not there, and descriptors of which nothing is kept.
nothing! {
    cudnnDestroy cudnnDestroyConvolutionDescriptor cudnnDestroyActivationDescriptor
    cudnnDestroyPoolingDescriptor cudnnDestroyDropoutDescriptor cudnnDestroyCTCLossDescriptor
    cudnnDestroySpatialTransformerDescriptor cudnnSetConvolutionNdDescriptor
    cudnnSetConvolutionGroupCount cudnnSetConvolutionMathType cudnnSetActivationDescriptor
    cudnnSetPooling2dDescriptor cudnnSetDropoutDescriptor cudnnRestoreDropoutDescriptor
    cudnnSetCTCLossDescriptorEx cudnnSetCTCLossDescriptor_v9 cudnnSetSpatialTransformerNdDescriptor
    cudnnBatchNormalizationBackwardEx cudnnBatchNormalizationForwardInference
    cudnnBatchNormalizationForwardTrainingEx cudnnCTCLoss cudnnCTCLoss_v8 cudnnPoolingForward
    cudnnSpatialTfGridGeneratorBackward cudnnSpatialTfGridGeneratorForward
    cudnnSpatialTfSamplerBackward cudnnSpatialTfSamplerForward
}

// The interface before plans, which PyTorch takes only when it is told to.
crate::abi::refused! { CudnnStatus::NotSupported;
    cudnnConvolutionForward cudnnConvolutionBackwardData cudnnConvolutionBackwardFilter
    cudnnConvolutionBiasActivationForward cudnnFindConvolutionForwardAlgorithmEx
    cudnnFindConvolutionBackwardDataAlgorithmEx cudnnFindConvolutionBackwardFilterAlgorithmEx
    cudnnGetConvolutionForwardAlgorithm_v7 cudnnGetConvolutionBackwardDataAlgorithm_v7
    cudnnGetConvolutionBackwardFilterAlgorithm_v7 cudnnGetConvolutionForwardWorkspaceSize
    cudnnGetConvolutionBackwardDataWorkspaceSize cudnnGetConvolutionBackwardFilterWorkspaceSize
}
