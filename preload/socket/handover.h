// A program's knowledge of the sockets that it inherits or is passed: the content of a Capsule. Its
// descriptors are, in this order: two for each arena (its file, a membership), one for each connection on a
// local link (its memory), and those in ListenerFds for each listener.
//
// Sockets are known by their inode, since they may have other numbers in the other process. A value, without
// a lock.
//
// The receiver's library may be another build, after an upgrade. Its classes may freeze and share other
// things, so it can use no connection. It has to know which sockets are connections, though: their links
// carry no bytes of the program's. An arena needs no mark of its build: a process gets to know it by a
// handover of its own build alone.
#ifndef SDP_PRELOAD_SOCKET_HANDOVER_H_
#define SDP_PRELOAD_SOCKET_HANDOVER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/archive.h"
#include "preload/socket/kept_options.h"
#include "preload/socket/shared_arena.h"
#include "preload/socket/state_version.h"

namespace sdp::preload {

// The descriptors that go along, beside the arenas'; their owners keep them.
struct HandoverFds {
  std::vector<int> memories;
  std::vector<int> listeners;
};

struct Handover {
  enum class Kind : uint8_t { kV4, kV6, kNative };  // as made: AF_INET, AF_INET6, AF_INET_SDP
  struct Arena {
    Member member = 0;  // the member that was invited
  };
  struct Connection {
    uint64_t inode = 0;
    Kind kind = Kind::kV4;
    bool whole = false;              // false: its state cannot be had, and the receiver cannot use it
    uint32_t arena = 0;              // index in `arenas`
    uint32_t number = 0;             // in that arena
    bool has_memory = false;         // its link is a local one
    std::vector<std::byte> front{};  // known while another process has the state (Holders::FreezeFront)
  };
  struct Listener {
    uint64_t inode = 0;
    Kind kind = Kind::kV4;
    bool registered = false;
    bool dormant = false;
    bool has_queue = false;           // for connections that wait for accept
    bool nonblocking = false;         // as the application set it
    bool forced_nonblocking = false;  // the file is non-blocking, whatever the application set
    bool plain_clients_allowed = true;
    uint32_t backlog = 1;
    KeptOptions options;
  };
  // A listener's descriptors.
  struct ListenerFds {
    int sdp = -1;
    int registration = -1;  // if it is registered
    int queue_out = -1;     // if it has a queue
    int queue_in = -1;
  };
  // A socket that is neither connected nor listening.
  struct Fresh {
    uint64_t inode = 0;
    Kind kind = Kind::kV4;
    KeptOptions options;
  };

  bool other_build = false;  // then it has `connections` alone, of which none is whole
  uint32_t maker = 0;        // the packing process's id in its own view: a hint
  std::vector<Arena> arenas;
  std::vector<Connection> connections;
  std::vector<Listener> listeners;
  std::vector<Fresh> fresh;

  [[nodiscard]] bool empty() const { return connections.empty() && listeners.empty() && fresh.empty(); }
  [[nodiscard]] size_t descriptors() const;
  // `version` is that of the packing library, and of the unpacking one.
  [[nodiscard]] std::vector<std::byte> Pack(uint64_t version = kStateVersion);
  // Returns nothing if no Pack made these bytes.
  static std::optional<Handover> Unpack(Bytes packed, uint64_t version = kStateVersion);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_HANDOVER_H_
