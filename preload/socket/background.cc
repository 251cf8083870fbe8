#include "preload/socket/background.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "preload/allowed_calls.h"
#include "preload/bounded_lock.h"
#include "preload/critical.h"
#include "preload/guard.h"
#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/main_thread.h"
#include "preload/process_life.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/unbounded_poll.h"

namespace sdp::preload {
namespace {

thread_local bool is_helper __attribute__((tls_model("initial-exec"))) = false;

// How often a thread is asked for again where there was none to be had, and how soon who waits in its place
// looks at descriptors again.
constexpr Duration kThreadRetry = std::chrono::milliseconds(200);
constexpr Duration kInlineLook = std::chrono::milliseconds(10);

// How often the helper looks whether any other thread is left, once the first one has ended.
constexpr Duration kLookForOthers = std::chrono::seconds(1);

// How soon a task is done again that has found no memory.
constexpr Duration kShortOfMemory = std::chrono::milliseconds(50);

// For how many of Pause() one waits for the kernel to have done with a thread that has ended.
constexpr int kPausesForKernel = 1000;

void Pause() {
  const timespec pause{.tv_sec = 0, .tv_nsec = 100'000};
  nanosleep(&pause, nullptr);
}

// 0: nobody can tell.
unsigned ThreadsOfProcess() {
  struct stat tasks {};
  return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2
             ? static_cast<unsigned>(tasks.st_nlink) - 2
             : 0;
}

// The thread that the process began with has ended, with this status, and of others there is one. Empty also
// where nobody can tell.
std::optional<int> AllOthersHaveEnded() {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/stat", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return std::nullopt;
  std::array<char, 1024> text{};
  const ssize_t size = real.read(fd, text.data(), text.size() - 1);
  real.close(fd);
  // Behind the name, which may have anything in it: the state, 16 numbers, and how many threads there are;
  // last the status, as of waitpid (proc(5)).
  const char* const behind = size > 0 ? strrchr(text.data(), ')') : nullptr;
  char state = 0;
  long threads = 0;
  if (behind == nullptr ||
      sscanf(behind, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld", &state,
             &threads) != 2 ||
      state != 'Z' || threads != 2)
    return std::nullopt;
  const char* const last = strrchr(behind, ' ');
  return last != nullptr ? atoi(last) >> 8 & 0xff : 0;
}

}  // namespace

struct Background::Item {
  Task* task;
  Wait wait;
};

struct Background::State {
  Mutex at_work;                      // the helper's, but not while it sleeps; before every other lock
  std::atomic<int> forks_waiting{0};  // for at_work: the helper lets them have it
  Mutex mutex;
  std::vector<Item> added;  // by Add, taken over by the helper
  std::vector<Item> items;  // the helper's; grows and shrinks under the lock
  std::atomic<int> wake_fd{-1};
  bool running = false;
  bool begun = false;   // the helper has got as far as at_work
  bool ending = false;  // it is to end
  pthread_t thread{};
  bool asleep = false;  // in a poll that `added` does not end
  Time sleeps_until = kNever;
  Time next_try{};          // for a thread
  uint32_t generation = 1;  // grows in a child of fork

