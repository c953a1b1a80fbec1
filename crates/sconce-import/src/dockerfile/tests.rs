use super::super::tests::format_notes;
use super::*;

fn beside(path: &str) -> Option<String> {
    let text = match path {
        "requirements.txt" => "transformers==4.48.0\nnumpy\n",
        "docker/reqs.txt" => "torch==2.5.1\ntqdm\n",
        "environment.yml" => "dependencies: [pytorch=2.6, ffmpeg]\n",
        "pyproject.toml" => {
            "[project]\ndependencies = [\"einops\"]\n[project.optional-dependencies]\ntrain = [\"wandb\"]\n"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn read(text: &str) -> (ImportedSpec, String) {
    let adopted = convert(text, &beside).expect("it can be adopted");
    let said = format_notes(&adopted);
    (adopted, said)
}

#[test]
fn a_usual_dockerfile() {
    let (adopted, said) = read(
        "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\n\
         ENV DEBIAN_FRONTEND=noninteractive PYTHONUNBUFFERED=1 PYTHONPATH=/app/src:/opt/x\n\
         RUN apt-get update && apt-get install -y --no-install-recommends \\\n    git=1:2.34 \\\n    libgl1-mesa-glx \\\n && rm -rf /var/lib/apt/lists/*\n\
         WORKDIR /app\nCOPY requirements.txt .\nRUN pip install --no-cache-dir -r requirements.txt\n\
         COPY . .\nEXPOSE 8080\nCMD [\"python\", \"/app/train.py\"]\n",
    );
    let spec = &adopted.spec;
    assert_eq!(
        spec.python.packages,
        [
            "torch==2.6.0",
            "torchvision",
            "transformers==4.48.0",
            "numpy"
        ]
    );
    assert_eq!(spec.system.packages, ["git", "libgl1"]);
    assert_eq!(spec.run.command, ["python", "/workspace/train.py"]);
    assert_eq!(spec.run.workdir, None);
    assert_eq!(spec.run.env["PYTHONPATH"], "/workspace/src:/opt/x");
    assert_eq!(spec.run.env["PYTHONUNBUFFERED"], "1");
    assert_eq!(spec.run.env.len(), 2);
    assert!(spec.run.mounts.is_empty());
    for expected in [
        "3 decided: git=1:2.34: Debian's own version",
        "9 decided: requirements.txt: its requirements are copied",
        "11 decided: port 8080",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}

#[test]
fn requirements_alone_are_referred_to() {
    let (adopted, _) = read(
        "FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\nCOPY docker/reqs.txt /tmp/reqs.txt\n\
         RUN cd /tmp && python3 -m pip install -U pip && pip3 install -r reqs.txt\n",
    );
    let python = &adopted.spec.python;
    assert_eq!(python.requirements.as_deref(), Some("docker/reqs.txt"));
    assert!(python.packages.is_empty() && adopted.spec.run.mounts.is_empty());
    // Which Python torch 2.5 has wheels for, `lock` tells.
    assert_eq!(adopted.spec.python.version, None);
    let (adopted, said) = read("FROM python:3.13\nRUN pip install -r gone.txt\n");
    assert_eq!(adopted.spec.python.requirements, None);
    assert!(
        said.contains("2 left out: -r gone.txt: the file is not beside"),
        "{said}"
    );
}

#[test]
fn an_entrypoint_that_the_image_alone_has_is_left_out() {
    let written =
        "FROM python:3.13\nRUN printf 'exec \"$@\"' > /entry.sh\nENTRYPOINT [\"/entry.sh\"]\n";
    let (adopted, said) = read(&format!("{written}RUN pip install tqdm\n"));
    assert_eq!(adopted.spec.run.command, [""; 0]);
    assert!(
        said.contains("left out: /entry.sh: the image alone"),
        "{said}"
    );
    let (adopted, _) = read(&format!(
        "{written}RUN pip install tqdm\nCMD [\"python\", \"a.py\"]\n"
    ));
    assert_eq!(adopted.spec.run.command, ["python", "a.py"]);
    let (adopted, said) = read(
        "FROM python:3.13\nRUN pip install tqdm\nCOPY docker/entry.sh /entry.sh\nENTRYPOINT [\"/entry.sh\"]\n",
    );
    assert_eq!(adopted.spec.run.command, ["/entry.sh"], "{said}");
}

#[test]
fn the_ways_to_install() {
    let (adopted, said) = read(
        "FROM python:3.13-slim\n\
         RUN pip install torch==2.6.0 --index-url https://me:pw@builds.example.org/whl/cu118\n\
         RUN uv pip install --system \"numpy>=2\" 'ray[data]' ; sudo -E /opt/conda/bin/pip install tqdm\n\
         RUN [\"pip\", \"install\", \"rich>=13\"]\n\
         RUN bash -lc \"pip install wandb && conda install -y -c pytorch einops=0.8 gcc libcurl\"\n\
         RUN <<EOF\nset -e\npip install safetensors\nEOF\n\
         RUN pip install git+https://git.example.org/x ./local.whl \"y==$VERSION\"\n\
         RUN pip install -e .[train]\nRUN conda env update --file environment.yml\n\
         RUN if [ -f x ]; then pip install maybe; fi; make -j4; uv sync --frozen\n",
    );
    assert_eq!(
        adopted.spec.python.packages,
        [
            "numpy>=2",
            "ray[data]",
            "tqdm",
            "rich>=13",
            "wandb",
            "einops==0.8.*",
            "safetensors",
            "git+https://git.example.org/x",
            "torch==2.6.*",
        ]
        .map(str::to_owned)
        .to_vec()
    );
    assert_eq!(
        adopted.spec.python.extra_index,
        ["https://builds.example.org/whl/cu118"]
    );
    assert_eq!(adopted.spec.system.packages, ["ffmpeg"]);
    for expected in [
        "2 decided: https://builds.example.org/whl/cu118: the login",
        "5 left out: gcc: nothing is compiled",
        "5 decided: libcurl: wheels and the base of every environment bring their own",
        "10 left out: ./local.whl: a file of this machine",
        "10 left out: y==${VERSION}: its text depends",
        "13 left out: pip install maybe: it is installed under a condition",
        "13 left out: make -j4: an environment is made without",
        "12 decided: torch==2.6.*: takes the place of torch==2.6.0",
        "13 left out: uv sync --frozen: give the file",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    assert!(!said.contains("pw@"), "{said}");
}

#[test]
fn stages() {
    let (adopted, said) = read(
        "ARG TAG=3.11-slim\nFROM registry.example.org/library/python:${TAG} AS base\nRUN apt-get install -y git\n\
         FROM base AS builder\nRUN apt-get install -y build-essential && python -m venv /venv && /venv/bin/pip install torch==2.6.0\n\
         FROM base\nCOPY --from=builder /venv /venv\nENV PATH=/venv/bin:$PATH\nENTRYPOINT [\"python\", \"-m\", \"net\"]\n\
         HEALTHCHECK CMD true\n",
    );
    let spec = &adopted.spec;
    assert_eq!(spec.python.packages, ["torch==2.6.0"]);
    assert_eq!(spec.python.version.as_deref(), Some("3.11"));
    assert_eq!(spec.system.packages, ["git"]);
    assert_eq!(spec.run.command, ["python", "-m", "net"]);
    for expected in [
        "7 decided: the stage builder: files of it",
        "8 left out: PATH: the environment has its own",
        "10 left out: HEALTHCHECK",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}

#[test]
fn folders_of_the_image_are_the_specs_or_mounted() {
    let (adopted, said) = read(
        "FROM python:3.13\nWORKDIR /srv\nCOPY src/ /srv/net\nCOPY data /data\nCOPY *.toml ./\nCOPY a.py b.py /srv/net/\n\
         WORKDIR net\nCMD python run.py --config /srv/a.toml --data /data\n",
    );
    let run = &adopted.spec.run;
    assert_eq!(run.workdir.as_deref(), Some("/workspace/src"));
    assert_eq!(run.mounts[0].to_string(), "./data:/data");
    assert!(said.contains("4 decided: data /data: mounted"), "{said}");
    let (adopted, _) = read(
        "FROM python:3.13\nWORKDIR /app\nCOPY train.py lib ./\nCMD [\"python\", \"/app/train.py\"]\n",
    );
    assert_eq!(adopted.spec.run.command, ["python", "/workspace/train.py"]);
    let (adopted, said) = read("FROM python:3.13\nCMD [\"/bin/bash\"]\n");
    assert!(adopted.spec.run.command.is_empty() && said.contains("`sconce shell`"));
}

#[test]
fn variables_that_are_no_variables_of_a_run() {
    let (adopted, said) = read(
        "FROM python:3.13\nENV HF_TOKEN=abc TORCH_CUDA_ARCH_LIST=8.0 NVIDIA_VISIBLE_DEVICES=all\n\
         ENV A=1 B=\"two words\" C=$A/$D PIP_EXTRA_INDEX_URL=https://i.example.org/simple\nENV OLD the rest of it\n",
    );
    let run = &adopted.spec.run;
    assert_eq!(
        (run.env["B"].as_str(), run.env["OLD"].as_str()),
        ("two words", "the rest of it")
    );
    assert_eq!(run.env.len(), 3);
    assert_eq!(
        adopted.spec.python.extra_index,
        ["https://i.example.org/simple"]
    );
    assert!(
        said.contains("2 left out: HF_TOKEN: it looks like a secret"),
        "{said}"
    );
    assert!(
        said.contains("3 left out: C=1/${D}") || said.contains("3 left out: C=${A}/${D}"),
        "{said}"
    );
}

#[test]
fn what_is_no_dockerfile_is_refused() {
    for text in ["", "# a\n", "RUN pip install x\n"] {
        assert!(matches!(
            convert(text, &beside),
            Err(ImportError::Nothing { .. })
        ));
    }
    let (_, said) = read("FROM python:3.13\nFRUM x\n");
    assert!(said.contains("2 left out: FRUM"), "{said}");
}
