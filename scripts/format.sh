#!/usr/bin/env bash
# Formats Go files: gofumpt, and lines of at most 120 columns (a tab counts as 4) by golines. With
# --check it changes nothing, names the files that it would change and the lines that are still too
# long, and fails if there are any. A string that is too long for a line is split by hand, with +.
# Lines with a raw string (a regular expression, JSON), of go:generate and in tests may be longer:
# a table of cases reads best with one case a line.
set -euo pipefail

cd "$(dirname "$0")/.."
tools=$PWD/build/tools/bin
go=${GO:-go}
GOWORK=off GOBIN=$tools $go install -modfile=scripts/tools.mod mvdan.cc/gofumpt github.com/golangci/golines
mapfile -t files < <(git ls-files '*.go' | grep -v _bpfel)
golines=("$tools/golines" -m 120 --no-reformat-tags --base-formatter="$tools/gofumpt")
if [ "${1:-}" != --check ]; then
	for _ in 1 2 3 4 5; do # breaking one line can make another one worth breaking
		"${golines[@]}" -w "${files[@]}"
		[ -n "$("${golines[@]}" -l "${files[@]}")" ] || exit 0
	done
	exit 1
fi
wrong=$("${golines[@]}" -l "${files[@]}")
long=$(awk '{ line = $0; gsub(/\t/, "    ", line) }
	length(line) > 120 && line !~ /`|^\/\/go:|^\/\/ / && FILENAME !~ /_test\.go$|analyzetest/ { print FILENAME ":" FNR }' "${files[@]}")
[ -z "$wrong$long" ] || { printf '%s\n' $wrong $long; exit 1; }
