#!/bin/bash
# The service's exposure, as `systemd-analyze security` counts it, is 2.0 of 10 at most, and the unit has no
# mistakes. Usage: service_exposure.sh UNIT. Exit status 77: cannot be told here, and why.
set -uo pipefail
unit=$1
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not installed"; exit 77; }
counted=$(systemd-analyze security --offline=yes --no-pager --threshold=20 "$unit" 2>&1)
status=$?
tail -1 <<<"$counted"
[ $status = 0 ] || { echo "$counted"; exit 1; }
# An older one takes the threshold for nothing, or does not count at all: its word alone is not enough.
[[ $counted =~ exposure\ level\ for\ [^:]*:\ ([0-9]+)\.[0-9] && ${BASH_REMATCH[1]} -lt 2 ]] ||
  [[ $counted == *": 2.0 "* ]] ||
  { echo "no exposure of at most 2.0 in what it says"; exit 1; }
