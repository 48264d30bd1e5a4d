#!/bin/sh
# Fetches the JavaScript libraries of the HTML report into analyze/export/html/web/lib, at pinned
# versions: uPlot for charts, d3-flame-graph and d3 for the flame graph. The files are committed, and
# gpurec embeds them. To update a library, change its version and checksum below and run this script.
set -eu

cd "$(dirname "$0")/../analyze/export/html/web/lib"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# library NAME VERSION SHA256 FILE...: downloads an npm package, checks it, and extracts files from it.
library() {
	name=$1 version=$2 sum=$3
	shift 3
	(cd "$work" && npm pack --silent "$name@$version" >/dev/null)
	archive=$work/$name-$version.tgz
	echo "$sum  $archive" | sha256sum --quiet -c - || { echo "weblibs.sh: the checksum of $name@$version is wrong; compare it with the npm registry" >&2; exit 1; }
	rm -rf "$work/package"
	tar -xzf "$archive" -C "$work"
	for file in "$@"; do
		cp "$work/package/dist/$file" .
	done
	cp "$work/package/LICENSE" "$name.LICENSE"
}

library uplot 1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d uPlot.iife.min.js uPlot.min.css
library d3 7.9.0 7e36605710a2ba54846797c8c6d888911341b215ae53257dc32a49a0b824355e d3.min.js
library d3-flame-graph 5.0.0 f12f7540b6e6e787277908d70b7169da7ced5be8737bcff2bd27f3fe4b9961c9 d3-flamegraph.umd.min.js
chmod 644 ./*
sha256sum -- *.js *.css *.LICENSE >SHA256SUMS
