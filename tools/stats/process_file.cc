#include "tools/stats/process_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tools/stats/proc_text.h"
#include "tools/stats/stats_image.h"

namespace sdp::stats {
namespace {

constexpr int kSettleTries = 100;

// The real, effective and saved user of a process (a server's worker may have given up root after its file
// was made).
bool RunsAs(pid_t pid, uid_t user) {
  std::istringstream users(ProcStatus(static_cast<uint32_t>(pid), "Uid"));
  for (uid_t one; users >> one;) {
    if (one == user) return true;
  }
  return false;
}

// Whether the process still has the file mapped: not after it called exec, nor after it moved to another
// file. Yes, if we may not look.
bool HasMapped(pid_t pid, ino_t inode, const std::string& name) {
  std::ifstream file(ProcPath(static_cast<uint32_t>(pid), "maps"));
  bool any_line = false;
  for (std::string line; std::getline(file, line);) {
    any_line = true;
    std::istringstream fields(line);
    std::string range, permissions, offset, device, path;
    unsigned long long number = 0;
    fields >> range >> permissions >> offset >> device >> number;
    if (number == inode && line.size() > name.size() && line.ends_with("/" + name)) return true;
  }
  return !any_line;
}

bool BelongsTo(const FileName& name, pid_t pid, uid_t owner, int directory) {
  if (owner == 0) return true;
  if (name.kind != FileKind::kEnded) return RunsAs(pid, owner);
  struct stat status {};
  return fstat(directory, &status) == 0 && status.st_uid == owner;
}

// A slot's record is copied until a later copy is the same and its sequence even: then nothing was written in
// between. The sequence alone would not tell: nothing says that a copy begins with it (a processor's string
// moves do as they like). One that is written all the time is left as if it were being written.
void SettleRecord(int fd, std::vector<std::byte>& image, size_t slot) {
  std::array<std::byte, offsetof(Slot, pad)> again;
  std::byte* const at = image.data() + SlotOffset(slot);
  for (int i = 0; i < kSettleTries; ++i) {
    const uint64_t before = SlotSequence(image, slot);
    if (!ReadAt(fd, again.data(), again.size(), SlotOffset(slot))) return;
    if (before % 2 == 0 && std::memcmp(at, again.data(), again.size()) == 0) return;
    std::memcpy(at, again.data(), again.size());
  }
  constexpr uint64_t kBeingWritten = 1;
  std::memcpy(at, &kBeingWritten, sizeof kBeingWritten);
}

// Notes of messages that change meanwhile are as good as overwritten.
void SettleMessages(int fd, std::vector<std::byte>& image, size_t slot) {
  std::array<std::byte, kRecentMessages * sizeof(MessageEntry)> again;
  const size_t offset = SlotOffset(slot) + offsetof(Slot, recent);
  if (!ReadAt(fd, again.data(), again.size(), offset)) return;
  for (size_t i = 0; i < again.size(); i += sizeof(MessageEntry)) {
    std::byte* const entry = image.data() + offset + i;
    if (std::memcmp(entry, again.data() + i, sizeof(MessageEntry)) != 0)
      std::memset(entry, 0, sizeof(MessageEntry));
  }
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

std::optional<ProcessFile> OpenProcessFile(int directory, const FileName& name, int flags, size_t limit,
                                           std::string* why, pid_t pid) {
  if (pid == 0) pid = name.pid;
  const std::string leaf = name.ToString();
  ProcessFile file{
      .fd = OwnedFd(openat(directory, leaf.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)),
      .name = name};
  const auto refuse = [why](const char* text) {
    *why = text;
    return std::nullopt;
  };
  if (file.fd.get() < 0) return refuse(errno == ENOENT ? "" : strerror(errno));
  struct stat status {};
  if (fstat(file.fd.get(), &status) != 0) return refuse(strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse("not a regular file");
  // Another name for somebody else's file would have us write there.
  if (status.st_nlink > 1) return refuse("has several names");
  if (!BelongsTo(name, pid, status.st_uid, directory))
    return refuse("belongs to another user than its process");
  file.size = static_cast<size_t>(status.st_size);
  if (file.size > limit) return refuse("too large");
  if (name.kind != FileKind::kEnded && !HasMapped(pid, status.st_ino, leaf)) return refuse("");
  file.uid = status.st_uid;
  file.ended_at_ns = static_cast<uint64_t>(status.st_ctim.tv_sec) * 1'000'000'000 +
                     static_cast<uint64_t>(status.st_ctim.tv_nsec);
  return file;
}

bool ReadAt(int fd, std::byte* out, size_t size, size_t offset) {
  while (size > 0) {
    ssize_t got = pread(fd, out, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    offset += static_cast<size_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

std::optional<std::vector<std::byte>> ReadImage(const ProcessFile& file) {
  constexpr size_t kMoves = offsetof(Header, totals) + offsetof(Totals, moves);
  std::vector<std::byte> image(file.size);
  for (int i = 0; i < kSettleTries; ++i) {
    if (!ReadAt(file.fd.get(), image.data(), image.size(), 0)) return std::nullopt;
    if (file.name.kind == FileKind::kEnded) return image;
    const size_t slots = CountSlots(image).value_or(0);
    for (size_t slot = 0; slot < slots; ++slot) {
      // A slot that was never used needs no second look.
      if (SlotSequence(image, slot) == 0) continue;
      SettleRecord(file.fd.get(), image, slot);
      if (slot >= kFallbackSlots) SettleMessages(file.fd.get(), image, slot);
    }
    // A connection that has closed meanwhile may be in neither the totals nor a slot, or in both.
    uint64_t before = 0, after = 0;
    if (slots == 0 || !ReadAt(file.fd.get(), reinterpret_cast<std::byte*>(&after), sizeof after, kMoves))
      return image;
    std::memcpy(&before, image.data() + kMoves, sizeof before);
    if (before == after && after % 2 == 0) break;
  }
  return image;
}

}  // namespace sdp::stats
