#include "preload/startup.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "preload/allowed_calls.h"
#include "preload/config_store.h"
#include "preload/critical.h"
#include "preload/fd_table.h"
#include "preload/guard.h"
#include "preload/heap.h"
#include "preload/hidden_fds.h"
#include "preload/link_calls.h"
#include "preload/log.h"
#include "preload/main_thread.h"
#include "preload/privileged.h"
#include "preload/process_life.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "verbs/descriptor_calls.h"
#include "verbs/softiwarp/link_calls.h"

// A function of the C library that no header declares.
extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* shared_object) noexcept;

namespace sdp::preload {
namespace {

constinit std::atomic<bool> started{false};
constinit std::atomic<pid_t> owner{0};
constinit std::atomic<void (*)()> exit_hook{nullptr};

// Whether the library had started at fork(), for both processes: if it starts while another thread forks, the
// hooks must still match. Thread-local, because not all ways to fork take the C library's lock.
thread_local bool forked_while_started __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

void BeforeFork() {
  forked_while_started = Started();
  const NoCancellation no_cancellation;
  if (forked_while_started) PrepareFork();
  Heap::LockForFork();  // last, since the other hooks allocate
}
void AfterForkInParent() {
  Heap::UnlockAfterFork();
  if (!forked_while_started) return;
  const NoCancellation no_cancellation;
  ParentAfterFork();
}
void AfterForkInChild() {
  const NoCancellation no_cancellation;
  owner.store(getpid());
  MainThread::Expect();
  Critical::ForgetAfterFork();
  Heap::UnlockAfterFork();
  if (forked_while_started) ChildAfterFork();
}

namespace {

// quick_exit runs no destructors, and the C library ends the process by its own _exit. Registered first, so
// it runs last.
void WhenQuit() {
  if (!Started() || !OwnsProcess()) return;
  const NoCancellation no_cancellation;
  ProcessExitAtOnce();
}

// Runs after the destructors of all shared objects, which may have something to send. That is so because a
// constructor run by the loader registers it for no shared object.
void WhenExiting(void*) {
  if (!Started() || !OwnsProcess()) return;
  const NoCancellation no_cancellation;
  if (const auto hook = exit_hook.load()) hook();
  ProcessExit();
}

// Moves the descriptor out of the application's way, if a number is left for it. Returns its number.
int HideDescriptor(int fd) {
  const int hidden = HiddenFds::Duplicate(fd);
  if (hidden < 0) return fd;
  real.close(fd);
  return hidden;
}

// kSpare leaves some of the hidden numbers to what cannot do without: listeners, epoll sets, handshakes.
bool KeepDescriptor(int fd, std::atomic<int>* slot, verbs::DescriptorCalls::Need need) {
  const int number = HiddenFds::HideTracked(fd, slot);
  if (number < 0) return false;
  rlimit limit{};
  if (need == verbs::DescriptorCalls::Need::kLast || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      static_cast<rlim_t>(number) < std::min<rlim_t>(limit.rlim_cur, HiddenFds::kHighestLimit) / 16 * 15)
    return true;
  HiddenFds::Close(slot->exchange(-1));
  return false;
}

bool Prepare() {
  ResolveRealCalls();
  if (IsPrivileged()) return true;
  owner.store(getpid());
  NoteStandardError(FdTable::Has);
  MainThread::Expect();
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  at_quick_exit(WhenQuit);
  __cxa_atexit(WhenExiting, nullptr, nullptr);
  return true;
}

void EnsurePrepared() {
  static const bool prepared = Prepare();
  (void)prepared;
}

bool Start() {
  EnsurePrepared();
  ReportConfig();
  iwarp::SetLinkCalls({.recvmsg = LinkRecvMessage,
                       .sendmsg = LinkSendMessage,
                       .shutdown = LinkShutdown,
                       .setsockopt = LinkSetOption,
                       .getsockopt = LinkGetOption,
                       .recv = LinkRecv,
                       .send = LinkSend,
                       .sendfile = real.sendfile,
                       .connect = LinkConnect,
                       .may_ring = [] { return !Confined(); }});
  verbs::SetDescriptorCalls({.hide = HideDescriptor,
                             .reveal = HiddenFds::Reveal,
                             .keep = KeepDescriptor,
                             .close_kept = HiddenFds::Close});
  SetReadinessAtFork({.lock_table = LockEpollTableForFork,
                      .lock_sets = LockEpollSetsForFork,
                      .disown_in_child = DisownEpollSetsAfterFork,
                      .unlock = UnlockReadinessAfterFork});
  started.store(true, std::memory_order_release);
  return true;
}

// Runs before the constructors of ordinary objects (priority 65535), so that the library's own objects may
// make real calls.
__attribute__((constructor(101))) void WhenLoaded() { EnsurePrepared(); }

}  // namespace

void EnsureStarted() {
  if (Started()) [[likely]]
    return;
  static const bool once = Start();
  (void)once;
}

void SetExitHook(void (*hook)()) { exit_hook.store(hook); }

bool Started() { return started.load(std::memory_order_acquire); }

bool OwnsProcess() {
  // A process that may not ask for its id is hardly a child of vfork.
  const pid_t pid = !MayCall(Call::kGetpid) ? 0 : owner.load(std::memory_order_relaxed);
  return pid == 0 || pid == getpid();
}

}  // namespace sdp::preload
