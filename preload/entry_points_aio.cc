// POSIX asynchronous I/O. The C library implements it with threads and with reads and writes of its own,
// which bypass every interposed call. On an SDP socket they would mix the RNIC's bytes with the stream's. So
// on such a socket these calls fail with ENOSYS, as in a C library of a system without asynchronous I/O.
#include <aio.h>
#include <dlfcn.h>

#include "preload/entry_points.h"

namespace sdp::preload {
namespace {

bool IsStreamOfOurs(int fd) {
  if (!FdTable::Has(fd)) return false;
  const NoCancellation no_cancellation;
  const KeepErrno keep;
  const SocketRef socket = FdTable::Get(fd);
  return socket && socket->IsStream();
}

// Returns the C library's own function.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

template <typename Request>
int Begin(int (*next)(Request*), Request* request) {
  return next == nullptr || (request != nullptr && IsStreamOfOurs(request->aio_fildes)) ? Fail(ENOSYS)
                                                                                        : next(request);
}

template <typename Request>
int BeginAll(int (*next)(int, Request* const*, int, sigevent*), int mode, Request* const list[], int count,
             sigevent* event) {
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (list[i] != nullptr && list[i]->aio_lio_opcode != LIO_NOP && IsStreamOfOurs(list[i]->aio_fildes))
      return Fail(ENOSYS);
  }
  return next == nullptr ? Fail(ENOSYS) : next(mode, list, count, event);
}

}  // namespace

#define SDP_AIO(name, Request)                           \
  int SDP_ENTRY(name)(Request * request) noexcept {      \
    static const auto next = Next<int(Request*)>(#name); \
    return Begin(next, request);                         \
  }
SDP_AIO(aio_read, aiocb)
SDP_AIO(aio_read64, aiocb64)
SDP_AIO(aio_write, aiocb)
SDP_AIO(aio_write64, aiocb64)
#undef SDP_AIO

int SDP_ENTRY(lio_listio)(int mode, aiocb* const list[], int count, sigevent* event) noexcept {
  static const auto next = Next<int(int, aiocb* const*, int, sigevent*)>("lio_listio");
  return BeginAll(next, mode, list, count, event);
}
int SDP_ENTRY(lio_listio64)(int mode, aiocb64* const list[], int count, sigevent* event) noexcept {
  static const auto next = Next<int(int, aiocb64* const*, int, sigevent*)>("lio_listio64");
  return BeginAll(next, mode, list, count, event);
}

}  // namespace sdp::preload
