#!/usr/bin/env bash
# Makes pictures of a recording for README and the examples: the HTML report in light and dark, its
# flame graph, and the terminal output of gpurec analyze leaks. Needs the tools of
# scripts/viewers.sh. FROM=TO replaces a text in all pictures, such as a private path.
#
#	scripts/pictures.sh RECORDING FOLDER [FROM=TO]
set -euo pipefail

[ $# = 2 ] || [[ $# = 3 && $3 = ?*=* ]] || { echo "usage: scripts/pictures.sh RECORDING FOLDER [FROM=TO]" >&2; exit 2; }
recording=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
rename=${3:-=}
from=${rename%%=*} to=${rename#*=}
cd "$(dirname "$0")/.."
gpurec=${GPUREC:-$PWD/build/bin/gpurec}
browser=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
[ -n "$browser" ] && [ -d build/tools/puppeteer ] || { echo "pictures.sh: no Chromium or puppeteer: run sh scripts/viewers.sh" >&2; exit 1; }

renamed() {
	local text
	text=$(cat)
	[ -z "$from" ] || text=${text//"$from"/"$to"}
	printf '%s\n' "$text"
}
shot() { node scripts/report_viewer.mjs build/tools/puppeteer "$browser" "$@"; }
"$gpurec" analyze report -o - "$recording" 2>/dev/null | renamed >"$out/report.html"
shot "$out/report.html" --shot "$out/report-light.png" --height 1000
shot "$out/report.html" --shot "$out/report-dark.png" --dark
shot "$out/report.html" --shot "$out/report-flame.png" --at '#flame' --height 700
shot "$out/report.html" --shot "$out/report-narrow.png" --width 420

# The browser also draws the terminal picture: text on a dark background.
escape() { sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'; }
{
	echo '<!DOCTYPE html><html data-ready="1"><meta charset="utf-8"><link rel="icon" href="data:,"><style>body{margin:0;background:#14171b}pre{margin:0;padding:20px 24px;white-space:pre-wrap;color:#e4e7eb;font:14px/1.45 "DejaVu Sans Mono",monospace}b{color:#7db4ee}</style>'
	echo "<pre><b>\$ gpurec analyze leaks $(basename "$recording" | escape)</b>"
	"$gpurec" analyze leaks --top 5 "$recording" 2>/dev/null | renamed | escape
	echo '</pre></html>'
} >"$out/terminal.html"
shot "$out/terminal.html" --shot "$out/terminal.png" --width 1130 --only pre
rm "$out/terminal.html"
ls "$out"
