#include "portmapper/daemon/port_holder.h"

#include <pwd.h>
#include <sys/types.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace sdp::pm {
namespace {

namespace fs = std::filesystem;

struct Holding {
  uid_t user = 0;
  uint64_t inode = 0;
};

// A row of /proc/net/udp: number, local address:port, remote, state, queues, timer, retransmissions, user,
// timeout, inode, ...
std::optional<Holding> FindRow(const char* table, uint16_t port) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream row(line);
    std::string number, local, word;
    row >> number >> local;
    unsigned at = 0;
    const size_t colon = local.rfind(':');
    if (colon == std::string::npos || std::sscanf(local.c_str() + colon + 1, "%x", &at) != 1 || at != port)
      continue;
    Holding holding;
    for (int skipped = 0; skipped < 5; ++skipped) row >> word;
    row >> holding.user >> word >> holding.inode;
    if (row) return holding;
  }
  return std::nullopt;
}

bool Holds(const fs::path& process, const std::string& socket) {
  std::error_code error;
  for (fs::directory_iterator fd(process / "fd", error), end; !error && fd != end; fd.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(fd->path(), unreadable) == socket) return true;
  }
  return false;
}

// "process 4711 (dnsmasq)", or empty.
std::string ProcessWith(uint64_t inode) {
  const std::string socket = absl::StrCat("socket:[", inode, "]");
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string pid = entry->path().filename();
    const bool is_number = std::all_of(pid.begin(), pid.end(), [](unsigned char c) { return isdigit(c); });
    if (!is_number || !Holds(entry->path(), socket)) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    return absl::StrCat("process ", pid, " (", name, ")");
  }
  return {};
}

std::string NameOf(uid_t user) {
  const passwd* const entry = getpwuid(user);
  return entry == nullptr ? absl::StrCat(user) : entry->pw_name;
}

}  // namespace

std::string HolderOfUdpPort(uint16_t port) {
  for (const char* table : {"/proc/self/net/udp", "/proc/self/net/udp6"}) {
    const auto holding = FindRow(table, port);
    if (!holding) continue;
    const std::string process = ProcessWith(holding->inode);
    return absl::StrCat(process.empty() ? "a process" : process, " of user ", NameOf(holding->user));
  }
  return {};
}

}  // namespace sdp::pm
