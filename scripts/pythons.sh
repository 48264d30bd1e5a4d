#!/usr/bin/env bash
# Collects the CPythons for the stack tests as build/python/NAME/bin/python3:
#   3.11, 3.13, 3.14          Debian packages: one stripped executable with a built-in interpreter
#   3.11-pyenv, 3.12-pyenv …  links to installed pyenv versions, with libpython and debug information
# The newer Debian versions come from newer suites with their C library. They are unpacked into
# their folder and do not change the system. Existing interpreters are kept. Debian has no 3.12, so
# 3.12 needs pyenv.
set -euo pipefail

cd "$(dirname "$0")/.."
pythons=$PWD/build/python
apt=$PWD/build/apt
mkdir -p "$pythons"

# runs NAME VERSION: succeeds if the interpreter exists and has the modules that the test programs
# need.
runs() {
	[ -x "$pythons/$1/bin/python3" ] &&
		[ "$("$pythons/$1/bin/python3" -c 'import ctypes, sys, threading; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$2" ]
}

# link NAME INTERPRETER: links build/python/NAME/bin/python3 to an interpreter.
link() {
	rm -rf "${pythons:?}/$1"
	mkdir -p "$pythons/$1/bin"
	ln -s "$2" "$pythons/$1/bin/python3"
}

# suite SUITE APT_TOOL ARGUMENTS…: runs apt-get or apt-cache for one Debian suite with this
# machine's mirror.
suite() {
	local dir=$apt/$1 tool=$2
	shift 2
	"$tool" -qq -o Dir::Etc::SourceList="$dir/debian.sources" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$dir/lists" \
		-o Dir::Cache="$dir/cache" -o Dir::State::status="$dir/status" -o APT::Sandbox::User=root "$@"
}

# from_suite VERSION SUITE: unpacks an interpreter and its libraries from a suite, and sets its
# library path to them.
from_suite() {
	local version=$1 suite=$2 dir=$apt/$2 root=$pythons/$1/files
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	: >"$dir/status"
	# Copy the apt source of Debian 12 and replace its suite.
	awk -v suite="$suite" 'BEGIN { RS = ""; ORS = "\n\n" }
		!done && /(^|\n)Suites: [^\n]*bookworm( |\n)/ { sub(/(^|\n)Suites: [^\n]*/, "\nSuites: " suite); sub(/^\n/, ""); print; done = 1 }' \
		/etc/apt/sources.list.d/*.sources >"$dir/debian.sources"
	suite "$suite" apt-get update || return
	rm -rf "${pythons:?}/$version" "$dir/debs"
	mkdir -p "$root" "$dir/debs" "$pythons/$version/bin"
	(cd "$dir/debs" && suite "$suite" apt-get download "python$version-minimal" "libpython$version-minimal" \
		"libpython$version-stdlib" libc6 libexpat1 zlib1g libffi8) || return
	for deb in "$dir"/debs/*.deb; do
		dpkg-deb -x "$deb" "$root"
	done
	rm -rf "$dir/debs"
	local libraries loader
	libraries=$(dirname "$(find "$root" -name libc.so.6 -print -quit)")
	loader=$(find "$libraries" -name 'ld-linux-*.so.*' -print -quit)
	# Use DT_RPATH: unlike DT_RUNPATH it also applies to the dependencies of libraries.
	patchelf --force-rpath --set-rpath "$libraries" --set-interpreter "$loader" "$root/usr/bin/python$version"
	ln -s "../files/usr/bin/python$version" "$pythons/$version/bin/python3"
}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	missing=()
	[ -x /usr/bin/python3.11 ] || missing+=(python3.11)
	command -v patchelf >/dev/null || missing+=(patchelf)
	if [ ${#missing[@]} -gt 0 ]; then
		apt-get update -qq && apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
	fi
fi

if [ -x /usr/bin/python3.11 ] && ! runs 3.11 3.11; then
	link 3.11 /usr/bin/python3.11
fi
for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
	version=$(basename "$(dirname "$(dirname "$python")")")
	version=$(echo "$version" | cut -d . -f 1-2)
	case $version in 3.11 | 3.12 | 3.13 | 3.14) ;; *) continue ;; esac
	runs "$version-pyenv" "$version" || link "$version-pyenv" "$python"
done
for source in 3.13=trixie 3.14=forky; do
	version=${source%=*}
	runs "$version" "$version" || from_suite "$version" "${source#*=}" || rm -rf "${pythons:?}/$version"
done

# A missing version is not an error: the tests run with the versions found.
found=()
for version in 3.11 3.12 3.13 3.14; do
	names=()
	for name in "$version" "$version-pyenv"; do
		if runs "$name" "$version"; then names+=("$name"); fi
	done
	if [ ${#names[@]} = 0 ]; then
		echo "pythons.sh: CPython $version is not available" >&2
	fi
	found+=("${names[@]}")
done
[ ${#found[@]} -gt 0 ] || { echo "pythons.sh: found no CPython" >&2; exit 1; }
