#!/usr/bin/env bash
# make fuzz: runs every fuzz target for FUZZTIME (30s), one after the other.
set -euo pipefail
for file in $(git ls-files '*_test.go'); do
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "== $target in $(dirname "$file")"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" "./$(dirname "$file")"
	done
done
