// What a process remembers of the daemons with which it has registered: by which path, whose they were, and
// which directory was "/" then. Only a process that has another root directory by now has a reason to look
// for them by their abstract names (abstract_address.h).
//
// No locks and no allocation: any thread may call at any time, in signal handlers too, and a child of fork
// has its parent's memory. A write that a fork cut in two is never believed.
#ifndef SDP_PORTMAPPER_KNOWN_DAEMONS_H_
#define SDP_PORTMAPPER_KNOWN_DAEMONS_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sdp::pm {

class KnownDaemons {
 public:
  // A registration by this path was made with a daemon of that user, while `root` was "/". Replaces what is
  // known of the path; forgotten if the few places are taken by other paths.
  void Remember(std::string_view path, uid_t daemon, const struct stat& root);

  // The user of the daemon of that path, if "/", which is `root` now, was another directory when it was last
  // registered with.
  [[nodiscard]] std::optional<uid_t> OutOfReach(std::string_view path, const struct stat& root) const;

 private:
  struct Place {
    std::atomic<uint32_t> version{0};  // 0: free; odd: being written
    std::atomic<uint64_t> path{0};  // a hash: who chooses the paths of a process chooses its daemons anyway
    std::atomic<uid_t> daemon{0};
    std::atomic<dev_t> root_device{0};
    std::atomic<ino_t> root_inode{0};
  };
  std::array<Place, 4> places_;  // of each user that a process was, the user's own daemon and the host's
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_KNOWN_DAEMONS_H_
