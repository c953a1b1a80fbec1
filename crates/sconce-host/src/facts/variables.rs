//! Variables that change what CUDA, PyTorch, NCCL or the loader do, without secrets.

use std::collections::BTreeMap;

use sconce_base::secrets;

/// Beginnings of names.
const FAMILIES: [&str; 20] = [
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "FI_",
    "GLIBC_TUNABLES",
    "GLOO_",
    "KMP_",
    "MKL_",
    "MPI_",
    "NCCL_",
    "NVIDIA_",
    "NVTE_",
    "NVSHMEM_",
    "OMP_",
    "OMPI_",
    "PYTORCH_",
    "TORCH",
    "TRITON_",
    "UCX_",
    "XLA_",
];

/// Names.
const NAMES: [&str; 21] = [
    "GPU_DEVICE_ORDINAL",
    "LD_AUDIT",
    "LD_BIND_NOW",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MALLOC_ARENA_MAX",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "RANK",
    "SLURM_JOB_GPUS",
    "SLURM_NTASKS",
    "TMPDIR",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "WORLD_SIZE",
];

/// Parts of names of secrets, between underscores.
const SECRETS: [&str; 14] = [
    "ACCESS",
    "API",
    "APIKEY",
    "AUTH",
    "CREDENTIAL",
    "CREDENTIALS",
    "KEY",
    "PASS",
    "PASSWD",
    "PASSWORD",
    "PRIVATE",
    "SECRET",
    "TOKEN",
    "TOKENS",
];

/// What stands for a secret.
pub(super) use sconce_base::secrets::MASKED;
/// So much of a value; an `LD_LIBRARY_PATH` of a module system may have 2 KB.
const MAX_VALUE_BYTES: usize = 8192;
/// So many variables.
const MAX_VARIABLES: usize = 512;

/// The variables of the list that are set. The value of one whose name has the name of a secret is
/// masked, and so are a user and password within a URL. Every other variable is left out.
pub(super) fn select_variables(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    variables
        .iter()
        .filter(|(name, _)| is_chosen(name))
        .take(MAX_VARIABLES)
        .map(|(name, value)| (name.clone(), told(name, value)))
        .collect()
}

fn is_chosen(name: &str) -> bool {
    NAMES.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

fn told(name: &str, value: &str) -> String {
    let name = name.to_ascii_uppercase();
    if name.split('_').any(|part| SECRETS.contains(&part)) {
        return MASKED.to_owned();
    }
    let mut value = secrets::mask_text(value);
    if value.len() > MAX_VALUE_BYTES {
        let end = (0..=MAX_VALUE_BYTES)
            .rev()
            .find(|&at| value.is_char_boundary(at));
        value.truncate(end.unwrap_or(0));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        select_variables(&pairs.iter().map(owned).collect())
            .into_iter()
            .collect()
    }

    #[test]
    fn only_the_list_and_no_secret() {
        let found = of(&[
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("HOME", "/home/me"),
            ("HF_TOKEN", "hf_x"),
            ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64"),
            ("NVIDIA_API_KEY", "nvapi-x"),
            ("NCCL_AUTH_x_token", "y"),
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            (
                "TORCHINDUCTOR_CACHE_DIR",
                "s3://me:pw@host/x?y=z@w and ftp://a@b",
            ),
        ]);
        let expected = [
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64"),
            ("NCCL_AUTH_x_token", MASKED),
            ("NVIDIA_API_KEY", MASKED),
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            (
                "TORCHINDUCTOR_CACHE_DIR",
                "s3://(masked)@host/x?y=z@w and ftp://(masked)@b",
            ),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_long_value_is_cut_between_letters() {
        let found = of(&[("CUDA_x", &"é".repeat(MAX_VALUE_BYTES))]);
        assert_eq!(found[0].1.len(), MAX_VALUE_BYTES);
    }

    proptest! {
        #[test]
        fn no_password_of_a_url_stays(before in "[a-z:/@ ]{0,8}", after in "[a-z:/@ ]{0,8}") {
            let told = secrets::mask_text(&format!("{before}://me:sesame1@host{after}"));
            prop_assert!(!told.contains("sesame1"), "{told}");
        }
    }
}
