#include "preload/stats_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>
#include <thread>

#include "preload/bounded_lock.h"
#include "preload/program_name.h"
#include "preload/stats_files.h"

namespace sdp::stats {
namespace {

std::string Failed(const char* what, const std::string& path) {
  return std::string(what) + " " + path + ": " + strerror(errno);
}

bool CheckDirectory(const std::string& path, mode_t mode, std::string* error) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    *error = Failed("cannot make", path);
    return false;
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    *error = Failed("cannot look at", path);
    return false;
  }
  bool trusted = S_ISDIR(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == 0) &&
                 (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (!trusted) *error = path + " is not a directory that only its owner, this user, can write to";
  return trusted;
}

std::string UserDirectory(uid_t user) { return "/tmp/sdp-" + std::to_string(user); }

std::byte* MapPlainMemory(const SystemCalls& calls, void* address) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (address != nullptr ? MAP_FIXED : 0);
  void* memory = calls.mmap(address, kChunkSize, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Only for the slot's writer, which needs no sequence.
void LoadRecord(const Slot* slot, ConnectionRecord* out) {
  uint64_t words[kRecordWords];
  for (size_t i = 0; i < kRecordWords; ++i) words[i] = slot->words[i].load(std::memory_order_relaxed);
  memcpy(static_cast<void*>(out), words, sizeof *out);
}

void Add(std::atomic<uint64_t>& sum, uint64_t value) { sum.fetch_add(value, std::memory_order_relaxed); }

}  // namespace

std::unique_ptr<StatsSegment> StatsSegment::Open(const std::string& directory, const SystemCalls& calls,
                                                 std::string* error) {
  std::unique_ptr<StatsSegment> segment(new StatsSegment(calls));
  segment->wanted_directory_ = directory;
  segment->wanted_by_ = geteuid();
  std::byte* memory = MapPlainMemory(calls, nullptr);
  if (memory == nullptr) {
    *error = Failed("cannot map memory for", "the stats file");
    return nullptr;
  }
  segment->header_ = reinterpret_cast<Header*>(memory);
  segment->AddSlots(memory);
  segment->InitializeHeader();
  if (!segment->CreateSomewhere(error)) return nullptr;
  return segment;
}

StatsSegment::~StatsSegment() {
  RemoveFile();
  for (std::byte* chunk : chunks_) ::munmap(chunk, kChunkSize);
}

Slot* StatsSegment::AcquireSlot(const ConnectionRecord& record) {
  std::lock_guard lock(mutex_);
  if (parents_) return nullptr;
  AttachIfDetached();
  if (free_.empty() && !Grow()) {
    Add(header()->totals.slots_refused, 1);
    return nullptr;
  }
  Slot* slot = free_.back();
  free_.pop_back();
  ++in_use_;
  Publish(slot, record);
  return slot;
}

void StatsSegment::Publish(Slot* slot, const ConnectionRecord& record) {
  if (slot == nullptr) return;
  const uint64_t writing = BeginWriting(slot);
  for (size_t i = 0; i < kRecordWords; ++i) StoreWord(slot, &record, i);
  slot->sequence.store(writing + 1, std::memory_order_release);
}

ConnectionRecord StatsSegment::LastPublished(const Slot* slot) {
  ConnectionRecord record;
  if (slot != nullptr) LoadRecord(slot, &record);
  return record;
}

void StatsSegment::ReleaseSlot(Slot* slot) {
  if (slot == nullptr || parents_) return;
  ConnectionRecord record;
  LoadRecord(slot, &record);
  std::lock_guard lock(mutex_);
  Totals& totals = header()->totals;
  totals.moves.fetch_add(1);
  if (record.kind == Kind::kConnection && record.counters.ever_established != 0) {
    Add(totals.connections_closed, 1);
    if (record.reason[0] != '\0') Add(totals.connections_aborted, 1);
    const LinkKind link = LinkKindOf(record);
    for (int i = 0; i < kMechanisms; ++i) {
      Add(totals.bytes_in[i], record.counters.bytes_in[i]);
      Add(totals.bytes_out[i], record.counters.bytes_out[i]);
      Add(totals.link_in[link][i], record.counters.bytes_in[i]);
      Add(totals.link_out[link][i], record.counters.bytes_out[i]);
    }
    Add(totals.send_stalls, record.counters.send_stalls);
  }
  Publish(slot, ConnectionRecord());
  totals.moves.fetch_add(1);
  free_.push_back(slot);
  --in_use_;
}

void StatsSegment::RecordFallback(const ConnectionRecord& record) {
  ConnectionRecord entry = record;
  entry.kind = Kind::kFallback;
  if (entry.counters.state != State::kFailed) entry.counters.state = State::kTcp;
  if (entry.fallback >= FallbackReason::kCount) entry.fallback = FallbackReason::kOther;
  SetText(entry.reason, ToString(entry.fallback));
  if (entry.opened_at_ns == 0) entry.opened_at_ns = WallClock();
  std::lock_guard lock(mutex_);
  if (parents_) return;
  AttachIfDetached();
  Publish(SlotAt(next_fallback_++ % kFallbackSlots), entry);
  Add(header()->totals.fallbacks[static_cast<size_t>(entry.fallback)], 1);
}

void StatsSegment::CountFallback(FallbackReason reason) {
  if (parents_) return;
  if (reason >= FallbackReason::kCount) reason = FallbackReason::kOther;
  Add(header()->totals.fallbacks[static_cast<size_t>(reason)], 1);
}

void StatsSegment::Trace(const MessageNote& note, uint32_t connection) {
  uint64_t until = header()->trace_until.load(std::memory_order_relaxed);
  if (Clock(CLOCK_MONOTONIC) >= until) {
    header()->trace_until.compare_exchange_strong(until, 0, std::memory_order_relaxed);
    return;
  }
  if (!ring_.open()) {
    // A signal handler of ours may have interrupted the lock's owner in this thread, so this does not wait.
    // The next message tries again.
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || path_.empty()) return;
    const int error = ring_.open() ? 0 : ring_.Open(path_.c_str());
    header()->trace_errno.store(static_cast<uint64_t>(error), std::memory_order_relaxed);
    if (error != 0) {
      header()->trace_until.store(0, std::memory_order_relaxed);
      return;
    }
  }
  ring_.Append(note, connection);
}

