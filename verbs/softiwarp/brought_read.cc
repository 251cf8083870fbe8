#include "verbs/softiwarp/brought_read.h"

#include <algorithm>

namespace sdp::iwarp {

void BroughtRead::Keep(const LinkResult& read, std::span<const MutableBytes> parts) {
  result_ = read;
  bytes_.reserve(read.bytes);
  for (const MutableBytes part : parts) {
    const Bytes filled = part.first(std::min(part.size(), read.bytes - bytes_.size()));
    bytes_.insert(bytes_.end(), filled.begin(), filled.end());
  }
}

LinkResult BroughtRead::Read(std::span<const MutableBytes> parts) {
  LinkResult read{.kind = result_.kind, .error = result_.error};
  for (const MutableBytes part : parts) {
    const Bytes next = Bytes(bytes_).subspan(taken_, std::min(part.size(), bytes_.size() - taken_));
    std::copy(next.begin(), next.end(), part.begin());
    taken_ += next.size();
    read.bytes += next.size();
  }
  return read;
}

}  // namespace sdp::iwarp
