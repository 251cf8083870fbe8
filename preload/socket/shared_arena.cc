#include "preload/socket/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "preload/allowed_calls.h"
#include "preload/critical.h"
#include "preload/file_size_limit.h"
#include "preload/hidden_fds.h"
#include "preload/lasting.h"
#include "preload/log.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// The file: one page, the slots, and each slot's frozen state. Pages that were never written take no memory.
constexpr size_t kMostSlots = 4096;
constexpr size_t kPage = 4096;
constexpr off_t kStates = kPage + (kMostSlots * sizeof(SharedSlot) + kPage - 1) / kPage * kPage;
constexpr off_t kStateRoom = static_cast<off_t>(SharedArena::kMostState);
// The locked bytes lie beyond everything that is ever written.
constexpr off_t kMemberLocks = off_t{1} << 50;

struct Header {
  std::atomic<uint64_t> next_member;
};

struct flock LockOf(Member member) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kMemberLocks + static_cast<off_t>(member);
  lock.l_len = 1;
  return lock;
}

// 0 or less: none.
off_t SlotsIn(off_t length) {
  return std::min((length - kStates) / kStateRoom, static_cast<off_t>(kMostSlots));
}

void InitMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

}  // namespace

// The arenas that this process has mapped. Guarded by `mutex`, which fork holds.
struct SharedArena::All {
  Mutex mutex;
  std::vector<SharedArena*> arenas;
  SharedArena* own = nullptr;
};

SharedArena::All& SharedArena::all() { return Lasting<All>(); }

SharedSlot* SharedArena::slots() const { return reinterpret_cast<SharedSlot*>(memory_ + kPage); }

int64_t SharedArena::StateOf(const SharedSlot* slot) const {
  return kStates + static_cast<off_t>(slot - slots()) * static_cast<off_t>(kMostState);
}

Member SharedArena::Invite(int* membership) {
  // Makes a new open file description of the same file; there is no other way.
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file_);
  const int opened = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (opened < 0) return 0;
  const int hidden = HiddenFds::Hide(opened);
  if (hidden < 0) return 0;
  const Member member = NewNumber();
  struct flock lock = LockOf(member);
  if (real.fcntl(hidden, F_OFD_SETLK, &lock) == 0) {
    *membership = hidden;
    return member;
  }
  HiddenFds::Close(hidden);
  return 0;
}

Member SharedArena::InviteRelative(int* passed, int* watched) {
  int ends[2];
  if (real.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  *passed = HiddenFds::Hide(ends[0]);
  *watched = HiddenFds::Hide(ends[1]);
  if (*passed >= 0 && *watched >= 0) return kInFlight | NewNumber();
  for (int* fd : {passed, watched}) HiddenFds::Close(std::exchange(*fd, -1));
  return 0;
}

Member SharedArena::NewNumber() {
  return reinterpret_cast<Header*>(memory_)->next_member.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Takes `file` over.
bool SharedArena::Map(int file) {
  struct stat status {};
  // Without the seal, another holder could shorten the file under this process.
  const int seals = real.fcntl(file, F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(file, &status) == 0 &&
      SlotsIn(status.st_size) > 0) {
    void* const memory = mmap(nullptr, kStates, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) {
      memory_ = static_cast<std::byte*>(memory);
      slot_count_ = static_cast<size_t>(SlotsIn(status.st_size));
      device_ = status.st_dev;
      inode_ = status.st_ino;
      file_ = HiddenFds::Hide(file);
      return file_ >= 0;
    }
  }
  real.close(file);
  return false;
}

SharedArena::~SharedArena() {
  if (memory_ != nullptr) munmap(memory_, kStates);
  for (const int fd : {file_, membership_}) HiddenFds::Close(fd);
}

SharedArena* SharedArena::Mapped(const All& a, int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) return nullptr;
  const auto same = std::find_if(a.arenas.begin(), a.arenas.end(), [&](const SharedArena* arena) {
    return arena->device_ == status.st_dev && arena->inode_ == status.st_ino;
  });
  return same != a.arenas.end() ? *same : nullptr;
}

bool SharedArena::IsKnown(int file) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  return Mapped(a, file) != nullptr;
}

bool SharedArena::OwnIsInherited() {
  All& a = all();
  std::lock_guard lock(a.mutex);
  return a.own != nullptr && a.own->inherited_;
}

bool SharedArena::MayBeMade() { return SlotsIn(LongestFile()) > 0; }

SharedArena* SharedArena::Make() {
  const off_t slots = SlotsIn(LongestFile());
  if (slots <= 0) {
    errno = EFBIG;
    return nullptr;
  }
  auto* const arena = new SharedArena;
  const int file = memfd_create("sdp connections", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) {
    delete arena;
    return nullptr;
  }
  if (ftruncate(file, kStates + slots * kStateRoom) == 0 &&
      real.fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    if (arena->Map(file)) return arena;
  } else {
    real.close(file);
  }
  delete arena;
  return nullptr;
}

SharedArena* SharedArena::Own() {
  All& a = all();
  std::lock_guard lock(a.mutex);
  if (a.own == nullptr) {
    a.arenas.reserve(a.arenas.size() + 1);
    a.own = Make();
    if (a.own == nullptr) return nullptr;
    a.arenas.push_back(a.own);
  }
  if (a.own->self_ == 0) a.own->self_ = a.own->Invite(&a.own->membership_);
  return a.own->self_ != 0 ? a.own : nullptr;
}

