//! Locks that have packages of conda's beside those of the index.

use super::*;

const PIXI: Case<'_> = Case {
    format: ImportFormat::PixiLock,
    project: None,
    text: "version: 6
environments:
  default:
    channels:
    - url: https://channels.example.org/conda-forge/
    indexes:
    - https://index.example.org/simple
    packages:
      linux-64:
      - conda: https://channels.example.org/conda-forge/linux-64/python-3.11.9-hb806964_0_cpython.conda
      - conda: https://channels.example.org/conda-forge/linux-64/numpy-1.26.4-py311h64a7726_0.conda
      - conda: https://channels.example.org/conda-forge/linux-64/ffmpeg-6.1-h1.conda
      - conda: https://channels.example.org/conda-forge/linux-64/aom-3.9.1-hac33072_0.conda
      - conda: https://channels.example.org/conda-forge/linux-64/mystery-1.0-h1.conda
      - pypi: https://files.example.org/a/wandb-0.19-py3-none-any.whl
      - pypi: https://files.example.org/a/einops-0.8-py3-none-any.whl
      - pypi: https://builds.example.org/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl
      - pypi: git+https://git.example.org/core.git?branch=main#0123abc
      - pypi: ./
      win-64:
      - pypi: https://files.example.org/a/pywin32-1-cp311-cp311-win_amd64.whl
  test:
    packages:
      linux-64:
      - pypi: https://files.example.org/a/pytest-8-py3-none-any.whl
packages:
- conda: https://channels.example.org/conda-forge/linux-64/aom-3.9.1-hac33072_0.conda
  sha256: 00
- conda: https://channels.example.org/conda-forge/linux-64/ffmpeg-6.1-h1.conda
  sha256: 00
  depends:
  - aom >=3
  - libzlib
  license: GPL
- pypi: https://files.example.org/a/wandb-0.19-py3-none-any.whl
  name: wandb
  version: '0.19'
  sha256: AAA
  requires_dist:
  - click
- pypi: https://files.example.org/a/einops-0.8-py3-none-any.whl
  name: einops
  version: '0.8'
  sha256: AAA
- pypi: https://files.example.org/a/pytest-8-py3-none-any.whl
  name: pytest
  version: '8'
  sha256: AAA
- pypi: https://files.example.org/a/pywin32-1-cp311-cp311-win_amd64.whl
  name: pywin32
  version: '1'
  sha256: AAA
- pypi: https://builds.example.org/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl
  name: torch
  version: 2.6.0+cu124
  sha256: BBB
- pypi: git+https://git.example.org/core.git?branch=main#0123abc
  name: core
  version: '2'
- pypi: ./
  name: net
  version: 0.1.0
  editable: true
",
};

#[test]
fn pixi_lock_has_conda_and_pip() {
    let lines = PIXI.lines(&[], &[]);
    let torch = format!(
        "torch @ https://builds.example.org/torch-2.6.0%2Bcu124-cp311-cp311-linux_x86_64.whl#sha256={B} ; python_version == '3.11'"
    );
    for expected in [
        "core @ git+https://git.example.org/core.git@0123abc",
        "einops==0.8",
        "numpy==1.26.4.*",
        &torch,
        "wandb==0.19",
    ] {
        assert!(
            lines.contains(&expected.to_owned()),
            "{expected}\n{lines:?}"
        );
    }
    assert!(
        !lines
            .iter()
            .any(|line| line.starts_with("pywin32") || line.starts_with("pytest"))
    );
    assert_eq!(PIXI.lines(&[], &["test"]), ["pytest==8"]);
    let (imported, notes) = PIXI.imported();
    let spec = &imported.spec;
    assert_eq!(spec.python.version.as_deref(), Some("3.11"));
    assert_eq!(spec.python.editable, ["."]);
    assert_eq!(spec.system.packages, ["ffmpeg"]);
    for expected in [
        "14 left out: mystery=1.0=h1: not known under this name",
        "decided: aom: wheels and the base",
        "decided: test: environments of the lock",
    ] {
        assert!(notes.contains(expected), "{expected}\n{notes}");
    }
    for version in ["4", "5", "7"] {
        let text = PIXI
            .text
            .replacen('6', version, 1)
            .replace("- pypi: https", "- kind: pypi\n  url: https");
        let text = text.replace("      - kind: pypi\n  url: https", "      - pypi: https");
        let case = Case {
            text: &text,
            ..PIXI
        };
        assert!(
            case.lines(&[], &[]).contains(&"wandb==0.19".to_owned()),
            "{version}"
        );
    }
}

#[test]
fn conda_lock_has_conda_and_pip() {
    let package = |name: &str,
                   version: &str,
                   manager: &str,
                   platform: &str,
                   category: &str,
                   needs: &str| {
        format!(
            "- name: {name}\n  version: '{version}'\n  manager: {manager}\n  platform: {platform}\n  dependencies: {needs}\n  url: https://files.example.org/{name}-{version}-py3-none-any.whl\n  hash:\n    md5: '00'\n    sha256: AAA\n  category: {category}\n  optional: false\n"
        )
    };
    let text = [
        "version: 1\nmetadata:\n  platforms:\n  - linux-64\npackage:\n".to_owned(),
        package(
            "python",
            "3.11.9",
            "conda",
            "linux-64",
            "main",
            "{openssl: '>=3'}",
        ),
        package("pytorch", "2.4.1", "conda", "linux-64", "main", "{aom: ''}"),
        package("aom", "3.9", "conda", "linux-64", "main", "{}"),
        package("mystery", "1", "conda", "linux-64", "main", "{}"),
        package("wandb", "0.19", "pip", "linux-64", "main", "{}"),
        package("pywin32", "1", "pip", "win-64", "main", "{}"),
        package("ruff", "0.9", "pip", "linux-64", "dev", "{}"),
    ]
    .concat();
    let case = Case {
        format: ImportFormat::CondaLock,
        text: &text,
        project: None,
    };
    assert_eq!(case.lines(&[], &[]), ["torch==2.4.1.*", "wandb==0.19"]);
    assert!(case.lines(&[], &["dev"]).contains(&"ruff==0.9".to_owned()));
    assert_eq!(case.pins(&[], &[]).packages[1].files[0].sha256, A);
    let (imported, notes) = case.imported();
    assert_eq!(imported.spec.python.version.as_deref(), Some("3.11"));
    for expected in [
        "left out: mystery==1: not known",
        "decided: aom: wheels",
        "left out: the group `dev`",
    ] {
        assert!(notes.contains(expected), "{expected}\n{notes}");
    }
}
