// What one read of the link has brought, so that another queue pair can read it once more: SoftQp's
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
  // `read` is what a read into `parts` has returned.
  void Keep(const LinkResult& read, std::span<const MutableBytes> parts);
  // As TcpLink::Read, from what was kept.
  LinkResult Read(std::span<const MutableBytes> parts);
  // All of it was read.
  [[nodiscard]] bool empty() const { return taken_ == bytes_.size(); }

 private:
  LinkResult result_;
  std::vector<std::byte> bytes_;
  size_t taken_ = 0;
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_BROUGHT_READ_H_
