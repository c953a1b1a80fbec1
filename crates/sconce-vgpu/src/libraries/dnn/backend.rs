//! The backend interface of cuDNN (`cudnn_graph.h`): graphs of operations, engines and plans, all of
//! them descriptors with attributes.
//!
//! Where NVIDIA's own library can be asked ([`nvidia`](super::nvidia)), descriptors are its own, and
//! its heuristics and plans answer; what is told is kept beside, to count the work of a plan. Else there
//! is one engine, and its workspace is the [`model`](super::model)'s.

use std::collections::HashMap;
use std::sync::Arc;

use crate::abi::{self, Handle, OutPointer, entries};
use crate::machine::{DriverState, current_device, lock_state};
use crate::runtime::launch::duration_ns;

use super::model::{self, Convolution, ConvolutionPass, Operand};
use super::nvidia::{self, CudnnBackend};
use super::{CudnnStatus, Result, status};

/// A descriptor: by attribute, how many values it has and their bytes.
#[derive(Debug, Clone, Default)]
pub struct BackendDescriptor {
    attributes: HashMap<i32, (i64, Vec<u8>)>,
    /// The convolutions in it, once it is finalised: what it was made of can be destroyed then.
    convolutions: Arc<[Convolution]>,
    /// What it is (`cudnnBackendDescriptorType_t`), where it is NVIDIA's own.
    theirs: Option<i32>,
}

/// Kinds of descriptors that are meant for a card, and by which attribute they are told.
const MEANT_FOR_CARD: [(i32, i32); 3] = [(2, 1307), (4, 204), (KIND_PLAN, 407)];
const KIND_PLAN: i32 = 5;

/// Attributes that are answered or followed (`cudnnBackendAttributeName_t`).
mod attribute {
    pub(super) const HEURISTIC_RESULTS: i32 = 202;
    pub(super) const HEURISTIC_GRAPH: i32 = 201;
    pub(super) const CONFIGURATION_ENGINE: i32 = 300;
    pub(super) const CONFIGURATION_WORKSPACE: i32 = 303;
    pub(super) const CONFIGURATION_SHARED: i32 = 304;
    pub(super) const PLAN_CONFIGURATION: i32 = 401;
    pub(super) const PLAN_WORKSPACE: i32 = 402;
    pub(super) const GRAPH_OPERATIONS: i32 = 801;
    pub(super) const TENSOR_SIZES: i32 = 902;
    pub(super) const ENGINE_GRAPH: i32 = 1300;
    pub(super) const ENGINE_INDEX: i32 = 1301;
    /// A handle of cuDNN, which is ours and nothing to NVIDIA's library.
    pub(super) const HANDLES: [i32; 2] = [400, 800];
    /// What a descriptor is made of.
    pub(super) const PARTS: [i32; 5] = [
        GRAPH_OPERATIONS,
        HEURISTIC_GRAPH,
        ENGINE_GRAPH,
        CONFIGURATION_ENGINE,
        PLAN_CONFIGURATION,
    ];
    pub(super) const TENSOR_TYPE: i32 = 901;
    pub(super) const TENSOR_STRIDES: i32 = 903;
    /// Input, weight and output of a convolution, forward; then of its backward ones to data and weight.
    pub(super) const CONVOLUTIONS: [[i32; 3]; 3] =
        [[704, 703, 705], [710, 709, 711], [716, 715, 717]];
}

/// The size of one value of a type (`cudnnBackendAttributeType_t`), in bytes.
fn value_bytes(kind: i32) -> usize {
    match kind {
        2 | 24 => 1,
        0 | 3 | 5 | 6 | 15 | 26 => 8,
        _ => 4,
    }
}

impl DriverState {
    fn told(&self, descriptor: Handle, attribute: i32) -> Option<&[u8]> {
        let (_, bytes) = self.backend.get(&descriptor)?.attributes.get(&attribute)?;
        Some(bytes)
    }

    fn handles(&self, descriptor: Handle, attribute: i32) -> Vec<Handle> {
        let bytes = self.told(descriptor, attribute).unwrap_or_default();
        let handle = |bytes: &[u8]| Handle::from_ne_bytes(bytes.try_into().unwrap_or_default());
        bytes.chunks_exact(8).map(handle).collect()
    }

    fn first(&self, descriptor: Handle, attribute: i32) -> Option<Handle> {
        self.handles(descriptor, attribute).first().copied()
    }

    fn operand(&self, tensor: Handle) -> Operand {
        let numbers = |attribute| {
            let values = self.handles(tensor, attribute);
            values.iter().map(|&value| value as u64).collect()
        };
        let kind = self.told(tensor, attribute::TENSOR_TYPE);
        let kind = kind.and_then(|bytes| bytes.get(..4)?.try_into().ok());
        Operand {
            kind: kind.map_or(0, i32::from_ne_bytes),
            sizes: numbers(attribute::TENSOR_SIZES),
            strides: numbers(attribute::TENSOR_STRIDES),
        }
    }

