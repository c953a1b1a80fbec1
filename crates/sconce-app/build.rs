//! Builds the virtual GPU, a shared library, so that the program carries it.
//!
//! Cargo has no stable way for one package to embed another's shared library. The crate has no
//! dependencies, so that one call of the compiler is the whole build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new("../sconce-vgpu/src");
    println!("cargo::rerun-if-changed={}", root.display());
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let library = PathBuf::from(variable("OUT_DIR")).join("libsconce_vgpu.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--crate-name=sconce_vgpu", "--crate-type=cdylib"])
        .args(["--edition=2024", "--cap-lints=allow"])
        .args(["-Copt-level=2", "-Cpanic=abort", "-Cstrip=symbols"])
        .arg(format!("--target={}", variable("TARGET")))
        .arg(root.join("lib.rs"))
        .arg("-o")
        .arg(&library);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    let status = compiler.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "cannot build the virtual GPU: {status:?}"
    );
}
