#!/bin/sh
# Names, or as root on Debian installs, what Fathom's set-up needs from the system. With the argument
# `cluster` also what a local cluster needs, which is root, too; with `browser` also what the tests of
# the page look at it with. Nothing is downloaded or built before.
set -eu

target=${1:-}
missing=""
need() { # need PACKAGE COMMAND...: PACKAGE is missing if COMMAND fails
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}

need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
need git sh -c 'command -v git'
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
if [ "$target" = browser ]; then
	need chromium sh -c 'command -v chromium'
	need fonts-dejavu-core test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
fi
# Most targets lead to a cluster, but without root none does.
if [ "$target" = cluster ] || [ "$(id -u)" -eq 0 ]; then
	need iproute2 sh -c 'command -v ip'
	need util-linux sh -c 'command -v unshare && command -v nsenter'
	if command -v apt-get >/dev/null; then
		# For a control plane that is compiled from Debian's source package.
		need dpkg-dev sh -c 'command -v dpkg-source'
		need patch sh -c 'command -v patch'
		need xz-utils sh -c 'command -v xz'
	fi
fi

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	status=0
	if [ -n "$missing" ]; then
		echo "Missing on this machine:$missing. As root, on Debian: apt-get install" \
			"--no-install-recommends$missing" >&2
		status=1
	fi
	if [ "$target" = cluster ] && [ "$(id -u)" -ne 0 ]; then
		echo "A local cluster gives each pod a network namespace and mounts, which needs root." \
			"Nothing was downloaded. Run: sudo --preserve-env env \"PATH=\$PATH\" make demo" >&2
		status=1
	fi
	exit "$status"
fi
if [ "$target" = cluster ] && env | grep -qiE '^(https?|all)_proxy=.'; then
	echo "==> a proxy is set: downloads use it, and below is the NO_PROXY that leads past it to the cluster"
fi
[ -z "$missing" ] && exit 0
echo "==> installing$missing"
apt-get update -q >/dev/null
# shellcheck disable=SC2086 # the list is meant to be split
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >/dev/null
