#include "test/preload/fake_rooms.h"

#include <cerrno>
#include <cstring>

#include "preload/confinement.h"
#include "preload/inheritance.h"
#include "preload/process_life.h"
#include "preload/readiness/readiness.h"
#include "preload/real_calls.h"
#include "preload/socket/background.h"
#include "verbs/softiwarp/link_calls.h"

namespace sdp::preload {
namespace {

size_t Length(const iovec* iov, size_t count) {
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) length += iov[i].iov_len;
  return length;
}

std::string Describe(const timespec* time) {
  return time == nullptr ? "forever" : std::to_string(time->tv_sec) + "s" + std::to_string(time->tv_nsec);
}

}  // namespace

std::atomic<int> FakeSocket::alive{0};

Socket* Socket::New(int, int) { return new FakeSocket; }

int FakeSocket::Note(const std::string& call) {
  calls.push_back(call);
  return static_cast<int>(NextResult(0));
}

ssize_t FakeSocket::NextResult(ssize_t wanted) {
  meanwhile();
  if (results.empty()) return wanted;
  const ssize_t result = results.front();
  results.pop_front();
  if (result == -1) errno = error;
  return result;
}

ssize_t FakeSocket::Send(int, const iovec* iov, size_t count, int flags) {
  const size_t length = Length(iov, count);
  calls.push_back("Send " + std::to_string(length) + " flags " + std::to_string(flags));
  const ssize_t taken = NextResult(static_cast<ssize_t>(length));
  ssize_t left = taken;
  for (size_t i = 0; i < count && left > 0; ++i) {
    const size_t piece = std::min<size_t>(iov[i].iov_len, static_cast<size_t>(left));
    if (length < (1 << 24)) sent.append(static_cast<const char*>(iov[i].iov_base), piece);
    left -= static_cast<ssize_t>(piece);
  }
  return taken;
}

ssize_t FakeSocket::Receive(int, const iovec* iov, size_t count, int flags, int* flags_out) {
  const size_t length = Length(iov, count);
  calls.push_back("Receive " + std::to_string(length) + " flags " + std::to_string(flags));
  if (flags_out != nullptr) *flags_out = out_flags;
  return NextResult(static_cast<ssize_t>(length));
}

int FakeSocket::Ioctl(int, unsigned long, void* argument) {
  *static_cast<int*>(argument) = 1;
  return Note("Ioctl");
}

int FakeSocket::Close(int fd) {
  calls.push_back("Close " + std::to_string(fd));
  return real.close(fd);
}

bool FakeSocket::MoveDescriptor(int from, int) {
  calls.push_back("MoveDescriptor " + std::to_string(from));
  return moves;
}

FakeReadiness& fake_readiness() {
  static FakeReadiness instance;
  return instance;
}

bool PollConcernsUs(const pollfd*, nfds_t) { return fake_readiness().concerns_us; }
int Poll(pollfd*, nfds_t, const timespec* timeout, const sigset_t*) {
  fake_readiness().calls.push_back("Poll " + Describe(timeout));
  return 0;
}
bool SelectConcernsUs(int, const fd_set*, const fd_set*, const fd_set*) {
  return fake_readiness().concerns_us;
}
int Select(int, fd_set*, fd_set*, fd_set*, const timespec* timeout, const sigset_t*, timespec* remaining) {
  fake_readiness().calls.push_back("Select " + Describe(timeout));
  if (remaining != nullptr) *remaining = {.tv_sec = 1, .tv_nsec = 2000};
  return 0;
}
int EpollCtl(int, int, int fd, epoll_event*) {
  if (!fake_readiness().concerns_us) return kPassThrough;
  fake_readiness().calls.push_back("EpollCtl " + std::to_string(fd));
  return 0;
}
int EpollWait(int, epoll_event*, int, const timespec* timeout, const sigset_t*) {
  if (!fake_readiness().concerns_us) return kPassThrough;
  fake_readiness().calls.push_back("EpollWait " + Describe(timeout));
  return 0;
}
int EpollWaitBeforeSockets(int, epoll_event*, int, const timespec*, const sigset_t*,
                           absl::FunctionRef<int()> wait) {
  return wait();
}
bool HaveEpolls() { return false; }
void Background::FollowNumbers() {}
void EpollCreated(int) {}
bool EpollKnows(int) { return false; }
void EpollForget(int fd) {
  fake_readiness().calls.push_back("Forget " + std::to_string(fd));
  fake_readiness().meanwhile();
}
void EpollDuplicate(int from, int to) {
  fake_readiness().calls.push_back("Duplicate " + std::to_string(from) + " " + std::to_string(to));
}

void LockEpollTableForFork() {}
void LockEpollSetsForFork() {}
void DisownEpollSetsAfterFork() {}
void UnlockReadinessAfterFork() {}

void SetReadinessAtFork(const ReadinessAtFork&) {}
void PrepareFork() {}
void ParentAfterFork() {}
void ChildAfterFork() {}
void ProcessExit() {}
void ProcessExitAtOnce() {}
bool BeforeCallOfOneThread() { return true; }
void AfterCallOfOneThread() {}
void PrepareConfinement() {}
void ConfinementRefused() {}

void FinishBeforeExec() {}
void AwaitConnects() {}
bool HasLingering() { return false; }
int SealSockets(Heirloom, Giver) { return -1; }
void LockSockets() {}
void UnlockSockets() {}
bool SettleConnects(const std::vector<int>&) { return true; }
int SealSocket(int, Receiver) { return -1; }
bool RelativesShare() { return false; }
bool IsSealedSocket(int) { return false; }
void AdoptSocket(int) {}
bool IsConnection(Socket&) { return false; }
bool IsSharedWithOthers(int) { return false; }
void AdoptSockets(int) {}

}  // namespace sdp::preload

namespace sdp::iwarp {
void SetLinkCalls(const LinkCalls&) {}
}  // namespace sdp::iwarp
