#ifndef SDP_CORE_BASE_RING_H_
#define SDP_CORE_BASE_RING_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "core/base/check.h"

namespace sdp {

// A first-in, first-out queue of fixed capacity. Only the constructor allocates.
template <typename T>
class Ring {
 public:
  explicit Ring(size_t capacity) : slots_(std::make_unique<T[]>(capacity)), capacity_(capacity) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t capacity() const { return capacity_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool full() const { return size_ == capacity_; }

  T& PushBack(T value) {
    SDP_CHECK(!full());
    T& slot = slots_[Wrap(head_ + size_)];
    slot = std::move(value);
    ++size_;
    return slot;
  }
  T PopFront() {
    SDP_CHECK(!empty());
    T value = std::move(slots_[head_]);
    head_ = Wrap(head_ + 1);
    --size_;
    return value;
  }
  void Clear() {
    while (!empty()) PopFront();
  }
  // Returns the i-th oldest element; i < size().
  T& operator[](size_t i) { return slots_[Wrap(head_ + i)]; }
  const T& operator[](size_t i) const { return slots_[Wrap(head_ + i)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }

 private:
  [[nodiscard]] size_t Wrap(size_t i) const { return i < capacity_ ? i : i - capacity_; }

  std::unique_ptr<T[]> slots_;
  size_t capacity_;
  size_t head_ = 0;
  size_t size_ = 0;
};

}  // namespace sdp

#endif  // SDP_CORE_BASE_RING_H_
