#include "preload/process_life.h"

#include <string.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/fd_table.h"
#include "preload/log.h"
#include "preload/readiness/fork.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/all_sockets.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"
#include "preload/socket/pm_lookup.h"
#include "preload/socket/shared_arena.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"

namespace sdp::preload {
namespace {

// What may be in flight at exit is at most a window and a send buffer; a peer that takes nothing for so long gets nothing more.
constexpr Duration kExitPatience = std::chrono::seconds(5);
// All peers together, which may be in no call that would answer.
constexpr Duration kPatienceForPeers = std::chrono::milliseconds(100);

// How long a process that is about to be confined waits for what others have taken on of its listeners. Peers that do not end their handshakes do
// not hold it up for longer, however many the listeners.
constexpr Duration kPatienceForWorkers = std::chrono::seconds(1);

// Locked by PrepareFork too, if there was one then.
stats::StatsSegment*& locked_statistics() {
  static stats::StatsSegment* segment = nullptr;
  return segment;
}

// `f(fd, socket)` for each number.
template <typename F>
void ForEachNumber(F f) {
  FdTable::ForEach([](int fd, Socket* socket, void* context) { (*static_cast<F*>(context))(fd, static_cast<StreamSocket*>(socket)); }, &f);
}

template <typename F>
void ForEachSocket(F f) {
  ForEachNumber([&f](int, StreamSocket* socket) { f(socket); });
}

}  // namespace

void PrepareFork() {
  Background::RestForFork();
  LockEpollTableForFork();
  AllSockets::Lock();
  const auto& sockets = AllSockets::locked();
  if (!sockets.empty()) ShareAbortAllowance();
  if (std::any_of(sockets.begin(), sockets.end(), [](StreamSocket* socket) { return socket->shareable(); }))
    SharedArena::InviteChild();
  const Time patience = Now() + kPatienceForPeers;
  for (StreamSocket* socket : sockets) socket->SettleLoans(patience);
  for (StreamSocket* socket : sockets) socket->ShareWithChild();
  Listener::LockAllForFork();
  Listener::ShareAll();
  SharedArena::LockForFork();  // in the order in which a hand-over takes them
  LockEpollSetsForFork();
  Background::LockForFork();
  locked_statistics() = OpenStatistics();
  if (locked_statistics() != nullptr) locked_statistics()->PrepareFork();
}

void ParentAfterFork() {
  SharedArena::ParentAfterFork();
  if (locked_statistics() != nullptr) locked_statistics()->ForkParent();
  Background::UnlockAfterFork();
  UnlockReadinessAfterFork();
  Listener::UnlockAllAfterFork();
  for (StreamSocket* socket : AllSockets::locked()) socket->NoteForkInParent();
  AllSockets::Unlock();
}

void ChildAfterFork() {
  Background::ForgetAfterFork();
  Waiter::ForgetAfterFork();
  Background::UnlockAfterFork();
  DisownEpollSetsAfterFork();
  UnlockReadinessAfterFork();
  Listener::UnlockAllAfterFork();
  SharedArena::ChildAfterFork();
  for (StreamSocket* socket : AllSockets::locked()) socket->DisownAfterFork();
  AllSockets::Unlock();
  ForgetPmAfterFork();
  if (locked_statistics() != nullptr) locked_statistics()->ForkChild();
}

void PrepareConfinement() {
  ForEachNumber([](int fd, StreamSocket* socket) { socket->PrepareConfinement(fd); });
  const Time give_up = Now() + kPatienceForWorkers;
  ForEachSocket([give_up](StreamSocket* socket) { socket->FinishConfinement(give_up); });
}

void ProcessExit() {
  StreamSocket::NoteProcessEnds();
  const Time deadline = Now() + kExitPatience;
  ForEachSocket([](StreamSocket* socket) { socket->BeginToFinish(); });
  auto finish = [&](StreamSocket* socket) { socket->FinishAtExit(deadline); };
  ForEachSocket(finish);
  Background::FinishAtExit(
      [](Socket* owner, void* context) { (*static_cast<decltype(finish)*>(context))(static_cast<StreamSocket*>(owner)); }, &finish);
  if (stats::StatsSegment* segment = OpenStatistics(); segment != nullptr && !Confined()) segment->Remove();
}

bool BeforeCallOfOneThread() { return Background::EndIfAlone(); }

void AfterCallOfOneThread() { Background::Resume(); }

void ProcessExitAtOnce() {
  if (!Critical::MayBeInHandler()) return ProcessExit();
  ForEachSocket([](StreamSocket* socket) { socket->FinishAtOnce(); });
  if (stats::StatsSegment* segment = OpenStatistics(); segment != nullptr && !Confined()) segment->Remove();
}

}  // namespace sdp::preload
