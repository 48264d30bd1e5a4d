#!/usr/bin/env bash
# Part of make test-gpu, on a machine with a GPU and PyTorch. Records
# examples/workloads/allocator.py from its first allocation, attached later, and with
# --allocator=light, each with both kinds of segments. Compares the recordings byte by byte with
# PyTorch's memory_stats() and _dump_snapshot(), and reads the snapshots with PyTorch's reader.
# Needs root. GPUREC is the path of gpurec, SECONDS_EACH the run time of each program.
set -euo pipefail
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
seconds=${SECONDS_EACH:-10}
work=${WORK:-$(mktemp -d)}
failed=0
for conf in expandable_segments:False expandable_segments:True; do
	export PYTORCH_CUDA_ALLOC_CONF=$conf
	for when in start late light; do
		name=$work/$when-${conf#*:}
		program=(python3 examples/workloads/allocator.py --seconds "$seconds" --checkpoints "$name.checkpoints" --snapshot "$name.torch.pickle")
		if [ $when != late ]; then
			mode=auto
			[ $when = start ] || mode=light
			"$gpurec" record --max-overhead off --allocator=$mode -o "$name.parquet" -- "${program[@]}" >"$name.out"
		else
			"${program[@]}" >"$name.out" &
			pid=$!
			until [ -s "$name.checkpoints" ]; do sleep 0.2; done
			"$gpurec" record --max-overhead off -p $pid -o "$name.parquet" -d 600s
			wait $pid
		fi
		echo "== $when, $conf"
		python3 scripts/compare_torch_allocator.py --gpurec "$gpurec" "$name.parquet" "$name.checkpoints" || failed=1
		[ $when != light ] || continue # a light recording has no segments
		at=$(sed -n 's/^snapshot at //p' "$name.out")
		"$gpurec" analyze torch-snapshot --at "$at" -o "$name.pickle" "$name.parquet"
		python3 -m torch.cuda._memory_viz stats "$name.pickle" | grep -E '^(segments|total)'
		[ $when = late ] || python3 scripts/compare_torch_snapshot.py "$name.pickle" "$name.torch.pickle" || failed=1
	done
done
exit $failed
