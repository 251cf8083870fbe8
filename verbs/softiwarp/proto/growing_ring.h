#ifndef SDP_VERBS_SOFTIWARP_PROTO_GROWING_RING_H_
#define SDP_VERBS_SOFTIWARP_PROTO_GROWING_RING_H_

#include <cstddef>
#include <memory>
#include <type_traits>

#include "core/base/check.h"

namespace sdp::iwarp {

// A first-in, first-out queue without a fixed capacity. The first element allocates, the capacity doubles on
// overload, and a burst's memory is freed when the ring is empty. The steady state allocates nothing.
template <typename T>
class GrowingRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return slots_[(head_ + i) & (capacity_ - 1)]; }
  const T& operator[](size_t i) const { return slots_[(head_ + i) & (capacity_ - 1)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  void PushBack(const T& value) {
    if (size_ == capacity_) Grow();
    ++size_;
    back() = value;
  }
  void PopFront() {
    SDP_DCHECK(size_ > 0);
    head_ = (head_ + 1) & (capacity_ - 1);
    if (--size_ == 0 && capacity_ > kKept) Clear();
  }
  void PopBack() {
    SDP_DCHECK(size_ > 0);
    --size_;
  }
  void Clear() {
    slots_.reset();
    capacity_ = head_ = size_ = 0;
  }

 private:
  // Most connections never have more than one large element at a time.
  static constexpr size_t kFirst = sizeof(T) < 32 ? 4 : 1;
  static constexpr size_t kKept = 4096 / sizeof(T);

  void Grow() {
    const size_t wider = capacity_ == 0 ? kFirst : capacity_ * 2;
    auto slots = std::make_unique_for_overwrite<T[]>(wider);
    for (size_t i = 0; i < size_; ++i) slots[i] = (*this)[i];
    slots_ = std::move(slots);
    capacity_ = wider;
    head_ = 0;
  }

  std::unique_ptr<T[]> slots_;
  size_t capacity_ = 0;  // a power of two, or 0
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_PROTO_GROWING_RING_H_
