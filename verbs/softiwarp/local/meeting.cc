#include "verbs/softiwarp/local/meeting.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs/descriptor_calls.h"
#include "verbs/softiwarp/local/abstract_name.h"
#include "verbs/softiwarp/local/kept_memories.h"
#include "verbs/softiwarp/local/random.h"

namespace sdp::iwarp {
namespace {

// The last byte is the version of the memory's layout and of the set-up.
constexpr std::array<char, 8> kMagic = {'S', 'D', 'P', 'l', 'o', 'c', 'l', '\x03'};
constexpr size_t kDatagram = kMagic.size() + 16;
// More than that in the socket's queue is not the peer's.
constexpr int kMostDatagrams = 64;

// A program may interpose the C library's functions of these names.
int Socket() {
  return static_cast<int>(::syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

AbstractName NameOf(const LocalOffer& offer) { return {"sdp-link-", offer.name}; }

// Returns -1 if there is none to be had, or if few descriptors are left.
int OpenSocket(const AbstractName& name) {
  const int socket = Socket();
  if (socket < 0 || (!NearLimit(socket) && ::syscall(SYS_bind, socket, &name.address, name.length) == 0))
    return socket;
  verbs::CloseUnseen(socket);
  return -1;
}

bool ToName(const sockaddr_storage& address, std::array<std::byte, 16>* ip, uint16_t* port) {
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    *ip = {};
    (*ip)[10] = (*ip)[11] = std::byte{0xff};
    std::memcpy(ip->data() + 12, &v4.sin_addr, 4);
    *port = ntohs(v4.sin_port);
    return true;
  }
  if (address.ss_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  std::memcpy(ip->data(), &v6.sin6_addr, 16);
  *port = ntohs(v6.sin6_port);
  return true;
}

bool IsLoopback(const std::array<std::byte, 16>& ip) {
  in6_addr address{};
  std::memcpy(&address, ip.data(), sizeof address);
  return IN6_IS_ADDR_LOOPBACK(&address) ||
         (IN6_IS_ADDR_V4MAPPED(&address) && std::to_integer<unsigned>(ip[12]) == 127);
}

// Returns true if the kernel is to end the connection when the peer does not take its bytes. It sees none on
// a local link.
bool HasUserTimeout(int fd) {
  unsigned timeout = 0;
  socklen_t length = sizeof timeout;
  return ::syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &length) == 0 && timeout != 0;
}

std::array<std::byte, kDatagram> Greeting(const LocalOffer& offer) {
  std::array<std::byte, kDatagram> greeting;
  std::memcpy(greeting.data(), kMagic.data(), kMagic.size());
  std::copy(offer.secret.begin(), offer.secret.end(), greeting.begin() + kMagic.size());
  return greeting;
}

LocalMemory::Peer PeerOf(const LinkNames& names) {
  LocalMemory::Peer peer;
  std::copy(names.peer.begin(), names.peer.end(), peer.begin());
  peer[16] = static_cast<std::byte>(names.peer_port >> 8);
  peer[17] = static_cast<std::byte>(names.peer_port);
  return peer;
}

union FdControl {
  cmsghdr align;
  std::byte bytes[CMSG_SPACE(sizeof(int))];
};

bool SendMemory(int socket, const LocalOffer& offer, int memory) {
  AbstractName name = NameOf(offer);
  auto greeting = Greeting(offer);
  iovec part{.iov_base = greeting.data(), .iov_len = greeting.size()};
  FdControl control{};
  msghdr message{};
  message.msg_name = &name.address;
  message.msg_namelen = name.length;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof memory);
  std::memcpy(CMSG_DATA(rights), &memory, sizeof memory);
  return ::syscall(SYS_sendmsg, socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<long>(greeting.size());
}

struct Datagram {
  bool is_greeting = false;
  int fd = -1;
};

// Takes the next datagram. Returns false if there is none.
bool Receive(int socket, const LocalOffer& offer, Datagram* out) {
  const auto greeting = Greeting(offer);
  std::array<std::byte, kDatagram + 1> bytes;
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  FdControl control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // room for one descriptor
  const long size = ::syscall(SYS_recvmsg, socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return false;
  *out = {};
  if (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr && c->cmsg_level == SOL_SOCKET &&
                                                  c->cmsg_type == SCM_RIGHTS &&
                                                  c->cmsg_len == CMSG_LEN(sizeof(int)))
    std::memcpy(&out->fd, CMSG_DATA(c), sizeof(int));
  out->is_greeting =
      size == static_cast<long>(kDatagram) && std::equal(greeting.begin(), greeting.end(), bytes.begin());
  return true;
}

}  // namespace

std::optional<LinkNames> LinkNames::Of(int fd) {
  LinkNames names;
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t local_length = sizeof local;
  socklen_t peer_length = sizeof peer;
  if (::syscall(SYS_getsockname, fd, &local, &local_length) != 0 ||
      ::syscall(SYS_getpeername, fd, &peer, &peer_length) != 0 ||
      !ToName(local, &names.local, &names.local_port) || !ToName(peer, &names.peer, &names.peer_port))
    return std::nullopt;
  return names;
}

bool LinkNames::within_host() const { return IsLoopback(local) || IsLoopback(peer) || local == peer; }

LinkNames LinkNames::Swapped() const {
  return {.local = peer, .peer = local, .local_port = peer_port, .peer_port = local_port};
}

std::array<std::byte, LocalOffer::kSize> LocalOffer::Serialize() const {
  std::array<std::byte, kSize> bytes;
  std::byte* at = bytes.data();
  const auto put = [&at](const void* from, size_t size) {
    std::memcpy(at, from, size);
    at += size;
  };
  const auto put_port = [&at](uint16_t port) {
    *at++ = static_cast<std::byte>(port >> 8);
    *at++ = static_cast<std::byte>(port);
  };
  put(kMagic.data(), kMagic.size());
  put(name.data(), name.size());
  put(secret.data(), secret.size());
  put(names.local.data(), names.local.size());
  put(names.peer.data(), names.peer.size());
  put_port(names.local_port);
  put_port(names.peer_port);
  return bytes;
}

std::optional<LocalOffer> LocalOffer::Parse(Bytes private_data) {
  if (private_data.size() < kSize) return std::nullopt;
  const std::byte* at = private_data.last(kSize).data();
  if (std::memcmp(at, kMagic.data(), kMagic.size()) != 0) return std::nullopt;
  at += kMagic.size();
  LocalOffer offer;
  const auto take = [&at](std::array<std::byte, 16>& to) {
    std::memcpy(to.data(), at, to.size());
    at += to.size();
  };
  const auto take_port = [&at] {
    const auto port =
        static_cast<uint16_t>(std::to_integer<unsigned>(at[0]) << 8 | std::to_integer<unsigned>(at[1]));
    at += 2;
    return port;
  };
  take(offer.name);
  take(offer.secret);
  take(offer.names.local);
  take(offer.names.peer);
  offer.names.local_port = take_port();
  offer.names.peer_port = take_port();
  return offer;
}

// ----------------------------------------------------------------------------------------------------

std::unique_ptr<LocalMeeting> LocalMeeting::Open(int fd) {
  const std::optional<LinkNames> names = LinkNames::Of(fd);
  if (!names || !names->within_host() || HasUserTimeout(fd)) return nullptr;
  LocalOffer offer{.names = *names};
  FillRandom(offer.secret);
  std::shared_ptr<LocalMemory> kept = KeptMemories::TakeByPeer(PeerOf(*names));
  if (kept != nullptr) std::copy(kept->id().begin(), kept->id().end(), offer.secret.begin());
  int socket = -1;
  if (kept != nullptr && kept->socket() >= 0) {
    offer.name = kept->socket_name();
  } else {
    FillRandom(offer.name);
    if (socket = OpenSocket(NameOf(offer)); socket < 0) return nullptr;
  }
  return std::unique_ptr<LocalMeeting>(new LocalMeeting(socket, offer, std::move(kept)));
}

LocalMeeting::~LocalMeeting() {
  if (own_socket_ >= 0) verbs::CloseUnseen(own_socket_);
  if (kept_ != nullptr) kept_->NoteOffer(/*taken=*/false);
}

LocalMeeting::Outcome LocalMeeting::Take(std::shared_ptr<LocalMemory>* memory, std::string* why) {
  const int socket = own_socket_ >= 0 ? own_socket_ : kept_->socket();
  Datagram datagram;
  for (int i = 0; i < kMostDatagrams && Receive(socket, offer_, &datagram); ++i) {
    if (!datagram.is_greeting) {
      if (datagram.fd >= 0) verbs::CloseUnseen(datagram.fd);
      continue;
    }
    if (datagram.fd < 0) {
      *why = "no descriptor is left for the memory of the local link";
      return Outcome::kFailed;
    }
    *memory = LocalMemory::Take(datagram.fd, why);
    if (*memory != nullptr) (*memory)->set_peer(PeerOf(offer_.names));
    return *memory != nullptr ? Outcome::kShared : Outcome::kFailed;
  }
  return Outcome::kRefused;
}

std::shared_ptr<LocalMemory> LocalMeeting::TakeOffered() {
  if (kept_ == nullptr) return nullptr;
  kept_->NoteOffer(/*taken=*/true);
  if (own_socket_ >= 0) kept_->KeepSocket(std::exchange(own_socket_, -1), offer_.name);
  return std::move(kept_);
}

std::shared_ptr<LocalMemory> AnswerOffer(const LocalOffer& offer, int fd, bool* same, std::string* why) {
  const std::optional<LinkNames> names = LinkNames::Of(fd);
  if (!names || *names != offer.names.Swapped()) {
    *why = "the connection has other addresses at its other end (a relay, or address translation)";
    return nullptr;
  }
  if (HasUserTimeout(fd)) {
    *why = "TCP_USER_TIMEOUT is set";
    return nullptr;
  }
  LocalMemory::Id id;
  std::copy_n(offer.secret.begin(), id.size(), id.begin());
  std::shared_ptr<LocalMemory> memory = KeptMemories::TakeById(id);
  *same = memory != nullptr;
  if (*same) return memory;
  memory = LocalMemory::Make(why);
  if (memory == nullptr) return nullptr;
  const int socket = Socket();
  if (socket < 0) {
    memory->LetGo();
    *why = "no descriptor is left";
    return nullptr;
  }
  const bool sent = SendMemory(socket, offer, memory->fd());
  const int error = errno;
  verbs::CloseUnseen(socket);
  if (sent) return memory;
  memory->LetGo();
  *why = std::string("the peer's Unix socket cannot be reached: ") + strerrordesc_np(error);
  return nullptr;
}

}  // namespace sdp::iwarp
