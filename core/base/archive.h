#ifndef SDP_CORE_BASE_ARCHIVE_H_
#define SDP_CORE_BASE_ARCHIVE_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/byte_order.h"
#include "core/base/types.h"

namespace sdp {

// The two directions of a frozen state (an engine's, a queue pair's). Both have equal operations, so that one
// function per class names each field once. Writer appends each field to bytes. Reader takes it from bytes
// that may come from anywhere: after an invalid value ok() returns false, and all further values are zero.
// Numbers are big-endian.
//
// A Writer copies numbers, but refers to long runs of bytes, which must stay until Take() or ForEachPiece().
class Writer {
 public:
  static constexpr bool kReads = false;

  template <typename T>
  requires std::is_unsigned_v<T> &&(!std::is_same_v<T, bool>)void Number(T& value) {
    StoreBe<T>(Room(sizeof(T)), value);
  }
  void Flag(bool& value) {
    uint8_t byte = value ? 1 : 0;
    Number(byte);
  }
  template <typename E>
  void Enum(E& value, E /*last*/) {
    auto number = static_cast<uint8_t>(value);
    Number(number);
  }
  void Octets(MutableBytes bytes) { Copy(bytes); }
  void Append(Bytes bytes) {
    if (bytes.size() < kWorthReferring) return Copy(bytes);
    runs_.push_back({.at = used_, .bytes = bytes});
    referred_ += bytes.size();
  }
  // Appends the size of what `write(*this)` appends, then those bytes.
  template <typename Write>
  void Sized(Write write) {
    uint64_t size = 0;
    const size_t at = used_;
    Number(size);
    const size_t before = this->size();
    write(*this);
    StoreBe<uint64_t>(memory_.get() + at, this->size() - before);
  }
  void Require(bool /*condition*/) {}
  [[nodiscard]] bool ok() const { return true; }

  [[nodiscard]] size_t size() const { return used_ + referred_; }
  // Passes all of it in order, as few pieces, to `piece(Bytes)`, until that returns false. Returns false
  // then.
  template <typename Piece>
  bool ForEachPiece(Piece piece) const {
    size_t at = 0;
    for (const Run& run : runs_) {
      if (!piece(Bytes(memory_.get() + at, run.at - at)) || !piece(run.bytes)) return false;
      at = run.at;
    }
    return piece(Bytes(memory_.get() + at, used_ - at));
  }
  std::vector<std::byte> Take() {
    std::vector<std::byte> all;
    all.reserve(size());
    ForEachPiece([&](Bytes piece) {
      all.insert(all.end(), piece.begin(), piece.end());
      return true;
    });
    return all;
  }

 private:
  static constexpr size_t kWorthReferring = 512;
  struct Run {
    size_t at;  // offset in memory_ that the run precedes
    Bytes bytes;
  };

  static constexpr size_t kFirst = 2048;  // most frozen states are shorter

  void Copy(Bytes bytes) {
    if (!bytes.empty()) std::memcpy(Room(bytes.size()), bytes.data(), bytes.size());
  }
  // Returns room for `size` more bytes.
  std::byte* Room(size_t size) {
    if (capacity_ - used_ < size) Grow(size);
    used_ += size;
    return memory_.get() + (used_ - size);
  }
  void Grow(size_t size) {
    capacity_ = std::max({kFirst, 2 * capacity_, used_ + size});
    auto memory = std::make_unique_for_overwrite<std::byte[]>(capacity_);
    if (used_ != 0) std::memcpy(memory.get(), memory_.get(), used_);
    memory_ = std::move(memory);
  }

  std::unique_ptr<std::byte[]> memory_;
  size_t capacity_ = 0;
  size_t used_ = 0;
  std::vector<Run> runs_;
  size_t referred_ = 0;
};

class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(Bytes bytes) : left_(bytes) {}

  template <typename T>
  requires std::is_unsigned_v<T> &&(!std::is_same_v<T, bool>)void Number(T& value) {
    const Bytes bytes = Take(sizeof(T));
    value = bytes.empty() ? T{0} : LoadBe<T>(bytes.data());
  }
  void Flag(bool& value) {
    uint8_t byte = 0;
    Number(byte);
    Require(byte <= 1);
    value = byte == 1;
  }
  template <typename E>
  void Enum(E& value, E last) {
    uint8_t number = 0;
    Number(number);
    Require(number <= static_cast<uint8_t>(last));
    value = ok_ ? static_cast<E>(number) : E{};
  }
  void Octets(MutableBytes bytes) {
    const Bytes taken = Take(bytes.size());
    if (!taken.empty()) std::memcpy(bytes.data(), taken.data(), taken.size());
  }
  // Returns the next `count` bytes. If there are fewer, returns none, and ok() returns false from then on.
  Bytes Take(uint64_t count) {
    Require(count <= left_.size());
    if (!ok_) return {};
    const Bytes taken = left_.first(count);
    left_ = left_.subspan(count);
    return taken;
  }
  void Require(bool condition) { ok_ = ok_ && condition; }
  [[nodiscard]] size_t left() const { return left_.size(); }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  Bytes left_;
  bool ok_ = true;
};

template <typename Archive, typename T>
void VisitOptional(Archive& ar, std::optional<T>& value, auto&& visit) {
  bool has = value.has_value();
  ar.Flag(has);
  if constexpr (Archive::kReads) value = has ? std::optional<T>(T{}) : std::nullopt;
  if (has) visit(*value);
}

// Visits a list of at most `limit` elements, each of at least one byte.
template <typename Archive, typename Vector>
void VisitList(Archive& ar, Vector& values, uint32_t limit, auto&& visit) {
  auto count = static_cast<uint32_t>(values.size());
  ar.Number(count);
  if constexpr (Archive::kReads) {
    ar.Require(count <= limit && count <= ar.left());
    values.resize(ar.ok() ? count : 0);
  }
  for (auto& value : values) visit(value);
}

}  // namespace sdp

#endif  // SDP_CORE_BASE_ARCHIVE_H_
