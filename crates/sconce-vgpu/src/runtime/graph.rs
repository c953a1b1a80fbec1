//! CUDA graphs: streams are captured, and a launch of the graph is one launch.

use std::collections::{HashMap, HashSet};

use crate::abi::{Handle, OutPointer, entries, nothing};
use crate::machine::{DriverState, machine};

use super::{Error, Result, status};

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
    let mut machine = machine();
    if machine.captures.of(stream).is_some() {
        return Err(Error::InvalidValue);
    }
    let graph = graph.unwrap_or_else(|| machine.handle());
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
    let machine = machine();
    let capture = machine.captures.of(stream);
    state.put(if capture.is_some() { ACTIVE } else { 0 });
    id.put(capture.unwrap_or(0));
    let of_it = capture.and_then(|id| machine.captures.graphs.get(&id));
    graph.put(of_it.copied().unwrap_or(0));
    Ok(())
}

entries! { status;
    fn cudaStreamBeginCapture(stream: Handle, mode: i32) {
        let _ = mode;
        begin(stream, None)
    }
    fn cudaStreamBeginCaptureToGraph(stream: Handle, graph: Handle, nodes: Handle, edges: Handle, count: usize, mode: i32) {
        let _ = (nodes, edges, count, mode);
        begin(stream, Some(graph))
    }
    fn cudaStreamEndCapture(stream: Handle, graph: OutPointer<Handle>) {
        let mut machine = machine();
        let id = machine.captures.of(stream).ok_or(Error::InvalidValue)?;
        machine.captures.streams.remove(&id);
        machine.captures.events.retain(|_, of| *of != id);
        graph.put(machine.captures.graphs.remove(&id).unwrap_or(0));
        Ok(())
    }
    fn cudaStreamIsCapturing(stream: Handle, state: OutPointer<i32>) {
        info(stream, state, OutPointer::at(std::ptr::null_mut()), OutPointer::at(std::ptr::null_mut()))
    }
    fn cudaStreamGetCaptureInfo(stream: Handle, state: OutPointer<i32>, id: OutPointer<u64>, graph: OutPointer<Handle>, nodes: OutPointer<Handle>, edges: OutPointer<Handle>, count: OutPointer<usize>) {
        nodes.put(0);
        edges.put(0);
        count.put(0);
        info(stream, state, id, graph)
    }
    fn cudaStreamGetCaptureInfo_v2(stream: Handle, state: OutPointer<i32>, id: OutPointer<u64>, graph: OutPointer<Handle>, nodes: OutPointer<Handle>, count: OutPointer<usize>) {
        nodes.put(0);
        count.put(0);
        info(stream, state, id, graph)
    }
    fn cudaStreamGetCaptureInfo_v3(stream: Handle, state: OutPointer<i32>, id: OutPointer<u64>, graph: OutPointer<Handle>, nodes: OutPointer<Handle>, edges: OutPointer<Handle>, count: OutPointer<usize>) {
        nodes.put(0);
        edges.put(0);
        count.put(0);
        info(stream, state, id, graph)
    }
    fn cudaGraphInstantiate(made: OutPointer<Handle>, graph: Handle, flags: u64) {
        let _ = (graph, flags);
        made.put(machine().handle());
        Ok(())
    }
    fn cudaGraphInstantiateWithFlags(made: OutPointer<Handle>, graph: Handle, flags: u64) {
        let _ = (graph, flags);
        made.put(machine().handle());
        Ok(())
    }
    fn cudaGraphLaunch(graph: Handle, stream: Handle) {
        let _ = graph;
        machine().launch(stream, 0);
        Ok(())
    }
    fn cudaGraphGetNodes(graph: Handle, nodes: Handle, count: OutPointer<usize>) {
        let _ = (graph, nodes);
        count.put(1);
        Ok(())
    }
    fn cudaUserObjectCreate(object: OutPointer<Handle>) {
        object.put(machine().handle());
        Ok(())
    }
}

nothing! {
    cudaThreadExchangeStreamCaptureMode cudaGraphDestroy cudaGraphExecDestroy cudaGraphRetainUserObject
    cudaGraphReleaseUserObject cudaUserObjectRelease cudaUserObjectRetain cudaGraphDebugDotPrint
    cudaGraphUpload
}
