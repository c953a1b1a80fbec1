//! What the image of a `FROM` says about the environment.

use super::super::conda::CUDA;
use super::super::draft::Draft;
use super::super::requirement;
use sconce_formats::torch_builds::cuda_of_torch;

use super::super::specifier::parse_numbers;

/// A reference, taken apart: `registry.example.org:5000/pytorch/pytorch:TAG@sha256:…`.
#[derive(Debug, PartialEq, Eq)]
struct Image<'a> {
    /// Without the registry.
    path: Vec<&'a str>,
    tag: Option<&'a str>,
}

impl<'a> Image<'a> {
    fn parse(text: &'a str) -> Self {
        let text = text.split('@').next().unwrap_or_default();
        let mut path: Vec<&str> = text.split('/').collect();
        let last = path.pop().unwrap_or_default();
        let (name, tag) = match last.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (last, None),
        };
        path.push(name);
        // The first part is a registry where it looks like a host (distribution's reference rule).
        let host = |part: &str| part.contains(['.', ':']) || part == "localhost";
        if path.len() > 1 && host(path[0]) {
            path.remove(0);
        }
        Self { path, tag }
    }

    fn is(&self, owner: &str, name: &str) -> bool {
        self.path.ends_with(&[owner, name])
    }

    fn name(&self) -> &str {
        self.path.last().copied().unwrap_or_default()
    }
}

const DEVEL: &str = "an environment has no CUDA compiler: take what is built with it as wheels";

/// Puts what the image holds into the draft.
pub(super) fn apply_base_image(reference: &str, line: usize, draft: &mut Draft) {
    let image = Image::parse(reference);
    let tag = image.tag.unwrap_or("latest");
    if image.is("pytorch", "pytorch") {
        pytorch(reference, tag, line, draft);
    } else if image.is("nvidia", "cuda") {
        cuda(reference, tag, line, draft);
    } else if image.is("nvidia", "pytorch") {
        let why = "NVIDIA's own build of PyTorch is not on any package index: name the torch that comes closest in `[python] packages`";
        draft.left_out(line, reference, why);
    } else if let Some(version) = python_of(&image, tag) {
        draft.set_python(Some(line), &version);
    } else if matches!(image.name(), "debian" | "ubuntu" | "buildpack-deps") {
        system(reference, tag, line, draft);
    } else if image.name() != "scratch" {
        let why = "what this image holds is not known: name what is needed of it in `[python] packages` and `[system] packages`";
        draft.left_out(line, reference, why);
    }
}

