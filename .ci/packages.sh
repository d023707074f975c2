# Shell functions shared by the install scripts beside this file, which read it
# with the dot command. It installs nothing by itself.

have() { command -v "$1" >/dev/null 2>&1; }

say() { echo "${0##*/}: $*" >&2; }

# as_root COMMAND...: run it as root without asking for a password.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# can_apt: is there an apt-get, and may this user run it?
can_apt() {
	have apt-get && { [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
}

apt_update() {
	as_root apt-get update -q >&2 || say "apt-get update did not work; trying with the package lists there are"
}

# Somebody else's apt-get on the same machine is waited for, not run into.
apt_install() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 \
		install -q -y --no-install-recommends "$@" </dev/null >&2
}
