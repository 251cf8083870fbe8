#include "verbs/softiwarp/local/kept_memories.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>

namespace sdp::iwarp {
namespace {

using Clock = std::chrono::steady_clock;

struct Entry {
  LocalMemory* memory = nullptr;
  Clock::time_point since{};
};

constinit std::atomic_flag busy{};
constinit std::array<Entry, KeptMemories::kMost> kept{};  // guarded by `busy`
constinit bool in_view = false;                           // likewise: Forget() will be called
constinit std::atomic<void (*)()> on_keep{nullptr};

// Access to `kept`, if no other thread, nor this one below a signal handler, has it.
class Access {
 public:
  Access() : has_(!busy.test_and_set(std::memory_order_acquire)) {}
  ~Access() {
    if (has_) busy.clear(std::memory_order_release);
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  explicit operator bool() const { return has_; }

 private:
  const bool has_;
};

// Takes out the oldest entry that `wanted` likes; nullptr: none.
template <typename Wanted>
LocalMemory* TakeOldest(Wanted wanted) {
  const Access access;
  if (!access) return nullptr;
  Entry* oldest = nullptr;
  for (Entry& entry : kept) {
    if (entry.memory != nullptr && (oldest == nullptr || entry.since < oldest->since) && wanted(entry))
      oldest = &entry;
  }
  return oldest == nullptr ? nullptr : std::exchange(oldest->memory, nullptr);
}

// In place of the oldest, where there is no room: the other end may have let that one go.
bool Keep(LocalMemory* memory) {
  memory->NoteUsed();
  void (*const note)() = on_keep.load(std::memory_order_acquire);
  LocalMemory* old = nullptr;
  bool seen = true;
  {
    const Access access;
    if (note == nullptr || !access) return false;
    Entry* place = kept.data();
    for (Entry& entry : kept) {
      if (place->memory != nullptr && (entry.memory == nullptr || entry.since < place->since)) place = &entry;
    }
    seen = std::exchange(in_view, true);
    old = std::exchange(*place, {.memory = memory, .since = Clock::now()}).memory;
  }
  delete old;
  if (!seen) note();
  return true;
}

}  // namespace

void KeptMemories::Begin(void (*note)()) {
  on_keep.store(note, std::memory_order_release);
  LocalMemory::at_end.store(Retire, std::memory_order_relaxed);
}

void KeptMemories::NoteFork() {
  LocalMemory::forks.fetch_add(1, std::memory_order_relaxed);
  (void)Forget(Duration::zero());
}

bool KeptMemories::Forget(Duration age) {
  const auto limit = Clock::now() - age;
  while (LocalMemory* const old = TakeOldest([&](const Entry& entry) { return entry.since <= limit; }))
    delete old;
  const Access access;
  if (!access) return true;
  in_view = std::any_of(kept.begin(), kept.end(), [](const Entry& entry) { return entry.memory != nullptr; });
  return in_view;
}

void KeptMemories::ForgetInChild() {
  busy.clear();
  (void)Forget(Duration::zero());
}

std::shared_ptr<LocalMemory> KeptMemories::TakeById(const LocalMemory::Id& id) {
  // A process may be both ends.
  auto memory = LocalMemory::Own(TakeOldest([&](const Entry& entry) {
    return entry.memory->id() == id && entry.memory->peer() == LocalMemory::Peer{} &&
           entry.memory->may_be_kept();
  }));
  if (memory != nullptr) memory->Renew();
  return memory;
}

std::shared_ptr<LocalMemory> KeptMemories::TakeByPeer(const LocalMemory::Peer& peer) {
  return LocalMemory::Own(TakeOldest(
      [&](const Entry& entry) { return entry.memory->peer() == peer && entry.memory->may_be_kept(); }));
}

bool KeptMemories::WillKeep(const LocalMemory& memory) {
  // Without its descriptor the next connection could not be handed to another program.
  return on_keep.load(std::memory_order_relaxed) != nullptr && memory.may_be_kept() &&
         memory.carried() <= kMostCarried && memory.fd() >= 0;
}

void KeptMemories::Retire(LocalMemory* memory) {
  if (!WillKeep(*memory) || !Keep(memory)) delete memory;
}

}  // namespace sdp::iwarp
