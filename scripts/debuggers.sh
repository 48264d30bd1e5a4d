#!/bin/sh
# Installs the debuggers with which tests trace recorded programs, gdb and strace, and the terminal
# in which they run gpurec top, tmux, from the distribution. Installed ones are kept. gpurec itself
# does not use them.
set -eu

missing=
for tool in gdb strace tmux; do
	command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	# shellcheck disable=SC2086 # a list of packages
	apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -y -qq $missing >/dev/null
	exit
fi
echo "debuggers.sh: install$missing and run the script again" >&2
exit 1
