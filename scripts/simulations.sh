#!/usr/bin/env bash
# make simtorch for make check: it keeps what it builds in build/tools/simulations, and takes it from there if the
# sources, the compilers and the folder are the same. Binaries have the folder in their debug information.
set -euo pipefail

cd "$(dirname "$0")/.."
cc=${CC:-cc} cxx=${CXX:-c++}
kept=$PWD/build/tools/simulations
key=$({
	echo "$PWD" "${SIMCUDA_CFLAGS:-}" "${SIMTORCH_CXXFLAGS:-}"
	"$cc" --version
	"$cxx" --version
	git ls-files -s 'examples/*.c' 'examples/*.h' 'examples/*.cpp' 'examples/*.sh'
	git diff HEAD -- 'examples/*.c' 'examples/*.h' 'examples/*.cpp' 'examples/*.sh'
	git ls-files -o --exclude-standard -z 'examples/*.c' 'examples/*.h' 'examples/*.cpp' 'examples/*.sh' | xargs -0 cat
} | sha256sum)
if [ "$(cat "$kept/key" 2>/dev/null)" = "$key" ]; then
	cp -r --no-dereference "$kept/simcuda" "$kept/simtorch" build/ # newer than the sources
	exit
fi
make -s simtorch
rm -rf "$kept"
mkdir -p "$kept"
cp -r --no-dereference build/simcuda build/simtorch "$kept/"
echo "$key" >"$kept/key"
