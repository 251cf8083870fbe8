#include "portmapper/daemon/local_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "portmapper/abstract_address.h"
#include "portmapper/local_protocol.h"

namespace sdp::pm {
namespace {

constexpr Duration kVerifyInterval = std::chrono::milliseconds(10);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr int kAcceptsPerWakeup = 64;
constexpr size_t kMaxPendingCloses = 16;

bool Watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

absl::Status Fail(int error, const std::string& path) { return absl::ErrnoToStatus(error, path); }

// A socket file nobody answers on is what a killed daemon leaves behind.
absl::Status RemoveStale(const sockaddr_un& address, const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return errno == ENOENT ? absl::OkStatus() : Fail(errno, path);
  if (!S_ISSOCK(status.st_mode)) return absl::FailedPreconditionError(path + " exists and is not a socket");
  const UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return Fail(errno, path);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN) {
    return absl::AlreadyExistsError("another sdp-pmd is running: it answers on " + path);
  }
  if (errno != ECONNREFUSED) return Fail(errno, path);
  return unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : Fail(errno, path);
}

// If it fails, bind tells why. Every user must reach root's daemon, whatever umask it was started with.
void MakeDirectory(const std::string& path, const std::optional<User>& owner) {
  if (mkdir(path.c_str(), 0755) != 0 || geteuid() != 0) return;
  (void)!chmod(path.c_str(), 0755);
  if (owner) (void)!chown(path.c_str(), owner->uid, owner->gid);
}

// Empty, with a word in the log, if it cannot be had: then the listeners that processes open in another root
// directory stay with TCP.
UniqueFd BindAbstract(const std::string& path) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(path, &address);
  if (length == 0) {
    Log(LogLevel::kInfo,
        "%s is relative or too long for an abstract name: no listener is registered from another root "
        "directory",
        path);
    return {};
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      listen(fd.get(), 128) == 0)
    return fd;
  Log(LogLevel::kError,
      "warning: no listener is registered from another root directory, for the abstract name @sdp-pmd:%s "
      "cannot be had: %s. "
      "If another process has it (ss -xlp shows which), stop that and start sdp-pmd again",
      path, strerror(errno));
  return {};
}

// Whether every user may go as far as to the path's last component.
bool OpenToAll(const std::string& path) {
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    struct stat status {};
    if (stat(path.substr(0, slash + 1).c_str(), &status) != 0 || (status.st_mode & S_IXOTH) == 0)
      return false;
  }
  return true;
}

absl::StatusOr<UniqueFd> BindSocket(const LocalServerOptions& options, struct stat* bound) {
  const std::string& path = options.path;
  const mode_t mode = options.mode.value_or(geteuid() == 0 ? 0666 : 0600);
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError("--socket " + path + ": a socket's path has 1 to 107 bytes");
  }
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash != 0) MakeDirectory(path.substr(0, slash), options.directory_owner);
  if (absl::Status status = RemoveStale(address, path); !status.ok()) return status;
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(errno, path);
  const mode_t previous = umask(~mode & 0777);
  const int result = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  umask(previous);
  if (result != 0) return Fail(error, path);
  if (listen(fd.get(), 128) != 0 || lstat(path.c_str(), bound) != 0) return Fail(errno, path);
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Open(const LocalServerOptions& options,
                                                               PmServer* server) {
  absl::StatusOr<uint64_t> netns = OwnNetworkNamespace();
  if (!netns.ok()) return netns.status();
  struct stat bound {};
  absl::StatusOr<UniqueFd> listener = BindSocket(options, &bound);
  if (!listener.ok()) return listener.status();
  UniqueFd abstract = BindAbstract(options.path);
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll || !Watch(epoll.get(), listener->get()) || (abstract && !Watch(epoll.get(), abstract.get())))
    return Fail(errno, "epoll");
  std::unique_ptr<LocalServer> local(
      new LocalServer(options, server, *netns, *std::move(listener), std::move(abstract), std::move(epoll)));
  local->bound_ = bound;
  return local;
}

LocalServer::LocalServer(const LocalServerOptions& options, PmServer* server, uint64_t netns,
                         UniqueFd listener, UniqueFd abstract, UniqueFd epoll)
    : options_(options),
      server_(server),
      netns_(netns),
      listener_(std::move(listener)),
      abstract_(std::move(abstract)),
      epoll_(std::move(epoll)) {}

LocalServer::~LocalServer() {
  for (Clients* clients : {&silent_, &registered_}) {
    while (!clients->empty()) Drop(clients->begin());
  }
  struct stat status {};
  if (lstat(options_.path.c_str(), &status) == 0 && status.st_ino == bound_.st_ino &&
      status.st_dev == bound_.st_dev) {
    unlink(options_.path.c_str());
  }
}