/// `2.6.0-cuda12.4-cudnn9-runtime`.
fn pytorch(reference: &str, tag: &str, line: usize, draft: &mut Draft) {
    let version = tag.split('-').next().unwrap_or_default();
    let cuda = tag.split('-').find_map(|part| part.strip_prefix("cuda"));
    let exact =
        parse_numbers(version).filter(|_| version.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    let mut batch = Vec::new();
    let torch = match &exact {
        Some(_) => format!("torch=={version}"),
        None => "torch".to_owned(),
    };
    for text in [torch.as_str(), "torchvision"] {
        batch.extend(requirement::parse(text));
    }
    draft.add_requirements(Some(line), batch);
    if exact.is_none() {
        let why = "its tag names no version, so the newest torch is taken";
        draft.note_decision(line, reference, why.to_owned());
        return;
    };
    let rest = "what else it holds (torchaudio, conda's packages) has to be named";
    match (cuda, cuda_of_torch(version)) {
        (Some(cuda), Some(usual)) if cuda == usual => {
            let why = format!(
                "becomes {torch}, whose usual wheels are for CUDA {usual} too, and torchvision; {rest}"
            );
            draft.note_decision(line, reference, why);
        }
        (Some(cuda), usual) if is_version(cuda) => {
            let why = format!("becomes {torch} and torchvision; {rest}");
            draft.note_decision(line, reference, why);
            let usual = usual
                .map(|usual| format!(", the usual wheels of torch {version} are for {usual}"))
                .unwrap_or_default();
            let local = cuda.split('.').take(2).collect::<String>();
            let why = format!(
                "the image has it{usual}; for this one, ask for `{torch}+cu{local}` and add PyTorch's own index, which ends in /whl/cu{local}, as `[python] extra-index`"
            );
            draft.left_out(line, &format!("CUDA {cuda}"), why);
        }
        _ => {
            let why = format!("becomes {torch} and torchvision; {rest}");
            draft.note_decision(line, reference, why);
        }
    }
    if tag.ends_with("-devel") {
        draft.left_out(line, "-devel", DEVEL);
    }
}

fn is_version(text: &str) -> bool {
    !text.is_empty() && text.len() < 12 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// `12.4.1-cudnn-devel-ubuntu22.04`.
fn cuda(reference: &str, tag: &str, line: usize, draft: &mut Draft) {
    draft.left_out(line, reference, CUDA);
    if tag.contains("-devel") {
        draft.left_out(line, "-devel", DEVEL);
    }
}

/// `python:3.11-slim`, and images whose tag names a Python (`uv:python3.12-bookworm`).
fn python_of(image: &Image<'_>, tag: &str) -> Option<String> {
    let version = match tag.find("python") {
        _ if image.name() == "python" => tag,
        Some(at) => &tag[at + 6..],
        None => return None,
    };
    let version = version.split('-').next()?;
    let numbers = parse_numbers(version)?;
    match numbers.as_slice() {
        [3, minor, ..] => Some(format!("3.{minor}")),
        _ => None,
    }
}

fn system(reference: &str, tag: &str, line: usize, draft: &mut Draft) {
    if tag.starts_with("bookworm") || tag.starts_with("12") {
        draft.spec.system.release = "debian/bookworm".to_owned();
    } else if !(tag.starts_with("trixie") || tag.starts_with("13")) {
        let why = "environments are made of Debian: trixie is taken".to_owned();
        draft.note_decision(line, reference, why);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::format_notes;
    use super::*;

    fn applied(reference: &str) -> (Vec<String>, String, String) {
        let mut draft = Draft::default();
        apply_base_image(reference, 1, &mut draft);
        let adopted = draft.finish();
        let said = format_notes(&adopted);
        let python = adopted.spec.python;
        (python.packages, python.version.unwrap_or_default(), said)
    }

    #[test]
    fn pytorchs_images_are_a_version_of_torch() {
        for reference in [
            "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
            "registry.example.org:5000/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
            "localhost/cache/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime@sha256:00",
        ] {
            let (packages, _, said) = applied(reference);
            assert_eq!(packages, ["torch==2.6.0", "torchvision"], "{reference}");
            assert!(
                said.contains("CUDA 12.4 too") && !said.contains("left out"),
                "{said}"
            );
        }
        let (packages, python, said) = applied("pytorch/pytorch:2.4.1-cuda11.8-cudnn9-devel");
        assert_eq!(packages[0], "torch==2.4.1");
        assert_eq!(python, "");
        for expected in [
            "left out: CUDA 11.8",
            "12.1",
            "torch==2.4.1+cu118",
            "left out: -devel",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
        let (packages, _, said) = applied("pytorch/pytorch");
        assert_eq!(packages, ["torch", "torchvision"]);
        assert!(said.contains("the newest torch"), "{said}");
    }

    #[test]
    fn other_images() {
        let (packages, _, said) = applied("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04");
        assert!(packages.is_empty());
        assert!(
            said.contains("bring their own CUDA") && said.contains("-devel"),
            "{said}"
        );
        assert_eq!(applied("python:3.11-slim").1, "3.11");
        assert_eq!(
            applied("registry.example.org/x/uv:python3.13-bookworm").1,
            "3.13"
        );
        assert_eq!(applied("python:3.10").1, "3.10");
        assert!(applied("python:3.7").2.contains("out of reach"));
        assert!(
            applied("registry.example.org/nvidia/pytorch:24.05-py3")
                .2
                .contains("NVIDIA's own")
        );
        assert!(applied("me/mine:1").2.contains("is not known"));
        assert_eq!(applied("scratch").2, "");
    }

    #[test]
    fn odd_references_are_read() {
        for text in [
            "",
            ":",
            "@",
            "/",
            "a/:b",
            "${TAG}",
            "pytorch/pytorch:-cuda",
            "pytorch/pytorch:2.é-cudaé",
        ] {
            let _ = applied(text);
        }
    }
}
