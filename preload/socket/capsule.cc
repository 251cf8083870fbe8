#include "preload/socket/capsule.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "preload/fail.h"
#include "preload/real_calls.h"

namespace sdp::preload {
namespace {

// Each message: these bytes, 1 if another message follows, a piece of the content; and some descriptors.
constexpr std::array<char, 16> kCapsuleMagic = {'S', 'D', 'P', ' ',    'c',    'a',    'p',    's',
                                                'u', 'l', 'e', '\x1b', '\x01', '\xd6', '\x9c', '\0'};
constexpr size_t kCapsuleHead = kCapsuleMagic.size() + 1;
constexpr size_t kMostContent = 16 << 10;
constexpr size_t kMostCarried = 128;  // less than SCM_MAX_FD, 253

union CarriedControl {
  cmsghdr align;
  std::byte bytes[CMSG_SPACE(kMostCarried * sizeof(int))];
};

bool SendPiece(int fd, bool more, Bytes content, std::span<const int> descriptors) {
  std::array<char, kCapsuleHead> head;
  std::copy(kCapsuleMagic.begin(), kCapsuleMagic.end(), head.begin());
  head.back() = more ? 1 : 0;
  iovec pieces[2] = {{.iov_base = head.data(), .iov_len = head.size()},
                     {.iov_base = const_cast<std::byte*>(content.data()), .iov_len = content.size()}};
  CarriedControl control{};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  if (!descriptors.empty()) {
    message.msg_control = &control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  return real.sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void CloseAll(const std::vector<int>& descriptors) {
  for (const int fd : descriptors) real.close(fd);
}

// Adds one message to `out`. Returns false if there is none, or a wrong one. *more: another one follows.
bool ReceivePiece(int fd, Capsule* out, bool* more) {
  std::vector<std::byte> bytes(kCapsuleHead + kMostContent);
  iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
  CarriedControl control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control;
  const ssize_t got = real.recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t before = out->descriptors.size();
    out->descriptors.resize(before + (c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(out->descriptors.data() + before, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
  }
  const auto size = static_cast<size_t>(got);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || size < kCapsuleHead ||
      std::memcmp(bytes.data(), kCapsuleMagic.data(), kCapsuleMagic.size()) != 0)
    return false;
  *more = bytes[kCapsuleHead - 1] != std::byte{0};
  out->content.insert(out->content.end(), bytes.begin() + kCapsuleHead, bytes.begin() + got);
  return true;
}

}  // namespace

int Capsule::Seal(Bytes content, std::span<const int> descriptors) {
  int ends[2];
  if (real.socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  const int room = 16 << 20;  // the system may allow less
  real.setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  bool more = true;
  while (more) {
    const Bytes piece = content.first(std::min(content.size(), kMostContent));
    const auto some = descriptors.first(std::min(descriptors.size(), kMostCarried));
    content = content.subspan(piece.size());
    descriptors = descriptors.subspan(some.size());
    more = !content.empty() || !descriptors.empty();
    if (SendPiece(ends[0], more, piece, some)) continue;
    const int error = errno == EAGAIN ? ENOBUFS : errno;
    real.close(ends[0]);
    real.close(ends[1]);
    errno = error;
    return -1;
  }
  real.close(ends[0]);
  return ends[1];
}

bool Capsule::Is(int fd, Maker wanted) {
  const KeepErrno keep;
  int type = 0;
  socklen_t length = sizeof type;
  std::array<char, kCapsuleMagic.size()> start;
  ucred maker{};
  return real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET &&
         real.recv(fd, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT) ==
             static_cast<ssize_t>(start.size()) &&
         start == kCapsuleMagic && (length = sizeof maker) != 0 &&
         real.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &length) == 0 &&
         (wanted == Maker::kAnybody || maker.uid == 0 || maker.uid == geteuid());
}

std::optional<Capsule> Capsule::Open(int fd) {
  if (!Is(fd, Maker::kAnybody)) return std::nullopt;
  Capsule capsule;
  // From an untrusted maker, takes no more than one connection needs.
  const bool trusted = Is(fd, Maker::kTrusted);
  const size_t most_content = trusted ? size_t{64} << 20 : size_t{64} << 10;
  const size_t most_descriptors = trusted ? size_t{1} << 20 : 8;
  for (bool more = true; more;) {
    if (ReceivePiece(fd, &capsule, &more) && capsule.content.size() <= most_content &&
        capsule.descriptors.size() <= most_descriptors)
      continue;
    CloseAll(capsule.descriptors);
    return std::nullopt;
  }
  return capsule;
}

}  // namespace sdp::preload
