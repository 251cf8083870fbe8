#include "preload/process_life.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>
#include <vector>

#include "preload/allowed_calls.h"
#include "preload/confinement.h"
#include "preload/critical.h"
#include "preload/fd_table.h"
#include "preload/heap.h"
#include "preload/inheritance.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/signal_end.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/all_sockets.h"
#include "preload/socket/background.h"
#include "preload/socket/clock.h"
#include "preload/socket/confining.h"
#include "preload/socket/connector.h"
#include "preload/socket/departure.h"
#include "preload/socket/forking.h"
#include "preload/socket/memory_keeper.h"
#include "preload/socket/pm_lookup.h"
#include "preload/socket/quiet_links.h"
#include "preload/socket/shared_arena.h"
#include "preload/socket/stats.h"
#include "preload/socket/stream_socket.h"
#include "preload/unbounded_poll.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {
namespace {

using Confining = StreamSocket::Confining;
using Connector = StreamSocket::Connector;
using Departure = StreamSocket::Departure;
using Forking = StreamSocket::Forking;

// At exit, at most a window and a send buffer are in flight. A peer that takes nothing for so long gets no
// more. Nothing else that an end waits for extends this time, nor does a signal that comes while exit waits.
constexpr Duration kExitPatience = std::chrono::seconds(5);
// For all peers together, which may be in no call that would answer.
constexpr Duration kPatienceForPeers = std::chrono::milliseconds(100);
// Once for each connect that a fork finds in progress.
constexpr Duration kPatienceForConnects = std::chrono::milliseconds(200);

// How often the helper works on the connections of a process that a signal ends. And how long the handler
// waits for a helper without progress: it may need what the interrupted thread has, such as a lock of malloc.
constexpr Duration kRestBetweenSteps = std::chrono::microseconds(300);
constexpr Duration kLongestRest = std::chrono::milliseconds(6);
constexpr Duration kPatienceForHelper = std::chrono::seconds(3);
// After the deadline, for the step in which the helper learns of it: others may share that connection.
constexpr Duration kPatienceForLastStep = std::chrono::milliseconds(400);

// How long a process that is about to be confined waits for connections of its listeners that other processes
// have taken on. This bounds the delay by peers that do not end their handshakes, however many the listeners.
constexpr Duration kPatienceForWorkers = std::chrono::seconds(1);

constinit ReadinessAtFork readiness_at_fork;

// The segment that PrepareFork locked too, if there was one.
constinit stats::StatsSegment* locked_statistics = nullptr;

// Calls `f(fd, socket)` for each number.
template <typename F>
void ForEachNumber(F f) {
  FdTable::ForEach([&f](int fd, Socket* socket) { f(fd, &Stream(*socket)); });
}

template <typename F>
void ForEachSocket(F f) {
  ForEachNumber([&f](int, StreamSocket* socket) { f(socket); });
}

// Runs a step that may be left out if there is no memory for it. Then a child of fork does not share what the
// step was about, or a peer learns less of an end.
template <typename Step>
void IfThereIsMemory(Step step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
  }
}

constinit std::atomic<Time> end_of_patience{kNever};

Time EndOfPatience() {
  Time first = kNever;
  const Time from_now = Now() + kExitPatience;
  return end_of_patience.compare_exchange_strong(first, from_now) ? from_now : first;
}

void RemoveStatistics() {
  if (stats::StatsSegment* segment = OpenStatistics(); segment != nullptr && !Confined()) segment->Remove();
}

// Returns the sockets with a number, and those without that the helper still has.
std::vector<SocketRef> AllWithTasks() {
  std::vector<SocketRef> sockets;
  ForEachSocket([&](StreamSocket* socket) {
    socket->Ref();
    sockets.emplace_back(socket);
  });
  for (SocketRef& owner : Background::Owners()) sockets.push_back(std::move(owner));
  return sockets;
}

constinit std::atomic<uint64_t> steps_to_end{0};

// Ends all connections. Serves them in turn, since one may be the other's peer.
void EndConnections(Departure::ProcessEnd how, Time deadline) {
  const std::vector<SocketRef> sockets = AllWithTasks();
  for (Duration rest = kRestBetweenSteps;; rest = std::min(2 * rest, kLongestRest)) {
    bool all = true;
    for (const SocketRef& socket : sockets) {
      if (Now() >= deadline) return;
      IfThereIsMemory([&] {
        if (!Departure(Stream(socket)).StepToEnd(how)) all = false;
      });
      ++steps_to_end;
    }
    if (all) return;
    Pause(rest);
  }
}

void EndConnectionsAtOnce() {
  ForEachSocket([](StreamSocket* socket) { IfThereIsMemory([&] { Departure(*socket).EndAtOnce(); }); });
}

// --- A signal ends the process: its handler waits in one thread, and the helper does the work.

constinit std::atomic<bool> all_said{false};

void EndInHelper() {
  Departure::NoteProcessEnds();
  EndConnections(Departure::ProcessEnd::kExit, EndOfPatience());
  all_said = true;
}

void SayLastWords() {
  if (!Background::TakeOver(EndInHelper)) return EndConnectionsAtOnce();
  const Time deadline = EndOfPatience() + kPatienceForLastStep;
  uint64_t seen = 0;
  Time since = Now();
  while (!all_said && Now() < std::min(since + kPatienceForHelper, deadline)) {
    if (const uint64_t steps = steps_to_end; steps != seen) {
      seen = steps;
      since = Now();
    }
    Pause(kRestBetweenSteps);
  }
}

}  // namespace

