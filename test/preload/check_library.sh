#!/bin/bash
# check_library.sh LIBRARY CALLS_INC: what the shared object needs, exports and leaves undefined is what it
# may.
set -euo pipefail
library=$1 calls=$2
status=0
fail() { echo "$library: $*" >&2; status=1; }

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for object in $needed; do
  [[ $object == libc.so.6 || $object == ld-linux-* ]] || fail "needs $object"
done

wanted=$(sed -nE 's/^SDP_(CALL|DERIVED)\([^,]+, ([A-Za-z0-9_]+),.*/\2/p
  s/^SDP_ALIAS\(([A-Za-z0-9_]+),.*/\1/p' "$calls" | sort)
exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sort)
[[ $(wc -l <<<"$wanted") -ge 55 ]] || fail "the list of calls is shorter than it can be"
difference=$(diff <(echo "$wanted") <(echo "$exported")) ||
  fail "exports differ from calls.inc:"$'\n'"$difference"

# Another name of a function stands for the same code.
while read -r other name; do
  places=$(nm -D "$library" | awk -v a="$other" -v b="$name" '$3 == a || $3 == b {print $1}' | uniq)
  [[ $(wc -l <<<"$places") == 1 ]] || fail "$other is not $name"
done < <(sed -nE 's/^SDP_ALIAS\(([A-Za-z0-9_]+), ([A-Za-z0-9_]+)\)/\1 \2/p' "$calls")

# Weak references (transactional memory, profiling) may stay unresolved for ever.
undefined=$(nm -D --undefined-only "$library" | awk '$1 == "U" && $2 !~ /@GLIBC_/ {print $2}')
[[ -z $undefined ]] || fail "undefined:" $undefined

exit $status
