// POSIX asynchronous I/O: the C library makes it of threads and reads and writes of its own, which pass by every interposed call: on an SDP
// socket they would take or give the RNIC's bytes for the stream's. There it says ENOSYS, as the C library of a system without it does.
#include <aio.h>
#include <dlfcn.h>

#include "preload/entry_points.h"

namespace sdp::preload {
namespace {

bool IsStreamOfOurs(int fd) {
  if (!FdTable::Has(fd)) return false;
  const int error = errno;
  const SocketRef socket = FdTable::Get(fd);
  const iovec nothing{};
  const bool ours = socket && socket->Send(fd, &nothing, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != kPassThrough;
  errno = error;
  return ours;
}

// The C library's own.
template <typename... Arguments>
int Next(const char* name, Arguments... arguments) {
  using Function = int (*)(Arguments...);
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  return function == nullptr ? Fail(ENOSYS) : function(arguments...);
}

template <typename Request>
int Begin(const char* name, Request* request) {
  const NoCancellation no_cancellation;
  return request != nullptr && IsStreamOfOurs(request->aio_fildes) ? Fail(ENOSYS) : Next(name, request);
}

template <typename Request>
int BeginAll(const char* name, int mode, Request* const list[], int count, sigevent* event) {
  const NoCancellation no_cancellation;
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (list[i] != nullptr && list[i]->aio_lio_opcode != LIO_NOP && IsStreamOfOurs(list[i]->aio_fildes)) return Fail(ENOSYS);
  }
  return Next(name, mode, list, count, event);
}

}  // namespace
}  // namespace sdp::preload

using sdp::preload::Begin;
using sdp::preload::BeginAll;

extern "C" {

int SDP_ENTRY(aio_read)(aiocb* request) noexcept { return Begin("aio_read", request); }
int SDP_ENTRY(aio_read64)(aiocb64* request) noexcept { return Begin("aio_read64", request); }
int SDP_ENTRY(aio_write)(aiocb* request) noexcept { return Begin("aio_write", request); }
int SDP_ENTRY(aio_write64)(aiocb64* request) noexcept { return Begin("aio_write64", request); }
int SDP_ENTRY(lio_listio)(int mode, aiocb* const list[], int count, sigevent* event) noexcept {
  return BeginAll("lio_listio", mode, list, count, event);
}
int SDP_ENTRY(lio_listio64)(int mode, aiocb64* const list[], int count, sigevent* event) noexcept {
  return BeginAll("lio_listio64", mode, list, count, event);
}

}  // extern "C"