    /// A convolution that a descriptor says.
    fn convolution(&self, operation: Handle) -> Option<Convolution> {
        let directions = [
            ConvolutionPass::Forward,
            ConvolutionPass::Data,
            ConvolutionPass::Weight,
        ];
        let mut kinds = attribute::CONVOLUTIONS.iter().zip(directions);
        kinds.find_map(|(&[input, weight, output], direction)| {
            Some(Convolution {
                direction,
                input: self.operand(self.first(operation, input)?),
                weight: self.operand(self.first(operation, weight)?),
                output: self.operand(self.first(operation, output)?),
            })
        })
    }

    /// Notes which convolutions are in a descriptor, or in what it is made of.
    fn note_convolutions(&mut self, descriptor: Handle) {
        let parts = attribute::PARTS
            .iter()
            .flat_map(|name| self.handles(descriptor, *name));
        let within = parts.flat_map(|part| self.convolutions(part).to_vec());
        let all = self.convolution(descriptor).into_iter().chain(within);
        let all: Arc<[Convolution]> = all.collect();
        if !all.is_empty() {
            self.backend.entry(descriptor).or_default().convolutions = all;
        }
    }

    fn convolutions(&self, descriptor: Handle) -> Arc<[Convolution]> {
        let told = self.backend.get(&descriptor);
        told.map(|told| Arc::clone(&told.convolutions))
            .unwrap_or_default()
    }
}

