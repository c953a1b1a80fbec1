"""What a standalone Python says of itself, inside an environment: `pythons.py 3.11`; with `--probe` what is
brought into it."""

import sys

if sys.argv[1] == "--probe":
    import ctypes
    import importlib
    import pkgutil

    cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    import sconce_probe

    for module in pkgutil.walk_packages(sconce_probe.__path__, "sconce_probe."):
        importlib.import_module(module.name)
    print("cards", count.value)
    sys.exit()

import bz2, ctypes, curses, json, lzma, mimetypes, os, readline, shutil, sqlite3, ssl, sysconfig, zlib  # noqa: E401
import six

version = sys.argv[1]
prefix = "/opt/python/" + version
assert "%d.%d" % sys.version_info[:2] == version, sys.version
assert (sys.prefix, sys.base_prefix) == ("/opt/venv", prefix), (sys.prefix, sys.base_prefix)
assert six.__file__.startswith("/opt/venv/lib/python"), six.__file__
for name in ("python", "python3", "python" + version, "python3-config", "python" + version + "-config"):
    assert shutil.which(name) == "/opt/venv/bin/" + name, name
said = {name: sysconfig.get_config_var(name) for name in ("CC", "CXX", "LDSHARED", "AR", "CFLAGS", "prefix")}
assert said["CC"].split()[0] == "cc" and said["LDSHARED"].split()[0] == "cc", said
assert said["CXX"].split()[0] == "c++" and said["AR"] == "ar", said
assert "-fdebug-default-version" not in said["CFLAGS"], said
assert not [key for key, value in sysconfig.get_config_vars().items() if str(value).startswith("/install")]
# Of 3.14 on: the same as JSON, and what tools that build extensions read (PEP 739).
for path in (os.path.join(sysconfig.get_path("stdlib"), name) for name in os.listdir(sysconfig.get_path("stdlib"))):
    if path.endswith(".json"):
        with open(path) as file:
            text = file.read()
        said = json.loads(text)
        assert '"/install' not in text and said.get("CC", "cc").split()[0] == "cc" and said.get("AR", "ar") == "ar", path
        assert said.get("base_prefix", prefix) == prefix, said
assert os.path.exists(sysconfig.get_path("include") + "/Python.h"), sysconfig.get_path("include")
assert ssl.create_default_context().get_ca_certs(), ssl.get_default_verify_paths()
assert sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
assert mimetypes.guess_type("a.png")[0] == "image/png"
