/// What versions of a project of the last years all require, by project.
pub(super) const BRINGS: &[(&str, &str)] = &[
    (
        "accelerate",
        "torch numpy packaging psutil pyyaml huggingface-hub safetensors",
    ),
    (
        "albumentations",
        "numpy scipy pyyaml opencv-python-headless",
    ),
    (
        "basicsr",
        "torch torchvision numpy scipy scikit-image tqdm pyyaml pillow lmdb opencv-python",
    ),
    (
        "datasets",
        "numpy pandas pyarrow requests tqdm dill multiprocess fsspec huggingface-hub packaging pyyaml xxhash",
    ),
    (
        "deepface",
        "numpy pandas tqdm pillow tensorflow keras opencv-python",
    ),
    (
        "deepspeed",
        "torch numpy packaging psutil pydantic tqdm ninja einops",
    ),
    (
        "diffusers",
        "numpy pillow requests regex safetensors huggingface-hub filelock",
    ),
    (
        "easyocr",
        "torch torchvision numpy scipy pillow scikit-image pyyaml opencv-python-headless",
    ),
    (
        "evaluate",
        "datasets numpy pandas dill multiprocess requests tqdm xxhash huggingface-hub packaging fsspec",
    ),
    (
        "facexlib",
        "torch torchvision numpy scipy tqdm pillow numba filterpy opencv-python",
    ),
    (
        "flax",
        "jax numpy optax msgpack rich pyyaml typing-extensions",
    ),
    (
        "gfpgan",
        "torch torchvision numpy scipy tqdm pyyaml lmdb basicsr facexlib opencv-python",
    ),
    ("gym", "numpy cloudpickle"),
    ("gymnasium", "numpy cloudpickle typing-extensions"),
    ("hydra-core", "omegaconf packaging"),
    (
        "imgaug",
        "numpy scipy six pillow matplotlib scikit-image imageio opencv-python",
    ),
    ("invisible-watermark", "numpy pillow torch opencv-python"),
    ("jax", "jaxlib numpy scipy opt-einsum ml-dtypes"),
    ("kornia", "torch packaging"),
    (
        "librosa",
        "numpy scipy numba joblib soundfile audioread decorator scikit-learn",
    ),
    (
        "lightning",
        "torch torchmetrics pytorch-lightning lightning-utilities tqdm fsspec packaging pyyaml typing-extensions",
    ),
    ("lpips", "torch torchvision numpy scipy tqdm"),
    (
        "matplotlib",
        "numpy pillow packaging pyparsing python-dateutil kiwisolver",
    ),
    ("mediapipe", "numpy absl-py opencv-contrib-python"),
    (
        "mmcv",
        "numpy pyyaml pillow packaging addict yapf opencv-python",
    ),
    (
        "mmcv-full",
        "numpy pyyaml pillow packaging addict yapf opencv-python",
    ),
    ("monai", "torch numpy"),
    ("numba", "numpy llvmlite"),
    ("omegaconf", "pyyaml"),
    (
        "openai-whisper",
        "torch numpy numba tqdm tiktoken more-itertools",
    ),
    ("opencv-contrib-python", "numpy"),
    ("opencv-python", "numpy"),
    ("opencv-python-headless", "numpy"),
    ("optuna", "numpy sqlalchemy tqdm pyyaml packaging colorlog"),
    ("pandas", "numpy python-dateutil"),
    (
        "peft",
        "torch transformers accelerate numpy psutil pyyaml tqdm safetensors packaging huggingface-hub",
    ),
    (
        "pytorch-lightning",
        "torch torchmetrics tqdm fsspec packaging pyyaml typing-extensions",
    ),
    (
        "realesrgan",
        "torch torchvision numpy tqdm pillow basicsr facexlib gfpgan opencv-python",
    ),
    (
        "scikit-image",
        "numpy scipy networkx pillow imageio tifffile packaging",
    ),
    ("scikit-learn", "numpy scipy joblib"),
    ("scipy", "numpy"),
    ("seaborn", "numpy pandas matplotlib"),
    (
        "segmentation-models-pytorch",
        "torch torchvision timm numpy pillow tqdm",
    ),
    (
        "sentence-transformers",
        "torch transformers numpy scipy scikit-learn tqdm huggingface-hub pillow",
    ),
    (
        "stable-baselines3",
        "torch numpy gymnasium cloudpickle pandas matplotlib",
    ),
    ("statsmodels", "numpy scipy pandas patsy packaging"),
    (
        "supervision",
        "numpy scipy matplotlib pyyaml pillow opencv-python",
    ),
    (
        "tensorboard",
        "numpy protobuf grpcio absl-py markdown werkzeug setuptools",
    ),
    (
        "tensorflow",
        "numpy keras protobuf grpcio absl-py h5py six packaging tensorboard astunparse gast opt-einsum requests typing-extensions",
    ),
    (
        "timm",
        "torch torchvision pyyaml huggingface-hub safetensors",
    ),
    (
        "torch",
        "typing-extensions filelock sympy networkx jinja2 fsspec",
    ),
    (
        "torch-geometric",
        "numpy tqdm requests jinja2 aiohttp psutil pyparsing fsspec",
    ),
    ("torchaudio", "torch"),
    ("torchmetrics", "torch numpy packaging lightning-utilities"),
    ("torchvision", "torch numpy pillow"),
    (
        "transformers",
        "numpy tokenizers huggingface-hub requests pyyaml tqdm regex safetensors packaging filelock",
    ),
    ("trl", "torch transformers accelerate datasets"),
    (
        "ultralytics",
        "torch torchvision numpy matplotlib opencv-python pillow pyyaml requests scipy psutil polars",
    ),
    (
        "vllm",
        "torch torchvision torchaudio transformers numpy tokenizers fastapi aiohttp pydantic psutil pillow einops tiktoken requests tqdm",
    ),
    (
        "wandb",
        "click gitpython requests pyyaml protobuf sentry-sdk platformdirs pydantic packaging",
    ),
    ("xgboost", "numpy scipy"),
];
