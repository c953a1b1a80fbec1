//! What a stack says: the line of the user's own code, the module, and what the memory is likely for.

use std::collections::HashMap;

use sconce_schema::finding::Certainty;
use serde::{Deserialize, Serialize};

use crate::snapshot::{Snapshot, StackFrame, StackId};

/// What memory is for, as far as a stack tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryCategory {
    /// Weights and buffers of modules.
    Parameters,
    /// What the forward pass makes, kept for the backward pass or not.
    Activations,
    /// Gradients, and what the backward pass needs on its way.
    Backward,
    /// What an optimizer keeps from step to step.
    OptimizerState,
    /// What an optimizer needs within a step.
    OptimizerWork,
    /// Buffers of collectives and of sharding.
    Communication,
    /// Workspaces of CUDA libraries.
    Workspace,
    /// Nothing is known of it.
    Other,
}

/// A line of the user's own code; of a library where no other is in the stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceLocation {
    /// File, as the interpreter names it.
    pub file: String,
    /// Line, where it is known.
    pub line: Option<u32>,
    /// Function.
    pub function: String,
}

/// The code of a module's forward pass: file, first and last line, and the class that has it. A stack
/// names functions, not classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardFunction(pub String, pub u32, pub u32, pub String);

/// Forward passes by their files.
struct Forwards<'s>(HashMap<&'s str, Vec<&'s ForwardFunction>>);

impl<'s> Forwards<'s> {
    fn of(all: &'s [ForwardFunction]) -> Self {
        let mut by_file: HashMap<&str, Vec<&ForwardFunction>> = HashMap::new();
        for one in all {
            by_file.entry(&one.0).or_default().push(one);
        }
        Self(by_file)
    }

    /// The class that has this code; of functions inside each other the inner one's.
    fn class(&self, frame: &StackFrame) -> Option<&'s str> {
        let line = frame.line?;
        let of_file = self.0.get(frame.filename)?.iter();
        let around = of_file.filter(|one| (one.1..=one.2).contains(&line));
        around.max_by_key(|one| one.1).map(|one| one.3.as_str())
    }
}

/// What a stack says, in numbers of [`StackIndex`].
#[derive(Debug, Clone, Copy)]
pub(super) struct StackSummary {
    /// Absent where the stack is empty or was not recorded.
    pub(super) place: Option<usize>,
    /// Absent outside of modules.
    pub(super) module: Option<usize>,
    pub(super) category: (MemoryCategory, Certainty),
}

/// What the stacks of a snapshot say.
pub(super) struct StackIndex {
    pub(super) places: Vec<SourceLocation>,
    pub(super) modules: Vec<String>,
    stacks: Vec<StackSummary>,
}

/// Of memory whose allocation is in no trace and no block.
const UNRECORDED: StackSummary = StackSummary {
    place: None,
    module: None,
    category: (MemoryCategory::Other, Certainty::Certain),
};

impl StackIndex {
    /// Modules are named by their classes where `forwards` has them.
    pub(super) fn from_snapshot(snapshot: &Snapshot, forwards: &[ForwardFunction]) -> Self {
        let forwards = Forwards::of(forwards);
        let mut places = Self {
            places: Vec::new(),
            modules: Vec::new(),
            stacks: Vec::with_capacity(snapshot.stack_count()),
        };
        let mut place_numbers = HashMap::new();
        let mut module_numbers = HashMap::new();
        for number in 0..u32::try_from(snapshot.stack_count()).unwrap_or(u32::MAX) {
            let frames: Vec<StackFrame> = snapshot.stack_frames(StackId(number)).collect();
            let place = own(&frames).map(|frame| {
                *place_numbers.entry(frame).or_insert_with(|| {
                    places.places.push(SourceLocation {
                        file: frame.filename.to_owned(),
                        line: frame.line,
                        function: frame.name.to_owned(),
                    });
                    places.places.len() - 1
                })
            });
            let module = module(&frames, &forwards).map(|path| {
                *module_numbers.entry(path).or_insert_with_key(|path| {
                    places.modules.push(path.clone());
                    places.modules.len() - 1
                })
            });
            places.stacks.push(StackSummary {
                place,
                module,
                category: category(&frames),
            });
        }
        places
    }

    pub(super) fn stack_summary(&self, stack: Option<StackId>) -> StackSummary {
        let said = stack.and_then(|stack| self.stacks.get(stack.0 as usize));
        said.copied().unwrap_or(UNRECORDED)
    }

