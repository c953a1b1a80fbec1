//! The libraries on top of CUDA.

pub mod blas;
pub mod nvml;
