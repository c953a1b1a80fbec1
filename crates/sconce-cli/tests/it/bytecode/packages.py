"""Packages that are small enough for a test: python3 packages.py FOLDER BUSYBOX

Makes in FOLDER a root file system's Debian packages with an interpreter that is a shell script, which
"compiles" each source to what the file /usr/lib/python3.13/says of its library says, and one wheel.
Prints a line for each file: deb or wheel, package, file.
"""

import base64
import hashlib
import io
import pathlib
import sys
import tarfile
import zipfile

folder, busybox = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

INTERPRETER = b"""#!/bin/busybox sh
# python3.13 -I -S -B -c SCRIPT SOURCE OUTPUT
shift 5
cd "$1"
/bin/busybox find . -name '*.py' | while read -r file; do
  cache=$2/${file%/*}/__pycache__ name=${file##*/}
  /bin/busybox mkdir -p "$cache"
  /bin/busybox usleep 20000
  /bin/busybox cat /usr/lib/python3.13/says >"$cache/${name%.py}.cpython-313.pyc"
done
"""
SAYS = "usr/lib/python3.13/says"


def tar(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def deb(package, files, variant=""):
    control = f"Package: {package}\nVersion: 1\nArchitecture: amd64\nDescription: made up\n"
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar({"control": control.encode()}),
        "data.tar.xz": tar(files),
    }
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        out += data + b"\n" * (len(data) % 2)
    path = folder / f"{package}{variant}.deb"
    path.write_bytes(out)
    print("deb", package, path)


def wheel(name, files):
    info = f"{name}-1.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_inside, data in files.items():
            archive.writestr(zipfile.ZipInfo(name_inside, (1980, 1, 1, 0, 0, 0)), data)
    print("wheel", name, path)


deb("base-passwd", {
    "usr/share/base-passwd/passwd.master": b"root:*:0:0:root:/root:/bin/sh\n",
    "usr/share/base-passwd/group.master": b"root:*:0:\n",
})
deb("libc6", {"usr/bin/busybox": busybox.read_bytes()})
deb("python3.13-minimal", {"usr/bin/python3.13": INTERPRETER})
deb("libpython3.13-minimal", {SAYS: b"honest"})
deb("libpython3.13-minimal", {SAYS: b"hostile"}, "-hostile")
# Unpacked after the library, in an environment's root.
deb("zz-other", {SAYS: b"hostile"})
for package in ("libpython3.13-stdlib", "libexpat1", "zlib1g"):
    deb(package, {f"usr/share/doc/{package}/copyright": b""})
wheel("six", {f"six{number or ''}.py": b"x = 1\n" for number in range(10)})