    /// The user's own line of a stack.
    pub(super) fn source_location(&self, stack: Option<StackId>) -> Option<SourceLocation> {
        self.places.get(self.stack_summary(stack).place?).cloned()
    }
}

/// Files of Python code, also of notebooks and of code that was typed.
pub(super) fn is_python(frame: &StackFrame) -> bool {
    let file = frame.filename;
    file.ends_with(".py") || (file.starts_with('<') && !file.starts_with("<frozen"))
}

/// Where installed packages and the standard library lie, and what torch generates.
fn is_library(frame: &StackFrame) -> bool {
    const PARTS: [&str; 5] = [
        "/site-packages/",
        "/dist-packages/",
        "/lib/python3",
        "<eval_with_key>",
        "/torchinductor_",
    ];
    PARTS.iter().any(|part| frame.filename.contains(part)) || in_torch(frame).is_some()
}

/// The path below torch's folder, of an installed torch or a checkout.
fn in_torch<'s>(frame: &StackFrame<'s>) -> Option<&'s str> {
    const ROOMS: [&str; 12] = [
        "nn/",
        "optim/",
        "autograd/",
        "utils/",
        "cuda/",
        "distributed/",
        "fx/",
        "amp/",
        "_",
        "functional.py",
        "tensor.py",
        "library.py",
    ];
    let (_, path) = frame.filename.rsplit_once("/torch/")?;
    let installed = frame.filename.contains("-packages/torch/");
    let known = installed || ROOMS.iter().any(|room| path.starts_with(room));
    known.then_some(path)
}

/// The user's own line: the innermost Python frame outside of libraries; else outside of torch; else
/// the innermost one. Autograd's threads run no Python: there it is what is differentiated, where
/// frames of C++ were recorded.
fn own<'s>(frames: &[StackFrame<'s>]) -> Option<StackFrame<'s>> {
    let python = || frames.iter().filter(|frame| is_python(frame));
    python()
        .find(|frame| !is_library(frame))
        .or_else(|| python().find(|frame| in_torch(frame).is_none()))
        .or_else(|| python().next())
        .copied()
        .or_else(|| frames.iter().find_map(node))
}

/// A node of autograd's graph, by the function that runs it:
/// `torch::autograd::generated::AddmmBackward0::apply(…)`.
fn node<'s>(frame: &StackFrame<'s>) -> Option<StackFrame<'s>> {
    let (path, _) = frame.name.split_once("::apply(")?;
    let (room, name) = path.rsplit_once("::")?;
    room.starts_with("torch::autograd").then_some(StackFrame {
        filename: "autograd",
        name,
        line: None,
    })
}

fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.strip_suffix(".py").unwrap_or(name)
}

/// The modules that are inside each other, the outermost first: `Block > Linear`. Where the class of a
/// `forward` is not known, the line tells one module of a file from another, and torch's own are named by
/// their file: `model.py:21 > linear`.
fn module(frames: &[StackFrame], forwards: &Forwards) -> Option<String> {
    // Frames of C++ stand between those of Python where both were recorded.
    let frames = frames.iter().filter(|frame| is_python(frame));
    let frames: Vec<StackFrame> = frames.copied().collect();
    let is_call = |frame: &StackFrame| {
        frame.name == "_call_impl" && in_torch(frame) == Some("nn/modules/module.py")
    };
    let mut path: Vec<String> = Vec::new();
    // Of frames inside each other, the next one is the caller.
    for at in (1..frames.len()).rev() {
        let (called, caller) = (&frames[at - 1], &frames[at]);
        if !is_call(caller) || is_call(called) || called.name.starts_with("_wrapped") {
            continue;
        }
        // A forward pass may be wrapped in others: it is the first that is known.
        let inside = frames[..at]
            .iter()
            .rev()
            .take_while(|frame| !is_call(frame));
        let class = inside.filter_map(|frame| forwards.class(frame)).next();
        let name = match (class, in_torch(called), called.line) {
            (Some(class), ..) => class.to_owned(),
            (None, None, Some(line)) => format!("{}.py:{line}", stem(called.filename)),
            _ => stem(called.filename).to_owned(),
        };
        if path.last() != Some(&name) {
            path.push(name);
        }
    }
    (!path.is_empty()).then(|| path.join(" > "))
}

