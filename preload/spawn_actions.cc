#include "preload/spawn_actions.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "preload/critical.h"
#include "preload/entry_points.h"
#include "preload/startup.h"

namespace sdp::preload {
namespace {

// Bounds the notes: a program may never destroy its actions.
constexpr size_t kMostNoted = 256;

struct Noted {
  Mutex mutex;
  std::vector<std::pair<const posix_spawn_file_actions_t*, SpawnMove>> moves;
};
std::atomic<bool> any{false};

Noted& noted() {
  static Noted* const instance = new Noted;
  return *instance;
}

}  // namespace

void SpawnActions::NoteMove(const posix_spawn_file_actions_t* actions, SpawnMove move) {
  Noted& n = noted();
  std::lock_guard lock(n.mutex);
  if (n.moves.size() == kMostNoted) n.moves.erase(n.moves.begin());
  n.moves.emplace_back(actions, move);
  any = true;
}

void SpawnActions::Forget(const posix_spawn_file_actions_t* actions) {
  if (!any.load(std::memory_order_relaxed)) return;
  Noted& n = noted();
  std::lock_guard lock(n.mutex);
  std::erase_if(n.moves, [actions](const auto& entry) { return entry.first == actions; });
}

std::vector<SpawnMove> SpawnActions::MovesOf(const posix_spawn_file_actions_t* actions) {
  std::vector<SpawnMove> moves;
  if (!any.load(std::memory_order_relaxed)) return moves;
  Noted& n = noted();
  std::lock_guard lock(n.mutex);
  for (const auto& [whose, move] : n.moves) {
    if (whose == actions) moves.push_back(move);
  }
  return moves;
}

int SDP_ENTRY(posix_spawn_file_actions_adddup2)(posix_spawn_file_actions_t* actions, int fd,
                                                int new_fd) noexcept {
  const int result = real.posix_spawn_file_actions_adddup2(actions, fd, new_fd);
  if (result == 0 && FdTable::Has(fd)) SpawnActions::NoteMove(actions, {.fd = fd, .number = new_fd});
  return result;
}

// At this address there may have been earlier actions that the program did not destroy.
int SDP_ENTRY(posix_spawn_file_actions_init)(posix_spawn_file_actions_t* actions) noexcept {
  SpawnActions::Forget(actions);
  return real.posix_spawn_file_actions_init(actions);
}

int SDP_ENTRY(posix_spawn_file_actions_destroy)(posix_spawn_file_actions_t* actions) noexcept {
  SpawnActions::Forget(actions);
  return real.posix_spawn_file_actions_destroy(actions);
}

}  // namespace sdp::preload