/// NVIDIA's library, where a descriptor is its own.
fn theirs(descriptor: Handle) -> Option<(&'static CudnnBackend, i32)> {
    let kind = lock_state().backend.get(&descriptor)?.theirs?;
    Some((nvidia::queryable_library()?, kind))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendCreateDescriptor(kind: i32, descriptor: OutPointer<Handle>) -> i32 {
    let Some(nvidia) = nvidia::queryable_library() else {
        descriptor.write(lock_state().next_handle());
        return 0;
    };
    let mut made = 0;
    let status = nvidia.create_descriptor(kind, &mut made);
    if status == 0 {
        let told = BackendDescriptor {
            theirs: Some(kind),
            ..BackendDescriptor::default()
        };
        lock_state().backend.insert(made, told);
        descriptor.write(made);
    }
    status
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Handle) -> i32 {
    let theirs = theirs(descriptor);
    lock_state().backend.remove(&descriptor);
    theirs.map_or(0, |(nvidia, _)| nvidia.destroy_descriptor(descriptor))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendFinalize(descriptor: Handle) -> i32 {
    lock_state().note_convolutions(descriptor);
    let Some((nvidia, kind)) = theirs(descriptor) else {
        return 0;
    };
    let meant = MEANT_FOR_CARD.iter().find(|(of, _)| *of == kind);
    let told = meant.map_or(0, |(_, name)| nvidia.set_card(descriptor, *name));
    match told {
        0 => nvidia.finalize_descriptor(descriptor),
        refused => refused,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendSetAttribute(
    descriptor: Handle,
    name: i32,
    kind: i32,
    count: i64,
    values: Handle,
) -> i32 {
    if let Some((nvidia, _)) = theirs(descriptor)
        && !attribute::HANDLES.contains(&name)
    {
        let status = nvidia.set_attribute(descriptor, name, kind, count, values);
        if status != 0 {
            return status;
        }
    }
    let Ok(count_here) = usize::try_from(count) else {
        return CudnnStatus::BadParam as i32;
    };
    let size = count_here * value_bytes(kind);
    let bytes = if size == 0 {
        Vec::new()
    } else {
        abi::read_bytes(values, size)
    };
    let mut machine = lock_state();
    let told = machine.backend.entry(descriptor).or_default();
    told.attributes.insert(name, (count, bytes));
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendGetAttribute(
    descriptor: Handle,
    name: i32,
    kind: i32,
    wanted: i64,
    count: OutPointer<i64>,
    values: Handle,
) -> i32 {
    match theirs(descriptor) {
        Some((nvidia, _)) if !attribute::HANDLES.contains(&name) => {
            if name == attribute::HEURISTIC_RESULTS && values != 0 {
                note_configurations(descriptor, wanted, values);
            }
            nvidia.get_attribute(descriptor, name, kind, wanted, count, values)
        }
        _ => status(get(descriptor, name, kind, wanted, count, values)),
    }
}

/// Notes of configurations that heuristics are about to fill which convolutions they are for.
fn note_configurations(heuristics: Handle, wanted: i64, configurations: Handle) {
    let mut machine = lock_state();
    let convolutions = machine.convolutions(heuristics);
    for at in 0..usize::try_from(wanted).unwrap_or(0) {
        let one = abi::read_bytes(configurations + 8 * at, 8);
        let one = Handle::from_ne_bytes(one.try_into().unwrap_or_default());
        machine.backend.entry(one).or_default().convolutions = Arc::clone(&convolutions);
    }
}

entries! { status;
    fn cudnnBackendExecute(handle: Handle, plan: Handle, pack: Handle) {
        let _ = pack;
        let workspace = workspace_of(plan)?;
        let mut machine = lock_state();
        let work: u64 = machine.convolutions(plan).iter().map(Convolution::operation_count).sum();
        let is_theirs = machine.backend.get(&plan).is_some_and(|told| told.theirs.is_some());
        let stream = machine.blas_streams.get(&handle).copied().unwrap_or(0);
        let device = machine.devices.get(current_device()).ok_or(CudnnStatus::NotSupported)?;
        // With `benchmark = True` PyTorch takes the fastest plan. Which that is nobody can know here, so
        // it is the one with the most workspace: what then fits does fit.
        const NS_A_POWER: u64 = 100;
        let slower = u64::from(workspace.leading_zeros()) * NS_A_POWER;
        let duration = duration_ns(work, device.card.matrix_rate).saturating_add(slower);
        machine.asked.matrix_operations = machine.asked.matrix_operations.saturating_add(work);
        machine.asked.dnn.plans += 1;
        machine.asked.dnn.modelled += u64::from(!is_theirs);
        machine.asked.dnn.workspace_bytes = machine.asked.dnn.workspace_bytes.max(workspace);
        machine.launch_kernel(stream, duration);
        Ok(())
    }
}

/// What a plan needs, in bytes.
fn workspace_of(plan: Handle) -> Result<u64> {
    let mut workspace: i64 = 0;
    let mut count: i64 = 0;
    let to = &raw mut workspace as Handle;
    match cudnnBackendGetAttribute(
        plan,
        attribute::PLAN_WORKSPACE,
        3,
        1,
        OutPointer::from_address(&raw mut count),
        to,
    ) {
        0 => Ok(u64::try_from(workspace).unwrap_or(0)),
        _ => Err(CudnnStatus::BadParam),
    }
}

fn get(
    descriptor: Handle,
    name: i32,
    kind: i32,
    wanted: i64,
    count: OutPointer<i64>,
    values: Handle,
) -> Result<()> {
    let mut machine = lock_state();
    // The caller gives descriptors to be filled.
    let given = |at: usize| (values != 0).then(|| abi::read_bytes(values + 8 * at, 8));
    match name {
        attribute::HEURISTIC_RESULTS => {
            count.write(1);
            let Some(configuration) = given(0).filter(|_| wanted > 0) else {
                return Ok(());
            };
            let configuration = Handle::from_ne_bytes(configuration.try_into().unwrap_or_default());
            let graph = machine.handles(descriptor, attribute::HEURISTIC_GRAPH);
            let engine = machine.next_handle();
            let convolutions = machine.convolutions(descriptor);
            let of_engine = machine.backend.entry(engine).or_default();
            of_engine.convolutions = Arc::clone(&convolutions);
            for (name, value) in [
                (attribute::ENGINE_GRAPH, graph.first().copied().unwrap_or(0)),
                (attribute::ENGINE_INDEX, 0),
            ] {
                of_engine
                    .attributes
                    .insert(name, (1, value.to_ne_bytes().to_vec()));
            }
            let of_configuration = machine.backend.entry(configuration).or_default();
            of_configuration.convolutions = convolutions;
            let bytes = engine.to_ne_bytes().to_vec();
            of_configuration
                .attributes
                .insert(attribute::CONFIGURATION_ENGINE, (1, bytes));
        }
        attribute::CONFIGURATION_ENGINE => {
            count.write(1);
            let engine = machine.handles(descriptor, name).first().copied();
            if let (Some(to), Some(engine)) = (given(0).filter(|_| wanted > 0), engine) {
                let to = Handle::from_ne_bytes(to.try_into().unwrap_or_default());
                let told = machine.backend.get(&engine).cloned().unwrap_or_default();
                machine.backend.insert(to, told);
            }
        }
        attribute::PLAN_WORKSPACE => {
            count.write(1);
            let capability = machine
                .devices
                .get(current_device())
                .map_or(0, |device| device.card.compute_capability());
            let convolutions = machine.convolutions(descriptor);
            let bytes = convolutions
                .iter()
                .map(|one| model::workspace_bytes(one, capability))
                .sum::<u64>();
            if wanted > 0 {
                OutPointer::<i64>::from_address(values as *mut i64)
                    .write(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
        attribute::CONFIGURATION_WORKSPACE => {
            count.write(1);
            if wanted > 0 {
                OutPointer::<i64>::from_address(values as *mut i64).write(0);
            }
        }
        // Shared memory of blocks is taken as none, or a plan of attention is not taken.
        attribute::CONFIGURATION_SHARED => {
            count.write(1);
            if wanted > 0 {
                OutPointer::<i32>::from_address(values as *mut i32).write(0);
            }
        }
        _ => {
            let told = machine
                .backend
                .get(&descriptor)
                .and_then(|told| told.attributes.get(&name));
            let Some((has, bytes)) = told else {
                count.write(0);
                return Ok(());
            };
            count.write(*has);
            let room = usize::try_from(wanted).unwrap_or(0) * value_bytes(kind);
            if values != 0 {
                abi::copy_bytes(values, bytes.as_ptr() as usize, bytes.len().min(room));
            }
        }
    }
    Ok(())
}