SharedArena* SharedArena::Attach(int file, int membership, Member self) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  if (SharedArena* const mapped = Mapped(a, file)) {
    for (const int fd : {file, membership}) {
      if (fd >= 0) real.close(fd);
    }
    return mapped;
  }
  auto* const arena = new SharedArena;
  if (!arena->Map(file)) {
    if (membership >= 0) real.close(membership);
    delete arena;
    return nullptr;
  }
  if (membership >= 0) {
    arena->membership_ = HiddenFds::Hide(membership);
    arena->self_ = self;
    if (arena->membership_ < 0) {
      delete arena;
      return nullptr;
    }
    // A program started by exec shares in the arena of its predecessor.
    if (a.own == nullptr) a.own = arena;
  }
  a.arenas.push_back(arena);
  return arena;
}

void SharedArena::Unref() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  All& a = all();
  std::lock_guard lock(a.mutex);
  if (this == a.own || references_.load(std::memory_order_relaxed) != 0) return;
  if (std::erase(a.arenas, this) != 0) delete this;
}

void SharedArena::InviteChild() {
  if (Own() == nullptr)
    SDP_LOG(kInfo, "a child of fork cannot use the connections: %s", strerrordesc_np(errno));
  std::lock_guard lock(all().mutex);
  for (SharedArena* arena : all().arenas) arena->child_ = arena->Invite(&arena->child_membership_);
}

void SharedArena::LockForFork() { all().mutex.lock(); }

void SharedArena::ParentAfterFork() {
  for (SharedArena* arena : all().arenas) {
    arena->child_ = 0;
    HiddenFds::Close(std::exchange(arena->child_membership_, -1));
  }
  all().mutex.unlock();
}

void SharedArena::ChildAfterFork() {
  for (SharedArena* arena : all().arenas) {
    HiddenFds::Close(arena->membership_);
    arena->inherited_ = true;
    arena->self_ = std::exchange(arena->child_, 0);
    arena->membership_ = std::exchange(arena->child_membership_, -1);
  }
  all().mutex.unlock();
}

bool SharedArena::Alive(Member member) const {
  if (member == self_ || IsInFlight(member) || Confined()) return true;
  struct flock lock = LockOf(member);
  return real.fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool SharedArena::LivesBesides(std::span<const Member> members) const {
  if (Confined()) return true;
  struct Range {
    off_t from, to;
  };
  std::vector<Range> unseen = {{kMemberLocks, std::numeric_limits<off_t>::max()}};
  while (!unseen.empty()) {
    const Range range = unseen.back();
    unseen.pop_back();
    if (range.from >= range.to) continue;
    struct flock lock = LockOf(0);  // any lock in the range, in no order
    lock.l_start = range.from;
    lock.l_len = range.to - range.from;
    if (real.fcntl(file_, F_OFD_GETLK, &lock) != 0) return true;
    if (lock.l_type == F_UNLCK) continue;
    const auto member = static_cast<Member>(lock.l_start - kMemberLocks);
    if (std::find(members.begin(), members.end(), member) == members.end()) return true;
    unseen.push_back({range.from, lock.l_start});
    unseen.push_back({lock.l_start + 1, range.to});
  }
  return false;
}

SharedSlot* SharedArena::Take() {
  if (self_ == 0) return nullptr;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (size_t i = 0; i < slot_count_; ++i) {
      SharedSlot& slot = slots()[i];
      uint32_t expected = SharedSlot::kFree;
      if (slot.used.load(std::memory_order_relaxed) != SharedSlot::kFree) continue;
      if (!slot.used.compare_exchange_strong(expected, SharedSlot::kChanging)) continue;
      slot.broken = 0;
      slot.version = slot.size = 0;
      slot.exclusive = 0;
      slot.holders = {};
      slot.holders[0] = self_;
      InitMutex(&slot.mutex);
      slot.used.store(SharedSlot::kUsed, std::memory_order_release);
      return &slot;
    }
    FreeAbandonedSlots();
  }
  return nullptr;
}

// Frees slots whose holders have all died without leaving.
void SharedArena::FreeAbandonedSlots() {
  for (size_t i = 0; i < slot_count_; ++i) {
    SharedSlot& slot = slots()[i];
    if (slot.used.load(std::memory_order_acquire) != SharedSlot::kUsed) continue;
    const int locked = pthread_mutex_trylock(&slot.mutex);
    if (locked != 0 && locked != EOWNERDEAD) continue;
    if (locked == EOWNERDEAD) {
      pthread_mutex_consistent(&slot.mutex);
      slot.broken = 1;
    }
    const auto lives = [this](Member m) { return m != 0 && !IsInFlight(m) && Alive(m); };
    const bool abandoned = std::none_of(slot.holders.begin(), slot.holders.end(), lives);
    if (abandoned) slot.used = SharedSlot::kChanging;
    pthread_mutex_unlock(&slot.mutex);
    if (abandoned) Free(&slot);
  }
}

void SharedArena::Free(SharedSlot* slot) {
  if (slot->size > 0 && !Confined())
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, StateOf(slot),
              static_cast<off_t>(kMostState));
  slot->used.store(SharedSlot::kFree, std::memory_order_release);
}

std::byte* SharedArena::MapState(const SharedSlot* slot, size_t size) const {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, StateOf(slot));
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

uint32_t SharedArena::NumberOf(const SharedSlot* slot) const { return static_cast<uint32_t>(slot - slots()); }

SharedSlot* SharedArena::At(uint32_t number) {
  if (number >= slot_count_) return nullptr;
  SharedSlot* const slot = slots() + number;
  return slot->used.load(std::memory_order_acquire) == SharedSlot::kUsed ? slot : nullptr;
}

}  // namespace sdp::preload
