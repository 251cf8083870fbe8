#include "preload/socket/co_holders.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds(100);

// A file's name in /proc: "socket:[4711]".
class FileName {
 public:
  explicit FileName(const char* path) {
    const ssize_t size = readlink(path, text_.data(), text_.size());
    length_ = size > 0 ? static_cast<size_t>(size) : 0;
  }
  [[nodiscard]] bool known() const { return length_ != 0; }
  bool operator==(const FileName& other) const {
    return std::string_view(text_.data(), length_) == std::string_view(other.text_.data(), other.length_);
  }

 private:
  std::array<char, 32> text_;
  size_t length_ = 0;
};

// The kernel's directory entry. opendir() would use malloc.
struct Entry {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// Calls `f(name)` for each number in a directory until that returns true.
template <typename F>
bool AnyNumberIn(const char* path, F f) {
  const int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return false;
  alignas(Entry) std::array<char, 4096> room;
  bool found = false;
  for (long size; !found && (size = syscall(SYS_getdents64, directory, room.data(), room.size())) > 0;) {
    for (long at = 0; !found && at < size;) {
      const auto* const entry = reinterpret_cast<const Entry*>(room.data() + at);
      at += entry->length;
      found = entry->name[0] >= '0' && entry->name[0] <= '9' && f(entry->name);
    }
  }
  real.close(directory);
  return found;
}

using Path = std::array<char, 64>;

Path PathOf(const char* process, const char* what) {
  Path path;
  snprintf(path.data(), path.size(), "/proc/%.20s/fd%s%.20s", process, *what != '\0' ? "/" : "", what);
  return path;
}

}  // namespace

bool OthersHold(int fd, CoHolders holders) {
  if (holders == CoHolders::kNone || Confined()) return false;
  const KeepErrno keep;
  std::array<char, 16> number;
  snprintf(number.data(), number.size(), "%d", fd);
  const FileName own(PathOf("self", number.data()).data());
  const Time deadline = Now() + kPatience;
  const auto keeps = [&](const char* process, const char* its_number) {
    const Path path = PathOf(process, its_number);
    while (FileName(path.data()) == own) {
      if (Now() >= deadline) return true;
      Pause(std::chrono::milliseconds(1));
    }
    return false;
  };
  const pid_t self = getpid();
  return own.known() && AnyNumberIn("/proc", [&](const char* process) {
           if (atoi(process) == self) return false;
           if (holders == CoHolders::kBySameNumber) return keeps(process, number.data());
           return AnyNumberIn(PathOf(process, "").data(),
                              [&](const char* its_number) { return keeps(process, its_number); });
         });
}

}  // namespace sdp::preload
