//! The targets.

use crate::{
    adopt, binary, deb, debian, explain, fetch, host, image, layer, memory, osv, python, record,
    registry, schema, settings, sign, solve, standalone, submit, wheel,
};

/// One parser or one stage that takes outside bytes.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Takes one input.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// All of them, what every user's machine meets first.
pub const TARGETS: [Target; 73] = [
    target("spec", schema::spec, schema::spec_seeds),
    target("units", schema::units, schema::unit_seeds),
    target("lock", schema::lock, schema::lock_seeds),
    target("request", schema::request, schema::request_seeds),
    target("record", record::record, record::record_seeds),
    target("report", record::report, record::report_seeds),
    target("url", fetch::url, fetch::url_seeds),
    target("headers", fetch::headers, fetch::header_seeds),
    target("wheel", wheel::raw, wheel::raw_seeds),
    target("wheel-entries", wheel::entries, wheel::entry_seeds),
    target("deb", deb::raw, deb::raw_seeds),
    target("deb-entries", deb::entries, deb::entry_seeds),
    target("layer", layer::raw, layer::raw_seeds),
    target("layer-entries", layer::entries, layer::entry_seeds),
    target("deb-version", debian::version, debian::version_seeds),
    target("deb-relation", debian::relation, debian::relation_seeds),
    target("deb-index", debian::index, debian::index_seeds),
    target("deb-release", debian::release, debian::release_seeds),
    target("deb-contents", debian::contents, debian::contents_seeds),
    target("deb-solve", solve::solve, solve::seeds),
    target("apt-sources", debian::sources, debian::source_seeds),
    target("netrc", settings::netrc, settings::netrc_seeds),
    target("login-url", settings::login, settings::login_seeds),
    target("pip-conf", settings::pip, settings::pip_seeds),
    target(
        "build-settings",
        python::build_settings,
        python::build_setting_seeds,
    ),
    target("pylock", python::pylock, python::pylock_seeds),
    target(
        "python-downloads",
        standalone::table,
        standalone::table_seeds,
    ),
    target("standalone", standalone::raw, standalone::raw_seeds),
    target(
        "standalone-entries",
        standalone::archive,
        standalone::archive_seeds,
    ),
    target("osv", osv::json, osv::json_seeds),
    target("osv-zip", osv::archive, osv::archive_seeds),
    target("versions", osv::versions, osv::version_seeds),
    target("adopt-pip", adopt::pip, adopt::pip_seeds),
    target("adopt-project", adopt::project, adopt::project_seeds),
    target("adopt-uv", adopt::uv, adopt::uv_seeds),
    target("adopt-pylock", adopt::pylock, adopt::pylock_seeds),
    target(
        "adopt-poetry-lock",
        adopt::poetry_lock,
        adopt::poetry_lock_seeds,
    ),
    target("adopt-pdm-lock", adopt::pdm_lock, adopt::pdm_lock_seeds),
    target("adopt-pipfile", adopt::pipfile, adopt::pipfile_seeds),
    target(
        "adopt-pipfile-without-lock",
        adopt::pipfile_without_lock,
        adopt::pipfile_without_lock_seeds,
    ),
    target("adopt-pixi", adopt::pixi, adopt::pixi_seeds),
    target(
        "adopt-conda-lock",
        adopt::conda_lock,
        adopt::conda_lock_seeds,
    ),
    target("adopt-conda", adopt::conda, adopt::conda_seeds),
    target("adopt-docker", adopt::docker, adopt::docker_seeds),
    target("adopt-setup", adopt::setup, adopt::setup_seeds),
    target("adopt-script", adopt::script, adopt::script_seeds),
    target(
        "adopt-imports",
        adopt::python_program,
        adopt::python_program_seeds,
    ),
    target("adopt-readme", adopt::readme, adopt::readme_seeds),
    target("adopt-notebook", adopt::notebook, adopt::notebook_seeds),
    target("adopt-cog", adopt::cog, adopt::cog_seeds),
    target("explain", explain::log, explain::log_seeds),
    target("oom", explain::out_of_memory, explain::out_of_memory_seeds),
    target("alloc-conf", memory::settings, memory::settings_seeds),
    target("alloc-program", memory::program, memory::program_seeds),
    target("snapshot", memory::snapshot, memory::snapshot_seeds),
    target("machine", host::machine, host::machine_seeds),
    target("cdi", host::cdi_files, host::cdi_seeds),
    target("sampler", host::sampler, host::sampler_seeds),
    target("nccl", host::nccl, host::nccl_seeds),
    target("training", host::training, host::training_seeds),
    target("cosign-key", sign::key, sign::key_seeds),
    target("signatures", sign::signatures, sign::signature_seeds),
    target("packages", sign::packages, sign::package_seeds),
    target("libraries", image::libraries, image::library_seeds),
    target("elf", binary::elf, binary::elf_seeds),
    target("fatbin", binary::fatbin, binary::fatbin_seeds),
    target("ar", binary::ar, binary::ar_seeds),
    target("reference", registry::reference, registry::reference_seeds),
    target("challenge", registry::challenge, registry::challenge_seeds),
    target("logins", registry::logins, registry::login_seeds),
    target("node-list", submit::node_list, submit::node_list_seeds),
    target("squeue", submit::squeue, submit::squeue_seeds),
    target("sacct", submit::sacct, submit::sacct_seeds),
];
