// The entry points under the names unit tests call them by: sdp_entry_read() and so on, beside the C
// library's own.
#ifndef SDP_TEST_PRELOAD_PREFIXED_CALLS_H_
#define SDP_TEST_PRELOAD_PREFIXED_CALLS_H_

#include "preload/real_calls.h"

struct io_uring;
struct io_uring_params;
struct aiocb;
struct aiocb64;

#define SDP_CALL(result, name, parameters, exception) extern "C" result sdp_entry_##name parameters exception;
#define SDP_DERIVED(result, name, parameters, exception) SDP_CALL(result, name, parameters, exception)
#include "preload/calls.inc"

#endif  // SDP_TEST_PRELOAD_PREFIXED_CALLS_H_