  void Sleep(std::vector<pollfd>& fds);
};

Background::State& Background::state() {
  static State* const instance =
      new State;  // outlives every destructor: the helper may run until the process is gone
  return *instance;
}

void Background::State::Sleep(std::vector<pollfd>& fds) {
  fds.clear();
  fds.reserve(items.size() + 1);
  Time until = kNever;
  for (const Item& item : items) {
    if (item.wait.fd >= 0) fds.push_back({.fd = item.wait.fd, .events = item.wait.events, .revents = 0});
    until = std::min(until, item.wait.deadline);
  }
  fds.push_back({.fd = wake_fd.load(), .events = POLLIN, .revents = 0});
  if (MainThread::HasEnded()) until = std::min(until, Now() + kLookForOthers);
  {
    std::lock_guard lock(mutex);
    const bool again =
        std::any_of(items.begin(), items.end(), [](const Item& item) { return item.task->added_again_; });
    if (again || !added.empty()) return;
    asleep = true;
    sleeps_until = until;
  }
  timespec storage;
  at_work.unlock();
  real.ppoll(fds.data(), fds.size(), Remaining(until, &storage), nullptr);
  while (forks_waiting.load() != 0 && last_work_.load() == nullptr) Pause();
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

// `fds`: what was polled for the items, in their order; items behind them are new.
void Background::RunReady(std::vector<Item>& items, const std::vector<pollfd>& fds, Time now) {
  size_t polled = 0;
  for (Item& item : items) {
    const bool ready = item.wait.fd >= 0 && polled < fds.size() && fds[polled].fd == item.wait.fd &&
                       fds[polled].revents != 0;
    if (item.wait.fd >= 0) ++polled;
    if (!ready && item.wait.deadline > now) continue;
    try {
      item.wait = item.task->Run(now);
    } catch (const std::bad_alloc&) {
      item.wait = {.deadline = now + kShortOfMemory};
    }
  }
}

std::vector<Socket*> Background::TakeDone(std::vector<Item>& items, Time now) {
  std::vector<Socket*> done;  // owners: a task may be gone as soon as it is not held
  const auto over =
      std::count_if(items.begin(), items.end(), [](const Item& item) { return item.wait.done; });
  done.reserve(static_cast<size_t>(over));  // or, for want of memory, all stays as it is
  std::erase_if(items, [&](Item& item) {
    if (item.task->added_again_) {  // what it saw may be old: once more, after the grace
      item.task->added_again_ = false;
      item.wait.done = false;
      item.wait.deadline = std::min(item.wait.deadline, now + kGrace);
    }
    if (!item.wait.done) return false;
    item.task->queued_in_ = 0;
    if (Socket* const owner = item.task->owner()) done.push_back(owner);
    return true;
  });
  return done;
}

void* Background::Main(void*) {
  is_helper = true;
  State& s = state();
  s.at_work.lock();
  {
    std::lock_guard lock(s.mutex);
    s.begun = true;
  }
  std::vector<pollfd> fds;
  // A process whose last thread ends by pthread_exit, or by a system call, ends with it: not for the kernel
  // and the C library, as long as this one is here. When it returns the C library makes an exit(0) of that,
  // where that is what it was.
  Time look_for_others{};
  for (;;) {
    try {
      {
        std::lock_guard lock(s.mutex);
        s.items.insert(s.items.end(), s.added.begin(), s.added.end());
        s.added.clear();
      }
      const Time now = Now();
      RunReady(s.items, fds, now);
      std::vector<Socket*> done;
      {
        std::lock_guard lock(s.mutex);
        done = TakeDone(s.items, now);
      }
      for (Socket* const owner : done) owner->Unref();
      s.Sleep(fds);
    } catch (const std::bad_alloc&) {  // nothing is lost, and nobody's lock but at_work is held
      fds.clear();
      Pause();
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
    if (const Time passed = Now(); passed >= look_for_others) {
      look_for_others = passed + kLookForOthers;
      if (const auto status = Confined() ? std::nullopt : AllOthersHaveEnded()) {
        s.at_work.unlock();
        ProcessExit();
        if (*status != 0) syscall(SYS_exit, *status);  // the last one's counts
        return nullptr;
      }
    }
  }
}

Time Background::RunUndone() {
  State& s = state();
  std::vector<Item> items;
  {
    std::lock_guard lock(s.mutex);
    if (s.running || EnsureThread(Now())) return kNever;
    const auto is_ours = [](const Item& item) { return item.task->owner() == nullptr; };
    const auto owned = std::stable_partition(s.added.begin(), s.added.end(), is_ours);
    items.assign(owned, s.added.end());
    s.added.erase(owned, s.added.end());
  }
  std::vector<pollfd> fds;
  for (const Item& item : items) {
    if (item.wait.fd >= 0) fds.push_back({.fd = item.wait.fd, .events = item.wait.events, .revents = 0});
  }
  constexpr timespec kAtOnce{};
  if (!fds.empty()) UnboundedPoll(fds.data(), fds.size(), &kAtOnce, nullptr);
  const Time now = Now();
  RunReady(items, fds, now);
  std::vector<Socket*> done;
  Time again = kNever;
  {
    std::lock_guard lock(s.mutex);
    done = TakeDone(items, now);
    s.added.insert(s.added.end(), items.begin(), items.end());
    bool undone = false;
    for (const Item& item : s.added) {
      if (item.task->owner() == nullptr) continue;
      undone = true;
      again = std::min(
          again, item.wait.fd >= 0 ? std::min(item.wait.deadline, now + kInlineLook) : item.wait.deadline);
    }
    if (!undone) threadless_ = false;
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
  // The application's signals are its own threads' business.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
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

// With the lock held.
bool Background::EnsureThread(Time now) {
  State& s = state();
  if (s.running || now < s.next_try) return s.running;
  s.running = StartThread();
  runs_ = s.running;
  if (s.running) threadless_ = false;
  s.next_try = now + kThreadRetry;
  return s.running;
}

bool Background::Add(Task* task, Duration grace) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const Time now = Now();
  const Time due = now + grace;
  EnsureThread(now);
  if (task->queued_in_ == s.generation) {
    task->added_again_ = true;
  } else {
    if (!s.running && Confined()) return false;
    s.added.push_back({.task = task, .wait = {.deadline = due}});
    task->queued_in_ = s.generation;
    task->added_again_ = false;
    if (Socket* const owner = task->owner()) owner->Ref();
  }
  if (!s.running) {
    if (task->owner() != nullptr) threadless_ = true;
    return false;
  }
  if (s.asleep && s.sleeps_until > due) {
    s.asleep = false;  // one wake-up is enough
    const NoCancellation no_cancellation;
    const uint64_t one = 1;
    (void)!real.write(s.wake_fd.load(), &one, sizeof one);
  }
  return true;
}

bool Background::Holds(const Task* task) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return task->queued_in_ == s.generation;
}

bool Background::TakeOver(void (*work)()) {
  if (!runs_.load()) return false;
  last_work_ = work;
  const NoCancellation no_cancellation;
  const uint64_t one = 1;
  return real.write(state().wake_fd.load(), &one, sizeof one) == sizeof one;
}

void Background::RestForFork() {
  State& s = state();
  for (;;) {
    s.forks_waiting.fetch_add(1);
    s.at_work.lock();
    s.forks_waiting.fetch_sub(1);
    {
      std::lock_guard lock(s.mutex);
      if (s.begun || !s.running) return;
    }
    s.at_work.unlock();
    Pause();
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
    if (!s.running) {  // the other one is the program's
      s.at_work.unlock();
      return false;
    }
    s.added.insert(s.added.end(), s.items.begin(), s.items.end());
    s.items.clear();
    runs_ = s.running = s.begun = s.asleep = false;
    s.ending = true;
    const uint64_t one = 1;
    (void)!real.write(s.wake_fd.load(), &one, sizeof one);
  }
  {
    // No handler starts another one, or forks, before this one is gone.
    struct Section {
      Section() { Critical::Enter(); }
      ~Section() { Critical::Leave(); }
    } const section;
    s.at_work.unlock();
    pthread_join(s.thread, nullptr);
    s.ending = false;
    HiddenFds::Close(s.wake_fd.exchange(-1));
  }
  // The thread has left the process's memory; its descriptors and the rest follow.
  for (int i = 0; i < kPausesForKernel && ThreadsOfProcess() != 1; ++i) Pause();
  return ThreadsOfProcess() == 1;
}

void Background::EndIfIdle() {
  State& s = state();
  {
    std::lock_guard lock(s.mutex);
    const auto has_owner = [](const Item& item) { return item.task->owner() != nullptr; };
    const auto any = [&](const std::vector<Item>& items) {
      return std::any_of(items.begin(), items.end(), has_owner);
    };
    if (!s.running || any(s.items) || any(s.added)) return;
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
  // The tasks' references are the parent's helper's; in this process nobody will give them back, and that is
  // only memory.
  State& s = state();
  ++s.generation;
  s.added.clear();
  s.items.clear();
  runs_ = s.running = s.begun = false;
  last_work_ = nullptr;
  s.forks_waiting = 0;
  s.asleep = false;
  s.next_try = {};
  threadless_ = false;
  const int fd = s.wake_fd.exchange(-1);
  if (fd >= 0) HiddenFds::Close(fd);
}

void Background::FinishAtExit(void (*finish)(Socket* owner, void* context), void* context) {
  State& s = state();
  std::vector<SocketRef> owners;
  {
    std::unique_lock lock(s.mutex, std::defer_lock);
    if (!LockBounded(lock)) return;
    for (const auto* items : {&s.items, &s.added}) {
      for (const Item& item : *items) {
        Socket* const owner = item.task->owner();
        if (owner == nullptr) continue;
        owner->Ref();
        owners.emplace_back(owner);
      }
    }
  }
  for (const SocketRef& owner : owners) finish(owner.get(), context);
}

void Background::NoteMainThreadEnd() {
  if (!runs_.load()) return;
  const NoCancellation no_cancellation;
  const uint64_t one = 1;
  (void)!real.write(state().wake_fd.load(), &one, sizeof one);
}

bool Background::IsHelperThread() { return is_helper; }

}  // namespace sdp::preload
