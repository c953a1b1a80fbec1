//! `cublas_v2.h` and `cublasLt.h`.
//!
//! PyTorch sets the workspace itself, from the caching allocator; a product therefore needs no memory
//! that is not accounted there. What is counted is the work, for the model of time.

use crate::abi::{Handle, InPointer, OutPointer, entries, made, nothing};
use crate::machine::{current_device, lock_state};
use crate::runtime::launch::duration_ns;

/// A status of cuBLAS (`cublasStatus_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum CublasStatus {
    NotInitialized = 1,
    InvalidValue = 7,
    ArchMismatch = 8,
}

fn status(answer: Result<(), CublasStatus>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => why as i32,
    }
}

/// A product of m × k and k × n, `count` times.
fn product(handle: Handle, m: i32, n: i32, k: i32, count: i32) -> Result<(), CublasStatus> {
    let size = |value: i32| u64::try_from(value).unwrap_or(0);
    let work = 2 * size(m) * size(n) * size(k).max(1) * size(count).max(1);
    let mut machine = lock_state();
    let stream = machine.blas_streams.get(&handle).copied().unwrap_or(0);
    queue(&mut machine, work, stream)
}

fn queue(
    machine: &mut crate::machine::DriverState,
    work: u64,
    stream: Handle,
) -> Result<(), CublasStatus> {
    let device = machine
        .devices
        .get(current_device())
        .ok_or(CublasStatus::NotInitialized)?;
    let duration = duration_ns(work, device.card.matrix_rate);
    machine.asked.matrix_operations = machine.asked.matrix_operations.saturating_add(work);
    machine.launch_kernel(stream, duration);
    Ok(())
}

/// Products of one shape: the arguments before the matrices are the same in all of them.
macro_rules! products {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: Handle, ta: i32, tb: i32, m: i32, n: i32, k: i32) -> i32 {
            let _ = (ta, tb);
            status(product(handle, m, n, k, 1))
        }
    )*};
}

products! {
    cublasSgemm_v2 cublasDgemm_v2 cublasCgemm_v2 cublasZgemm_v2 cublasHgemm cublasSgemmEx cublasGemmEx
    cublasCgemmEx cublasSgemm_v2_64 cublasGemmEx_64
}

/// Products of many pairs, which lie at equal distances.
macro_rules! strided {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            handle: Handle, ta: i32, tb: i32, m: i32, n: i32, k: i32, alpha: Handle,
            a: Handle, lda: i32, stride_a: i64, b: Handle, ldb: i32, stride_b: i64, beta: Handle,
            c: Handle, ldc: i32, stride_c: i64, count: i32,
        ) -> i32 {
            let _ = (ta, tb, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c);
            status(product(handle, m, n, k, count))
        }
    )*};
}

strided! {
    cublasSgemmStridedBatched cublasDgemmStridedBatched cublasCgemmStridedBatched
    cublasZgemmStridedBatched cublasHgemmStridedBatched
}

/// As the others, with the type of each matrix beside it.
#[unsafe(no_mangle)]
pub extern "C" fn cublasGemmStridedBatchedEx(
    handle: Handle,
    ta: i32,
    tb: i32,
    m: i32,
    n: i32,
    k: i32,
    alpha: Handle,
    a: Handle,
    type_a: i32,
    lda: i32,
    stride_a: i64,
    b: Handle,
    type_b: i32,
    ldb: i32,
    stride_b: i64,
    beta: Handle,
    c: Handle,
    type_c: i32,
    ldc: i32,
    stride_c: i64,
    count: i32,
) -> i32 {
    let _ = (
        ta, tb, alpha, a, type_a, lda, stride_a, b, type_b, ldb, stride_b, beta, c, type_c, ldc,
        stride_c,
    );
    status(product(handle, m, n, k, count))
}

/// `cublasLtMatmulHeuristicResult_t`: 64 bytes of algorithm, the workspace, the state, waves and more.
#[derive(Debug)]
#[repr(C)]
pub struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// The one that there is.
const ALGORITHM: Heuristic = Heuristic {
    algorithm: [0; 8],
    workspace_bytes: 0,
    state: 0,
    waves: 1.0,
    reserved: [0; 4],
};

/// `cublasLtMatrixLayout`, as far as it is asked: rows, columns and how many.
#[derive(Debug, Clone, Copy)]
pub struct MatrixLayout {
    rows: u64,
    columns: u64,
    count: i32,
}

const BATCH_COUNT: i32 = 5;

made! { cublasLtMatmulDescCreate cublasLtMatmulPreferenceCreate }

