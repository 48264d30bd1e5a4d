#!/usr/bin/env bash
# What scripts/kernels.sh runs in a guest.
root=$1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run/tmp LANG=C.UTF-8
mkdir -p $TMPDIR
chmod 1777 $TMPDIR
cd "$root"
stty -F /dev/ttyS1 -opost 2>/dev/null
command=$(cat build/kernels/command/command)
. build/kernels/command/settings
if [ -n "$command" ]; then
	bash -c "$command"
	exit
fi
