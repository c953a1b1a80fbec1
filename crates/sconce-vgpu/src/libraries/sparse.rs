//! `cusparse.h` and `cusparseLt.h`: handles and descriptors are given out; products of sparse matrices
//! are not modelled and fail with their names.

use crate::abi::{made, nothing, refused};

/// `CUSPARSE_STATUS_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 10;

made! {
    cusparseCreate cusparseCreateBsrsm2Info cusparseCreateBsrsv2Info cusparseCreateCoo
    cusparseCreateCsr cusparseCreateDnMat cusparseCreateDnVec
    cusparseCreateMatDescr
}

nothing! {
    cusparseDestroy cusparseDestroyBsrsm2Info cusparseDestroyBsrsv2Info cusparseDestroyDnMat
    cusparseDestroyDnVec cusparseDestroyMatDescr cusparseDestroySpMat cusparseSetMatDiagType
    cusparseSetMatFillMode cusparseSetMatIndexBase cusparseSetMatType cusparseSetPointerMode
    cusparseSetStream
}

refused! { NOT_SUPPORTED;
    cusparseCreateIdentityPermutation
    cusparseCbsrmm cusparseCbsrmv cusparseCbsrsm2_analysis cusparseCbsrsm2_bufferSize
    cusparseCbsrsm2_solve cusparseCbsrsv2_analysis cusparseCbsrsv2_bufferSize cusparseCbsrsv2_solve
    cusparseCcsrgeam2 cusparseCcsrgeam2_bufferSizeExt cusparseCsrSetPointers
    cusparseCsrSetStridedBatch cusparseDbsrmm cusparseDbsrmv cusparseDbsrsm2_analysis
    cusparseDbsrsm2_bufferSize cusparseDbsrsm2_solve cusparseDbsrsv2_analysis
    cusparseDbsrsv2_bufferSize cusparseDbsrsv2_solve cusparseDcsrgeam2
    cusparseDcsrgeam2_bufferSizeExt cusparseDnMatSetStridedBatch
    cusparseLtDenseDescriptorInit cusparseLtInit cusparseLtMatDescriptorDestroy cusparseLtMatmul
    cusparseLtMatmulAlgGetAttribute cusparseLtMatmulAlgSelectionInit cusparseLtMatmulAlgSetAttribute
    cusparseLtMatmulDescSetAttribute cusparseLtMatmulDescriptorInit cusparseLtMatmulGetWorkspace
    cusparseLtMatmulPlanDestroy cusparseLtMatmulPlanInit cusparseLtMatmulSearch
    cusparseLtSpMMACompress2 cusparseLtSpMMACompressedSize2 cusparseLtStructuredDescriptorInit
    cusparseSDDMM cusparseSDDMM_bufferSize cusparseSDDMM_preprocess cusparseSbsrmm cusparseSbsrmv
    cusparseSbsrsm2_analysis cusparseSbsrsm2_bufferSize cusparseSbsrsm2_solve
    cusparseSbsrsv2_analysis cusparseSbsrsv2_bufferSize cusparseSbsrsv2_solve cusparseScsrgeam2
    cusparseScsrgeam2_bufferSizeExt cusparseSpGEMM_compute cusparseSpGEMM_copy
    cusparseSpGEMM_createDescr cusparseSpGEMM_destroyDescr cusparseSpGEMM_workEstimation
    cusparseSpMM cusparseSpMM_bufferSize cusparseSpMV cusparseSpMV_bufferSize cusparseSpMatGetSize
    cusparseSpMatSetAttribute cusparseSpSM_analysis cusparseSpSM_bufferSize cusparseSpSM_createDescr
    cusparseSpSM_destroyDescr cusparseSpSM_solve cusparseSpSV_analysis cusparseSpSV_bufferSize
    cusparseSpSV_createDescr cusparseSpSV_destroyDescr cusparseSpSV_solve cusparseXbsrsm2_zeroPivot
    cusparseXbsrsv2_zeroPivot cusparseXcoo2csr cusparseXcoosortByRow cusparseXcoosort_bufferSizeExt
    cusparseXcsrgeam2Nnz cusparseXcsrsort cusparseXcsrsort_bufferSizeExt cusparseZbsrmm
    cusparseZbsrmv cusparseZbsrsm2_analysis cusparseZbsrsm2_bufferSize cusparseZbsrsm2_solve
    cusparseZbsrsv2_analysis cusparseZbsrsv2_bufferSize cusparseZbsrsv2_solve cusparseZcsrgeam2
    cusparseZcsrgeam2_bufferSizeExt
}
