//! What well-known projects of the Python package index need of Debian and do not bring in their wheels: programs
//! that they start and libraries that they load. Kept by hand; names are those of bookworm, which
//! trixie's packages of 64-bit time (`libglib2.0-0t64`) provide too.

/// The Debian packages that a project needs, by its normalised name; empty for one that is not known to need any.
#[must_use]
pub fn debian_packages_of(project: &str) -> &'static [&'static str] {
    let found = NEEDS.binary_search_by(|(known, _)| (*known).cmp(project));
    found.map_or(&[], |at| NEEDS[at].1)
}

/// The Debian packages that building a project from its sources needs beside a compiler, by its normalised name.
#[must_use]
pub fn debian_build_packages_of(project: &str) -> &'static [&'static str] {
    let found = BUILD_NEEDS.binary_search_by(|(known, _)| (*known).cmp(project));
    found.map_or(&[], |at| BUILD_NEEDS[at].1)
}

/// The Debian package that has a program which people start, where it is known.
#[must_use]
pub fn debian_package_of_program(program: &str) -> Option<&'static str> {
    let found = PROGRAMS.binary_search_by(|(known, _)| (*known).cmp(program));
    found.ok().map(|at| PROGRAMS[at].1)
}

/// Every project that is known to need something, by name.
pub fn projects_with_needs() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().map(|(name, _)| *name)
}

/// Of OpenCV's wheel with windows (its NEEDED, and what Qt's plugin of it loads).
const OPENCV: &[&str] = &[
    "libgl1",
    "libglib2.0-0",
    "libxcb1",
    "libsm6",
    "libxext6",
    "libxrender1",
];
/// Of OpenGL without a screen.
const EGL: &[&str] = &["libegl1", "libgl1", "libosmesa6"];
const FFMPEG: &[&str] = &["ffmpeg"];
const GIT: &[&str] = &["git"];
const OPENMPI: &[&str] = &["openmpi-bin"];
const SDL: &[&str] = &["libsdl2-2.0-0"];
const SNDFILE: &[&str] = &["libsndfile1"];
const QT: &[&str] = &[
    "libgl1",
    "libegl1",
    "libxkbcommon0",
    "libdbus-1-3",
    "libxcb-cursor0",
    "libfontconfig1",
];

