#!/bin/sh
# Names, or as root on Debian installs, what Fathom's set-up needs from the system; with the argument
# `browser` also what the tests of the page look at it with.
set -eu

missing=""
need() { # need PACKAGE COMMAND...: PACKAGE is missing if COMMAND fails
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}

need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
need dpkg-dev sh -c 'command -v dpkg-source'
need patch sh -c 'command -v patch'
need xz-utils sh -c 'command -v xz'
need iproute2 sh -c 'command -v ip'
need util-linux sh -c 'command -v unshare && command -v nsenter'
need git sh -c 'command -v git'
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
if [ "${1:-}" = browser ]; then
	need chromium sh -c 'command -v chromium'
	need fonts-dejavu-core test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
fi
[ -z "$missing" ] && exit 0

install="apt-get install --no-install-recommends$missing"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "Missing on this machine:$missing. Install them, as root, with: $install" >&2
	exit 1
fi
echo "==> installing$missing"
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # the list is meant to be split
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >/dev/null
