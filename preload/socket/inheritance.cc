#include "preload/inheritance.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "preload/fd_table.h"
#include "preload/hidden_fds.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/socket/abort_log.h"
#include "preload/socket/all_sockets.h"
#include "preload/socket/capsule.h"
#include "preload/socket/clock.h"
#include "preload/socket/connector.h"
#include "preload/socket/giving.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"

namespace sdp::preload {
namespace {

using Giving = StreamSocket::Giving;

// For all connects of one message together.
constexpr Duration kPatienceForConnects = std::chrono::seconds(1);

// Where /proc does not list the process's descriptors.
constexpr int kNumbersTried = 1024;

uint64_t InodeOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

using SocketsByInode = std::map<uint64_t, std::vector<int>>;

SocketsByInode OwnSockets() {
  SocketsByInode sockets;
  const auto enter = [&](int fd) {
    if (const uint64_t inode = InodeOf(fd); inode != 0) sockets[inode].push_back(fd);
  };
  if (DIR* const directory = opendir("/proc/self/fd")) {
    while (const dirent* entry = readdir(directory)) {
      if (entry->d_name[0] != '.') enter(std::atoi(entry->d_name));
    }
    closedir(directory);
  } else {
    for (int fd = 0; fd < kNumbersTried; ++fd) enter(fd);
  }
  return sockets;
}

int Domain(Handover::Kind kind) {
  switch (kind) {
    case Handover::Kind::kV4:
      return AF_INET;
    case Handover::Kind::kV6:
      return AF_INET6;
    case Handover::Kind::kNative:
      break;
  }
  return kFamilySdp;
}

// The connection cannot be used here. The program must not see what its link carries.
void ReplaceByDead(const std::vector<int>& fds, Handover::Kind kind) {
  const int dead =
      real.socket(kind == Handover::Kind::kV6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (const int fd : fds) {
    if (dead < 0 || !PutInPlace(dead, fd)) real.close(fd);
  }
  if (dead >= 0) real.close(dead);
}

void Enter(StreamSocket* socket, const std::vector<int>& fds) {
  for (const int fd : fds) FdTable::Set(fd, socket);
}

// Descriptors out of the capsule, in order. The destructor closes those not taken.
class Parcel {
 public:
  explicit Parcel(std::vector<int> fds) : fds_(std::move(fds)) {}
  ~Parcel() {
    for (size_t i = next_; i < fds_.size(); ++i) real.close(fds_[i]);
  }
  Parcel(Parcel&& other) noexcept : fds_(std::move(other.fds_)), next_(other.next_) { other.fds_.clear(); }
  Parcel& operator=(Parcel&&) = delete;
  [[nodiscard]] size_t left() const { return fds_.size() - next_; }
  int Take() { return fds_[next_++]; }
  [[nodiscard]] int next() const { return fds_[next_]; }

 private:
  std::vector<int> fds_;
  size_t next_ = 0;
};

// `membership` is taken over; -1: it is that of the process.
void AdoptConnection(const Handover::Connection& from, SharedArena* arena, Member member, int membership,
                     Parcel& parcel, const std::vector<int>& fds) {
  std::unique_ptr<SharedConnection> shared;
  std::string why;
  auto memory = from.has_memory ? iwarp::TakeMemory(parcel.Take(), &why) : nullptr;
  if (!why.empty()) SDP_LOG(kError, "an inherited connection is lost: %s", why.c_str());
  if (arena != nullptr && from.whole && (memory != nullptr || !from.has_memory))
    shared = SharedConnection::Join(arena, from.number, member, membership);
  else
    HiddenFds::Close(membership);
  if (fds.empty()) return;
  if (shared != nullptr) shared->SetMemory(std::move(memory));
  if (shared != nullptr) {
    auto* const socket = new StreamSocket(Domain(from.kind), fds, std::move(shared));
    const SocketRef reference(socket);
    if (Giving(*socket).TakeUp(from.front)) return Enter(socket, fds);
  }
  ReplaceByDead(fds, from.kind);
}

void AdoptFresh(const Handover::Fresh& from, const std::vector<int>& fds) {
  if (fds.empty()) return;
  auto* const socket = new StreamSocket(Domain(from.kind), fds, from.options);
  const SocketRef reference(socket);
  Enter(socket, fds);
}

void AdoptListener(const Handover::Listener& from, Parcel& parcel, const std::vector<int>& fds) {
  Handover::ListenerFds own{.sdp = parcel.Take()};
  if (from.registered) own.registration = parcel.Take();
  if (from.has_queue) {
    own.queue_out = parcel.Take();
    own.queue_in = parcel.Take();
  }
  if (fds.empty()) {
    for (const int fd : {own.sdp, own.registration, own.queue_out, own.queue_in}) {
      if (fd >= 0) real.close(fd);
    }
    return;
  }
  auto* const socket = new StreamSocket(Domain(from.kind), fds, from.options);
  const SocketRef reference(socket);
  if (Giving(*socket).TakeUpListening(from, own)) Enter(socket, fds);
}

void Adopt(const Handover& handover, Parcel& parcel) {
  const SocketsByInode sockets = OwnSockets();
  const auto fds_of = [&](uint64_t inode) {
    const auto found = sockets.find(inode);
    return found != sockets.end() ? found->second : std::vector<int>{};
  };
  std::vector<SharedArena*> arenas;
  for (const Handover::Arena& arena : handover.arenas) {
    const int file = parcel.Take();
    arenas.push_back(SharedArena::Attach(file, parcel.Take(), arena.member));
  }
  for (const Handover::Connection& from : handover.connections) {
    AdoptConnection(from, from.whole ? arenas[from.arena] : nullptr,
                    from.whole ? handover.arenas[from.arena].member : 0, -1, parcel, fds_of(from.inode));
  }
  for (const Handover::Listener& from : handover.listeners) AdoptListener(from, parcel, fds_of(from.inode));
  for (const Handover::Fresh& from : handover.fresh) AdoptFresh(from, fds_of(from.inode));
}

// Adopts the one socket in `handover` as `fd`.
void AdoptPassed(const Handover& handover, Parcel& parcel, int fd) {
  const std::vector<int> fds = {fd};
  if (!handover.connections.empty()) {
    const Handover::Connection& from = handover.connections.front();
    if (handover.arenas.empty()) return AdoptConnection(from, nullptr, 0, -1, parcel, fds);
    const int file = parcel.Take();
    const int membership = HiddenFds::Hide(parcel.Take());
    SharedArena* const arena = SharedArena::Attach(file, -1, 0);
    if (arena != nullptr) arena->Ref();
    AdoptConnection(from, membership >= 0 ? arena : nullptr, handover.arenas.front().member, membership,
                    parcel, fds);
    if (arena != nullptr) arena->Unref();
  } else if (!handover.listeners.empty()) {
    AdoptListener(handover.listeners.front(), parcel, fds);
  } else if (!handover.fresh.empty()) {
    AdoptFresh(handover.fresh.front(), fds);
  }
}

// The contents of the capsule `fd`. Empty: it cannot be used. `more`: the number of descriptors that come
// before the handover's.
struct Contents {
  Handover handover;
  Parcel parcel;
};
std::optional<Contents> OpenSealed(int fd, size_t more) {
  auto capsule = Capsule::Open(fd);
  if (!capsule) return std::nullopt;
  Parcel parcel(std::move(capsule->descriptors));
  auto handover = Handover::Unpack(capsule->content);
  if (handover && handover->other_build && parcel.left() >= more) {
    SDP_LOG(kError,
            "the program before has another build of libsdp.so: its %zu connections are lost here, and "
            "its listeners take TCP alone",
            handover->connections.size());
    return Contents{std::move(*handover), std::move(parcel)};
  }
  if (handover && handover->descriptors() + more == parcel.left())
    return Contents{std::move(*handover), std::move(parcel)};
  SDP_LOG(kError, "what another program left of its SDP sockets is not understood");
  return std::nullopt;
}

// Returns true for a connection in memory that this process already shares with the giver. Then the giver's
// user does not matter: it can do no harm that it could not do before. The descriptors that come first have
// been taken.
bool IsRelatives(const Contents& contents) {
  const Handover& handover = contents.handover;
  const bool is_connection =
      handover.listeners.empty() && handover.fresh.empty() && handover.arenas.size() == 1;
  return is_connection && SharedArena::IsKnown(contents.parcel.next());
}

// Called with all sockets locked. `first`: the descriptors that come first.
int Seal(const std::map<const Socket*, int>& heirlooms, Giver giver, Receiver receiver,
         std::vector<int> first) {
  Guests guests(receiver);
  Handover handover;
  HandoverFds fds;
  for (StreamSocket* socket : AllSockets::locked()) {
    const auto found = heirlooms.find(socket);
    if (found != heirlooms.end())
      Giving(*socket).HandOver(InodeOf(found->second), giver, guests, &handover, &fds);
  }
  if (handover.empty()) return -1;
  handover.maker = static_cast<uint32_t>(getpid());
  for (const Guests::Guest& guest : guests.all()) {
    handover.arenas.push_back({.member = guest.member});
    first.push_back(guest.arena->file());
    first.push_back(guest.membership);
  }
  first.insert(first.end(), fds.memories.begin(), fds.memories.end());
  first.insert(first.end(), fds.listeners.begin(), fds.listeners.end());
  const int sealed = Capsule::Seal(handover.Pack(), first);
  if (sealed < 0)
    SDP_LOG(kError, "another program will not know its SDP sockets: %s", strerrordesc_np(errno));
  return sealed;
}

// Returns the sockets, each with one of its descriptors.
std::map<const Socket*, int> Heirlooms(Heirloom which) {
  std::map<const Socket*, int> found;
  FdTable::ForEach([&](int fd, Socket* socket) {
    if (which == Heirloom::kAll || (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) found.emplace(socket, fd);
  });
  return found;
}

}  // namespace

void LockSockets() {
  AllSockets::Lock();
  Listener::LockAllForFork();
}

int SealSockets(Heirloom which, Giver giver) {
  AwaitConnects();
  LockSockets();
  try {
    return Seal(Heirlooms(which), giver, Receiver::kAnybody, {});
  } catch (const std::bad_alloc&) {  // the locks are still the caller's to give back
    return Fail(ENOMEM);
  }
}

bool RelativesShare() { return SharedArena::OwnIsInherited(); }

bool SettleConnects(const std::vector<int>& fds) {
  const Time deadline = Now() + kPatienceForConnects;
  bool all = true;
  for (const int fd : fds) {
    const SocketRef socket = FdTable::Get(fd);
    if (socket) all = StreamSocket::Connector(Stream(socket)).SettleConnect(deadline) && all;
  }
  return all;
}

int SealSocket(int fd, Receiver receiver) {
  if (const SocketRef socket = FdTable::Get(fd)) Giving(Stream(socket)).SettleToGive();
  LockSockets();
  int sealed = -1;
  if (const SocketRef socket = FdTable::Get(fd)) {
    StreamSocket* const stream = &Stream(socket);
    try {
      if (!stream->connected() || stream->shareable())
        sealed = Seal({{stream, fd}}, Giver::kStays, receiver, {fd});
    } catch (const std::bad_alloc&) {  // not sealed
    }
  }
  UnlockSockets();
  return sealed;
}

namespace {

// A socket that this process passed to itself, or gets back: `fd` is one more number of the socket it has.
bool AddToOwn(int fd) {
  const uint64_t inode = InodeOf(fd);
  SocketRef found;
  FdTable::ForEach([&](int other, Socket* socket) {
    if (found || other == fd || InodeOf(other) != inode) return;
    found = SocketRef::To(socket);
  });
  if (!found) return false;
  FdTable::Set(fd, found.get());
  found->AddDescriptor(fd);
  return true;
}

}  // namespace

bool IsSealedSocket(int fd) { return Capsule::Is(fd, Capsule::Maker::kAnybody); }

void AdoptSocket(int fd) {
  const bool trusted = Capsule::Is(fd, Capsule::Maker::kTrusted);
  auto contents = OpenSealed(fd, 1);
  if (!contents) return ReplaceByDead({fd}, Handover::Kind::kV4);
  const int link = contents->parcel.Take();
  if (!trusted && !IsRelatives(*contents)) {
    if (MayLogError()) SDP_LOG(kError, "another user has passed a socket that pretends to be SDP");
    real.close(link);
    return ReplaceByDead({fd}, Handover::Kind::kV4);
  }
  real.dup3(link, fd, real.fcntl(fd, F_GETFD) == FD_CLOEXEC ? O_CLOEXEC : 0);
  real.close(link);
  const bool may_be_own =
      contents->handover.maker == static_cast<uint32_t>(getpid()) || IsRelatives(*contents);
  if (may_be_own && AddToOwn(fd)) return;
  AdoptPassed(contents->handover, contents->parcel, fd);
}

void UnlockSockets() {
  Listener::UnlockAllAfterFork();
  AllSockets::Unlock();
}

bool IsConnection(Socket& socket) { return Stream(socket).connected(); }

bool IsSharedWithOthers(int sdp) {
  const SocketRef socket = FdTable::Get(sdp);
  return socket && Giving(Stream(socket)).IsShared();
}

void AdoptSockets(int sealed) {
  if (!Capsule::Is(sealed, Capsule::Maker::kTrusted)) return;
  auto contents = OpenSealed(sealed, 0);
  real.close(sealed);
  if (contents) Adopt(contents->handover, contents->parcel);
}

}  // namespace sdp::preload
