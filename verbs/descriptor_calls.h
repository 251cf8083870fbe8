// How the owner of the process, libsdp.so, protects the descriptors of an RNIC. Without protection the
// application could close or overwrite them, because they stand among its own.
#ifndef SDP_VERBS_DESCRIPTOR_CALLS_H_
#define SDP_VERBS_DESCRIPTOR_CALLS_H_

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace sdp::verbs {

// Closes `fd` past the C library, whose close() a program may interpose.
inline void CloseUnseen(int fd) { ::syscall(SYS_close, fd); }

struct DescriptorCalls {
  // Moves `fd` to a number that the application does not use, and protects it. Returns that number, or `fd`
  // itself if no other is free.
  int (*hide)(int fd) = [](int fd) { return fd; };
  // Ends the protection of `fd`, which is about to be closed under this number.
  void (*reveal)(int fd) = [](int) {};
  // kSpare: of the last numbers none is taken. kLast: even these, as a connection depends on it.
  enum class Need : uint8_t { kSpare, kLast };
  // Like hide, and keeps *slot up to date: the owner may move the descriptor again. Returns false, with `fd`
  // closed, if no number is free. Until close_kept(*slot).
  bool (*keep)(int fd, std::atomic<int>* slot, Need need) = [](int fd, std::atomic<int>* slot, Need) {
    slot->store(fd, std::memory_order_relaxed);
    return true;
  };
  void (*close_kept)(int fd) = CloseUnseen;
};

namespace internal {
inline constinit DescriptorCalls descriptor_calls{};
}  // namespace internal

// Call it before the first use of an RNIC. Until then descriptors keep their numbers.
inline void SetDescriptorCalls(const DescriptorCalls& calls) { internal::descriptor_calls = calls; }
inline const DescriptorCalls& descriptor_calls() { return internal::descriptor_calls; }

}  // namespace sdp::verbs

#endif  // SDP_VERBS_DESCRIPTOR_CALLS_H_
