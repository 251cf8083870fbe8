#include "preload/socket/background.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "preload/allowed_calls.h"
#include "preload/bounded_lock.h"
#include "preload/critical.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/lasting.h"
#include "preload/log.h"
#include "preload/main_thread.h"
#include "preload/process_life.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/last_thread.h"
#include "preload/socket/spare_memory.h"
#include "preload/unbounded_poll.h"

namespace sdp::preload {
namespace {

// How long to wait before trying again to start a thread, and how soon a thread that does the work in place
// of the helper looks at descriptors again.
constexpr Duration kThreadRetry = std::chrono::milliseconds(200);
constexpr Duration kInlineLook = std::chrono::milliseconds(10);

// The part of a thread's stack that the C library takes: above all the program's thread-local variables.
// Looked up while the library is loaded. A later look-up would wait for a dlopen whose initializers may wait
// for a socket.
using MinStack = size_t(const pthread_attr_t*);
MinStack* const min_stack = reinterpret_cast<MinStack*>(dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));

// The helper's own need of stack, in bytes.
constexpr size_t kStack = size_t{256} * 1024;
// How many pauses to wait for the kernel to finish with a thread that has ended.
constexpr int kPausesForKernel = 1000;
constexpr Duration kPause = std::chrono::microseconds(100);

}  // namespace

struct Background::State {
  Mutex at_work;                      // held by the helper except while it sleeps; before every other lock
  std::atomic<int> forks_waiting{0};  // threads that want at_work; the helper lets them have it
  Mutex mutex;
  TaskList added;  // by Add; the helper takes them over
  TaskList items;  // the helper's; its size changes only under the lock
  std::atomic<int> wake_fd{-1};
  std::atomic<uint32_t> polls{0};  // odd from the helper's look-up of the numbers until its poll has returned
  std::atomic<bool> renumbered{false};  // files that tasks wait for may have other numbers now
  bool begun = false;                   // the helper has reached at_work
  bool ending = false;                  // the helper is to end
  pthread_t thread{};
  bool asleep = false;  // in a poll that a new task does not end
  Time sleeps_until = kNever;
  Time next_try{};  // to start a thread
  SpareMemory spare;
  uint32_t generation = 1;  // grows in a child of fork

  void Sleep(std::vector<pollfd>& fds);
  // Returns whether there is a helper to wake.
  bool Wake() {
    const NoCancellation no_cancellation;
    const uint64_t one = 1;
    return real.write(wake_fd.load(), &one, sizeof one) == sizeof one;
  }
};

Background::State& Background::state() { return Lasting<State>(); }

void Background::State::Sleep(std::vector<pollfd>& fds) {
  fds.clear();
  ++polls;
  Time until = items.AppendPolled(&fds);
  fds.push_back({.fd = wake_fd.load(), .events = POLLIN, .revents = 0});
  until = std::min(until, spare.due());
  if (MainThread::HasEnded()) until = std::min(until, Now() + LastThreadWatch::kInterval);
  {
    std::lock_guard lock(mutex);
    if (items.AnyAddedAgain() || !added.empty() || renumbered) {
      ++polls;
      return;
    }
    asleep = true;
    sleeps_until = until;
  }
  timespec storage;
  at_work.unlock();
  real.ppoll(fds.data(), fds.size(), Remaining(until, &storage), nullptr);
  ++polls;
  while (forks_waiting.load() != 0 && last_work_.load() == nullptr) Pause(kPause);
  at_work.lock();
  std::lock_guard lock(mutex);
  asleep = false;
  if (fds.back().revents != 0) {
    uint64_t count;
    (void)!real.read(wake_fd.load(), &count, sizeof count);
  }
}

constinit std::atomic<bool> Background::runs_{false};
constinit std::atomic<void (*)()> Background::last_work_{nullptr};
std::atomic<bool> Background::threadless_{false};

