#include "portmapper/daemon/registry_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "portmapper/daemon/unique_fd.h"

namespace sdp::pm {
namespace {

// Not blocking: a FIFO somebody put there must not stop a reload.
absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(status.st_mode)) return absl::FailedPreconditionError(path + " is not a regular file");
  std::string text(kMaxRegistrySize + 1, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + length, text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, path);
    if (n == 0) break;
    length += static_cast<size_t>(n);
  }
  text.resize(length);
  return text;
}

}  // namespace

absl::StatusOr<Registry> LoadRegistry(const std::string& path, const Registry& serve) {
  Registry registry;
  if (!path.empty()) {
    const auto text = ReadFile(path);
    if (!text.ok()) return text.status();
    auto parsed = ParseRegistry(*text);
    if (!parsed) {
      return absl::FailedPreconditionError(
          absl::StrJoin(parsed.error(), "\n", [&](std::string* out, const RegistryError& e) {
            absl::StrAppend(out, path, ":", e.line, ":", e.column, ": ", e.text);
          }));
    }
    registry = *std::move(parsed);
  }
  registry.serve.insert(registry.serve.end(), serve.serve.begin(), serve.serve.end());
  registry.host_balances.insert(registry.host_balances.end(), serve.host_balances.begin(),
                                serve.host_balances.end());
  return registry;
}

}  // namespace sdp::pm