/// cuBLAS 13 has no code for cards before Turing (CUDA 13.0 release notes: Maxwell, Pascal and Volta are
/// dropped), and says so as it is begun.
fn begin(made: OutPointer<Handle>) -> Result<(), CublasStatus> {
    let mut machine = lock_state();
    let device = machine.devices.get(current_device());
    let capability = device
        .ok_or(CublasStatus::NotInitialized)?
        .card
        .compute_capability();
    if capability < 75 && crate::abi::find_loaded_library(c"libcublas.so.13").is_some() {
        return Err(CublasStatus::ArchMismatch);
    }
    made.write(machine.next_handle());
    Ok(())
}

entries! { status;
    fn cublasCreate_v2(made: OutPointer<Handle>) {
        begin(made)
    }
    fn cublasLtCreate(made: OutPointer<Handle>) {
        begin(made)
    }
    fn cublasSetStream_v2(handle: Handle, stream: Handle) {
        lock_state().blas_streams.insert(handle, stream);
        Ok(())
    }
    fn cublasGetStream_v2(handle: Handle, stream: OutPointer<Handle>) {
        stream.write(lock_state().blas_streams.get(&handle).copied().unwrap_or(0));
        Ok(())
    }
    fn cublasGetMathMode(handle: Handle, mode: OutPointer<i32>) {
        let _ = handle;
        mode.write(0);
        Ok(())
    }
    fn cublasGetPointerMode_v2(handle: Handle, mode: OutPointer<i32>) {
        let _ = handle;
        mode.write(0);
        Ok(())
    }
    fn cublasLtMatrixLayoutCreate(made: OutPointer<Handle>, kind: i32, rows: u64, columns: u64, leading: i64) {
        let _ = (kind, leading);
        let mut machine = lock_state();
        let handle = machine.next_handle();
        machine.matrices.insert(handle, MatrixLayout { rows, columns, count: 1 });
        made.write(handle);
        Ok(())
    }
    fn cublasLtMatrixLayoutDestroy(matrix: Handle) {
        lock_state().matrices.remove(&matrix);
        Ok(())
    }
    fn cublasLtMatrixLayoutSetAttribute(matrix: Handle, attribute: i32, value: InPointer<i32>) {
        if let (BATCH_COUNT, Some(matrix)) = (attribute, lock_state().matrices.get_mut(&matrix)) {
            matrix.count = value.get().unwrap_or(1);
        }
        Ok(())
    }
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: Handle, what: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle,
        wanted: i32, results: OutPointer<Heuristic>, found: OutPointer<i32>
    ) {
        let _ = (handle, what, a, b, c, d, preference, wanted);
        results.write(ALGORITHM);
        found.write(1);
        Ok(())
    }
    fn cublasLtMatmulAlgoCheck(
        handle: Handle, what: Handle, a: Handle, b: Handle, c: Handle, d: Handle, algorithm: Handle,
        result: OutPointer<Heuristic>
    ) {
        let _ = (handle, what, a, b, c, d, algorithm);
        result.write(ALGORITHM);
        Ok(())
    }
    fn cublasLtMatmulAlgoConfigGetAttribute(algorithm: Handle, attribute: i32, value: OutPointer<u32>, size: usize, written: OutPointer<usize>) {
        let _ = (algorithm, attribute);
        if size >= 4 {
            value.write(0);
        }
        written.write(size);
        Ok(())
    }
    fn cublasLtMatmul(
        handle: Handle, what: Handle, alpha: Handle, a: Handle, a_layout: Handle, b: Handle,
        b_layout: Handle, beta: Handle, c: Handle, c_layout: Handle, d: Handle, d_layout: Handle,
        algorithm: Handle, workspace: Handle, workspace_bytes: usize, stream: Handle
    ) {
        let _ = (handle, what, alpha, a, b, b_layout, beta, c, c_layout, d, algorithm, workspace, workspace_bytes);
        let mut machine = lock_state();
        let of = |layout: Handle| machine.matrices.get(&layout).copied();
        let (first, result) = (of(a_layout), of(d_layout));
        let work = match (first, result) {
            (Some(first), Some(result)) => {
                // One side of the first matrix is a side of the result, the other is summed over.
                let area = first.rows.saturating_mul(first.columns);
                let summed = area / result.rows.max(1);
                2 * result.rows * result.columns * summed * u64::try_from(result.count).unwrap_or(1)
            }
            _ => 0,
        };
        queue(&mut machine, work, stream)
    }
}

