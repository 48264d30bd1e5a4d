#!/usr/bin/env bash
# Formats Go files with gofumpt, and with golines for lines of at most 120 columns (a tab counts as
# 4). With --check it changes no file. It prints the files to format and the lines that are too
# long, and fails if there are any. Split long strings by hand, with +. Lines with raw strings,
# go:generate lines and tests may be longer.
set -euo pipefail

cd "$(dirname "$0")/.."
tools=$PWD/build/tools/bin
go=${GO:-go}
GOWORK=off GOBIN=$tools $go install -modfile=scripts/tools.mod mvdan.cc/gofumpt github.com/golangci/golines
mapfile -t files < <(git ls-files '*.go' | grep -v _bpfel)
golines=("$tools/golines" -m 120 --no-reformat-tags --base-formatter="$tools/gofumpt")
if [ "${1:-}" != --check ]; then
	for _ in 1 2 3 4 5; do # a new line break may cause another one
		"${golines[@]}" -w "${files[@]}"
		[ -n "$("${golines[@]}" -l "${files[@]}")" ] || exit 0
	done
	exit 1
fi
wrong=$("$tools/gofumpt" -l "${files[@]}")
mapfile -t wide < <(awk '{ gsub(/\t/, "    ") } length > 120 { print FILENAME; nextfile }' "${files[@]}")
[ ${#wide[@]} = 0 ] || wrong+=$("${golines[@]}" -l "${wide[@]}")
long=$(awk '{ line = $0; gsub(/\t/, "    ", line) }
	length(line) > 120 && line !~ /`|^\/\/go:|^\/\/ / && FILENAME !~ /_test\.go$|analyzetest/ { print FILENAME ":" FNR }' "${files[@]}")
[ -z "$wrong$long" ] || { printf '%s\n' $wrong $long; exit 1; }
