//! Which package ships which library.

/// What ships a CUDA library: its name up to `.so`, and the wheel's name without its suffix.
///
/// Read from the wheels that torch 2.4.1, 2.8.0 and 2.15.0 bring. Wheels end in `-cu11` or `-cu12`;
/// for CUDA 13, those of the toolkit have no ending (third column: true), the others `-cu13`.
const WHEELS: &[(&str, &str, bool)] = &[
    ("libcublas", "nvidia-cublas", true),
    ("libcublasLt", "nvidia-cublas", true),
    ("libcudart", "nvidia-cuda-runtime", true),
    ("libcufft", "nvidia-cufft", true),
    ("libcufftw", "nvidia-cufft", true),
    ("libcufile", "nvidia-cufile", true),
    ("libcufile_rdma", "nvidia-cufile", true),
    ("libcupti", "nvidia-cuda-cupti", true),
    ("libcurand", "nvidia-curand", true),
    ("libcusolver", "nvidia-cusolver", true),
    ("libcusolverMg", "nvidia-cusolver", true),
    ("libcusparse", "nvidia-cusparse", true),
    ("libcusparseLt", "nvidia-cusparselt", false),
    ("libnccl", "nvidia-nccl", false),
    ("libnvJitLink", "nvidia-nvjitlink", true),
    ("libnvToolsExt", "nvidia-nvtx", true),
    ("libnvblas", "nvidia-cublas", true),
    ("libnvrtc", "nvidia-cuda-nvrtc", true),
    ("libnvrtc-builtins", "nvidia-cuda-nvrtc", true),
    ("libnvshmem_host", "nvidia-nvshmem", false),
];

/// CUDA libraries whose number in the name is the major version of CUDA.
const NUMBERED: &[&str] = &[
    "libcublas",
    "libcublasLt",
    "libcudart",
    "libcupti",
    "libnvJitLink",
    "libnvrtc",
];

/// Prefix of the symbols of a CUDA library, the longer before the shorter.
const SYMBOLS: &[(&str, &str)] = &[
    ("__nvJitLink", "libnvJitLink"),
    ("nvJitLink", "libnvJitLink"),
    ("cublasLt", "libcublasLt"),
    ("cublas", "libcublas"),
    ("cudnn", "libcudnn"),
    ("cufft", "libcufft"),
    ("cuFile", "libcufile"),
    ("cupti", "libcupti"),
    ("curand", "libcurand"),
    ("cusolver", "libcusolver"),
    ("cusparseLt", "libcusparseLt"),
    ("cusparse", "libcusparse"),
    ("nccl", "libnccl"),
    ("nvrtc", "libnvrtc"),
    ("nvshmem", "libnvshmem_host"),
    ("cuda", "libcudart"),
    ("__cuda", "libcudart"),
];

/// Debian package of a system library that wheels do not bring along.
const DEBIAN: &[(&str, &str)] = &[
    ("libEGL.so.1", "libegl1"),
    ("libGL.so.1", "libgl1"),
    ("libSM.so.6", "libsm6"),
    ("libX11.so.6", "libx11-6"),
    ("libXext.so.6", "libxext6"),
    ("libXrender.so.1", "libxrender1"),
    ("libaio.so.1", "libaio1"),
    ("libfabric.so.1", "libfabric1"),
    ("libgcc_s.so.1", "libgcc-s1"),
    ("libglib-2.0.so.0", "libglib2.0-0"),
    ("libgomp.so.1", "libgomp1"),
    ("libgthread-2.0.so.0", "libglib2.0-0"),
    ("libibverbs.so.1", "libibverbs1"),
    ("libmlx5.so.1", "ibverbs-providers"),
    ("libmpi.so.40", "libopenmpi3"),
    ("libnuma.so.1", "libnuma1"),
    ("libopenblas.so.0", "libopenblas0"),
    ("librdmacm.so.1", "librdmacm1"),
    ("libsndfile.so.1", "libsndfile1"),
    ("libstdc++.so.6", "libstdc++6"),
    ("libucp.so.0", "libucx0"),
    ("libucs.so.0", "libucx0"),
    ("libz.so.1", "zlib1g"),
];