/// Programs and the packages that have them, by program.
const PROGRAMS: &[(&str, &str)] = &[
    ("7z", "7zip"),
    ("Xvfb", "xvfb"),
    ("aria2c", "aria2"),
    ("axel", "axel"),
    ("bc", "bc"),
    ("blastn", "ncbi-blast+"),
    ("blastp", "ncbi-blast+"),
    ("bzip2", "bzip2"),
    ("cmake", "cmake"),
    ("convert", "imagemagick"),
    ("curl", "curl"),
    ("dot", "graphviz"),
    ("espeak", "espeak"),
    ("espeak-ng", "espeak-ng"),
    ("exiftool", "libimage-exiftool-perl"),
    ("ffmpeg", "ffmpeg"),
    ("ffplay", "ffmpeg"),
    ("ffprobe", "ffmpeg"),
    ("file", "file"),
    ("flac", "flac"),
    ("g++", "g++"),
    ("gawk", "gawk"),
    ("gcc", "gcc"),
    ("gdb", "gdb"),
    ("gfortran", "gfortran"),
    ("git", "git"),
    ("git-lfs", "git-lfs"),
    ("gnuplot", "gnuplot"),
    ("gs", "ghostscript"),
    ("hhblits", "hhsuite"),
    ("hmmbuild", "hmmer"),
    ("hmmsearch", "hmmer"),
    ("htop", "htop"),
    ("identify", "imagemagick"),
    ("inkscape", "inkscape"),
    ("jackhmmer", "hmmer"),
    ("java", "default-jre"),
    ("jq", "jq"),
    ("kalign", "kalign"),
    ("lame", "lame"),
    ("latex", "texlive-latex-base"),
    ("less", "less"),
    ("lsof", "lsof"),
    ("mafft", "mafft"),
    ("make", "make"),
    ("mecab", "mecab"),
    ("mediainfo", "mediainfo"),
    ("mmseqs", "mmseqs2"),
    ("mpiexec", "openmpi-bin"),
    ("mpirun", "openmpi-bin"),
    ("nano", "nano"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("numactl", "numactl"),
    ("pandoc", "pandoc"),
    ("parallel", "parallel"),
    ("pdflatex", "texlive-latex-base"),
    ("pdftoppm", "poppler-utils"),
    ("pdftotext", "poppler-utils"),
    ("perl", "perl"),
    ("pigz", "pigz"),
    ("ps", "procps"),
    ("rclone", "rclone"),
    ("rsync", "rsync"),
    ("ruby", "ruby"),
    ("samtools", "samtools"),
    ("screen", "screen"),
    ("sox", "sox"),
    ("soxi", "sox"),
    ("sqlite3", "sqlite3"),
    ("ssh", "openssh-client"),
    ("strace", "strace"),
    ("svn", "subversion"),
    ("swig", "swig"),
    ("tesseract", "tesseract-ocr"),
    ("tmux", "tmux"),
    ("top", "procps"),
    ("tree", "tree"),
    ("unrar", "unrar-free"),
    ("unzip", "unzip"),
    ("vim", "vim"),
    ("wget", "wget"),
    ("xvfb-run", "xvfb"),
    ("xxd", "xxd"),
    ("yasm", "yasm"),
    ("zip", "zip"),
    ("zsh", "zsh"),
    ("zstd", "zstd"),
];

/// By name.
const NEEDS: &[(&str, &[&str])] = &[
    ("accelerate", &["debianutils"]),
    ("ale-py", SDL),
    ("atari-py", &["libgl1"]),
    ("box2d", &["swig"]),
    ("box2d-py", &["swig"]),
    ("comet-ml", GIT),
    ("demucs", FFMPEG),
    ("dgl", &["libgomp1"]),
    ("dm-control", EGL),
    ("dvc", GIT),
    ("dvclive", GIT),
    ("espnet", &["ffmpeg", "sox", "libsndfile1"]),
    ("faiss-cpu", &["libgomp1"]),
    ("faster-whisper", FFMPEG),
    ("ffmpeg-python", FFMPEG),
    ("fiftyone", FFMPEG),
    ("gitpython", GIT),
    ("glfw", &["libglfw3", "libgl1", "libegl1"]),
    ("graphviz", &["graphviz"]),
    ("horovod", OPENMPI),
    ("imgui", &["libgl1"]),
    ("insightface", &["libgl1", "libglib2.0-0"]),
    ("kaldiio", &["sox"]),
    ("lightgbm", &["libgomp1"]),
    (
        "manim",
        &[
            "ffmpeg",
            "libcairo2",
            "libpango-1.0-0",
            "libpangocairo-1.0-0",
        ],
    ),
    (
        "mediapipe",
        &["libgl1", "libegl1", "libgles2", "libglib2.0-0"],
    ),
    ("mlflow", GIT),
    ("moviepy", FFMPEG),
    ("mpi4py", OPENMPI),
    ("mujoco", EGL),
    (
        "mujoco-py",
        &["libosmesa6", "libgl1", "libglew2.2", "patchelf"],
    ),
    (
        "open3d",
        &["libgl1", "libegl1", "libgomp1", "libx11-6", "libusb-1.0-0"],
    ),
    ("openai-whisper", FFMPEG),
    ("opencv-contrib-python", OPENCV),
    ("opencv-python", OPENCV),
    ("openslide-python", &["libopenslide0"]),
    ("pdf2image", &["poppler-utils"]),
    ("phonemizer", &["espeak-ng"]),
    ("psycopg2", &["libpq5"]),
    ("pyaudio", &["libportaudio2"]),
    ("pybullet", &["libgl1", "libegl1"]),
    ("pydot", &["graphviz"]),
    ("pydub", FFMPEG),
    ("pyglet", &["libgl1", "libglu1-mesa"]),
    ("pygraphviz", &["graphviz"]),
    (
        "pymeshlab",
        &["libgl1", "libegl1", "libglu1-mesa", "libopengl0"],
    ),
    ("pyopengl", &["libgl1", "libglu1-mesa"]),
    ("pyqt5", QT),
    ("pyqt6", QT),
    ("pyrender", EGL),
    ("pyside6", QT),
    ("pytesseract", &["tesseract-ocr"]),
    ("python-magic", &["libmagic1"]),
    ("pyttsx3", &["espeak-ng"]),
    ("pyvirtualdisplay", &["xvfb"]),
    ("pyvista", &["libgl1", "libxrender1"]),
    ("pyzbar", &["libzbar0"]),
    ("resemble-enhance", &["ffmpeg", "libsndfile1"]),
    ("sounddevice", &["libportaudio2"]),
    ("soundfile", SNDFILE),
    ("sox", &["sox", "libsox-fmt-mp3"]),
    ("tensorflow-io", SNDFILE),
    ("torchcodec", FFMPEG),
    ("trame-vtk", &["libgl1", "libxrender1"]),
    ("ultralytics", OPENCV),
    ("vtk", &["libgl1", "libxrender1"]),
    ("wandb", GIT),
    ("whisperx", FFMPEG),
    ("xgboost", &["libgomp1"]),
    ("yt-dlp", FFMPEG),
];

const CMAKE: &[&str] = &["cmake", "make"];
const HDF5: &[&str] = &["libhdf5-dev"];

/// Of those that people build, by name.
const BUILD_NEEDS: &[(&str, &[&str])] = &[
    ("atari-py", &["cmake", "make", "zlib1g-dev"]),
    (
        "av",
        &[
            "libavcodec-dev",
            "libavdevice-dev",
            "libavfilter-dev",
            "libavformat-dev",
            "libavutil-dev",
            "libswresample-dev",
            "libswscale-dev",
        ],
    ),
    ("cartopy", &["libgeos-dev", "libproj-dev"]),
    ("dlib", &["cmake", "make", "libopenblas-dev"]),
    ("gmpy2", &["libgmp-dev", "libmpfr-dev", "libmpc-dev"]),
    ("h5py", HDF5),
    ("horovod", CMAKE),
    ("kenlm", &["zlib1g-dev", "libbz2-dev", "liblzma-dev"]),
    ("lxml", &["libxml2-dev", "libxslt1-dev"]),
    ("matplotlib", &["libfreetype-dev", "libpng-dev"]),
    ("mpi4py", &["libopenmpi-dev"]),
    ("mysqlclient", &["default-libmysqlclient-dev"]),
    ("netcdf4", &["libnetcdf-dev", "libhdf5-dev"]),
    ("onnx", CMAKE),
    ("onnxsim", CMAKE),
    ("pillow-simd", &["libjpeg62-turbo-dev", "zlib1g-dev"]),
    ("plyvel", &["libleveldb-dev"]),
    ("psycopg2", &["libpq-dev"]),
    ("pyaudio", &["portaudio19-dev"]),
    ("pycairo", &["libcairo2-dev"]),
    ("pycurl", &["libcurl4-openssl-dev", "libssl-dev"]),
    ("pygobject", &["libgirepository1.0-dev", "libcairo2-dev"]),
    ("pygraphviz", &["libgraphviz-dev"]),
    ("pyopenjtalk", CMAKE),
    ("pyproj", &["libproj-dev"]),
    (
        "pysam",
        &[
            "zlib1g-dev",
            "libbz2-dev",
            "liblzma-dev",
            "libcurl4-openssl-dev",
        ],
    ),
    ("python-snappy", &["libsnappy-dev"]),
    ("shapely", &["libgeos-dev"]),
    ("tables", HDF5),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalize_project_name;

    #[test]
    fn rows_are_sorted_and_named_as_the_index_and_debian_have_them() {
        for pair in NEEDS.windows(2).chain(BUILD_NEEDS.windows(2)) {
            assert!(
                pair[0].0 < pair[1].0,
                "{} comes before {}",
                pair[1].0,
                pair[0].0
            );
        }
        assert!(NEEDS.len() >= 50);
        for (project, packages) in NEEDS {
            assert_eq!(normalize_project_name(project).as_deref(), Some(*project));
            assert!(!packages.is_empty(), "{project}");
            for package in *packages {
                let plain =
                    |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
                assert!(package.len() > 1 && package.bytes().all(plain), "{package}");
            }
        }
    }

    #[test]
    fn needs_are_found_by_name() {
        assert!(debian_packages_of("opencv-python").contains(&"libxcb1"));
        assert_eq!(debian_packages_of("openai-whisper"), ["ffmpeg"]);
        assert_eq!(debian_packages_of("opencv-python-headless"), [""; 0]);
        assert_eq!(debian_packages_of("numpy"), [""; 0]);
        assert_eq!(projects_with_needs().count(), NEEDS.len());
    }
}