// One round of the helper's, including the tasks added since the last round.
void Background::RunTasks(const std::vector<pollfd>& fds) {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    s.items.Append(&s.added);
  }
  const Time now = Now();
  s.spare.Trim(now);
  if (s.renumbered.exchange(false)) s.items.MakeAllDue(now);  // each task says anew what it waits for
  s.items.RunReady(fds, now);
  std::unique_lock lock(s.mutex);
  const std::vector<Socket*> done = s.items.TakeDone();
  lock.unlock();
  for (Socket* const owner : done) owner->Unref();
}

void* Background::Main(void*) {
  State& s = state();
  s.at_work.lock();
  {
    std::lock_guard lock(s.mutex);
    s.begun = true;
  }
  std::vector<pollfd> fds;
  // If no other thread is left, the process ends with this one. On its return the C library calls exit(0),
  // which fits if the status was 0.
  LastThreadWatch others;
  for (;;) {
    try {
      RunTasks(fds);
      s.Sleep(fds);
    } catch (const std::bad_alloc&) {  // nothing is lost, and only at_work is held
      fds.clear();
      Pause(kPause);
      continue;
    }
    if (const auto work = last_work_.load()) {
      work();
      for (;;) real.ppoll(nullptr, 0, nullptr, nullptr);
    }
    fds.pop_back();
    if (s.ending) {
      s.at_work.unlock();
      return nullptr;
    }
    if (!MainThread::HasEnded()) continue;
    if (const auto status = others.Look(Now())) {
      s.at_work.unlock();
      ProcessExit();
      if (*status != 0) syscall(SYS_exit, *status);  // the last thread's status counts
      return nullptr;
    }
  }
}

Time Background::RunUndone() {
  State& s = state();
  TaskList items;
  {
    std::lock_guard lock(s.mutex);
    if (Runs() || EnsureThread(Now())) return kNever;
    items = s.added.TakeOwned();
  }
  std::vector<pollfd> fds;
  (void)items.AppendPolled(&fds);
  constexpr timespec kAtOnce{};
  if (!fds.empty()) UnboundedPoll(fds.data(), fds.size(), &kAtOnce, nullptr);
  const Time now = Now();
  items.RunReady(fds, now);
  std::vector<Socket*> done;
  Time again = kNever;
  {
    std::lock_guard lock(s.mutex);
    done = items.TakeDone();
    s.added.Append(&items);
    again = s.added.NextLook(now, kInlineLook);
    if (!s.added.AnyOwned()) threadless_ = false;
  }
  for (Socket* const owner : done) owner->Unref();
  return again;
}

bool Background::StartThread() {
  if (Confined()) return false;
  State& s = state();
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0 || HiddenFds::HideTracked(fd, &s.wake_fd) < 0) {
    SDP_LOG(kInfo, "no descriptor left for the helper thread: data may wait until the program's next call");
    return false;
  }
  MainThread::SetListener(NoteMainThreadEnd);
  // Signals are for the application's own threads.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (min_stack != nullptr) pthread_attr_setstacksize(&attributes, kStack + min_stack(&attributes));
  const int error = pthread_create(&s.thread, &attributes, Main, nullptr);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error != 0) {
    SDP_LOG(kInfo, "cannot start the helper thread (error %d): data may wait until the program's next call",
            error);
    HiddenFds::Close(s.wake_fd.exchange(-1));
    return false;
  }
  pthread_setname_np(s.thread, "sdp-helper");
  return true;
}

// The caller holds the lock.
bool Background::EnsureThread(Time now) {
  State& s = state();
  if (Runs() || now < s.next_try) return Runs();
  runs_ = StartThread();
  if (Runs()) threadless_ = false;
  s.next_try = now + kThreadRetry;
  return Runs();
}

