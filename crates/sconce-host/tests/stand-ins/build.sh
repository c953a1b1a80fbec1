#!/bin/sh
# Compiles the stand-ins into a folder: build.sh FOLDER
set -eu
here=$(dirname "$0")
mkdir -p "$1"
for pair in nvml:libnvidia-ml cuda:libcuda; do
    name=${pair#*:}
    source=$here/${pair%%:*}.c
    library=$1/$name.so.1
    if [ "$library" -nt "$source" ] && [ "$library" -nt "$here/machine.h" ]; then
        continue
    fi
    # Whole at once: several tests may build into one folder.
    part="$1/$name.$$"
    "${CC:-cc}" -shared -fPIC -fvisibility=hidden -O1 -Wall -Wextra \
        -Wl,-soname,"$name.so.1" -o "$part" "$source"
    mv "$part" "$library"
done
