//! What the services of a spec bring into its environment.

use sconce_schema::spec::BuiltinService;

use crate::LockInput;

/// The Python packages of a service (PEP 508).
///
/// JupyterLab brings its server and the kernel that runs Python. TensorBoard needs setuptools'
/// `pkg_resources` no longer, which setuptools 81 has removed.
fn python(service: BuiltinService) -> &'static [&'static str] {
    match service {
        BuiltinService::Jupyter => &["jupyterlab"],
        BuiltinService::Ssh => &[],
        BuiltinService::Tensorboard => &["tensorboard"],
    }
}

/// The Debian packages of a service.
fn system(service: BuiltinService) -> &'static [&'static str] {
    match service {
        BuiltinService::Ssh => &["openssh-server"],
        BuiltinService::Jupyter | BuiltinService::Tensorboard => &[],
    }
}

/// `input` with the packages of its services among its own. A version that the spec asks for still
/// counts: requirements of one package add up.
pub(crate) fn with_service_packages(input: &LockInput) -> LockInput {
    let mut all = input.clone();
    for service in &input.services {
        let of_python = python(*service).iter().copied().map(str::to_owned);
        all.requirements.packages.extend(of_python);
        let of_system = system(*service).iter().copied().map(str::to_owned);
        all.system_packages.extend(of_system);
    }
    all
}