nothing! {
    cublasDestroy_v2 cublasSetWorkspace_v2 cublasSetMathMode cublasSetPointerMode_v2 cublasSetAtomicsMode
    cublasSetSmCountTarget cublasLtDestroy cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute
    cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute cublasLtMatmulAlgoInit
    cublasLtMatmulAlgoConfigSetAttribute cublasLoggerConfigure cublasLtLoggerSetCallback
}

// Vectors, triangles and small factorisations: they write bytes that are not there.
nothing! {
    cublasCaxpy_v2 cublasCcopy_v2 cublasCdotc_v2 cublasCdotu_v2 cublasCgelsBatched
    cublasCgemmBatched cublasCgemv_v2 cublasCgeqrfBatched cublasCgerc_v2 cublasCgeru_v2
    cublasCgetrfBatched cublasCgetrsBatched cublasChemm_v2 cublasChemv_v2 cublasCher2_v2
    cublasCher2k_v2 cublasCher_v2 cublasCherk_v2 cublasCrot_v2 cublasCrotg_v2 cublasCscal_v2
    cublasCsrot_v2 cublasCsscal_v2 cublasCswap_v2 cublasCsymm_v2 cublasCsymv_v2 cublasCsyr2_v2
    cublasCsyr2k_v2 cublasCsyr_v2 cublasCsyrk_v2 cublasCtrmm_v2 cublasCtrmv_v2 cublasCtrsmBatched
    cublasCtrsm_v2 cublasCtrsv_v2 cublasDasum_v2 cublasDaxpy_v2 cublasDcopy_v2 cublasDdot_v2
    cublasDgelsBatched cublasDgemmBatched cublasDgemv_v2 cublasDgeqrfBatched cublasDger_v2
    cublasDgetrfBatched cublasDgetrsBatched cublasDnrm2_v2 cublasDotEx cublasDrot_v2 cublasDrotg_v2
    cublasDrotm_v2 cublasDrotmg_v2 cublasDscal_v2 cublasDswap_v2 cublasDsymm_v2 cublasDsymv_v2
    cublasDsyr2_v2 cublasDsyr2k_v2 cublasDsyr_v2 cublasDsyrk_v2 cublasDtrmm_v2 cublasDtrmv_v2
    cublasDtrsmBatched cublasDtrsm_v2 cublasDtrsv_v2 cublasDzasum_v2 cublasDznrm2_v2
    cublasGetMatrixAsync cublasGetVectorAsync cublasIcamax_v2 cublasIcamin_v2 cublasIdamax_v2
    cublasIdamin_v2 cublasIsamax_v2 cublasIsamin_v2 cublasIzamax_v2 cublasIzamin_v2 cublasSasum_v2
    cublasSaxpy_v2 cublasScasum_v2 cublasScnrm2_v2 cublasScopy_v2 cublasSdot_v2 cublasSetMatrixAsync
    cublasSetVectorAsync cublasSgelsBatched cublasSgemmBatched cublasSgemv_v2 cublasSgeqrfBatched
    cublasSger_v2 cublasSgetrfBatched cublasSgetrsBatched cublasSnrm2_v2 cublasSrot_v2
    cublasSrotg_v2 cublasSrotm_v2 cublasSrotmg_v2 cublasSscal_v2 cublasSswap_v2 cublasSsymm_v2
    cublasSsymv_v2 cublasSsyr2_v2 cublasSsyr2k_v2 cublasSsyr_v2 cublasSsyrk_v2 cublasStrmm_v2
    cublasStrmv_v2 cublasStrsmBatched cublasStrsm_v2 cublasStrsv_v2 cublasZaxpy_v2 cublasZcopy_v2
    cublasZdotc_v2 cublasZdotu_v2 cublasZdrot_v2 cublasZdscal_v2 cublasZgelsBatched
    cublasZgemmBatched cublasZgemv_v2 cublasZgeqrfBatched cublasZgerc_v2 cublasZgeru_v2
    cublasZgetrfBatched cublasZgetrsBatched cublasZhemm_v2 cublasZhemv_v2 cublasZher2_v2
    cublasZher2k_v2 cublasZher_v2 cublasZherk_v2 cublasZrot_v2 cublasZrotg_v2 cublasZscal_v2
    cublasZswap_v2 cublasZsymm_v2 cublasZsymv_v2 cublasZsyr2_v2 cublasZsyr2k_v2 cublasZsyr_v2
    cublasZsyrk_v2 cublasZtrmm_v2 cublasZtrmv_v2 cublasZtrsmBatched cublasZtrsm_v2 cublasZtrsv_v2
}
