#!/bin/bash
# The packages: lintian, install in a scratch root, the quick start from the installed files, upgrade, remove,
# purge. Where no scratch root can be made (that needs root, a mount namespace and overlayfs), they are
# unpacked instead, and the quick start runs from the unpacked files. Usage: run.sh DIRECTORY-OF-PACKAGES
set -euo pipefail

readonly no_root=78  # inside: there can be no scratch root, and why is in $work/why
die() { echo "FAILED: $*" >&2; exit 1; }
step() { echo "== $*"; }

check_documents() {  # ROOT
  local file page warnings
  for file in /etc/sdp/libsdp.conf /usr/share/man/man1/sdp-run.1.gz /usr/share/man/man1/sdpstat.1.gz \
    /usr/share/man/man5/libsdp.conf.5.gz /usr/share/man/man7/sdp.7.gz /usr/share/man/man8/sdp-pmd.8.gz \
    /usr/share/doc/sdp-tools/sdpstat{,-why}.schema.json \
    /usr/share/doc/libsdp/examples/sdp.{nft,firewalld.xml} \
    /usr/share/doc/sdp-tools/examples/sdp-metrics.{service,timer} /usr/share/sdp/sdp.lua \
    /lib/systemd/system/sdp-pmd.service /usr/lib/sysusers.d/sdp-pmd.conf /usr/lib/tmpfiles.d/sdp-pmd.conf \
    /usr/share/doc/{libsdp,sdp-pmd,sdp-tools}/{copyright,changelog.gz} \
    /usr/share/doc/libsdp/{README,SECURITY,docs/manual,docs/deployment}.md; do
    [ -e "$1$file" ] || die "$file is not there"
  done
  for file in $(sed -nE 's/.*\]\(([^):#]+\.md)\).*/\1/p' "$1"/usr/share/doc/libsdp/{README,SECURITY}.md); do
    [ -e "$1/usr/share/doc/libsdp/$file" ] || die "README.md or SECURITY.md links to a missing $file"
  done
  [ "$(zcat "$1/usr/share/doc/sdp-pmd/changelog.gz" | grep -c '^  [*] ')" -gt 10 ] ||
    die "the changelog is short"
  for file in sdpstat sdp-run sdp-pmd; do
    bash -n "$1/usr/share/bash-completion/completions/$file" || die "completion of $file"
  done
  command -v man >/dev/null || return 0
  for page in "$1"/usr/share/man/man?/{sdp,sdpstat,sdp-run,sdp-pmd,libsdp.conf}.?.gz; do
    [ -e "$page" ] || continue
    warnings=$(MANROFFSEQ='' LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" \
      2>&1 >/dev/null || true)
    [ -z "$warnings" ] || die "man page $page: $warnings"
  done
}

# The daemon and the tools are hardened, and the debug symbols of each file are there.
check_binaries() {  # PACKAGES DIRECTORY
  local file id symbols
  for file in "$1"/*.ddeb; do dpkg-deb -x "$file" "$2"; done
  for file in "$1"/*.deb; do dpkg-deb -x "$file" "$2"; done
  for file in "$2"/usr/sbin/sdp-pmd "$2"/usr/bin/{sdpstat,sdp-run}; do
    readelf -dW "$file" | grep -q 'BIND_NOW' || die "$file: names are bound late"
    readelf -lW "$file" | grep -q 'GNU_RELRO' || die "$file: no GNU_RELRO"
    symbols=$(readelf -W --dyn-syms "$file")
    grep -qE '__[a-z_]+_chk@' <<<"$symbols" || die "$file: compiled without _FORTIFY_SOURCE"
    grep -q '__stack_chk_fail@' <<<"$symbols" || die "$file: compiled without a stack protector"
  done
  for file in "$2"/usr/sbin/sdp-pmd "$2"/usr/bin/{sdpstat,sdp-run} "$2"/usr/lib/*/libsdp.so; do
    readelf -SW "$file" | grep -q ' \.debug_info' && die "$file has its debug symbols inside"
    id=$(readelf -nW "$file" | sed -n 's/.*Build ID: //p')
    readelf -SW "$2/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug" | grep -q ' \.debug_info' ||
      die "$file: its debug symbols are in no package"
  done
}

# What it takes to run the quick start: where the files are (empty: installed), and the port mapper's user
# (empty: our own).
write_quick_start() {  # FILE ROOT USER
  cat >"$1" <<QUICK
export PATH=$2/usr/sbin:$2/usr/bin:\$PATH prefix=$2 user=$3
QUICK
  cat >>"$1" <<'QUICK'
set -euo pipefail
directory=$(mktemp -d)
free() {
  python3 -c "import socket; s = socket.socket(type=socket.$1); s.bind(('127.0.0.1', 0))
print(s.getsockname()[1])"
}
wait_for() {
  for _ in $(seq 400); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done
  echo "never came: $*" >&2
  exit 1
}
export SDP_PM_PORT; SDP_PM_PORT=$(free SOCK_DGRAM)
port=$(free SOCK_STREAM)
library=libsdp.so  # the loader finds it by its name alone
if [ -n "$prefix" ]; then
  library=$(echo "$prefix"/usr/lib/*/libsdp.so)
  export SDP_PMD_SOCKET=$directory/pmd.sock SDP_STATS_DIR=$directory/stats
  export SDP_CONFIG=$prefix/etc/sdp/libsdp.conf
fi
if [ -n "$user" ] && [ ! -d /run/sdp ]; then install -d -o "$user" /run/sdp; fi
mkdir -p /run/sdp 2>/dev/null || true
socket=${SDP_PMD_SOCKET:-/run/sdp/pmd.sock}
sdp-pmd --listen "127.0.0.1:$SDP_PM_PORT" --socket "$socket" --log-level error ${user:+--user "$user"} &
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
wait_for test -S "$socket"
head -c 8M /dev/urandom >"$directory/sent"
LD_PRELOAD=$library nc -l 127.0.0.1 "$port" >"$directory/received" &
server=$!
listening() { sdpstat -H -l sport = ":$port" | grep -q .; }
wait_for listening
sdp-run --require nc -N 127.0.0.1 "$port" <"$directory/sent"
wait "$server"
cmp "$directory/sent" "$directory/received"
sdpstat doctor nc
for program in sdpstat sdp-run sdp-pmd; do $program --version; done
rm -rf "$directory"
QUICK
}

if [ "${1:-}" != --inside ]; then
  packages=$(realpath "$1")
  work=$(mktemp -d /var/tmp/sdp-packages-XXXXXX)
  trap 'rm -rf "$work"' EXIT
  step "lintian"
  if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --allow-root "$packages"/*.deb || die "lintian has errors or warnings"
  else
    echo "lintian is not installed: not checked"
  fi
  step "what the files are"
  check_binaries "$packages" "$work/files"
  status=$no_root
  if [ "$(id -u)" != 0 ]; then
    echo "it needs root" >"$work/why"
  elif unshare --mount --pid --fork --kill-child true 2>"$work/why"; then
    # This very system, with what is written to it kept apart.
    status=0
    unshare --mount --pid --fork --kill-child bash "$0" --inside "$packages" "$work" || status=$?
  fi
  [ $status = $no_root ] || exit $status
  echo "skipped: install, upgrade, remove and purge in a scratch root: $(cat "$work/why")"
  step "unpack"
  mkdir "$work/unpacked"
  for deb in "$packages"/*.deb; do dpkg-deb -x "$deb" "$work/unpacked"; done
  check_documents "$work/unpacked"
  step "quick start from the unpacked files"
  write_quick_start "$work/quick" "$work/unpacked" ""
  env -i PATH="$PATH" HOME="$work" LC_ALL=C bash "$work/quick" || die "the quick start"
  echo "all is well, as far as it could be tried"
  exit 0
fi

packages=$2 work=$3
mkdir "$work"/{layers,root}
mount -t tmpfs tmpfs "$work/layers" 2>"$work/why" || exit $no_root
mkdir "$work"/layers/{upper,work}
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" "$work/root" \
  2>"$work/why" || exit $no_root
root=$work/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cp "$packages"/*.deb "$root/tmp"
in_root() {
  chroot "$root" env -i PATH=/tmp/stubs:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"
}
# A service manager that only notes what it is asked for, but for links to units, which systemctl makes by
# itself.
mkdir -p "$root/run/systemd/system" "$root/tmp/stubs"
for command in systemctl deb-systemd-invoke; do
  cat >"$root/tmp/stubs/$command" <<STUB
#!/bin/sh
echo $command "\$@" >>/tmp/asked
case " \$* " in *" preset "*) exec /usr/bin/systemctl "\$@" ;; esac
STUB
  chmod 755 "$root/tmp/stubs/$command"
done
asked() {  # WHAT: it was asked for since the last time
  grep -qxF "$1" "$root/tmp/asked" ||
    die "the service manager was not asked for '$1' but for: $(cat "$root/tmp/asked")"
  : >"$root/tmp/asked"
}

step "install"
in_root sh -c 'dpkg --path-include="/usr/share/*" -i /tmp/*.deb'
for package in libsdp sdp-pmd sdp-tools; do
  [ "$(in_root dpkg-query -W -f '${Status}' $package)" = "install ok installed" ] ||
    die "$package is not installed"
  in_root dpkg --verify $package | grep . && die "$package: files differ from the package's"
done
check_documents "$root"
if in_root sh -c 'command -v deb-systemd-helper' >/dev/null; then
  asked "deb-systemd-invoke start sdp-pmd.service"
  [ -L "$root/etc/systemd/system/multi-user.target.wants/sdp-pmd.service" ] ||
    die "the service is not enabled"
fi

step "quick start from the installed files"
user=$(in_root getent passwd sdp-pmd | cut -d: -f1 || true)
[ -n "$user" ] ||
  echo "no user sdp-pmd, since this system has no systemd-sysusers: the port mapper runs as root"
write_quick_start "$root/tmp/quick" "" "$user"
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
asked "deb-systemd-invoke restart sdp-pmd.service"
findings=$(in_root sdpstat doctor || true)  # there is no port mapper now
[[ $findings == *"/etc/sdp/libsdp.conf: 1 rule"* ]] || die "the configuration is not read: $findings"

step "host-wide use ends with the package"
library=$(in_root dpkg -L libsdp | grep '/libsdp\.so$')
echo "# ours" >"$root/etc/ld.so.preload"
echo "$library" >>"$root/etc/ld.so.preload"
said=$(in_root true 2>&1)
[ -z "$said" ] || die "with the library in /etc/ld.so.preload a program says: $said"
mkdir -p "$root/etc/systemd/system/nginx.service.d"
printf '[Service]\nEnvironment=LD_PRELOAD=%s\n' "$library" >"$root/etc/systemd/system/nginx.service.d/x.conf"

step "remove and purge leave nothing"
echo 'SDP_PMD_OPTIONS=--pmtime 0' >"$root/etc/default/sdp-pmd"
said=$(in_root dpkg -r sdp-tools sdp-pmd libsdp 2>&1) || die "remove: $said"
[[ $said == *"taking libsdp.so out of /etc/ld.so.preload"* ]] || die "remove did not say what it takes: $said"
[[ $said == *"still named by: /etc/systemd/system/nginx.service.d/x.conf"* ]] || die "remove: $said"
[ "$(cat "$root/etc/ld.so.preload")" = "# ours" ] || die "ld.so.preload: $(cat "$root/etc/ld.so.preload")"
rm -r "$root/etc/ld.so.preload" "$root/etc/systemd/system/nginx.service.d"
asked "deb-systemd-invoke stop sdp-pmd.service"
[ -e "$root/etc/sdp/libsdp.conf" ] || die "remove took the configuration"
in_root dpkg -P sdp-tools sdp-pmd libsdp
[ ! -e "$root/etc/sdp" ] || die "purge left /etc/sdp"
left=$(in_root find /usr /lib /etc /var/lib/systemd -xdev \
  \( -name '*sdp-pmd*' -o -name '*libsdp*' -o -name 'sdpstat*' -o -name 'sdp-run*' \) \
  -newer /tmp/stubs/systemctl 2>/dev/null || true)
[ -z "$left" ] || die "purge left $left"
echo "all is well"
