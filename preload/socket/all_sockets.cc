#include "preload/socket/all_sockets.h"

#include <mutex>

#include "preload/critical.h"
#include "preload/fd_table.h"

namespace sdp::preload {
namespace {

// `sockets` belongs to who holds `turn`.
struct State {
  Mutex turn;
  std::vector<StreamSocket*> sockets;
};
State& state() {
  static State* const instance = new State;
  return *instance;
}

}  // namespace

void AllSockets::Lock() {
  state().turn.lock();
  FdTable::ForEach(
      [](int, Socket* socket, void*) {
        auto* const stream = static_cast<StreamSocket*>(socket);
        if (!stream->LockForFork()) return;  // met before, under another number
        stream->Ref();
        state().sockets.push_back(stream);
      },
      nullptr);
}

const std::vector<StreamSocket*>& AllSockets::locked() { return state().sockets; }

void AllSockets::Unlock() {
  for (StreamSocket* socket : state().sockets) {
    socket->UnlockAfterFork();
    socket->Unref();
  }
  state().sockets.clear();
  state().turn.unlock();
}

}  // namespace sdp::preload
