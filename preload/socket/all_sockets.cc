#include "preload/socket/all_sockets.h"

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "preload/critical.h"
#include "preload/fd_table.h"
#include "preload/lasting.h"
#include "preload/socket/forking.h"

namespace sdp::preload {
namespace {

// The thread that holds `turn` owns `sockets`.
struct State {
  Mutex turn;
  absl::InlinedVector<StreamSocket*, 512> sockets;  // fork must not fail for lack of memory
};
State& state() { return Lasting<State>(); }

}  // namespace

void AllSockets::Lock() {
  state().turn.lock();
  FdTable::ForEach([](int, Socket* socket) {
    StreamSocket* const stream = &Stream(*socket);
    if (!StreamSocket::Forking(*stream).LockForFork()) return;  // locked already, under another number
    stream->Ref();
    state().sockets.push_back(stream);
  });
}

std::span<StreamSocket* const> AllSockets::locked() { return state().sockets; }

void AllSockets::Unlock() {
  for (StreamSocket* socket : state().sockets) {
    StreamSocket::Forking(*socket).UnlockAfterFork();
    socket->Unref();
  }
  state().sockets.clear();
  state().turn.unlock();
}

}  // namespace sdp::preload