void StatsSegment::ForkChild() {
  mutex_.unlock();  // PrepareFork locked it in this thread
  path_.clear();    // the path is the parent's
  ring_.ForgetAfterFork();
  attach_failed_ = false;
  next_fallback_ = 0;
  if (parents_) return;
  parents_ = true;  // until all chunks are the child's, also if no memory is left
  // Those that are free in the parent at the fork. It goes on, and may fill them before this look.
  std::sort(free_.begin(), free_.end(), std::greater<>());
  const auto known = static_cast<ptrdiff_t>(free_.size());
  std::vector<std::pair<Slot*, ConnectionRecord>> kept;
  for (size_t i = kFallbackSlots; i < slots_; ++i) {
    Slot* const slot = SlotAt(i);
    if (std::binary_search(free_.begin(), free_.begin() + known, slot, std::greater<>())) continue;
    ConnectionRecord record;
    LoadRecord(slot, &record);
    if (record.kind == Kind::kFree) continue;  // the parent has just ended it
    if (record.kind == Kind::kConnection || IsKernelListener(record)) {
      free_.push_back(slot);
      --in_use_;
    } else {
      kept.emplace_back(slot, record);
    }
  }
  for (std::byte* chunk : chunks_) {
    if (MapPlainMemory(calls_, chunk) == nullptr) return;
  }
  InitializeHeader();
  for (const auto& [slot, record] : kept) Publish(slot, record);
  parents_ = false;
  if (in_use_ > 0) AttachIfDetached();
}

void StatsSegment::Remove() {
  std::unique_lock lock(mutex_, std::defer_lock);
  const auto pause = [](std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); };
  if (!preload::LockBounded(lock, pause)) return;  // the next process that makes such a file removes this one
  RemoveFile();
  attach_failed_ = true;  // from here on no reader is to see a file
}

void StatsSegment::RemoveFile() {
  // A child of vfork runs in this memory as another process, and the file is not its own.
  if (path_.empty() || owner_ != getpid()) return;
  ::unlink(path_.c_str());
  path_.clear();
  ring_.Remove();
}

bool StatsSegment::AttachIfDetached() {
  if (!path_.empty()) return true;
  if (attach_failed_) return false;
  try {
    std::string ignored;
    attach_failed_ = !CreateSomewhere(&ignored);
  } catch (const std::bad_alloc&) {  // the next record tries again
    return false;
  }
  return !attach_failed_;
}

bool StatsSegment::CreateSomewhere(std::string* error) {
  uid_t user = geteuid();
  if (!wanted_directory_.empty()) {
    if (CheckDirectory(wanted_directory_, 0700, error) && CreateIn(wanted_directory_, error)) {
      return true;
    }
    if (user == wanted_by_) return false;
  }
  const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
  if (user == 0) {
    // Not in /run/sdp, which belongs to the port mapper's user.
    if (CheckDirectory("/run/sdp-stats", 0755, error) && CreateIn("/run/sdp-stats", error)) return true;
  } else if (runtime != nullptr && runtime[0] == '/') {
    std::string directory = std::string(runtime) + "/sdp";
    if (CheckDirectory(directory, 0700, error) && CreateIn(directory, error)) return true;
  }
  std::string directory = UserDirectory(user);
  return CheckDirectory(directory, 0700, error) && CreateIn(directory, error);
}

