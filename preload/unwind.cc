// The unwinder's entry points, forwarded to the process's own libgcc_s.
//
// The C library unwinds a cancelled thread with libgcc_s, which calls the personality routine of every frame
// that has destructors to run. This library's routine comes from the static libstdc++ and would pass
// libgcc_s's context to the static libgcc. That copy has never been initialized, and aborts. So this library
// has no unwinder of its own. It loads libgcc_s with the process's first socket: without memory left, that is
// no longer possible, and the lack of memory is an exception. For a cancellation the C library has loaded it.
#include "preload/unwind.h"

#include <dlfcn.h>
#include <unwind.h>

#include <atomic>
#include <cstdlib>

namespace {

constinit std::atomic<void*> library{nullptr};

// Null: it cannot be loaded now.
void* Library() {
  if (void* const loaded = library.load(std::memory_order_acquire)) return loaded;
  void* const loaded = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (loaded != nullptr) library.store(loaded, std::memory_order_release);
  return loaded;
}

void* Find(const char* name) {
  void* const loaded = Library();
  void* const found = loaded != nullptr ? dlsym(loaded, name) : nullptr;
  if (found == nullptr) std::abort();  // nothing that began to unwind can continue without it
  return found;
}

}  // namespace

bool sdp::preload::HasUnwinder(bool load) { return (load ? Library() : library.load()) != nullptr; }

#define SDP_FORWARD(result, name, parameters, arguments)                      \
  extern "C" result name parameters {                                         \
    static auto* const real = reinterpret_cast<decltype(&name)>(Find(#name)); \
    return real arguments;                                                    \
  }

SDP_FORWARD(_Unwind_Word, _Unwind_GetGR, (_Unwind_Context * context, int index), (context, index))
SDP_FORWARD(void, _Unwind_SetGR, (_Unwind_Context * context, int index, _Unwind_Word value),
            (context, index, value))
SDP_FORWARD(_Unwind_Ptr, _Unwind_GetIP, (_Unwind_Context * context), (context))
SDP_FORWARD(_Unwind_Ptr, _Unwind_GetIPInfo, (_Unwind_Context * context, int* before), (context, before))
SDP_FORWARD(void, _Unwind_SetIP, (_Unwind_Context * context, _Unwind_Ptr value), (context, value))
SDP_FORWARD(_Unwind_Word, _Unwind_GetCFA, (_Unwind_Context * context), (context))
SDP_FORWARD(void*, _Unwind_GetLanguageSpecificData, (_Unwind_Context * context), (context))
SDP_FORWARD(_Unwind_Ptr, _Unwind_GetRegionStart, (_Unwind_Context * context), (context))
SDP_FORWARD(_Unwind_Ptr, _Unwind_GetDataRelBase, (_Unwind_Context * context), (context))
SDP_FORWARD(_Unwind_Ptr, _Unwind_GetTextRelBase, (_Unwind_Context * context), (context))
SDP_FORWARD(void*, _Unwind_FindEnclosingFunction, (void* address), (address))
SDP_FORWARD(_Unwind_Reason_Code, _Unwind_RaiseException, (_Unwind_Exception * exception), (exception))
SDP_FORWARD(_Unwind_Reason_Code, _Unwind_ForcedUnwind,
            (_Unwind_Exception * exception, _Unwind_Stop_Fn stop, void* argument),
            (exception, stop, argument))
SDP_FORWARD(_Unwind_Reason_Code, _Unwind_Resume_or_Rethrow, (_Unwind_Exception * exception), (exception))
SDP_FORWARD(_Unwind_Reason_Code, _Unwind_Backtrace, (_Unwind_Trace_Fn trace, void* argument),
            (trace, argument))
SDP_FORWARD(void, _Unwind_DeleteException, (_Unwind_Exception * exception), (exception))
SDP_FORWARD(void, _Unwind_Resume, (_Unwind_Exception * exception), (exception))
