#include <dirent.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "tools/kernel/tcp_sockets.h"
#include "tools/stats/proc_text.h"

namespace sdp::kernel {
namespace {

constexpr std::array<const char*, 13> kStates = {
    "UNKNOWN", "ESTAB",      "SYN-SENT", "SYN-RECV", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT",
    "UNCONN",  "CLOSE-WAIT", "LAST-ACK", "LISTEN",   "CLOSING",    "SYN-RECV"};

// "0100007F:1F90": words of the address as they lie in memory, the port as a number.
bool ParseAddress(const std::string& text, stats::Address* out) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return false;
  for (size_t word = 0; word < colon / 8; ++word) {
    const auto value = static_cast<uint32_t>(std::strtoul(text.substr(word * 8, 8).c_str(), nullptr, 16));
    std::memcpy(out->ip + word * 4, &value, sizeof value);
  }
  out->family = colon == 8 ? 4 : 6;
  out->port = static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 16));
  return true;
}

// inode → lowest descriptor.
std::map<uint64_t, int> SocketInodes(uint32_t pid, bool* readable) {
  std::map<uint64_t, int> out;
  const std::string directory = stats::ProcPath(pid, "fd");
  DIR* entries = opendir(directory.c_str());
  *readable = entries != nullptr;
  if (entries == nullptr) return out;
  while (const dirent* entry = readdir(entries)) {
    char target[64] = "";
    if (readlinkat(dirfd(entries), entry->d_name, target, sizeof target - 1) <= 0) continue;
    unsigned long long inode = 0;
    if (std::sscanf(target, "socket:[%llu]", &inode) != 1) continue;
    const int fd = std::atoi(entry->d_name);
    const auto [at, is_new] = out.emplace(inode, fd);
    if (!is_new && fd < at->second) at->second = fd;
  }
  closedir(entries);
  return out;
}

}  // namespace

std::vector<RawTcpSocket> ParseProcNetTcp(std::string_view text) {
  std::vector<RawTcpSocket> out;
  std::istringstream lines{std::string(text)};
  std::string line;
  std::getline(lines, line);  // titles
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string number, local, peer, state, queues, timer, retransmits, uid, timeout;
    RawTcpSocket raw;
    if (!(fields >> number >> local >> peer >> state >> queues >> timer >> retransmits >> uid >> timeout >>
          raw.inode))
      continue;
    if (!ParseAddress(local, &raw.socket.local) || !ParseAddress(peer, &raw.socket.peer)) continue;
    const size_t known = std::strtoul(state.c_str(), nullptr, 16);
    raw.socket.state = kStates[known < kStates.size() ? known : 0];
    if (raw.socket.listening() || raw.socket.peer.port == 0) raw.socket.peer = {};
    out.push_back(std::move(raw));
  }
  return out;
}

std::vector<TcpSocket> TcpSocketsOf(uint32_t pid, bool* readable) {
  const std::map<uint64_t, int> inodes = SocketInodes(pid, readable);
  std::map<int, TcpSocket> by_fd;
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    for (RawTcpSocket& raw : ParseProcNetTcp(stats::ReadFile(stats::ProcPath(pid, table)))) {
      const auto found = inodes.find(raw.inode);
      if (found == inodes.end()) continue;
      raw.socket.fd = found->second;
      by_fd[raw.socket.fd] = std::move(raw.socket);
    }
  }
  std::vector<TcpSocket> out;
  out.reserve(by_fd.size());
  for (auto& [fd, socket] : by_fd) out.push_back(std::move(socket));
  return out;
}

}  // namespace sdp::kernel
