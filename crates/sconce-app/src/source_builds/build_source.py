"""Look at sources, or build a wheel of them, for Sconce.

Runs inside a container that has no network, as a plain user, with the interpreter of the environment:

    python -I -B build_source.py inspect SOURCE OUTPUT FOLDER
    python -B build_source.py build SOURCE OUTPUT FOLDER

SOURCE is an archive or a checkout that nobody may write to, OUTPUT an empty folder, FOLDER the project's
folder in SOURCE. OUTPUT/facts.json tells what `inspect` found. `build` reads its plan from the variable
SCONCE_BUILD and leaves a wheel in OUTPUT/wheel, or says in OUTPUT/result.json what was missing; what it
prints, and all that it starts, is in OUTPUT/log.
"""

import base64
import glob
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tarfile
import time
import traceback
import zipfile

WORK = "/tmp/sources"
MAX_TEXT = 1 << 20
# Endings of files that a compiler reads; `.pyx` needs one behind Cython.
NATIVE = (
    ".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".f", ".f90", ".rs",
    "meson.build", "CMakeLists.txt",
)
# Folders whose compiled files are not of the package.
ASIDE = {"docs", "doc", "tests", "test", "examples", "example", "benchmarks", ".git", "node_modules"}
# Folders that are no modules of a project whose setup.py names none.
BESIDE = {"build", "dist", "scripts", "script", "tools", "bin", "configs", "data", "assets", "notebooks", "demo"}


def unpack(source):
    """Sources as files of their own, below WORK."""
    os.makedirs(WORK)
    if os.path.isdir(source):
        shutil.copytree(source, WORK, symlinks=True, dirs_exist_ok=True)
        return WORK
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            archive.extractall(WORK)
    else:
        with tarfile.open(source) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(WORK, filter="data")
            else:
                archive.extractall(WORK)
    names = os.listdir(WORK)
    if len(names) == 1 and os.path.isdir(os.path.join(WORK, names[0])):
        return os.path.join(WORK, names[0])
    return WORK


def project_folder(source, folder):
    root = os.path.realpath(unpack(source))
    inside = os.path.realpath(os.path.join(root, folder))
    if inside != root and not inside.startswith(root + "/"):
        raise ValueError("%s is not inside of the sources" % folder)
    return inside


def read_text(name):
    if not os.path.isfile(name):
        return None
    with open(name, "rb") as file:
        return file.read(MAX_TEXT).decode("utf-8", "replace")


def inspect(source, output, folder):
    os.chdir(project_folder(source, folder))
    native = cython = False
    newest = 0
    for place, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name not in ASIDE]
        native = native or any(name.endswith(NATIVE) for name in names)
        made = {name.rpartition(".")[0] for name in names if name.endswith((".c", ".cpp"))}
        cython = cython or any(name.endswith(".pyx") and name[:-4] not in made for name in names)
        for name in names:
            newest = max(newest, int(os.lstat(os.path.join(place, name)).st_mtime))
    facts = {
        "native": native,
        "cython": cython,
        "newest": newest,
        "files": {
            name: read_text(name)
            for name in ("pyproject.toml", "setup.py", "setup.cfg", "PKG-INFO")
        },
    }
    with open(os.path.join(output, "facts.json"), "w") as file:
        json.dump(facts, file)


def load_backend(plan):
    sys.path[:0] = [os.path.abspath(path) for path in plan["backend_path"]]
    module, _, attributes = plan["backend"].partition(":")
    backend = importlib.import_module(module)
    for name in filter(None, attributes.split(".")):
        backend = getattr(backend, name)
    return backend


def ask_backend(answer, plan):
    """What the backend wants, from a process of its own, as each call of a backend has one (PEP 517).

    A setup.py that changes setuptools, as matplotlib's before 3.3 does, cannot run twice in one process.
    """
    child = os.fork()
    if child == 0:
        try:
            backend = load_backend(plan)
            wanted = getattr(backend, "get_requires_for_build_wheel", lambda _: [])(None)
            result = {"requires": list(wanted)}
        except ModuleNotFoundError as error:
            traceback.print_exc()
            result = {"module": error.name}
        except BaseException:
            traceback.print_exc()
            result = {"failed": True}
        with open(answer, "w") as file:
            json.dump(result, file)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    with open(answer) as file:
        return json.load(file)


def build(source, output, folder, plan):
    """What the backend does (PEP 517), or what it wants first."""
    os.chdir(project_folder(source, folder))
    for name, text in plan.get("write", {}).items():
        with open(name, "w") as file:
            file.write(text)
    if not plan["complete"]:
        answer = ask_backend(os.path.join(output, "requires.json"), plan)
        if "requires" not in answer:
            return answer
        missing = [one for one in answer["requires"] if one not in plan["requires"]]
        if missing:
            return {"requires": missing}
    backend = load_backend(plan)
    wheels = os.path.join(output, "wheel")
    os.mkdir(wheels)
    backend.build_wheel(wheels)
    built = glob.glob(wheels + "/*.whl")
    added = add_folders(built[0]) if len(built) == 1 else []
    return {"wheel": [os.path.basename(path) for path in built], "added": added}


def add_folders(wheel):
    """Puts the project's folders of modules into a wheel that has no module at all; returns their names.

    A setup.py that looks for packages finds none in folders without `__init__.py`. Such projects are
    installed by `pip install -e`, which makes their folder importable as it lies.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        records = [name for name in names if name.endswith(".dist-info/RECORD")]
        if len(records) != 1 or any(".dist-info/" not in name for name in names):
            return []
        parts = {name: archive.read(name) for name in names if name != records[0]}
    root = "src" if os.path.isdir("src") else "."
    added = [name for name in sorted(os.listdir(root)) if is_folder_of_modules(root, name)]
    for top in added:
        for place, folders, files in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(files):
                path = os.path.join(place, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        parts[os.path.relpath(path, root)] = file.read()
    if not added:
        return []
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            lines.append("%s,sha256=%s,%d\n" % (name, digest, len(content)))
            # The time of SOURCE_DATE_EPOCH, so that the same sources give the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        record = zipfile.ZipInfo(records[0], (1980, 1, 1, 0, 0, 0))
        archive.writestr(record, "".join(lines) + records[0] + ",,\n")
    return added


def is_folder_of_modules(root, name):
    """Whether a folder's files are imported by its name, and not programs or data beside the package."""
    if name in ASIDE or name in BESIDE or not name.isidentifier():
        return False
    walk = os.walk(os.path.join(root, name))
    return any(file.endswith(".py") for _, _, files in walk for file in files)


def build_in_child(source, output, folder, plan):
    log = os.open(os.path.join(output, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    # What it prints stands before the error that ends it.
    sys.stdout.reconfigure(line_buffering=True)
    os.setsid()
    try:
        result = build(source, output, folder, plan)
    except ModuleNotFoundError as error:
        traceback.print_exc()
        result = {"module": error.name}
    except BaseException:
        traceback.print_exc()
        result = {"failed": True}
    with open(os.path.join(output, "result.json"), "w") as file:
        json.dump(result, file)
    sys.stdout.flush()
    os._exit(0)


def main():
    what, source, output, folder = sys.argv[1:5]
    if what == "inspect":
        inspect(source, output, folder)
        return 0
    plan = json.loads(os.environ.pop("SCONCE_BUILD"))
    deadline = time.monotonic() + plan["seconds"]
    child = os.fork()
    if child == 0:
        build_in_child(source, output, folder, plan)
    while time.monotonic() < deadline:
        ended, _ = os.waitpid(child, os.WNOHANG)
        if ended:
            return 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    return 124


sys.exit(main())
