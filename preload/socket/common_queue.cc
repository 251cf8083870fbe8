#include "preload/socket/common_queue.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/byte_order.h"
#include "preload/allowed_calls.h"
#include "preload/fail.h"
#include "preload/hidden_fds.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"

namespace sdp::preload {
namespace {

// A record: the state's size, the time since when it waits, the peer's address, the state, then zeros. So the
// bytes in the queue tell the number of records.
constexpr size_t kPeerAt = sizeof(uint32_t) + sizeof(uint64_t);
constexpr size_t kHead = kPeerAt + sizeof(uint8_t) + sizeof(sockaddr_in6);
using Record = std::array<std::byte, kHead + CommonQueue::kMostState>;

// Another process wrote this, so it is relied on only for the order.
Time SinceOf(const std::byte* record) {
  return std::clamp(Time(Duration(static_cast<int64_t>(LoadBe<uint64_t>(record + sizeof(uint32_t))))), Time{},
                    Now());
}

// An address of a family other than a stream's counts as none.
Address PeerOf(const std::byte* record) {
  const auto length = std::to_integer<socklen_t>(record[kPeerAt]);
  Address peer;
  if (length != sizeof(sockaddr_in) && length != sizeof(sockaddr_in6)) return peer;
  peer.length = length;
  std::memcpy(&peer.storage, record + kPeerAt + 1, length);
  return peer;
}

// The end that puts in carries the bar, where all processes read it: as a priority, which means nothing to a
// Unix socket.
constexpr int kBarred = 1;

// A process at work holds a record lock on that end: a lock of the process, since all processes have the open
// file. If the process closes a descriptor of that end, the lock is gone, and no process waits for this one.
struct flock WorkLock(short type) {
  return {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1, .l_pid = 0};
}

// The link, and a local link's memory.
constexpr size_t kMostDescriptors = 2;

union Control {
  cmsghdr align;
  std::byte bytes[CMSG_SPACE(kMostDescriptors * sizeof(int))];
};

msghdr MessageOf(iovec* piece, Control* control) {
  msghdr message{};
  message.msg_iov = piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof *control;
  return message;
}

// Returns true if the descriptors of a record can be had. Without room, a received message would lose some,
// or the memory would find no number out of the program's way.
bool HasRoomForDescriptors(int any) {
  std::array<int, kMostDescriptors + 1> probes;
  size_t count = 0;
  while (count < probes.size() && (probes[count] = real.fcntl(any, F_DUPFD_CLOEXEC, 0)) >= 0) ++count;
  const KeepErrno keep;
  for (size_t i = 0; i < count; ++i) real.close(probes[i]);
  return count == probes.size();
}

// Those that are missing are -1.
std::array<int, kMostDescriptors> DescriptorsIn(msghdr& message) {
  std::array<int, kMostDescriptors> fds;
  fds.fill(-1);
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return fds;
  std::memcpy(fds.data(), CMSG_DATA(rights), std::min(rights->cmsg_len - CMSG_LEN(0), sizeof fds));
  return fds;
}

}  // namespace

bool CommonQueue::Open() {
  int ends[2];
  if (real.socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  const int room = 1 << 20;  // the system may allow less
  real.setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  return TakeUp(ends[0], ends[1]);
}

bool CommonQueue::TakeUp(int out, int in) {
  const bool out_hidden = HiddenFds::HideTracked(out, &out_) >= 0;
  const bool in_hidden = HiddenFds::HideTracked(in, &in_) >= 0;
  if (out_hidden && in_hidden) return true;
  const KeepErrno keep;
  Close();
  return false;
}

void CommonQueue::Close() {
  for (std::atomic<int>* fd : {&out_, &in_}) HiddenFds::Close(fd->exchange(-1));
  at_work_ = false;
}

void CommonQueue::AppendDescriptors(std::vector<int>* descriptors) const {
  descriptors->push_back(out_);
  descriptors->push_back(in_);
}

bool CommonQueue::usable() const {
  if (!open() || Confined()) return false;
  return IntOption(in_, SOL_SOCKET, SO_PRIORITY).value_or(kBarred) != kBarred;
}

int CommonQueue::fd() const { return Confined() ? -1 : out_.load(); }

size_t CommonQueue::size() const {
  int bytes = 0;
  if (fd() < 0 || real.ioctl(fd(), FIONREAD, &bytes) != 0) return 0;
  return static_cast<size_t>(bytes) / sizeof(Record);
}

bool CommonQueue::BeginWork() {
  if (!open() || Confined()) return false;
  if (at_work_) return usable();
  // First the lock, then the look. A process that bars the queue does both in the opposite order.
  struct flock lock = WorkLock(F_RDLCK);
  at_work_ = real.fcntl(in_, F_SETLK, &lock) == 0;
  if (usable()) return true;
  EndWork();
  return false;
}

void CommonQueue::EndWork() {
  if (!std::exchange(at_work_, false) || !open() || Confined()) return;
  struct flock lock = WorkLock(F_UNLCK);
  real.fcntl(in_, F_SETLK, &lock);
}

bool CommonQueue::OthersAtWork() const {
  struct flock lock = WorkLock(F_WRLCK);
  return open() && real.fcntl(in_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool CommonQueue::Put(Bytes state, int link, int memory, const Address& peer, Time since, bool begun) {
  errno = EMSGSIZE;
  if (state.size() > kMostState) return false;
  errno = EPERM;
  if (Confined() || !((begun && at_work_) || usable())) return false;
  Record record{};
  StoreBe<uint32_t>(record.data(), static_cast<uint32_t>(state.size()));
  StoreBe<uint64_t>(record.data() + sizeof(uint32_t),
                    static_cast<uint64_t>(since.time_since_epoch().count()));
  record[kPeerAt] = static_cast<std::byte>(peer.length);
  std::memcpy(record.data() + kPeerAt + 1, &peer.storage, sizeof(sockaddr_in6));
  std::copy(state.begin(), state.end(), record.begin() + kHead);
  iovec piece{.iov_base = record.data(), .iov_len = record.size()};
  Control control{};
  msghdr message = MessageOf(&piece, &control);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  const std::array<int, kMostDescriptors> fds{link, memory};
  const size_t bytes = (memory >= 0 ? 2 : 1) * sizeof(int);
  rights->cmsg_len = CMSG_LEN(bytes);
  message.msg_controllen = CMSG_SPACE(bytes);
  std::memcpy(CMSG_DATA(rights), fds.data(), bytes);
  return real.sendmsg(in_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(record.size());
}

bool CommonQueue::Take(int flags, int* link, int* memory, Address* peer, Time* since,
                       std::vector<std::byte>* state) {
  if (size() == 0) {
    errno = EAGAIN;
    return false;
  }
  if (!HasRoomForDescriptors(out_)) return false;
  Record record;
  iovec piece{.iov_base = record.data(), .iov_len = record.size()};
  Control control{};
  msghdr message = MessageOf(&piece, &control);
  const ssize_t got =
      real.recvmsg(out_, &message, MSG_DONTWAIT | ((flags & SOCK_CLOEXEC) != 0 ? MSG_CMSG_CLOEXEC : 0));
  if (got < 0) return false;
  const std::array<int, kMostDescriptors> fds = DescriptorsIn(message);
  *link = fds[0];
  *memory = fds[1];
  const uint32_t size = LoadBe<uint32_t>(record.data());
  *peer = PeerOf(record.data());
  if (got != static_cast<ssize_t>(record.size()) || *link < 0 || size > kMostState) {
    for (const int fd : fds) {
      if (fd >= 0) real.close(fd);
    }
    errno = ECONNABORTED;
    return false;
  }
  if (*memory >= 0) real.fcntl(*memory, F_SETFD, FD_CLOEXEC);
  real.fcntl(*link, F_SETFL, O_RDWR | ((flags & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0));
  *since = SinceOf(record.data());
  const auto first = record.begin() + kHead;
  state->assign(first, first + size);
  return true;
}

Time CommonQueue::FirstSince() const {
  std::array<std::byte, kHead> head{};
  if (fd() < 0) return kNever;
  const ssize_t got = real.recv(fd(), head.data(), head.size(), MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 ? SinceOf(head.data()) : kNever;
}

void CommonQueue::Bar() {
  if (open()) real.setsockopt(in_, SOL_SOCKET, SO_PRIORITY, &kBarred, sizeof kBarred);
}

}  // namespace sdp::preload
