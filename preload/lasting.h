// One object of a type for the whole process.
#ifndef SDP_PRELOAD_LASTING_H_
#define SDP_PRELOAD_LASTING_H_

#include <cstddef>
#include <new>

namespace sdp::preload {

// Returns the process's object, which the first call makes. It takes no memory of a heap, so fork does not
// fail for it. It is never destroyed: the helper thread may run until the process is gone.
template <typename T>
T& Lasting() {
  alignas(T) static std::byte room[sizeof(T)];
  static T* const object = new (room) T;
  return *object;
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_LASTING_H_
