#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "test/preload/prefixed_calls.h"

namespace sdp::preload {
namespace {

TEST_CASE("syscall() hands on every argument, the result and errno") {
  errno = 0;
  CHECK(sdp_entry_syscall(SYS_getpid) == getpid());
  CHECK(sdp_entry_syscall(SYS_close, -1) == -1);
  CHECK(errno == EBADF);
  // Six arguments, the last one on the stack.
  errno = 0;
  const long mapped = sdp_entry_syscall(SYS_mmap, nullptr, size_t{4096}, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, off_t{0});
  REQUIRE(mapped != -1);
  auto* const memory = reinterpret_cast<volatile char*>(mapped);
  memory[4095] = 1;
  CHECK(sdp_entry_syscall(SYS_munmap, mapped, size_t{4096}) == 0);
  CHECK(errno == 0);
}

TEST_CASE("A process that may have SDP sockets gets no ring") {
  io_uring_params parameters{};
  errno = 0;
  CHECK(sdp_entry_syscall(SYS_io_uring_setup, 8, &parameters) == -1);
  CHECK(errno == ENOSYS);
  errno = 0;
  char ring[512];
  CHECK(sdp_entry_io_uring_setup(8, &parameters) == -ENOSYS);
  CHECK(sdp_entry_io_uring_queue_init(8, reinterpret_cast<io_uring*>(ring), 0) == -ENOSYS);
  CHECK(sdp_entry_io_uring_queue_init_params(8, reinterpret_cast<io_uring*>(ring), &parameters) == -ENOSYS);
  CHECK(sdp_entry_io_uring_queue_init_mem(8, reinterpret_cast<io_uring*>(ring), &parameters, ring,
                                          sizeof ring) == -ENOSYS);
  CHECK(errno == 0);
}

}  // namespace
}  // namespace sdp::preload