/// Names of functions that make or move a module's parameters.
const MAKES_PARAMETERS: [&str; 8] = [
    "_apply",
    "convert",
    "reset_parameters",
    "_load_from_state_dict",
    "load_state_dict",
    "from_pretrained",
    "_load_state_dict_into_model",
    "materialize",
];

/// What memory is for. The innermost frame that tells decides: a forward pass that is done again within
/// the backward pass makes activations.
fn category(frames: &[StackFrame]) -> (MemoryCategory, Certainty) {
    let told = frames.iter().find_map(|frame| {
        let name = frame.name;
        let torch = in_torch(frame).unwrap_or_default();
        let below = |room: &str| torch.starts_with(room);
        Some(if below("optim/") {
            match name {
                "_init_group" | "_init_state" => MemoryCategory::OptimizerState,
                _ => MemoryCategory::OptimizerWork,
            }
        } else if MAKES_PARAMETERS.contains(&name)
            || below("nn/init.py")
            || below("nn/parameter.py")
            || (below("nn/modules/") && name == "__init__")
        {
            MemoryCategory::Parameters
        } else if below("distributed/") || name.contains("c10d::") {
            MemoryCategory::Communication
        } else if name.contains("Workspace") {
            MemoryCategory::Workspace
        } else if below("autograd/") && name.contains("backward")
            || below("_tensor.py") && name == "backward"
            || name.contains("autograd::Engine")
        {
            MemoryCategory::Backward
        } else if name == "forward" || (below("nn/modules/module.py") && name == "_call_impl") {
            MemoryCategory::Activations
        } else {
            return None;
        })
    });
    match told {
        Some(category) => (category, Certainty::Likely),
        // Autograd's threads run no Python: their memory has no Python frames.
        None if !frames.iter().any(is_python) => (MemoryCategory::Backward, Certainty::Possible),
        None => (MemoryCategory::Other, Certainty::Certain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame<'s>(text: &'s str) -> StackFrame<'s> {
        let (filename, name) = text.split_once(' ').unwrap();
        let (filename, line) = filename.split_once(':').unwrap_or((filename, "0"));
        StackFrame {
            filename,
            name,
            line: line.parse().ok().filter(|&line| line > 0),
        }
    }

    fn frames<'s>(texts: &[&'s str]) -> Vec<StackFrame<'s>> {
        texts.iter().map(|text| frame(text)).collect()
    }

    const T: &str = "/v/lib/python3.12/site-packages/torch";

    fn in_module(inner: &[&str], outer: &[&str]) -> Vec<String> {
        let call = format!("{T}/nn/modules/module.py:1784 _call_impl");
        let wrapped = format!("{T}/nn/modules/module.py:1773 _wrapped_call_impl");
        let mut all: Vec<String> = inner.iter().map(|text| text.replace('$', T)).collect();
        all.extend([call, wrapped]);
        all.extend(outer.iter().map(|text| text.replace('$', T)));
        all
    }

    #[test]
    fn the_users_own_line_comes_first() {
        let of = |texts: &[&str]| own(&frames(texts)).map(|frame| frame.filename.to_owned());
        let torch = "/v/lib/python3.12/site-packages/torch/nn/modules/linear.py forward";
        let other = "/v/lib/python3.12/site-packages/timm/layers/mlp.py forward";
        let own = "/home/user/train.py main";
        let checkout = "/src/pytorch/torch/nn/functional.py linear";
        assert_eq!(of(&[torch, other, own]).unwrap(), "/home/user/train.py");
        assert!(of(&[torch, other]).unwrap().ends_with("mlp.py"));
        assert!(of(&[torch]).unwrap().ends_with("linear.py"));
        assert_eq!(of(&[checkout, own]).unwrap(), "/home/user/train.py");
        assert_eq!(
            of(&["?? c10::cuda::malloc", own]).unwrap(),
            "/home/user/train.py"
        );
        assert_eq!(
            of(&["<frozen runpy> _run_code", "<stdin> f"]).unwrap(),
            "<stdin>"
        );
        // Autograd's threads run no Python (frames of torch 2.9, shortened).
        let backward = [
            "?? torch::unwind::unwind()",
            "?? torch::autograd::generated::AddmmBackward0_apply_functional(c10::Scalar)",
            "?? torch::autograd::generated::AddmmBackward0::apply(std::vector)",
            "?? torch::autograd::Engine::thread_main(std::shared_ptr)",
        ];
        assert_eq!(of(&backward).unwrap(), "autograd");
        let backward = frames(&backward);
        assert_eq!(super::own(&backward).unwrap().name, "AddmmBackward0");
        assert_eq!(
            category(&backward),
            (MemoryCategory::Backward, Certainty::Likely)
        );
        assert_eq!(of(&["?? clone"]), None);
        // A user's own folder may be called torch.
        assert_eq!(
            of(&["/home/user/torch/train.py f"]).unwrap(),
            "/home/user/torch/train.py"
        );
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn modules_are_forwards_inside_each_other() {
        let inner = in_module(
            &[
                "$/nn/functional.py relu",
                "$/nn/modules/linear.py:134 forward",
            ],
            &[],
        );
        let inner: Vec<&str> = inner.iter().map(String::as_str).collect();
        let all = in_module(
            &[&inner[..], &["/home/user/model.py:21 forward"]].concat(),
            &["/home/user/train.py:33 step"],
        );
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let none = Forwards::of(&[]);
        let module = |frames: &[StackFrame]| super::module(frames, &none);
        assert_eq!(module(&frames(&all)).unwrap(), "model.py:21 > linear");
        // Where the probe told whose code it is; a forward pass may be wrapped in another function.
        let code = |file: &str, first, last, class: &str| {
            ForwardFunction(file.to_owned(), first, last, class.to_owned())
        };
        let known = [
            code("/home/user/model.py", 10, 30, "Block"),
            code("/home/user/model.py", 31, 40, "Other"),
            code(&format!("{T}/nn/modules/linear.py"), 130, 135, "Linear"),
        ];
        let known = Forwards::of(&known);
        let named = |frames: &[StackFrame]| super::module(frames, &known).unwrap();
        assert_eq!(named(&frames(&all)), "Block > Linear");
        let wrapped = in_module(
            &["/home/user/model.py:35 forward", "/v/wrap.py:9 wrapper"],
            &["/home/user/train.py:33 step"],
        );
        let wrapped: Vec<&str> = wrapped.iter().map(String::as_str).collect();
        assert_eq!(named(&frames(&wrapped)), "Other");
        assert_eq!(category(&frames(&all)).0, MemoryCategory::Activations);
        assert_eq!(module(&frames(&["/home/user/train.py:33 step"])), None);
        // Frames of C++ stand between them where they were recorded too.
        let mixed: Vec<&str> = all
            .iter()
            .flat_map(|frame| [*frame, "/usr/lib/libpython3.12.so:1421779 _PyEval"])
            .collect();
        assert_eq!(module(&frames(&mixed)).unwrap(), "model.py:21 > linear");
    }

    #[test]
    fn categories_are_told_by_the_innermost_frame_that_tells() {
        let of = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| text.replace('$', T)).collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            category(&frames(&texts))
        };
        let likely = |category| (category, Certainty::Likely);
        assert_eq!(
            of(&["$/nn/modules/module.py _apply", "/h/train.py main"]),
            likely(MemoryCategory::Parameters)
        );
        assert_eq!(
            of(&["$/optim/adamw.py _init_group"]),
            likely(MemoryCategory::OptimizerState)
        );
        assert_eq!(
            of(&["$/optim/adam.py _multi_tensor_adam"]),
            likely(MemoryCategory::OptimizerWork)
        );
        assert_eq!(
            of(&["$/autograd/graph.py _engine_run_backward"]),
            likely(MemoryCategory::Backward)
        );
        assert_eq!(
            of(&["$/_tensor.py backward"]),
            likely(MemoryCategory::Backward)
        );
        // A checkpoint's second forward pass, and a closure of an optimizer.
        assert_eq!(
            of(&["/h/model.py forward", "$/_tensor.py backward"]),
            likely(MemoryCategory::Activations)
        );
        assert_eq!(
            of(&[
                "/h/model.py forward",
                "/h/train.py closure",
                "$/optim/lbfgs.py step"
            ]),
            likely(MemoryCategory::Activations)
        );
        assert_eq!(of(&[]), (MemoryCategory::Backward, Certainty::Possible));
        assert_eq!(
            of(&["/h/train.py main"]),
            (MemoryCategory::Other, Certainty::Certain)
        );
        assert_eq!(
            of(&["?? at::cuda::getCUDABlasLtWorkspace"]),
            likely(MemoryCategory::Workspace)
        );
    }
}