std::string LocalServer::OwnerOf(RegistrationId id) const {
  const auto found = by_registration_.find(id);
  if (found == by_registration_.end()) return "nobody";
  return absl::StrCat("user ", found->second->uid, " process ", found->second->pid);
}

void LocalServer::HandleReadable(Time now) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listener_.get() || fd == abstract_.get()) {
      HandleAccept(fd, now);
    } else if (const auto found = by_fd_.find(fd); found != by_fd_.end()) {
      HandleClient(found->second, now);
    }
  }
}

void LocalServer::HandleAccept(int listener, Time now) {
  for (int i = 0; i < kAcceptsPerWakeup; ++i) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // The connection waits in the backlog and would wake us for ever.
        SetAccepting(false);
        accept_again_ = now + kAcceptPause;
      }
      return;
    }
    ++counters_.connections;
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer.uid = static_cast<uid_t>(-1);
    if (listener == abstract_.get() && !MayUse(peer)) {
      ++counters_.dropped;
      foreign_.CloseConnection(fd, peer.uid);
      continue;
    }
    if (!Admit(peer.uid) || !Watch(epoll_.get(), fd)) {
      ++counters_.dropped;
      if (uint64_t suppressed = 0; log_limiter_.Allow(now, &suppressed)) {
        Log(LogLevel::kInfo, "user %d process %d: too many local clients (%d more lines suppressed)",
            peer.uid, peer.pid, suppressed);
      }
      std::array<std::byte, kMaxReplySize> reply;
      const size_t size =
          Serialize(RegisterReply{kLocalProtocolVersion, Refusal::kTooMany, "too many clients"}, reply);
      (void)!send(fd, reply.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
      foreign_.CloseConnection(fd, peer.uid);
      continue;
    }
    silent_.push_back({fd, peer.uid, peer.pid, now + options_.silence_limit, false, {}, {}, {}});
    by_fd_.emplace(fd, std::prev(silent_.end()));
    ++per_user_[peer.uid];
  }
}

bool LocalServer::MayUse(const ucred& client) const {
  struct stat now {};
  if (lstat(options_.path.c_str(), &now) != 0 || now.st_ino != bound_.st_ino || now.st_dev != bound_.st_dev)
    return false;
  if (client.uid == 0 || client.uid == now.st_uid) return true;
  const bool by_mode =
      (now.st_mode & S_IWOTH) != 0 || ((now.st_mode & S_IWGRP) != 0 && client.gid == now.st_gid);
  return by_mode && OpenToAll(options_.path);
}

bool LocalServer::Admit(uid_t uid) const {
  const auto user = per_user_.find(uid);
  const size_t of_user = user == per_user_.end() ? 0 : user->second;
  return clients() < options_.max_clients && of_user < options_.max_clients_per_user &&
         foreign_.Pending(uid) < kMaxPendingCloses;
}