void SetReadinessAtFork(const ReadinessAtFork& steps) { readiness_at_fork = steps; }

void AwaitConnects() {
  bool any = false;
  const auto step = [&any](StreamSocket* socket) { any = Connector(*socket).StepConnect() || any; };
  for (const Time deadline = Now() + kPatienceForConnects; Now() < deadline; Pause(kRestBetweenSteps)) {
    any = false;
    ForEachSocket(step);
    if (!any) return;
  }
  ForEachSocket([](StreamSocket* socket) { Connector(*socket).NoteWaitedForConnect(); });
}

void PrepareFork() {
  AwaitConnects();
  Background::RestForFork();
  readiness_at_fork.lock_table();
  AllSockets::Lock();
  const auto sockets = AllSockets::locked();
  if (!sockets.empty()) ShareAbortAllowance();
  if (std::any_of(sockets.begin(), sockets.end(), [](StreamSocket* socket) { return socket->shareable(); }))
    IfThereIsMemory(SharedArena::InviteChild);
  const Time patience = Now() + kPatienceForPeers;
  for (StreamSocket* socket : sockets) IfThereIsMemory([&] { Forking(*socket).SettleLoans(patience); });
  for (StreamSocket* socket : sockets) IfThereIsMemory([&] { Forking(*socket).ShareWithChild(); });
  Listener::LockAllForFork();
  IfThereIsMemory(Listener::ShareAll);
  SharedArena::LockForFork();  // in the order in which a hand-over takes them
  readiness_at_fork.lock_sets();
  QuietLinks::LockForFork();
  Background::LockForFork();
  iwarp::ShareMemories();
  locked_statistics = OpenStatistics();
  if (locked_statistics != nullptr) locked_statistics->PrepareFork();
}

void ParentAfterFork() {
  SharedArena::ParentAfterFork();
  if (locked_statistics != nullptr) locked_statistics->ForkParent();
  Background::UnlockAfterFork();
  QuietLinks::UnlockAfterFork();
  readiness_at_fork.unlock();
  Listener::UnlockAllAfterFork();
  for (StreamSocket* socket : AllSockets::locked())
    IfThereIsMemory([&] { Forking(*socket).NoteForkInParent(); });
  AllSockets::Unlock();
}

void ChildAfterFork() {
  SignalEnd::ForgetAfterFork();
  end_of_patience = kNever;
  Background::ForgetAfterFork();
  iwarp::ForgetMemoriesInChild();
  QuietLinks::ForgetAfterFork();
  Waiter::ForgetAfterFork();
  Background::UnlockAfterFork();
  QuietLinks::UnlockAfterFork();
  readiness_at_fork.disown_in_child();
  readiness_at_fork.unlock();
  Listener::UnlockAllAfterFork();
  SharedArena::ChildAfterFork();
  for (StreamSocket* socket : AllSockets::locked()) Forking(*socket).DisownAfterFork();
  if (!AllSockets::locked().empty())
    ExpectSignals();  // needed if the parent is the first process of its namespace and expects none
  AllSockets::Unlock();
  ForgetPmAfterFork();
  if (locked_statistics != nullptr) IfThereIsMemory([] { locked_statistics->ForkChild(); });
}

void ExpectSignals() { SignalEnd::Guard(SayLastWords); }

void PrepareConfinement() {
  SignalEnd::Unguard();
  QuietLinks::Stop();
  memory_keeper::Stop();
  Background::EndIfIdle();
  Heap::Stock();
  PrepareLogForConfinement();
  ForEachNumber([](int fd, StreamSocket* socket) { Confining(*socket).Prepare(fd); });
  const Time give_up = Now() + kPatienceForWorkers;
  ForEachSocket([give_up](StreamSocket* socket) { Confining(*socket).Finish(give_up); });
}

void ConfinementRefused() {
  ExpectSignals();
  QuietLinks::GoOn();  // resumes the helper as well
  memory_keeper::Begin();
}

void ProcessExit() {
  SignalEnd::AwaitIfUnderWay();
  Departure::NoteProcessEnds();
  try {
    EndConnections(Departure::ProcessEnd::kExit, EndOfPatience());
  } catch (const std::bad_alloc&) {
    EndConnectionsAtOnce();
  }
  RemoveStatistics();
}

void FinishBeforeExec() {
  AwaitConnects();
  // The new program would get the RNIC's link of a connect that is still in progress.
  ForEachNumber([](int fd, StreamSocket* socket) {
    if ((real.fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 || Connector(*socket).SettleConnect(Time::min())) return;
    constexpr sockaddr kNobody{.sa_family = AF_UNSPEC, .sa_data = {}};
    socket->Connect(fd, &kNobody, sizeof kNobody);
  });
  EndConnections(Departure::ProcessEnd::kExec, Now() + kExitPatience);
}

bool BeforeCallOfOneThread() { return Background::EndIfAlone(); }

void AfterCallOfOneThread() { Background::Resume(); }

void ProcessExitAtOnce() {
  SignalEnd::AwaitIfUnderWay();
  if (!Critical::MayBeInHandler()) return ProcessExit();
  EndConnectionsAtOnce();
  RemoveStatistics();
}

}  // namespace sdp::preload
