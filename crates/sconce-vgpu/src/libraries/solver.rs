//! `cusolverDn.h`: handles are given out; factorisations are not modelled, as their workspaces are not
//! published, and fail with their names.

use crate::abi::{Handle, Out, entries, nothing, refused};
use crate::machine::machine;

/// `CUSOLVER_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 9;

fn status(answer: Result<(), i32>) -> i32 {
    answer.err().unwrap_or(0)
}

entries! { status;
    fn cusolverDnCreate(handle: Out<Handle>) {
        handle.put(machine().handle());
        Ok(())
    }
    fn cusolverDnCreateParams(parameters: Out<Handle>) {
        parameters.put(machine().handle());
        Ok(())
    }
}

nothing! { cusolverDnDestroy cusolverDnSetStream cusolverDnDestroyParams }

refused! { NOT_SUPPORTED;
    cusolverDnCgeqrf cusolverDnCgeqrf_bufferSize cusolverDnCgesvd cusolverDnCgesvd_bufferSize
    cusolverDnCgesvdaStridedBatched cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnCgesvdj
    cusolverDnCgesvdjBatched cusolverDnCgesvdjBatched_bufferSize cusolverDnCgesvdj_bufferSize
    cusolverDnCgetrf cusolverDnCgetrf_bufferSize cusolverDnCgetrs cusolverDnCheevd
    cusolverDnCheevd_bufferSize cusolverDnCheevj cusolverDnCheevjBatched
    cusolverDnCheevjBatched_bufferSize cusolverDnCheevj_bufferSize cusolverDnCpotrf
    cusolverDnCpotrfBatched cusolverDnCpotrf_bufferSize cusolverDnCpotrs cusolverDnCpotrsBatched
    cusolverDnCreateGesvdjInfo cusolverDnCreateSyevjInfo cusolverDnCsytrf
    cusolverDnCsytrf_bufferSize cusolverDnCungqr cusolverDnCungqr_bufferSize cusolverDnCunmqr
    cusolverDnCunmqr_bufferSize cusolverDnDestroyGesvdjInfo cusolverDnDestroySyevjInfo
    cusolverDnDgeqrf cusolverDnDgeqrf_bufferSize cusolverDnDgesvd cusolverDnDgesvd_bufferSize
    cusolverDnDgesvdaStridedBatched cusolverDnDgesvdaStridedBatched_bufferSize cusolverDnDgesvdj
    cusolverDnDgesvdjBatched cusolverDnDgesvdjBatched_bufferSize cusolverDnDgesvdj_bufferSize
    cusolverDnDgetrf cusolverDnDgetrf_bufferSize cusolverDnDgetrs cusolverDnDorgqr
    cusolverDnDorgqr_bufferSize cusolverDnDormqr cusolverDnDormqr_bufferSize cusolverDnDpotrf
    cusolverDnDpotrfBatched cusolverDnDpotrf_bufferSize cusolverDnDpotrs cusolverDnDpotrsBatched
    cusolverDnDsyevd cusolverDnDsyevd_bufferSize cusolverDnDsyevj cusolverDnDsyevjBatched
    cusolverDnDsyevjBatched_bufferSize cusolverDnDsyevj_bufferSize cusolverDnDsytrf
    cusolverDnDsytrf_bufferSize cusolverDnSgeqrf cusolverDnSgeqrf_bufferSize cusolverDnSgesvd
    cusolverDnSgesvd_bufferSize cusolverDnSgesvdaStridedBatched
    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnSgesvdj cusolverDnSgesvdjBatched
    cusolverDnSgesvdjBatched_bufferSize cusolverDnSgesvdj_bufferSize cusolverDnSgetrf
    cusolverDnSgetrf_bufferSize cusolverDnSgetrs cusolverDnSorgqr cusolverDnSorgqr_bufferSize
    cusolverDnSormqr cusolverDnSormqr_bufferSize cusolverDnSpotrf cusolverDnSpotrfBatched
    cusolverDnSpotrf_bufferSize cusolverDnSpotrs cusolverDnSpotrsBatched cusolverDnSsyevd
    cusolverDnSsyevd_bufferSize cusolverDnSsyevj cusolverDnSsyevjBatched
    cusolverDnSsyevjBatched_bufferSize cusolverDnSsyevj_bufferSize cusolverDnSsytrf
    cusolverDnSsytrf_bufferSize cusolverDnXgeev cusolverDnXgeev_bufferSize cusolverDnXgeqrf
    cusolverDnXgeqrf_bufferSize cusolverDnXgesvdjSetMaxSweeps cusolverDnXgesvdjSetSortEig
    cusolverDnXgesvdjSetTolerance cusolverDnXpotrf cusolverDnXpotrf_bufferSize cusolverDnXpotrs
    cusolverDnXsyevBatched cusolverDnXsyevBatched_bufferSize cusolverDnXsyevd
    cusolverDnXsyevd_bufferSize cusolverDnXsyevjSetSortEig cusolverDnXsytrs
    cusolverDnXsytrs_bufferSize cusolverDnZgeqrf cusolverDnZgeqrf_bufferSize cusolverDnZgesvd
    cusolverDnZgesvd_bufferSize cusolverDnZgesvdaStridedBatched
    cusolverDnZgesvdaStridedBatched_bufferSize cusolverDnZgesvdj cusolverDnZgesvdjBatched
    cusolverDnZgesvdjBatched_bufferSize cusolverDnZgesvdj_bufferSize cusolverDnZgetrf
    cusolverDnZgetrf_bufferSize cusolverDnZgetrs cusolverDnZheevd cusolverDnZheevd_bufferSize
    cusolverDnZheevj cusolverDnZheevjBatched cusolverDnZheevjBatched_bufferSize
    cusolverDnZheevj_bufferSize cusolverDnZpotrf cusolverDnZpotrfBatched cusolverDnZpotrf_bufferSize
    cusolverDnZpotrs cusolverDnZpotrsBatched cusolverDnZsytrf cusolverDnZsytrf_bufferSize
    cusolverDnZungqr cusolverDnZungqr_bufferSize cusolverDnZunmqr cusolverDnZunmqr_bufferSize
}
