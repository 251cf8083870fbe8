#include "preload/socket/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "preload/fd_table.h"
#include "preload/log.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// The file: one page, the slots, and each slot's frozen state. Pages that nobody wrote take no memory.
constexpr size_t kSlots = 4096;
constexpr size_t kPage = 4096;
constexpr off_t kStates = kPage + kSlots * sizeof(SharedSlot);
// Locked bytes lie behind everything that is ever written.
constexpr off_t kMemberLocks = off_t{1} << 50;

struct Header {
  std::atomic<uint64_t> next_member;
};

struct Arena {
  int fd = -1;  // hidden
  std::byte* memory = nullptr;
  Member self = 0;
  int self_fd = -1;   // hidden; has the lock that says this process lives
  int child_fd = -1;  // hidden; while a fork is under way
};
constinit Arena arena;

Header* header() { return reinterpret_cast<Header*>(arena.memory); }
SharedSlot* slots() { return reinterpret_cast<SharedSlot*>(arena.memory + kPage); }
off_t StateOf(const SharedSlot* slot) {
  return kStates + static_cast<off_t>(slot - slots()) * static_cast<off_t>(SharedArena::kMostState);
}

struct flock LockOf(Member member) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = kMemberLocks + static_cast<off_t>(member);
  lock.l_len = 1;
  return lock;
}

Member NewMember() { return header()->next_member.fetch_add(1, std::memory_order_relaxed) + 1; }

// Makes a living member; *fd, hidden, keeps it alive. 0 if that is not possible.
Member MakeMember(int* fd) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", arena.fd);
  const int opened = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (opened < 0) return 0;
  *fd = HiddenFds::Hide(opened);
  if (*fd < 0) return 0;
  const Member member = NewMember();
  struct flock lock = LockOf(member);
  if (real.fcntl(*fd, F_OFD_SETLK, &lock) == 0) return member;
  HiddenFds::Close(*fd);
  return 0;
}

bool MakeArena() {
  const int fd = memfd_create("sdp connections", MFD_CLOEXEC);
  if (fd < 0) return false;
  if (ftruncate(fd, kStates) != 0) {
    real.close(fd);
    return false;
  }
  void* const memory = mmap(nullptr, kStates, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    real.close(fd);
    return false;
  }
  arena.memory = static_cast<std::byte*>(memory);
  arena.fd = HiddenFds::Hide(fd);
  if (arena.fd >= 0) return true;
  munmap(memory, kStates);
  arena = {};
  return false;
}

void InitMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

// Slots whose holders have all died without a word.
void FreeAbandonedSlots() {
  for (size_t i = 0; i < kSlots; ++i) {
    SharedSlot& slot = slots()[i];
    if (slot.used.load(std::memory_order_acquire) != SharedSlot::kUsed) continue;
    const int locked = pthread_mutex_trylock(&slot.mutex);
    if (locked != 0 && locked != EOWNERDEAD) continue;
    if (locked == EOWNERDEAD) {
      pthread_mutex_consistent(&slot.mutex);
      slot.broken = 1;
    }
    const bool abandoned = std::none_of(slot.holders.begin(), slot.holders.end(),
                                        [](Member m) { return m != 0 && SharedArena::Alive(m); });
    if (abandoned) slot.used = SharedSlot::kChanging;
    pthread_mutex_unlock(&slot.mutex);
    if (abandoned) SharedArena::Free(&slot);
  }
}

}  // namespace

Member SharedArena::PrepareFork() {
  if (arena.memory == nullptr && !MakeArena()) return 0;
  if (arena.self == 0) arena.self = MakeMember(&arena.self_fd);
  return arena.self == 0 ? 0 : MakeMember(&arena.child_fd);
}

void SharedArena::ParentAfterFork() {
  if (arena.child_fd >= 0) HiddenFds::Close(std::exchange(arena.child_fd, -1));
}

void SharedArena::ChildAfterFork(Member child) {
  if (arena.self_fd >= 0) HiddenFds::Close(arena.self_fd);
  arena.self = child;
  arena.self_fd = std::exchange(arena.child_fd, -1);
}

Member SharedArena::self() { return arena.self; }

bool SharedArena::Alive(Member member) {
  if (member == arena.self) return true;
  struct flock lock = LockOf(member);
  return real.fcntl(arena.fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

SharedSlot* SharedArena::Take() {
  if (arena.self == 0) return nullptr;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (size_t i = 0; i < kSlots; ++i) {
      SharedSlot& slot = slots()[i];
      uint32_t expected = SharedSlot::kFree;
      if (slot.used.load(std::memory_order_relaxed) != SharedSlot::kFree) continue;
      if (!slot.used.compare_exchange_strong(expected, SharedSlot::kChanging)) continue;
      slot.broken = 0;
      slot.version = slot.size = 0;
      slot.exclusive = 0;
      slot.holders = {};
      slot.holders[0] = arena.self;
      InitMutex(&slot.mutex);
      slot.used.store(SharedSlot::kUsed, std::memory_order_release);
      return &slot;
    }
    FreeAbandonedSlots();
  }
  return nullptr;
}

void SharedArena::Free(SharedSlot* slot) {
  if (slot->size > 0)
    fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, StateOf(slot),
              static_cast<off_t>(kMostState));
  slot->used.store(SharedSlot::kFree, std::memory_order_release);
}

bool SharedArena::Write(const SharedSlot* slot, Bytes state) {
  if (state.size() > kMostState) return false;
  const off_t at = StateOf(slot);
  for (size_t done = 0; done < state.size();) {
    const ssize_t n =
        pwrite(arena.fd, state.data() + done, state.size() - done, at + static_cast<off_t>(done));
    if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  return true;
}

bool SharedArena::Read(const SharedSlot* slot, std::vector<std::byte>* state) {
  state->resize(slot->size);
  const off_t at = StateOf(slot);
  for (size_t done = 0; done < state->size();) {
    const ssize_t n =
        pread(arena.fd, state->data() + done, state->size() - done, at + static_cast<off_t>(done));
    if (n <= 0 && !(n < 0 && errno == EINTR)) return false;
    if (n > 0) done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace sdp::preload
