//! CUDA graphs: streams are captured, and a launch of the graph is one launch.

use std::collections::{HashMap, HashSet};

use crate::abi::{Handle, OutPointer, entries, nothing};
use crate::machine::{DriverState, lock_state};

use super::{Error, Result, remember_status};

/// What is captured now.
#[derive(Debug, Default)]
pub struct Captures {
    /// By capture: the streams that are in it.
    streams: HashMap<u64, HashSet<Handle>>,
    /// By event that was recorded in one: its capture.
    events: HashMap<Handle, u64>,
    graphs: HashMap<u64, Handle>,
    last: u64,
}

impl Captures {
    fn of(&self, stream: Handle) -> Option<u64> {
        let mut all = self.streams.iter();
        all.find(|(_, streams)| streams.contains(&stream))
            .map(|(id, _)| *id)
    }
}

impl DriverState {
    /// An event that is recorded on a captured stream is part of the capture.
    pub fn mark_capture(&mut self, event: Handle, stream: Handle) {
        match self.captures.of(stream) {
            Some(id) => self.captures.events.insert(event, id),
            None => self.captures.events.remove(&event),
        };
    }

    /// A stream that waits for such an event is captured from there on.
    pub fn join_capture(&mut self, stream: Handle, event: Handle) {
        let Some(id) = self.captures.events.get(&event) else {
            return;
        };
        if let Some(streams) = self.captures.streams.get_mut(id) {
            streams.insert(stream);
        }
    }
}

fn begin(stream: Handle, graph: Option<Handle>) -> Result<()> {
    let mut machine = lock_state();
    if machine.captures.of(stream).is_some() {
        return Err(Error::InvalidValue);
    }
    let graph = graph.unwrap_or_else(|| machine.next_handle());
    let captures = &mut machine.captures;
    captures.last += 1;
    let id = captures.last;
    captures.streams.insert(id, HashSet::from([stream]));
    captures.graphs.insert(id, graph);
    Ok(())
}

fn info(
    stream: Handle,
    state: OutPointer<i32>,
    id: OutPointer<u64>,
    graph: OutPointer<Handle>,
) -> Result<()> {
    const ACTIVE: i32 = 1;
    let machine = lock_state();
    let capture = machine.captures.of(stream);
    state.write(if capture.is_some() { ACTIVE } else { 0 });
    id.write(capture.unwrap_or(0));
    let of_it = capture.and_then(|id| machine.captures.graphs.get(&id));
    graph.write(of_it.copied().unwrap_or(0));
    Ok(())
}

entries! { remember_status;
    fn cudaStreamBeginCapture(stream: Handle, mode: i32) {
        let _ = mode;
        begin(stream, None)
    }
    fn cudaStreamBeginCaptureToGraph(stream: Handle, graph: Handle, nodes: Handle, edges: Handle, count: usize, mode: i32) {
        let _ = (nodes, edges, count, mode);
        begin(stream, Some(graph))
    }
    fn cudaStreamEndCapture(stream: Handle, graph: OutPointer<Handle>) {
        let mut machine = lock_state();
        let id = machine.captures.of(stream).ok_or(Error::InvalidValue)?;
        machine.captures.streams.remove(&id);
        machine.captures.events.retain(|_, of| *of != id);
        graph.write(machine.captures.graphs.remove(&id).unwrap_or(0));
        Ok(())
    }
    fn cudaStreamIsCapturing(stream: Handle, state: OutPointer<i32>) {
        info(stream, state, OutPointer::from_address(std::ptr::null_mut()), OutPointer::from_address(std::ptr::null_mut()))
    }
    fn cudaStreamGetCaptureInfo(stream: Handle, state: OutPointer<i32>, id: OutPointer<u64>, graph: OutPointer<Handle>, nodes: OutPointer<Handle>, edges: OutPointer<Handle>, count: OutPointer<usize>) {
        nodes.write(0);
        edges.write(0);
        count.write(0);
        info(stream, state, id, graph)
    }
    fn cudaStreamGetCaptureInfo_v2(stream: Handle, state: OutPointer<i32>, id: OutPointer<u64>, graph: OutPointer<Handle>, nodes: OutPointer<Handle>, count: OutPointer<usize>) {
        nodes.write(0);
        count.write(0);
        info(stream, state, id, graph)
    }
    fn cudaStreamGetCaptureInfo_v3(stream: Handle, state: OutPointer<i32>, id: OutPointer<u64>, graph: OutPointer<Handle>, nodes: OutPointer<Handle>, edges: OutPointer<Handle>, count: OutPointer<usize>) {
        nodes.write(0);
        edges.write(0);
        count.write(0);
        info(stream, state, id, graph)
    }
    fn cudaGraphInstantiate(made: OutPointer<Handle>, graph: Handle, flags: u64) {
        let _ = (graph, flags);
        made.write(lock_state().next_handle());
        Ok(())
    }
    fn cudaGraphInstantiateWithFlags(made: OutPointer<Handle>, graph: Handle, flags: u64) {
        let _ = (graph, flags);
        made.write(lock_state().next_handle());
        Ok(())
    }
    fn cudaGraphLaunch(graph: Handle, stream: Handle) {
        let _ = graph;
        lock_state().launch_kernel(stream, 0);
        Ok(())
    }
    fn cudaGraphGetNodes(graph: Handle, nodes: Handle, count: OutPointer<usize>) {
        let _ = (graph, nodes);
        count.write(1);
        Ok(())
    }
    fn cudaUserObjectCreate(object: OutPointer<Handle>) {
        object.write(lock_state().next_handle());
        Ok(())
    }
}

nothing! {
    cudaThreadExchangeStreamCaptureMode cudaGraphDestroy cudaGraphExecDestroy cudaGraphRetainUserObject
    cudaGraphReleaseUserObject cudaUserObjectRelease cudaUserObjectRetain cudaGraphDebugDotPrint
    cudaGraphUpload
}
