// Which sockets posix_spawn's file actions duplicate to a number in the next program. The C library lets no
// program read the actions, so this part notes them, under a lock of its own.
#ifndef SDP_PRELOAD_SPAWN_ACTIONS_H_
#define SDP_PRELOAD_SPAWN_ACTIONS_H_

#include <spawn.h>

#include <vector>

namespace sdp::preload {

// A managed socket, and the number it gets in the next program.
struct SpawnMove {
  int fd;
  int number;
};

class SpawnActions {
 public:
  // Notes that `actions` will make this move.
  static void NoteMove(const posix_spawn_file_actions_t* actions, SpawnMove move);
  // The program destroys `actions`.
  static void Forget(const posix_spawn_file_actions_t* actions);
  // Returns the moves noted for `actions`, in order; `actions` may be null.
  static std::vector<SpawnMove> MovesOf(const posix_spawn_file_actions_t* actions);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SPAWN_ACTIONS_H_
