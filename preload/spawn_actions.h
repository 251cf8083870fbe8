// Which sockets posix_spawn's actions give a number in the program to come: the C library tells nobody what
// is in them.
#ifndef SDP_PRELOAD_SPAWN_ACTIONS_H_
#define SDP_PRELOAD_SPAWN_ACTIONS_H_

#include <spawn.h>

#include <vector>

namespace sdp::preload {

// A socket of ours, and a number it gets there.
struct SpawnMove {
  int fd;
  int number;
};

class SpawnActions {
 public:
  // `actions` will do that.
  static void NoteMove(const posix_spawn_file_actions_t* actions, SpawnMove move);
  // They are destroyed.
  static void Forget(const posix_spawn_file_actions_t* actions);
  // What was noted of them, in order; `actions` may be null.
  static std::vector<SpawnMove> MovesOf(const posix_spawn_file_actions_t* actions);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SPAWN_ACTIONS_H_
