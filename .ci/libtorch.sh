#!/usr/bin/env bash
# Makes the libtorch for the CPU that the feature `torch` builds with, from wheels of the Python package index, and prints
# its folder. It is kept there, so a second call has nothing to do.
#
#     export LIBTORCH=$(.ci/libtorch.sh [FOLDER])
#
# Needs Linux on x86_64, some 600 MB to download, and a Python with pip; of any version, as wheels are only unpacked.
set -euo pipefail

version=2.11.0
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/advlab/libtorch-$version-cpu}
python=${PYTHON:-python3}

fail() {
    echo "libtorch.sh: $*" >&2
    exit 1
}

if [ "$(cat "$folder/build-version" 2>/dev/null)" = "$version+cpu" ]; then
    echo "$folder"
    exit 0
fi
[ ! -e "$folder" ] || fail "$folder is there, and is not libtorch $version for the CPU; remove it, or name another folder"
[ "$(uname -sm)" = "Linux x86_64" ] || fail "wheels are known for Linux on x86_64 alone; set LIBTORCH to a libtorch $version"
"$python" -m pip --version >/dev/null || fail "$python has no pip; set PYTHON to one that has"

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$(dirname "$folder")/.libtorch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# pip wants every tag that one of the wheels is made for.
platforms=()
for tag in manylinux_2_28 manylinux_2_25 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${tag}_x86_64")
done
# libtorch_cpu.so of these wheels loads the two libraries of CUDA, which do nothing where there is no GPU.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
    "${platforms[@]}" --dest "$work" torch==$version nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 >&2

"$python" - "$work" "$version+cpu" <<'PY'
import os, shutil, sys, zipfile

work, version = sys.argv[1:]
out = os.path.join(work, "libtorch")
libraries = {"libc10.so", "libtorch_cpu.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13"}
found = set()
for wheel in sorted(os.listdir(work)):
    if not wheel.endswith(".whl"):
        continue
    with zipfile.ZipFile(os.path.join(work, wheel)) as archive:
        for name in archive.namelist():
            base = os.path.basename(name)
            if base in libraries and "/lib/" in name:
                found.add(base)
                path = os.path.join(out, "lib", base)
            elif base and name.startswith("torch/include/"):
                path = os.path.join(out, name.removeprefix("torch/"))
            else:
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(name) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
if found != libraries:
    sys.exit(f"libtorch.sh: the wheels lack {', '.join(sorted(libraries - found))}")
# Programs are linked with libtorch.so. The wheel's one pulls CUDA in; for the CPU it is no more than libtorch_cpu.so.
os.symlink("libtorch_cpu.so", os.path.join(out, "lib", "libtorch.so"))
# The build reads this file, and refuses another version.
with open(os.path.join(out, "build-version"), "w") as file:
    file.write(version + "\n")
PY
mv "$work/libtorch" "$folder"
echo "$folder"
