#!/bin/bash
# The packages in a scratch root: lintian, install, the quick start from the installed files, upgrade, remove, purge.
# Usage: run.sh DIRECTORY-OF-PACKAGES. Exit status 77: cannot be run here, and why.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
  packages=$(realpath "$1")
  [ "$(id -u)" = 0 ] || { echo "skipped: a scratch root needs root"; exit 77; }
  work=$(mktemp -d /var/tmp/sdp-packages-XXXXXX)
  trap 'rm -rf "$work"' EXIT
  # This very system, with what is written to it kept apart.
  unshare --mount --pid --fork --kill-child bash "$0" --inside "$packages" "$work"
  exit
fi

packages=$2 work=$3
script=$(realpath "$0")
mkdir "$work"/{layers,root}
mount -t tmpfs tmpfs "$work/layers"
mkdir "$work"/layers/{upper,work}
if ! mount -t overlay overlay -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" "$work/root" 2>"$work/why"; then
  echo "skipped: no overlay file system here: $(cat "$work/why")"
  exit 77
fi
root=$work/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cp "$packages"/*.deb "$root/tmp"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
die() { echo "FAILED: $*" >&2; exit 1; }
step() { echo "== $*"; }

step "lintian"
if command -v lintian >/dev/null; then
  in_root sh -c 'lintian --fail-on error --allow-root /tmp/*.deb' || die "lintian has errors"
else
  echo "lintian is not installed: not checked"
fi

step "install"
in_root sh -c 'dpkg -i /tmp/*.deb'
for package in libsdp sdp-pmd sdp-tools; do
  [ "$(in_root dpkg-query -W -f '${Status}' $package)" = "install ok installed" ] || die "$package is not installed"
  in_root dpkg --verify $package | grep . && die "$package: files differ from the package's"
done
for file in /etc/sdp/libsdp.conf /usr/share/man/man1/sdp-run.1.gz /usr/share/man/man1/sdpstat.1.gz /usr/share/man/man5/libsdp.conf.5.gz \
  /usr/share/man/man7/sdp.7.gz /usr/share/bash-completion/completions/sdpstat /usr/share/doc/sdp-tools/sdpstat.schema.json; do
  [ -e "$root$file" ] || die "$file is not there"
done
if in_root sh -c 'command -v man' >/dev/null; then
  for page in "1 sdp-run" "1 sdpstat" "5 libsdp.conf" "7 sdp"; do
    # shellcheck disable=SC2086
    warnings=$(in_root env MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z \
      "$(in_root sh -c "ls /usr/share/man/man${page%% *}/${page##* }.${page%% *}.gz")" 2>&1 >/dev/null || true)
    [ -z "$warnings" ] || die "man page $page: $warnings"
  done
fi
for completion in sdpstat sdp-run; do
  in_root bash -n /usr/share/bash-completion/completions/$completion || die "completion of $completion"
done

step "quick start from the installed files"
cp "$script" "$root/tmp/run.sh"
cat >"$root/tmp/quick" <<'QUICK'
set -euo pipefail
free() { python3 -c "import socket; s = socket.socket(type=socket.$1); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"; }
wait_for() { for _ in $(seq 400); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done; echo "never came: $*" >&2; exit 1; }
export SDP_PM_PORT; SDP_PM_PORT=$(free SOCK_DGRAM)
port=$(free SOCK_STREAM)
mkdir -p /run/sdp
sdp-pmd --listen "127.0.0.1:$SDP_PM_PORT" --log-level error &
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
wait_for test -S /run/sdp/pmd.sock
head -c 8M /dev/urandom >/tmp/sent
# The library by its name alone: the loader finds it.
LD_PRELOAD=libsdp.so nc -l 127.0.0.1 "$port" >/tmp/received &
server=$!
listening() { sdpstat -H -l sport = ":$port" | grep -q .; }
wait_for listening
sdp-run --require nc -N 127.0.0.1 "$port" </tmp/sent
wait "$server"
cmp /tmp/sent /tmp/received
sdpstat doctor nc
sdpstat --version
sdp-run --version
sdp-pmd --version
QUICK
in_root bash /tmp/quick || die "the quick start"

step "upgrade keeps what the administrator changed"
echo "use tcp server sshd *:*" >>"$root/etc/sdp/libsdp.conf"
for deb in "$root"/tmp/*.deb; do
  dpkg-deb -R "$deb" "$root/tmp/unpacked"
  sed -i 's/^Version: \(.*\)/Version: \1+upgrade/' "$root/tmp/unpacked/DEBIAN/control"
  dpkg-deb --root-owner-group -b "$root/tmp/unpacked" "${deb%.deb}.upgrade" >/dev/null
  rm -r "$root/tmp/unpacked"
done
in_root sh -c 'dpkg -i /tmp/*.upgrade' || die "the upgrade"
grep -q '^use tcp server sshd' "$root/etc/sdp/libsdp.conf" || die "the configuration was overwritten"
findings=$(in_root sdpstat doctor || true)  # there is no port mapper now
[[ $findings == *"/etc/sdp/libsdp.conf: 1 rules"* ]] || die "the configuration is not read: $findings"

step "remove and purge leave nothing"
in_root dpkg -r sdp-tools sdp-pmd libsdp
[ -e "$root/etc/sdp/libsdp.conf" ] || die "remove took the configuration"
in_root dpkg -P sdp-tools sdp-pmd libsdp
[ ! -e "$root/etc/sdp" ] || die "purge left /etc/sdp"
left=$(in_root find /usr /lib /etc -xdev \( -name '*sdp-pmd*' -o -name '*libsdp*' -o -name 'sdpstat*' -o -name 'sdp-run*' \) \
  -newer /tmp/quick 2>/dev/null || true)
[ -z "$left" ] || die "purge left $left"
echo "all is well"
