#!/bin/sh
# Prints what gpurec stacks says about the communicators of running processes (needs root):
#
#   check-census.sh PID… [LOG…]      LOG: output of the job with NCCL_DEBUG=INFO
#
# With logs, it prints the commId values of NCCL that gpurec did not find, and ends with status 1 if there are any. A
# communicator that was destroyed is one of them. GPUREC is the program, by default gpurec.
set -eu
pids= logs=
for argument in "$@"; do
	case $argument in
	*[!0-9]*) logs="$logs $argument" ;;
	*) pids=${pids:+$pids,}$argument ;;
	esac
done
[ -n "$pids" ] || { sed -n '2,7s/^# \?//p' "$0" >&2; exit 2; }
found=$("${GPUREC:-gpurec}" stacks -p "$pids" | awk '/^COMMUNICATOR |^communicators of process /{on = 1} on')
printf '%s\n' "$found"
[ -n "$logs" ] || exit 0
status=0
# shellcheck disable=SC2086 # a list of files
for id in $(sed -n 's/.*commId \(0x[0-9a-f]*\).*/\1/p' $logs | sort -u); do
	case $found in
	*"$id"*) echo "commId $id: found" ;;
	*) echo "commId $id: not found"; status=1 ;;
	esac
done
exit $status
