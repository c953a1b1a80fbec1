//! What processes are called, told once a file.

use std::collections::HashMap;

use sconce_schema::event::{ProcessSample, Sample};

/// As many are kept of one file. Writer and reader leave out the same ones.
const MAX_NAMES: usize = 1 << 16;

/// The processes that one file of a record has named so far.
#[derive(Debug, Default)]
pub(crate) struct ProcessNames(HashMap<u32, ProcessSample>);

impl ProcessNames {
    /// Leaves out what the file has said of a process already.
    pub(crate) fn omit_repeated_details(&mut self, sample: &mut Sample) {
        for process in &mut sample.by_process {
            let known = self.0.get(&process.pid);
            if known.is_some_and(|known| same(known, process)) {
                process.inner_pid = None;
                process.parent = 0;
                process.name = String::new();
                process.role = None;
            } else {
                self.keep(process);
            }
        }
    }

    fn keep(&mut self, process: &ProcessSample) {
        if self.0.len() < MAX_NAMES || self.0.contains_key(&process.pid) {
            self.0.insert(process.pid, process.clone());
        }
    }

    /// Puts back what was left out.
    pub(crate) fn restore_omitted_details(&mut self, sample: &mut Sample) {
        for process in &mut sample.by_process {
            if !process.name.is_empty() {
                self.keep(process);
            } else if let Some(known) = self.0.get(&process.pid) {
                process.inner_pid = known.inner_pid;
                process.parent = known.parent;
                process.name.clone_from(&known.name);
                process.role.clone_from(&known.role);
            }
        }
    }
}

fn same(a: &ProcessSample, b: &ProcessSample) -> bool {
    let identity = |of: &ProcessSample| (of.inner_pid, of.parent);
    identity(a) == identity(b) && a.name == b.name && a.role == b.role
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_once_and_put_back() {
        let process = |pid, name: &str, role: Option<&str>| ProcessSample {
            pid,
            parent: 1,
            name: name.to_owned(),
            role: role.map(str::to_owned),
            cpu_us: 7,
            ..ProcessSample::default()
        };
        let sample = |by_process: Vec<ProcessSample>| Sample {
            by_process,
            ..Sample::default()
        };
        let told = [
            sample(vec![process(5, "python", None), process(6, "", None)]),
            sample(vec![process(5, "python", None)]),
            sample(vec![process(5, "python", Some("main"))]),
            sample(vec![process(5, "python", None)]),
        ];
        let (mut writer, mut reader) = (ProcessNames::default(), ProcessNames::default());
        for (n, sample) in told.iter().enumerate() {
            let mut written = sample.clone();
            writer.omit_repeated_details(&mut written);
            assert_eq!(written.by_process[0].name.is_empty(), n == 1, "{n}");
            reader.restore_omitted_details(&mut written);
            assert_eq!(&written, sample);
        }
    }
}
