// What one read of the link has returned, kept so that another queue pair can read it again: SoftQp's
// TakeBrought().
#ifndef SDP_VERBS_SOFTIWARP_BROUGHT_READ_H_
#define SDP_VERBS_SOFTIWARP_BROUGHT_READ_H_

#include <span>
#include <vector>

#include "core/base/types.h"
#include "verbs/softiwarp/tcp_link.h"

namespace sdp::iwarp {

class BroughtRead {
 public:
  // Keeps the result of a read and the bytes that it put into `parts`.
  void Keep(const LinkResult& read, std::span<const MutableBytes> parts);
  // Like TcpLink::Read, from what was kept.
  LinkResult Read(std::span<const MutableBytes> parts);
  // Returns true if all kept bytes were read.
  [[nodiscard]] bool empty() const { return taken_ == bytes_.size(); }

 private:
  LinkResult result_;
  std::vector<std::byte> bytes_;
  size_t taken_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_BROUGHT_READ_H_