bool StatsSegment::CreateIn(const std::string& directory, std::string* error) {
  if (DIR* entries = opendir(directory.c_str())) {
    SweepDirectory(calls_, entries);
    closedir(entries);
  }
  const FileName name{static_cast<pid_t>(header()->pid), header()->start_time, FileKind::kStats};
  std::string path = directory + "/" + name.ToString();
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags, 0600);
  if (fd < 0 && errno == EEXIST) {
    ::unlink(path.c_str());  // left by this process from before its exec
    fd = ::open(path.c_str(), kFlags, 0600);
  }
  if (fd < 0) {
    *error = Failed("cannot make", path);
    return false;
  }
  bool mapped = MapChunks(fd, error);
  calls_.close(fd);
  if (!mapped) {
    ::unlink(path.c_str());
    return false;
  }
  path_ = path;
  owner_ = getpid();
  return true;
}

bool StatsSegment::MapChunks(int fd, std::string* error) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (!WriteAll(calls_, fd, chunks_[i], kChunkSize, i * kChunkSize)) {
      *error = Failed("cannot write", "the stats file");
      return false;
    }
  }
  // Every byte is in the file before the first chunk is remapped, so a failure above leaves everything as it
  // was.
  for (size_t i = 0; i < chunks_.size(); ++i) {
    void* memory = calls_.mmap(chunks_[i], kChunkSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                               static_cast<off_t>(i * kChunkSize));
    if (memory == MAP_FAILED) {
      *error = Failed("cannot map", "the stats file");
      return false;
    }
  }
  return true;
}

bool StatsSegment::Grow() {
  if (chunks_.size() >= kMaxChunks) return false;
  try {  // what AddSlots() needs
    chunks_.reserve(chunks_.size() + 1);
    free_.reserve(SlotsIn((chunks_.size() + 1) * kChunkSize));
  } catch (const std::bad_alloc&) {
    return false;
  }
  std::byte* chunk = MapNewChunk();
  if (chunk == nullptr) return false;
  AddSlots(chunk);
  return true;
}

std::byte* StatsSegment::MapNewChunk() {
  if (path_.empty()) return MapPlainMemory(calls_, nullptr);
  int fd = ::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0 && (errno == EACCES || errno == EPERM || errno == ENOENT)) {
    // The process is no longer the user who made the file, or the file was deleted: make another.
    path_.clear();
    if (!AttachIfDetached()) return MapPlainMemory(calls_, nullptr);
    fd = ::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
  }
  if (fd < 0) return nullptr;
  size_t offset = chunks_.size() * kChunkSize;
  void* memory = MAP_FAILED;
  if (WriteZeros(calls_, fd, kChunkSize, offset)) {
    memory =
        calls_.mmap(nullptr, kChunkSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  }
  calls_.close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void StatsSegment::AddSlots(std::byte* chunk) {
  const size_t before = chunks_.empty() ? kFallbackSlots : slots_;
  chunks_.push_back(chunk);
  slots_ = SlotsIn(chunks_.size() * kChunkSize);
  free_.reserve(slots_);
  // The lowest is on top: a reader then finds the rows in the order in which they were opened.
  for (size_t i = slots_; i > before; --i) free_.push_back(SlotAt(i - 1));
  header()->slot_count.store(slots_, std::memory_order_release);
}

void StatsSegment::InitializeHeader() {
  memset(chunks_.front(), 0, kHeaderSize);
  Header* head = header();
  head->version = kVersion;
  head->header_size = kHeaderSize;
  head->slot_size = kSlotSize;
  head->pid = static_cast<uint32_t>(getpid());
  head->start_time = ProcessStartTime(calls_, getpid());
  head->opened_at_ns = WallClock();
  head->slot_count.store(slots_, std::memory_order_relaxed);
  SetText(head->program, preload::ProgramName());
  head->magic.store(kMagic, std::memory_order_release);
}

Slot* StatsSegment::SlotAt(size_t index) const {
  const size_t offset = SlotOffset(index);
  return reinterpret_cast<Slot*>(chunks_[offset / kChunkSize] + offset % kChunkSize);
}

Address ToAddress(const sockaddr* address) {
  Address out;
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    memcpy(&in, address, sizeof in);
    out.family = 4;
    out.port = ntohs(in.sin_port);
    memcpy(out.ip, &in.sin_addr, sizeof in.sin_addr);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in6{};
    memcpy(&in6, address, sizeof in6);
    out.family = 6;
    out.port = ntohs(in6.sin6_port);
    out.scope_id = in6.sin6_scope_id;
    memcpy(out.ip, &in6.sin6_addr, sizeof in6.sin6_addr);
  }
  return out;
}

}  // namespace sdp::stats