/// `libcublas` of `libcublas.so.12`.
pub(super) fn library_stem(name: &str) -> &str {
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

/// Whether it is a library of CUDA, cuDNN or NCCL.
pub(super) fn is_cuda(name: &str) -> bool {
    cuda_wheel(name, 12).is_some()
}

/// The wheel that ships a CUDA library for a major version of CUDA.
pub(super) fn cuda_wheel(name: &str, cuda_major: u32) -> Option<String> {
    let stem = library_stem(name);
    let (base, bare) = match WHEELS.iter().find(|(own, ..)| *own == stem) {
        Some((_, base, bare)) => (*base, *bare),
        None if stem == "libcudnn" || stem.starts_with("libcudnn_") => ("nvidia-cudnn", false),
        None => return None,
    };
    Some(match bare && cuda_major >= 13 {
        true => base.to_owned(),
        false => format!("{base}-cu{cuda_major}"),
    })
}

/// The major version of CUDA that a library's name says it is of.
pub(super) fn cuda_major(name: &str) -> Option<u32> {
    let (stem, number) = name.split_once(".so.")?;
    if !NUMBERED.contains(&stem) {
        return None;
    }
    number.split('.').next()?.parse().ok()
}

/// The CUDA library, up to `.so`, that a C symbol is of.
pub(super) fn library_of(symbol: &str) -> Option<&'static str> {
    let own = SYMBOLS
        .iter()
        .find(|(prefix, _)| symbol.starts_with(prefix));
    own.map(|(_, stem)| *stem)
}

/// The Debian package of a system library.
pub(super) fn debian_package(name: &str) -> Option<&'static str> {
    let own = DEBIAN.iter().find(|(library, _)| *library == name);
    own.map(|(_, package)| *package)
}

/// Whether a C symbol is of a CUDA library: those are kept of a library beside PyTorch's own, since
/// a CUDA library of another version is found out by them.
#[must_use]
pub fn is_cuda_symbol(symbol: &[u8]) -> bool {
    let of = |prefix: &str| symbol.starts_with(prefix.as_bytes());
    matches!(symbol.first(), Some(b'c' | b'n' | b'_'))
        && SYMBOLS.iter().any(|(prefix, _)| of(prefix))
}

/// Whether a wheel brings it under a name of its own, as auditwheel gives them: `libgomp-a34b3233.so.1`.
pub(super) fn is_vendored(name: &str) -> bool {
    let digest = library_stem(name)
        .rsplit_once('-')
        .map_or("", |(_, digest)| digest);
    digest.len() >= 8 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether it is one of torch's own libraries.
pub(super) fn is_torch(name: &str) -> bool {
    let stem = library_stem(name);
    stem.starts_with("libtorch") || matches!(stem, "libc10" | "libc10_cuda" | "libshm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheels_are_named_for_their_cuda() {
        for (name, major, wheel_name) in [
            ("libcusparse.so.12", 12, Some("nvidia-cusparse-cu12")),
            ("libcusparse.so.12", 13, Some("nvidia-cusparse")),
            ("libcusparseLt.so.0", 13, Some("nvidia-cusparselt-cu13")),
            ("libcudnn_ops.so.9", 13, Some("nvidia-cudnn-cu13")),
            ("libcudart.so.11.0", 11, Some("nvidia-cuda-runtime-cu11")),
            ("libcudnnx.so.9", 12, None),
            ("libz.so.1", 12, None),
        ] {
            assert_eq!(cuda_wheel(name, major).as_deref(), wheel_name, "{name}");
        }
    }

    #[test]
    fn majors_are_read_where_the_number_is_cuda_s() {
        for (name, major) in [
            ("libcudart.so.11.0", Some(11)),
            ("libcublas.so.13", Some(13)),
            ("libcusparse.so.12", None),
            ("libcudart.so", None),
            ("libcudart.so.x", None),
        ] {
            assert_eq!(cuda_major(name), major, "{name}");
        }
    }

    #[test]
    fn a_name_of_auditwheel_is_no_systems() {
        for (name, expected) in [
            ("libgomp-a34b3233.so.1", true),
            ("libgfortran-040039e1.so.5.0.0", true),
            ("libportaudio.so.2", false),
            ("libusb-1.0.so.0", false),
            ("libglib-2.0.so.0", false),
            ("libx-deadbee.so", false),
        ] {
            assert_eq!(is_vendored(name), expected, "{name}");
        }
    }

    #[test]
    fn symbols_know_their_library() {
        for (symbol, stem) in [
            ("__nvJitLinkComplete_12_4", Some("libnvJitLink")),
            ("cublasLtMatmul", Some("libcublasLt")),
            ("cudaMalloc", Some("libcudart")),
            ("_ZN3c105ErrorC1Ev", None),
        ] {
            assert_eq!(library_of(symbol), stem, "{symbol}");
            assert_eq!(
                is_cuda_symbol(symbol.as_bytes()),
                stem.is_some(),
                "{symbol}"
            );
        }
    }
}
