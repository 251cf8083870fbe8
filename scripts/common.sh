# shellcheck shell=bash disable=SC2034
# What quickstart and test share: where things are, how things are said, how packages come. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi

say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
note() { printf '   %s\n' "$*"; }
die() {
  printf '\n%sFAILED: %s%s\n' "$bold" "$1" "$plain" >&2
  shift
  local line
  for line in "$@"; do printf '   %s\n' "$line" >&2; done
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# Installs what is missing of the Debian packages named. Servers among them are neither started nor enabled.
# Where nothing boots from this file system, a kernel among them gets no initramfs: it would take two minutes.
need_packages() {
  local missing=() package
  command -v dpkg-query >/dev/null || die "this is not a Debian system" "Install by hand: $*"
  for package in "$@"; do installed "$package" || missing+=("$package"); done
  if [ ${#missing[@]} = 0 ]; then
    note "all packages are installed"
    return
  fi
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    die "packages are missing, and this is neither root nor is there sudo" "apt-get install ${missing[*]}"
  note "installing ${missing[*]}"
  local policy=/usr/sbin/policy-rc.d made_policy=no log
  log=$(mktemp)
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
    as_root chmod 755 $policy
    made_policy=yes
  fi
  local result=0
  local initrd=Yes
  [ -d /run/systemd/system ] || initrd=No
  { as_root apt-get update -q &&
    as_root env DEBIAN_FRONTEND=noninteractive INITRD=$initrd \
      apt-get install -qy --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1 || result=$?
  [ $made_policy = no ] || as_root rm -f $policy
  if [ $result != 0 ]; then
    tail -20 "$log" >&2
    rm -f "$log"
    die "apt-get could not install ${missing[*]}" "see its messages above"
  fi
  rm -f "$log"
  if [ -d /run/systemd/system ]; then
    local service
    for package in "${missing[@]}"; do
      case $package in
        redis-server | memcached | iperf3 | haproxy | stunnel4 | vsftpd | xinetd) service=$package ;;
        postgresql-15) service=postgresql ;;
        openssh-server) service=ssh ;;
        nginx-light) service=nginx ;;
        *) continue ;;
      esac
      as_root systemctl disable --quiet --now "$service" || note "$service could not be kept from starting"
    done
  fi
}

build_packages=(build-essential cmake ninja-build libibverbs-dev librdmacm-dev libabsl-dev catch2
  libexpected-dev libcli11-dev nlohmann-json3-dev libncurses-dev python3)

# configure PRESET [CMake options]
configure() {
  local preset=$1
  shift
  case $root in
    *[[:blank:]:]*)
      die "$root: LD_PRELOAD takes no path with a blank or a colon in it" "Move the checkout." ;;
  esac
  mkdir -p "$root/build" 2>/dev/null && [ -w "$root/build" ] ||
    die "$root/build cannot be written" \
      "Everything is built below the checkout: copy it to a place that is yours."
  local launcher=()
  command -v ccache >/dev/null &&
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  (cd "$root" && cmake --preset "$preset" "${launcher[@]}" "$@") >"$root/.configure-$preset.log" 2>&1 || {
    cat "$root/.configure-$preset.log" >&2
    rm -f "$root/.configure-$preset.log"
    die "cmake --preset $preset"
  }
  rm -f "$root/.configure-$preset.log"
}

# show_progress LOG: the last step of ninja's log, in one line that moves
show_progress() {
  local line
  shopt -s checkwinsize
  (:)  # sets COLUMNS
  while kill -0 $$ 2>/dev/null; do
    line=$(tail -n 1 "$1" 2>/dev/null | sed -E 's/^\[([0-9]+)\/([0-9]+)\] /\1 of \2: /')
    printf '\r\033[K   %s' "${line:0:$((${COLUMNS:-80} - 4))}"
    sleep 0.5
  done
}

# build PRESET [TARGETS]: on a terminal it shows how far it is; else it is quiet unless it fails
build() {
  local preset=$1 log=$root/build/$1/build.log progress='' status=0
  shift
  local targets=()
  [ $# = 0 ] || targets=(--target "$@")
  if [ -t 1 ]; then
    show_progress "$log" &
    progress=$!
  fi
  (cd "$root" && cmake --build --preset "$preset" "${targets[@]}") >"$log" 2>&1 || status=1
  if [ -n "$progress" ]; then
    kill "$progress" 2>/dev/null
    wait "$progress" 2>/dev/null || true
    printf '\r\033[K'
  fi
  [ $status = 0 ] && return
  tail -60 "$log" >&2
  die "cmake --build --preset $preset" "whole log: build/$preset/build.log"
}
