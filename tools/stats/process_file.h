// One file of a stats directory, opened and checked: its owner may be hostile, and root reads everybody's.
#ifndef SDP_TOOLS_STATS_PROCESS_FILE_H_
#define SDP_TOOLS_STATS_PROCESS_FILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "preload/stats_files.h"

namespace sdp::stats {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct ProcessFile {
  OwnedFd fd;
  FileName name;
  uid_t uid = 0;
  uint64_t ended_at_ns = 0;  // kEnded: when the death was noticed, CLOCK_REALTIME
  size_t size = 0;
};

// Opens `name` in the open directory `directory` for `flags` (O_RDONLY or O_RDWR). It has to be a regular
// file, with one name and not larger than `limit`, of root or of the process's user (kEnded: of the
// directory's), and a stats file has to be mapped by its process, which runs. Empty otherwise; *why, if that
// is worth a warning. `pid`: the process's number here, if the name has that of another PID namespace.
std::optional<ProcessFile> OpenProcessFile(int directory, const FileName& name, int flags, size_t limit,
                                           std::string* why, pid_t pid = 0);

// False: less than `size` bytes are there.
bool ReadAt(int fd, std::byte* out, size_t size, size_t offset);
// The whole stats file with each slot as of one moment; empty if it cannot be read.
std::optional<std::vector<std::byte>> ReadImage(const ProcessFile& file);

}  // namespace sdp::stats

#endif  // SDP_TOOLS_STATS_PROCESS_FILE_H_
