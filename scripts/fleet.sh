#!/bin/bash
# Checks the metrics of gpurec ship and its alert rules with promtool, which comes from Debian's package prometheus.
# The package is unpacked into build/tools and not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/build/tools/prometheus
promtool=$tools/usr/bin/promtool
if [ ! -x "$promtool" ]; then
	mkdir -p "$tools"
	(cd "$tools" && apt-get download prometheus && dpkg -x prometheus_*.deb .)
fi
GPUREC_METRICS=$tools/metrics.txt go test ./ship -count=1 -run '^TestLint$'
"$promtool" check metrics <"$tools/metrics.txt"
cd deploy/prometheus
"$promtool" check rules alerts.yml
"$promtool" test rules alerts_test.yml
