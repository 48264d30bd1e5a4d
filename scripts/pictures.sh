#!/usr/bin/env bash
# Makes pictures of what gpurec shows of a recording, for README and pages of examples: the report in
# light and dark, its flame graph, and what leaks prints in a terminal. Needs scripts/viewers.sh.
#
#	scripts/pictures.sh RECORDING FOLDER
set -euo pipefail

[ $# = 2 ] || { echo "usage: scripts/pictures.sh RECORDING FOLDER" >&2; exit 2; }
recording=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
[ -n "$browser" ] && [ -d build/tools/puppeteer ] || { echo "pictures.sh: no Chromium or puppeteer: sh scripts/viewers.sh" >&2; exit 1; }

shot() { node scripts/report_viewer.mjs build/tools/puppeteer "$browser" "$@"; }
"$gpurec" analyze report --force -o "$out/report.html" "$recording"
shot "$out/report.html" --shot "$out/report-light.png"
shot "$out/report.html" --shot "$out/report-dark.png" --dark
shot "$out/report.html" --shot "$out/report-flame.png" --at '#flame'
shot "$out/report.html" --shot "$out/report-narrow.png" --width 420

# A terminal is text in a dark box: the same browser draws it.
escape() { sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'; }
{
	echo '<!DOCTYPE html><html data-ready="1"><meta charset="utf-8"><link rel="icon" href="data:,"><style>body{margin:0;background:#14171b}pre{margin:0;padding:20px 24px;color:#e4e7eb;font:14px/1.45 "DejaVu Sans Mono",monospace}b{color:#7db4ee}</style>'
	echo "<pre><b>\$ gpurec analyze leaks $(basename "$recording" | escape)</b>"
	"$gpurec" analyze leaks --top 8 "$recording" 2>/dev/null | fold -s -w 125 | escape
	echo '</pre></html>'
} >"$out/terminal.html"
shot "$out/terminal.html" --shot "$out/terminal.png" --width 1130 --only pre
rm "$out/terminal.html"
ls "$out"
