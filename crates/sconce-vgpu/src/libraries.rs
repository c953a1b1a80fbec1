//! The libraries on top of CUDA.

pub mod blas;
pub mod dnn;
pub mod fft;
pub mod nccl;
pub mod nvml;
pub mod solver;
pub mod sparse;
