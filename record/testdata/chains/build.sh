#!/bin/sh
# Builds the test programs that write the stacks from which they call the driver:
#   build.sh [OUTDIR]        default: build/chains in the repository; simcuda has to be in build/simcuda
# All are built without frame pointers. NAME.debug is the symbol table of a stripped NAME.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${1:-$root/build/chains}
mkdir -p "$out"

flags="-O2 -g -fomit-frame-pointer -fno-optimize-sibling-calls -fno-ipa-icf -fno-ipa-cp -Wall -Wextra -Werror
	-I$root/examples/simcuda"
cuda=$root/build/simcuda/libcuda.so.1

${CC:-cc} -std=gnu11 -D_GNU_SOURCE $flags -fPIC -shared "$here/chains.c" -o "$out/chains.so" "$cuda" -lpthread
${CXX:-c++} -std=gnu++17 -D_Static_assert=static_assert $flags -fPIC -shared "$here/late.cc" -o "$out/late.so" "$cuda"
${CXX:-c++} -std=gnu++17 -D_Static_assert=static_assert $flags "$here/chain.cc" -o "$out/chain" "$cuda" -lpthread -ldl
strip --strip-all -o "$out/chain-stripped" "$out/chain"
cp "$out/chain" "$out/chain-stripped.debug"
# A program at fixed addresses, linked statically except for the driver.
${CXX:-c++} -std=gnu++17 -D_Static_assert=static_assert $flags -fno-pie -no-pie -static-libgcc -static-libstdc++ "$here/chain.cc" -o "$out/chain-fixed" "$cuda" \
	-lpthread -ldl
