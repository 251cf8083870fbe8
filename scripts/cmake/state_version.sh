#!/bin/sh
# state_version.sh OUTPUT SOURCES...: defines what preload/socket/state_version.h declares.
output=$1
shift
cat >"$output" <<TEXT
#include "preload/socket/state_version.h"
const uint64_t sdp::preload::kStateVersion = 0x$(cat "$@" | sha256sum | cut -c 1-16);
TEXT
