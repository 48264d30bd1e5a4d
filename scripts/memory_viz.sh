#!/bin/sh
# Installs PyTorch's torch/cuda/_memory_viz.py into build/tools/memory_viz. This script reads memory
# snapshots without PyTorch. It is copied from the PyTorch of PYTHON (python3). With --download, pip
# downloads PyTorch's wheel instead (the CPU wheel is 190 MB). Only tests use it: without it
# TestSnapshotReadByPyTorch skips.
set -eu

torch=2.11.0
python=${PYTHON:-python3}

cd "$(dirname "$0")/.."
tool=$PWD/build/tools/memory_viz
mkdir -p "$tool"

installed=$("$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')
if [ -n "$installed" ]; then
	cp "$installed/cuda/_memory_viz.py" "$tool/_memory_viz.py"
elif [ "${1:-}" = --download ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	"$python" -m pip download --quiet --no-deps --only-binary=:all: -d "$work" "torch==$torch"
	"$python" -m zipfile -e "$work"/torch-*.whl "$work/torch"
	cp "$work/torch/torch/cuda/_memory_viz.py" "$tool/_memory_viz.py"
elif [ ! -e "$tool/_memory_viz.py" ]; then
	echo "memory_viz.sh: $python has no PyTorch; run sh scripts/memory_viz.sh --download" >&2
	exit 1
fi
