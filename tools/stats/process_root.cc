#include "tools/stats/process_root.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "tools/stats/proc_text.h"

namespace sdp::stats {

OwnedFd OpenBelowRoot(uint32_t pid, const std::string& path, int flags) {
  const OwnedFd root(open(ProcPath(pid, "root").c_str(), O_PATH | O_CLOEXEC));
  if (root.get() < 0) return OwnedFd(-1);
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return OwnedFd(static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
}

std::string ReadBelowRoot(uint32_t pid, const std::string& path, size_t limit) {
  const OwnedFd file = OpenBelowRoot(pid, path, O_RDONLY);
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  std::string text(std::min(limit, static_cast<size_t>(status.st_size)), '\0');
  if (!ReadAt(file.get(), reinterpret_cast<std::byte*>(text.data()), text.size(), 0)) return "";
  return text;
}

}  // namespace sdp::stats
