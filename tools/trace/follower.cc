#include "tools/trace/follower.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace sdp::trace {
namespace {

using stats::kTraceEntries;
using stats::MessageEntry;

constexpr uint64_t kAtOnce = 4096;
constexpr int kMaxStuck = 100;

uint64_t Monotonic() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t LoadWord(int fd, size_t offset) {
  uint64_t word = 0;
  return stats::ReadAt(fd, reinterpret_cast<std::byte*>(&word), sizeof word, offset) ? word : 0;
}

}  // namespace

Follower::Follower(stats::FoundProcess process) : process_(std::move(process)) {
  // What somebody else had traced before is history.
  if (OpenTrace()) position_ = Next();
}

bool Follower::Ask() {
  const int fd = process_.file.fd.get();
  if (LoadWord(fd, offsetof(stats::Header, magic)) != stats::kMagic) return false;
  const uint64_t until = Monotonic() + stats::kTraceLeaseNs;
  return pwrite(fd, &until, sizeof until, offsetof(stats::Header, trace_until)) == sizeof until;
}

bool Follower::OpenTrace() {
  if (opened_) return true;
  const int directory = open(process_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const stats::OwnedFd owned(directory);
  if (directory < 0) return false;
  stats::FileName name = process_.file.name;
  name.kind = stats::FileKind::kTrace;
  std::string ignored;
  auto file = stats::OpenProcessFile(directory, name, O_RDONLY, stats::kTraceFileSize, &ignored);
  if (!file || file->size != stats::kTraceFileSize) return false;
  const int fd = file->fd.get();
  if (LoadWord(fd, offsetof(stats::TraceHeader, magic)) != stats::kTraceMagic) return false;
  if (static_cast<uint32_t>(LoadWord(fd, offsetof(stats::TraceHeader, version))) != stats::kTraceVersion)
    return false;
  trace_ = std::move(file->fd);
  opened_ = true;
  return true;
}

uint64_t Follower::Next() const { return LoadWord(trace_.get(), offsetof(stats::TraceHeader, next)); }

std::vector<NotedMessage> Follower::Poll() {
  std::vector<NotedMessage> out;
  if (!OpenTrace()) return out;
  const uint64_t next = Next();
  if (next < position_) return out;  // nonsense
  std::vector<std::byte> entries;
  while (position_ < next) {
    if (next - position_ > kTraceEntries) {
      lost_ += next - position_ - kTraceEntries;
      position_ = next - kTraceEntries;
    }
    const uint64_t first = position_ % kTraceEntries;
    const uint64_t count = std::min({next - position_, kTraceEntries - first, kAtOnce});
    entries.resize(count * sizeof(MessageEntry));
    if (!stats::ReadAt(trace_.get(), entries.data(), entries.size(),
                       stats::kTraceHeaderSize + first * sizeof(MessageEntry)))
      break;
    // What was overwritten while we read is not to be believed.
    const uint64_t later = Next();
    for (uint64_t i = 0; i < count; ++i, ++position_) {
      if (later >= position_ + kTraceEntries) {
        ++lost_;
        continue;
      }
      const Bytes entry = Bytes(entries).subspan(i * sizeof(MessageEntry), sizeof(MessageEntry));
      const auto message = ParseEntry(entry, stats::TraceTag(position_));
      if (!message && ++stuck_ < kMaxStuck) return out;  // its writer is at it
      stuck_ = 0;
      if (message) {
        out.push_back(*message);
      } else {
        ++lost_;
      }
    }
  }
  return out;
}

int Follower::error() const {
  return static_cast<int>(LoadWord(process_.file.fd.get(), offsetof(stats::Header, trace_errno)) & 0xfff);
}

bool Follower::process_ended() const { return stats::IsDead(stats::PlainSystemCalls(), process_.file.name); }

std::vector<Follower::Connection> Follower::Connections() const {
  const auto image = stats::ReadImage(process_.file);
  return image ? ConnectionsIn(*image) : std::vector<Connection>();
}

std::vector<Follower::Connection> ConnectionsIn(Bytes image) {
  std::vector<Follower::Connection> out;
  const size_t slots = stats::CountSlots(image).value_or(0);
  for (size_t i = stats::kFallbackSlots; i < slots; ++i) {
    const auto record = stats::ParseRecord(image, i);
    if (!record || record->kind != stats::Kind::kConnection) continue;
    out.push_back({*record, RecentMessages(image, i)});
  }
  return out;
}

}  // namespace sdp::trace
