// What a program has to know of the sockets it inherits or is passed: the content of a Capsule. Its
// descriptors are, in this order, two for each arena (its file, a membership) and for each listener those
// that a ListenerFds has.
//
// Sockets are known by their inode, since they may have other numbers there.
#ifndef SDP_PRELOAD_SOCKET_HANDOVER_H_
#define SDP_PRELOAD_SOCKET_HANDOVER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/archive.h"
#include "preload/socket/address.h"
#include "preload/socket/kept_options.h"
#include "preload/socket/shared_arena.h"

namespace sdp::preload {

struct Handover {
  enum class Kind : uint8_t { kV4, kV6, kNative };  // as made: AF_INET, AF_INET6, AF_INET_SDP
  struct Arena {
    Member member = 0;  // who has been invited
  };
  struct Connection {
    uint64_t inode = 0;
    Kind kind = Kind::kV4;
    bool whole = false;   // false: its state is not to be had, and nobody can use it there
    uint32_t arena = 0;   // in `arenas`
    uint32_t number = 0;  // in that arena
    std::vector<std::byte>
        front{};  // what is to be known of it while another process has its state (StreamSocket::FreezeFront)
  };
  struct Listener {
    uint64_t inode = 0;
    Kind kind = Kind::kV4;
    bool registered = false;
    bool dormant = false;
    bool has_queue = false;           // for connections that wait for accept
    bool nonblocking = false;         // as the application has it
    bool forced_nonblocking = false;  // the file is, whatever the application has
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
  // Neither connected nor listening.
  struct Fresh {
    uint64_t inode = 0;
    Kind kind = Kind::kV4;
    KeptOptions options;
  };

  uint32_t maker = 0;  // the process that packed it, as it calls itself: a hint
  std::vector<Arena> arenas;
  std::vector<Connection> connections;
  std::vector<Listener> listeners;
  std::vector<Fresh> fresh;

  [[nodiscard]] bool empty() const { return connections.empty() && listeners.empty() && fresh.empty(); }
  [[nodiscard]] size_t descriptors() const;
  [[nodiscard]] std::vector<std::byte> Pack();
  // Empty: these bytes are none of Pack's.
  static std::optional<Handover> Unpack(Bytes packed);
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_HANDOVER_H_