bool Background::Add(Task* task, Duration grace) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const Time now = Now();
  const Time due = now + grace;
  EnsureThread(now);
  if (task->queued_in_ == s.generation) {
    task->again_ = std::min(task->again_, due);
  } else {
    if (!Runs() && Confined()) return false;
    if (!s.added.Add(task, due)) return false;
    task->queued_in_ = s.generation;
    task->again_ = kNever;
    if (Socket* const owner = task->owner()) owner->Ref();
  }
  if (!Runs()) {
    if (task->owner() != nullptr) threadless_ = true;
    return false;
  }
  if (s.asleep && s.sleeps_until > due) {
    s.asleep = false;  // one wake-up is enough
    s.Wake();
  }
  return true;
}

bool Background::Holds(const Task* task) {
  std::lock_guard lock(state().mutex);
  return task->queued_in_ == state().generation;
}

bool Background::TakeOver(void (*work)()) {
  if (!runs_.load()) return false;
  last_work_ = work;
  return state().Wake();
}

void Background::FollowNumbers() {
  if (!runs_.load() || Confined()) return;
  State& s = state();
  s.renumbered = true;
  const uint32_t seen = s.polls.load();
  if (seen % 2 == 0) return;
  const NoCancellation no_cancellation;
  s.Wake();
  while (s.polls.load() == seen) Pause(kPause);
}

void Background::RestForFork() {
  State& s = state();
  for (;;) {
    s.forks_waiting.fetch_add(1);
    s.at_work.lock();
    s.forks_waiting.fetch_sub(1);
    {
      std::lock_guard lock(s.mutex);
      if (s.begun || !Runs()) return;
    }
    s.at_work.unlock();
    Pause(kPause);
  }
}

bool Background::EndIfAlone() {
  if (Confined()) return false;
  State& s = state();
  const unsigned threads = ThreadsOfProcess();
  if (threads != 2) return threads == 1;
  RestForFork();
  {
    std::lock_guard lock(s.mutex);
    if (!Runs()) {  // the second thread is the program's
      s.at_work.unlock();
      return false;
    }
    s.added.Append(&s.items);
    runs_ = s.begun = s.asleep = false;
    s.ending = true;
    s.Wake();
  }
  {
    // No signal handler starts another helper, or forks, before this one is gone.
    struct Section {
      Section() { Critical::Enter(); }
      ~Section() { Critical::Leave(); }
    } const section;
    s.at_work.unlock();
    pthread_join(s.thread, nullptr);
    s.ending = false;
    HiddenFds::Close(s.wake_fd.exchange(-1));
  }
  // The thread has left the process's memory; the kernel releases its descriptors and the rest later.
  for (int i = 0; i < kPausesForKernel && ThreadsOfProcess() != 1; ++i) Pause(kPause);
  return ThreadsOfProcess() == 1;
}

void Background::EndIfIdle() {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    if (!Runs() || s.items.AnyOwned() || s.added.AnyOwned()) return;
  }
  (void)EndIfAlone();
}

void Background::Resume() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.next_try = {};
  if (s.added.empty()) return;
  if (!EnsureThread(Now())) threadless_ = true;
}

void Background::LockForFork() { state().mutex.lock(); }

void Background::UnlockAfterFork() {
  state().mutex.unlock();
  state().at_work.unlock();
}

void Background::ForgetAfterFork() {
  // The parent's helper holds the tasks' references. In this process nothing gives them back, which costs
  // only memory.
  State& s = state();
  ++s.generation;
  s.added.Clear();
  s.items.Clear();
  runs_ = s.begun = false;
  last_work_ = nullptr;
  s.forks_waiting = 0;
  s.polls = 0;
  s.renumbered = false;
  s.asleep = false;
  s.next_try = {};
  threadless_ = false;
  HiddenFds::Close(s.wake_fd.exchange(-1));
}

std::vector<SocketRef> Background::Owners() {
  State& s = state();
  std::vector<SocketRef> owners;
  std::unique_lock lock(s.mutex, std::defer_lock);
  if (!LockBounded(lock, Pause)) return owners;
  s.items.AppendOwners(&owners);
  s.added.AppendOwners(&owners);
  return owners;
}

void Background::NoteMainThreadEnd() {
  if (runs_.load()) state().Wake();
}

}  // namespace sdp::preload
