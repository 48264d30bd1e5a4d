#!/usr/bin/env bash
# Checks dependencies and the standard library for known vulnerabilities. An unreachable database is no
# failure.
set -euo pipefail

cd "$(dirname "$0")/.."
if ! output=$(GOWORK=off "${GO:-go}" tool -modfile=scripts/tools.mod govulncheck ./... 2>&1); then
	case $output in
	*"fetching vulnerabilities"*) echo "(not checked: the vulnerability database is unreachable: ${output##*: })" ;;
	*) echo "$output" >&2; exit 1 ;;
	esac
fi
