//! The whole snapshot, from the dict that is its top.

use super::build::{FinishedList, NodeKind, SnapshotBuilder, as_text_id, as_unsigned, decode_node};
use super::names::key;
use super::{RecordedSettings, SegmentInfo, Snapshot, SnapshotError, Trace};
use crate::pickle::PickleValue;

/// Cards of one process, with room.
const MAX_TRACES: usize = 1024;

impl SnapshotBuilder {
    /// The snapshot whose top is this value.
    pub(super) fn finish(mut self, top: PickleValue) -> Result<Snapshot, SnapshotError> {
        let no = |what| SnapshotError::NoSnapshot { what };
        let top = match top {
            PickleValue::Node(node) => decode_node(node),
            _ => return Err(no("it is neither a dict nor a list")),
        };
        let pairs = match top {
            (NodeKind::Dict, number) => std::mem::take(&mut self.dicts[number]),
            // What `torch.cuda.memory_snapshot` gives.
            (NodeKind::List, number) => match self.lists[number] {
                FinishedList::Run {
                    kind: NodeKind::Segment,
                    ..
                } => {
                    let segments = NodeKind::List
                        .encode_node(number)
                        .map_err(|_| no("it is too large"))?;
                    let name = NodeKind::Text.encode_node(key::SEGMENTS as usize);
                    let name = name.map_err(|_| no("it is too large"))?;
                    vec![(PickleValue::Node(name), PickleValue::Node(segments))]
                }
                _ => return Err(no("it is a list of something else than segments")),
            },
            _ => return Err(no("it is neither a dict nor a list")),
        };
        let field = |name| {
            let found = pairs.iter().find(|(key, _)| as_text_id(*key) == Some(name));
            found.map(|(_, value)| *value)
        };
        let segments = field(key::SEGMENTS).ok_or_else(|| no("it has no `segments`"))?;
        let segments = self.segments_at(segments)?;
        let host_segments = match field(key::HOST_SEGMENTS) {
            Some(value) => self.segments_at(value)?,
            None => Vec::new(),
        };
        let traces = match field(key::DEVICE_TRACES) {
            Some(value) => self.traces_at(value)?,
            None => Vec::new(),
        };
        let host_traces = match field(key::HOST_TRACES) {
            // One list, or one in a list: 2.15 is the first to have it.
            Some(value) => match self.run(value, NodeKind::Event) {
                Some(trace) => vec![trace],
                None => self.traces_at(value)?,
            },
            None => Vec::new(),
        };
        let annotations = field(key::EXTERNAL_ANNOTATIONS);
        let annotations = annotations.and_then(|value| self.run(value, NodeKind::Annotation));
        let annotations = annotations.unwrap_or(0..0);
        let settings = field(key::ALLOCATOR_SETTINGS);
        let is_newest = field(key::HOST_TRACES).is_some();
        let names = std::mem::replace(&mut self.names, super::names::NameTable::new(0)).finish();
        let reuse = settings
            .and_then(|value| self.dict_at(value))
            .is_some_and(|pairs| {
                let keys = pairs
                    .iter()
                    .filter_map(|(key, _)| names.get(as_text_id(*key)? as usize));
                keys.into_iter()
                    .any(|key| &**key == "graph_capture_record_stream_reuse")
            });
        // The release that each came with.
        let writer_since = match (is_newest, reuse) {
            (true, _) => Some((2, 15)),
            (false, true) => Some((2, 9)),
            (false, false) => None,
        };
        let settings = settings.and_then(|value| self.settings_at(value, &names));
        let (frames, stacks) = self.stacks.finish();
        Ok(Snapshot {
            segments,
            host_segments,
            annotations: self.annotations[annotations].to_vec(),
            blocks: self.blocks,
            events: self.events,
            traces,
            host_traces,
            settings,
            writer_since,
            names,
            frames,
            stacks,
            lanes: self.lanes,
        })
    }

    /// Where the things of a list stand among their kind; an empty list is one of any kind.
    fn run(&self, value: PickleValue, wanted: NodeKind) -> Option<Trace> {
        let PickleValue::Node(node) = value else {
            return None;
        };
        match decode_node(node) {
            (NodeKind::List, 0) => Some(0..0),
            (NodeKind::List, number) => match self.lists.get(number)? {
                FinishedList::Run { kind, first, len } if *kind == wanted => {
                    Some(*first..first + len)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn segments_at(&self, value: PickleValue) -> Result<Vec<SegmentInfo>, SnapshotError> {
        let run = self.run(value, NodeKind::Segment);
        let run = run.ok_or(SnapshotError::NoSnapshot {
            what: "its segments are no list of segments",
        })?;
        Ok(self.segments[run].to_vec())
    }

    fn traces_at(&self, value: PickleValue) -> Result<Vec<Trace>, SnapshotError> {
        let wrong = || SnapshotError::NoSnapshot {
            what: "its traces are no list of lists of entries",
        };
        let list = match value {
            PickleValue::Node(node) => match decode_node(node) {
                (NodeKind::List, number) => self.lists.get(number),
                _ => None,
            },
            _ => None,
        };
        match list {
            Some(FinishedList::Values(traces)) if traces.len() <= MAX_TRACES => {
                let mut end = 0;
                let mut own = |trace: Trace| {
                    // No entry is in two traces.
                    let fits = trace.is_empty() || trace.start >= end;
                    end = end.max(trace.end);
                    fits.then_some(trace)
                };
                let traces = traces.iter().map(|&trace| self.run(trace, NodeKind::Event));
                let traces = traces.map(|trace| trace.and_then(&mut own));
                traces.collect::<Option<Vec<_>>>().ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }

    fn settings_at(&self, value: PickleValue, names: &[Box<str>]) -> Option<RecordedSettings> {
        let word = |value: PickleValue| {
            let name = names.get(as_text_id(value)? as usize)?;
            Some(name.to_string())
        };
        let mut settings = RecordedSettings::default();
        for &(key, value) in self.dict_at(value)? {
            let Some(key) = word(key) else { continue };
            match key.as_str() {
                "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" => settings.conf = word(value),
                // Without a limit it is -1, or the largest number there is.
                "max_split_size" => {
                    let limit = as_unsigned(value).filter(|&size| size < 1 << 62);
                    settings.max_split_size_bytes = limit;
                }
                "garbage_collection_threshold" => {
                    settings.garbage_collection_threshold = match value {
                        PickleValue::Float(share) if share.is_finite() => Some(share),
                        _ => None,
                    }
                }
                "expandable_segments" => {
                    settings.expandable_segments = match value {
                        PickleValue::Bool(is) => Some(is),
                        _ => None,
                    }
                }
                "roundup_power2_divisions" => {
                    let divisions = self.dict_at(value).unwrap_or_default().iter();
                    let divisions = divisions
                        .filter(|(_, division)| as_unsigned(*division) != Some(0))
                        .filter_map(|&(size, division)| {
                            Some((word(size)?, as_unsigned(division)?))
                        });
                    settings.roundup_power2_divisions = divisions.collect();
                }
                _ => {}
            }
        }
        Some(settings)
    }

    fn dict_at(&self, value: PickleValue) -> Option<&[(PickleValue, PickleValue)]> {
        let PickleValue::Node(node) = value else {
            return None;
        };
        match decode_node(node) {
            (NodeKind::Dict, number) => Some(self.dicts.get(number)?),
            _ => None,
        }
    }
}
