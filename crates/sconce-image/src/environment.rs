//! The variables that an image sets.

use std::collections::BTreeMap;

use sconce_schema::Lock;
use sconce_schema::environment_layers::VENV;

/// Variables of an image made from `lock`. `PYTORCH_VERSION` and `CUDA_VERSION` are what enroot's
/// PyTorch hook and many launch scripts look for.
pub(crate) fn image_variables(lock: &Lock) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set(
        "PATH",
        format!("{VENV}/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
    );
    set("VIRTUAL_ENV", VENV.to_owned());
    set("LANG", "C.UTF-8".to_owned());
    if let Some(torch) = &lock.versions.torch {
        set("PYTORCH_VERSION", torch.clone());
    }
    if let Some(cuda) = lock.versions.cuda {
        set("CUDA_VERSION", cuda.to_string());
    }
    env
}
