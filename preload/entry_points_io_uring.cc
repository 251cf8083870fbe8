// Rings of io_uring. The library does not see what goes over a ring. On an SDP socket a ring would mix the
// RNIC's bytes with the stream's. So a process that may have SDP sockets gets no ring: the call fails with
// ENOSYS, as in a kernel without io_uring, and programs use other calls. SDP_IO_URING=allow is for programs
// that use rings only for files.
//
// The library interposes syscall() (entry_points_syscall.cc) and the functions of liburing as a shared
// library, which makes its system calls by instructions of its own.
#include <dlfcn.h>

#include "preload/config.h"
#include "preload/entry_points.h"
#include "preload/log.h"

namespace sdp::preload {

bool RingsAreDenied() {
  const KeepErrno keep;
  const NoCancellation no_cancellation;
  RefreshConfig();
  const bool denied = config().io_uring == IoUringUse::kDeny && !NothingButTcp();
  if (denied)
    SDP_LOG(kInfo, "io_uring_setup: ENOSYS, since a ring would pass the SDP sockets by (SDP_IO_URING=allow)");
  return denied;
}

namespace {

// Returns liburing's own function, even if liburing came with a library loaded by dlopen with RTLD_LOCAL.
void* FindInLiburing(const char* name) {
  if (void* const found = dlsym(RTLD_NEXT, name)) return found;
  void* const library = dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const found = dlsym(library, name);
  dlclose(library);  // restores the count of references: its user keeps it loaded
  return found;
}

// liburing's functions return the negative errno.
template <typename... Arguments>
int CallLiburing(const char* name, Arguments... arguments) {
  if (RingsAreDenied()) return -ENOSYS;
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(FindInLiburing(name));
  return function == nullptr ? -ENOSYS : function(arguments...);
}

}  // namespace

int SDP_ENTRY(io_uring_setup)(unsigned int entries, io_uring_params* parameters) {
  return CallLiburing("io_uring_setup", entries, parameters);
}

int SDP_ENTRY(io_uring_queue_init)(unsigned int entries, io_uring* ring, unsigned int flags) {
  return CallLiburing("io_uring_queue_init", entries, ring, flags);
}

int SDP_ENTRY(io_uring_queue_init_params)(unsigned int entries, io_uring* ring, io_uring_params* parameters) {
  return CallLiburing("io_uring_queue_init_params", entries, ring, parameters);
}

int SDP_ENTRY(io_uring_queue_init_mem)(unsigned int entries, io_uring* ring, io_uring_params* parameters,
                                       void* memory, size_t size) {
  return CallLiburing("io_uring_queue_init_mem", entries, ring, parameters, memory, size);
}

}  // namespace sdp::preload
