//! The backend interface of cuDNN (`cudnn_graph.h`): graphs of operations, engines and plans, all of
//! them descriptors with attributes.

use std::collections::HashMap;

use crate::abi::{self, Handle, Out, entries};
use crate::machine::{Machine, current, machine};
use crate::runtime::launch::time;

use super::{Error, Result, status};

/// A descriptor: by attribute, how many values it has and their bytes.
#[derive(Debug, Clone, Default)]
pub struct Descriptor {
    attributes: HashMap<i32, (i64, Vec<u8>)>,
}

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
    /// Weight and output of a convolution, forward; then of its two backward ones.
    pub(super) const CONVOLUTIONS: [(i32, i32); 3] = [(703, 705), (709, 711), (715, 717)];
}

/// The size of one value of a type (`cudnnBackendAttributeType_t`), in bytes.
fn value_bytes(kind: i32) -> usize {
    match kind {
        2 | 24 => 1,
        0 | 3 | 5 | 6 | 15 | 26 => 8,
        _ => 4,
    }
}

impl Machine {
    fn handles(&self, descriptor: Handle, attribute: i32) -> Vec<Handle> {
        let Some((_, bytes)) = self
            .backend
            .get(&descriptor)
            .and_then(|told| told.attributes.get(&attribute))
        else {
            return Vec::new();
        };
        let handle = |bytes: &[u8]| Handle::from_ne_bytes(bytes.try_into().unwrap_or_default());
        bytes.chunks_exact(8).map(handle).collect()
    }

    fn sizes(&self, tensor: Handle) -> Vec<u64> {
        self.handles(tensor, attribute::TENSOR_SIZES)
            .iter()
            .map(|&size| size as u64)
            .collect()
    }

    /// The operations of a plan's convolution; a multiply-add is two. 0 for what is not known.
    fn work_of_plan(&self, plan: Handle) -> u64 {
        let follow = |from: Option<Handle>, attribute: i32| {
            from.and_then(|handle| self.handles(handle, attribute).first().copied())
        };
        let configuration = follow(Some(plan), attribute::PLAN_CONFIGURATION);
        let engine = follow(configuration, attribute::CONFIGURATION_ENGINE);
        let graph = follow(engine, attribute::ENGINE_GRAPH);
        let Some(graph) = graph else { return 0 };
        let operations = self.handles(graph, attribute::GRAPH_OPERATIONS);
        let work = |operation: &Handle| {
            let pair = attribute::CONVOLUTIONS.iter().find_map(|(weight, output)| {
                let weight = follow(Some(*operation), *weight)?;
                Some((weight, follow(Some(*operation), *output)?))
            });
            let Some((weight, output)) = pair else {
                return 0;
            };
            let (weight, output) = (self.sizes(weight), self.sizes(output));
            // Each element of the output is a product over one filter.
            let filter: u64 = weight.iter().skip(1).product();
            2 * filter * output.iter().product::<u64>()
        };
        operations.iter().map(work).sum()
    }
}

entries! { status;
    fn cudnnBackendCreateDescriptor(kind: i32, descriptor: Out<Handle>) {
        let _ = kind;
        descriptor.put(machine().handle());
        Ok(())
    }
    fn cudnnBackendDestroyDescriptor(descriptor: Handle) {
        machine().backend.remove(&descriptor);
        Ok(())
    }
    fn cudnnBackendFinalize(descriptor: Handle) {
        let _ = descriptor;
        Ok(())
    }
    fn cudnnBackendSetAttribute(descriptor: Handle, name: i32, kind: i32, count: i64, values: Handle) {
        let size = usize::try_from(count).map_err(|_| Error::BadParam)? * value_bytes(kind);
        let bytes = if size == 0 { Vec::new() } else { abi::bytes(values, size) };
        let mut machine = machine();
        let told = machine.backend.entry(descriptor).or_default();
        told.attributes.insert(name, (count, bytes));
        Ok(())
    }
    fn cudnnBackendGetAttribute(descriptor: Handle, name: i32, kind: i32, wanted: i64, count: Out<i64>, values: Handle) {
        get(descriptor, name, kind, wanted, count, values)
    }
    fn cudnnBackendExecute(handle: Handle, plan: Handle, pack: Handle) {
        let _ = pack;
        let mut machine = machine();
        let work = machine.work_of_plan(plan);
        let stream = machine.blas_streams.get(&handle).copied().unwrap_or(0);
        let device = machine.devices.get(current()).ok_or(Error::NotSupported)?;
        let duration = time(work, device.card.matrix_rate);
        machine.asked.matrix_operations = machine.asked.matrix_operations.saturating_add(work);
        machine.asked.dnn_plans += 1;
        machine.launch(stream, duration);
        Ok(())
    }
}

fn get(
    descriptor: Handle,
    name: i32,
    kind: i32,
    wanted: i64,
    count: Out<i64>,
    values: Handle,
) -> Result<()> {
    let mut machine = machine();
    // The caller gives descriptors to be filled.
    let given = |at: usize| (values != 0).then(|| abi::bytes(values + 8 * at, 8));
    match name {
        attribute::HEURISTIC_RESULTS => {
            count.put(1);
            let Some(configuration) = given(0).filter(|_| wanted > 0) else {
                return Ok(());
            };
            let configuration = Handle::from_ne_bytes(configuration.try_into().unwrap_or_default());
            let graph = machine.handles(descriptor, attribute::HEURISTIC_GRAPH);
            let engine = machine.handle();
            let of_engine = machine.backend.entry(engine).or_default();
            for (name, value) in [
                (attribute::ENGINE_GRAPH, graph.first().copied().unwrap_or(0)),
                (attribute::ENGINE_INDEX, 0),
            ] {
                of_engine
                    .attributes
                    .insert(name, (1, value.to_ne_bytes().to_vec()));
            }
            let of_configuration = machine.backend.entry(configuration).or_default();
            let bytes = engine.to_ne_bytes().to_vec();
            of_configuration
                .attributes
                .insert(attribute::CONFIGURATION_ENGINE, (1, bytes));
        }
        attribute::CONFIGURATION_ENGINE => {
            count.put(1);
            let engine = machine.handles(descriptor, name).first().copied();
            if let (Some(to), Some(engine)) = (given(0).filter(|_| wanted > 0), engine) {
                let to = Handle::from_ne_bytes(to.try_into().unwrap_or_default());
                let told = machine.backend.get(&engine).cloned().unwrap_or_default();
                machine.backend.insert(to, told);
            }
        }
        // Workspaces are taken as none; shared memory of blocks too, or a plan of attention is not taken.
        attribute::PLAN_WORKSPACE | attribute::CONFIGURATION_WORKSPACE => {
            count.put(1);
            if wanted > 0 {
                Out::<i64>::at(values as *mut i64).put(0);
            }
        }
        attribute::CONFIGURATION_SHARED => {
            count.put(1);
            if wanted > 0 {
                Out::<i32>::at(values as *mut i32).put(0);
            }
        }
        _ => {
            let told = machine
                .backend
                .get(&descriptor)
                .and_then(|told| told.attributes.get(&name));
            let Some((has, bytes)) = told else {
                count.put(0);
                return Ok(());
            };
            count.put(*has);
            let room = usize::try_from(wanted).unwrap_or(0) * value_bytes(kind);
            if values != 0 {
                abi::copy(values, bytes.as_ptr() as usize, bytes.len().min(room));
            }
        }
    }
    Ok(())
}