void LocalServer::HandleClient(Clients::iterator client, Time now) {
  // A byte more than a request: a longer message is seen to be longer.
  std::array<std::byte, kRnicRequestSize + 1> data;
  const LocalMessage message = ReceiveLocalMessage(client->fd, data.data(), data.size());
  if (message.length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const bool more = message.length > 0 || !message.descriptors.empty();
  if (!more || client->registered) {
    for (const int fd : message.descriptors) foreign_.Close(fd, client->uid);
    if (more) ++counters_.dropped;  // one message is all there is to say
    if (client->registered)
      Note(client->registration, absl::StrCat(client->listener.address.ToString(), " ends"), now);
    Drop(client);
    return;
  }
  const Bytes said = Bytes(data).first(static_cast<size_t>(std::max<ssize_t>(message.length, 0)));
  if (!client->greeted && message.descriptors.empty() && ParseGreeting(said)) {
    client->greeted = true;
    Confirm(client);
  } else {
    HandleRequest(client, message, said, now);
  }
}

Result<ListenerProof, ProofFailure> LocalServer::Prove(const LocalMessage& message, Bytes data, Time now) {
  const auto request = ParseRegisterRequest(data);
  const auto rnic = ParseRnicRequest(data);
  if (!request && !rnic) {
    const LocalError error = data.size() == kRnicRequestSize ? rnic.error() : request.error();
    if (error != LocalError::kBadVersion)
      return unexpected(ProofFailure{Refusal::kBadMessage, "not a registration"});
    return unexpected(ProofFailure{
        Refusal::kBadVersion,
        absl::StrCat("sdp-pmd speaks versions ", kLocalProtocolVersion, " to ", kGreetingVersion)});
  }
  if (message.truncated) return unexpected(ProofFailure{Refusal::kInternal, "descriptors were lost"});
  if (request) return ProveListener(message.descriptors, netns_);
  auto proof = ProveRnicListener(message.descriptors, rnic->sdp, netns_);
  if (proof && !own_addresses_.Contains(rnic->sdp, now)) {
    return unexpected(
        ProofFailure{Refusal::kAddressMismatch, rnic->sdp.ToString() + " is no address of this host"});
  }
  return proof;
}

void LocalServer::HandleRequest(Clients::iterator client, const LocalMessage& message, Bytes data, Time now) {
  const Result<ListenerProof, ProofFailure> proof = Prove(message, data, now);
  for (const int fd : message.descriptors) foreign_.Close(fd, client->uid);
  if (!proof) {
    Refuse(client, proof.error(), now);
    return;
  }

  client->registered = true;
  client->listener = proof->conventional;
  client->verified = now;
  client->registration = server_->Register(proof->registration);
  by_registration_.emplace(client->registration, client);
  registered_.splice(registered_.end(), silent_, client);
  ++counters_.registered;
  Note(client->registration,
       absl::StrCat(proof->registration.conventional.ToString(), " is served over SDP at ",
                    proof->registration.sdp.ToString()),
       now);
  Confirm(client);
}

void LocalServer::Confirm(Clients::iterator client) {
  std::array<std::byte, kMaxReplySize> reply;
  const size_t size = Serialize(RegisterReply{}, reply);
  if (send(client->fd, reply.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) Drop(client);
}

void LocalServer::Refuse(Clients::iterator client, const ProofFailure& failure, Time now) {
  ++counters_.refused;
  if (uint64_t suppressed = 0; log_limiter_.Allow(now, &suppressed)) {
    Log(LogLevel::kInfo, "user %d process %d refused: %s: %s (%d more lines suppressed)", client->uid,
        client->pid, ToString(failure.refusal), failure.text, suppressed);
  }
  std::array<std::byte, kMaxReplySize> reply;
  const size_t size = Serialize(RegisterReply{kLocalProtocolVersion, failure.refusal, failure.text}, reply);
  (void)!send(client->fd, reply.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
  Drop(client);
}

void LocalServer::Note(RegistrationId id, const std::string& what, Time now) {
  uint64_t suppressed = 0;
  if (!LogEnabled(LogLevel::kInfo) || !note_limiter_.Allow(now, &suppressed)) return;
  const std::string others = suppressed == 0 ? "" : absl::StrCat(" (", suppressed, " more lines suppressed)");
  Log(LogLevel::kInfo, "%s: %s%s", OwnerOf(id), what, others);
}

void LocalServer::Drop(Clients::iterator client) {
  if (client->registered) {
    server_->Unregister(client->registration);
    by_registration_.erase(client->registration);
  }
  if (--per_user_[client->uid] == 0) per_user_.erase(client->uid);
  by_fd_.erase(client->fd);
  foreign_.CloseConnection(client->fd, client->uid);
  (client->registered ? registered_ : silent_).erase(client);
}

void LocalServer::HandleTimeout(Time now) {
  if (now >= accept_again_) SetAccepting(true);
  while (!silent_.empty() && silent_.front().deadline <= now) {
    ++counters_.dropped;
    Log(LogLevel::kDebug, "user %d process %d connected and said nothing", silent_.front().uid,
        silent_.front().pid);
    Drop(silent_.begin());
  }
}

Time LocalServer::NextTimeout() const {
  return std::min(accept_again_, silent_.empty() ? kNever : silent_.front().deadline);
}

void LocalServer::SetAccepting(bool accepting) {
  accept_again_ = kNever;
  if (accepting_ == accepting) return;
  accepting_ = accepting;
  epoll_event event{};
  event.events = accepting ? EPOLLIN : 0u;
  for (const UniqueFd* listener : {&listener_, &abstract_}) {
    event.data.fd = listener->get();
    if (*listener) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener->get(), &event);
  }
}

bool LocalServer::VerifyAlive(RegistrationId id, Time now) {
  const auto found = by_registration_.find(id);
  if (found == by_registration_.end()) return true;
  Client& client = *found->second;
  if (now - client.verified < kVerifyInterval) return true;
  if (watch_.StillListening(client.listener)) {
    client.verified = now;
    return true;
  }
  ++counters_.vanished;
  Note(id, absl::StrCat(client.listener.address.ToString(), " no longer listens"), now);
  Drop(found->second);
  return false;
}

}  // namespace sdp::pm
