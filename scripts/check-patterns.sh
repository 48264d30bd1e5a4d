#!/usr/bin/env bash
# Fails if a part of a pattern of go test -run matches no test in a folder: a test that was renamed would
# no longer run. Parts are separated by "|"; a pattern with parentheses is one part.
#
# usage: scripts/check-patterns.sh PATTERN FOLDER
set -euo pipefail
names=$(grep -rhoE --include='*_test.go' '^func Test\w+' "$2" | cut -c 6-)
parts=("$1")
[[ $1 == *[\(\)]* ]] || IFS='|' read -ra parts <<<"$1"
status=0
for part in "${parts[@]}"; do
	grep -qE -- "${part%%/*}" <<<"$names" && continue
	echo "check-patterns.sh: no test in $2 matches $part" >&2
	status=1
done
exit $status
