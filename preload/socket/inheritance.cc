#include "preload/inheritance.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "preload/fd_table.h"
#include "preload/log.h"
#include "preload/native_family.h"
#include "preload/real_calls.h"
#include "preload/socket/all_sockets.h"
#include "preload/socket/capsule.h"
#include "preload/socket/guests.h"
#include "preload/socket/handover.h"

namespace sdp::preload {
namespace {

// Where /proc does not tell which descriptors there are.
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

// Nobody can use that connection here. What the link carries is none of the program's business.
void ReplaceByDead(const std::vector<int>& fds, Handover::Kind kind) {
  const int dead = real.socket(kind == Handover::Kind::kV6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (dead < 0) return;
  for (const int fd : fds) real.dup3(dead, fd, real.fcntl(fd, F_GETFD) == FD_CLOEXEC ? O_CLOEXEC : 0);
  real.close(dead);
}

void Enter(StreamSocket* socket, const std::vector<int>& fds) {
  for (const int fd : fds) FdTable::Set(fd, socket);
}

void AdoptConnection(const Handover::Connection& from, SharedArena* arena, Member member, const std::vector<int>& fds) {
  auto shared = arena != nullptr && from.whole ? SharedConnection::Join(arena, from.number, member, -1) : nullptr;
  if (fds.empty()) return;
  if (shared != nullptr) {
    auto* const socket = new StreamSocket(Domain(from.kind), fds, std::move(shared));
    const SocketRef reference(socket);
    if (socket->TakeUp()) return Enter(socket, fds);
  }
  ReplaceByDead(fds, from.kind);
}

// Descriptors out of the capsule, in order; what nobody takes is closed.
class Parcel {
 public:
  explicit Parcel(std::vector<int> fds) : fds_(std::move(fds)) {}
  ~Parcel() {
    for (size_t i = next_; i < fds_.size(); ++i) real.close(fds_[i]);
  }
  int Take() { return fds_[next_++]; }

 private:
  std::vector<int> fds_;
  size_t next_ = 0;
};

void Adopt(const Handover& handover, std::vector<int> descriptors) {
  const SocketsByInode sockets = OwnSockets();
  const auto fds_of = [&](uint64_t inode) {
    const auto found = sockets.find(inode);
    return found != sockets.end() ? found->second : std::vector<int>{};
  };
  Parcel parcel(std::move(descriptors));
  std::vector<SharedArena*> arenas;
  for (const Handover::Arena& arena : handover.arenas) {
    const int file = parcel.Take();
    arenas.push_back(SharedArena::Attach(file, parcel.Take(), arena.member));
  }
  for (const Handover::Connection& from : handover.connections) {
    AdoptConnection(from, from.whole ? arenas[from.arena] : nullptr, from.whole ? handover.arenas[from.arena].member : 0,
                    fds_of(from.inode));
  }
  for (const Handover::Listener& from : handover.listeners) {
    const int sdp_fd = parcel.Take();
    const int registration_fd = from.registered ? parcel.Take() : -1;
    const std::vector<int> fds = fds_of(from.inode);
    if (fds.empty()) {
      real.close(sdp_fd);
      if (registration_fd >= 0) real.close(registration_fd);
      continue;
    }
    auto* const socket = new StreamSocket(Domain(from.kind), fds, from.options);
    const SocketRef reference(socket);
    if (socket->TakeUpListening(from, sdp_fd, registration_fd)) Enter(socket, fds);
  }
  for (const Handover::Fresh& from : handover.fresh) {
    const std::vector<int> fds = fds_of(from.inode);
    if (fds.empty()) continue;
    auto* const socket = new StreamSocket(Domain(from.kind), fds, from.options);
    const SocketRef reference(socket);
    Enter(socket, fds);
  }
}

// Each with one of its descriptors.
std::map<const Socket*, int> Heirlooms(Heirloom which) {
  struct Search {
    Heirloom which;
    std::map<const Socket*, int> found;
  } search = {which, {}};
  FdTable::ForEach(
      [](int fd, Socket* socket, void* context) {
        auto& wanted = *static_cast<Search*>(context);
        if (wanted.which == Heirloom::kAll || (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) wanted.found.emplace(socket, fd);
      },
      &search);
  return std::move(search.found);
}

}  // namespace

void LockSockets() {
  AllSockets::Lock();
  Listener::LockAllForFork();
}

int SealSockets(Heirloom which, Giver giver) {
  LockSockets();
  Guests guests;
  Handover handover;
  std::vector<int> listener_fds;
  const std::map<const Socket*, int> heirlooms = Heirlooms(which);
  for (StreamSocket* socket : AllSockets::locked()) {
    const auto found = heirlooms.find(socket);
    if (found != heirlooms.end()) socket->HandOver(InodeOf(found->second), giver, guests, &handover, &listener_fds);
  }
  if (handover.empty()) return -1;
  std::vector<int> descriptors;
  for (const Guests::Guest& guest : guests.all()) {
    handover.arenas.push_back({.member = guest.member});
    descriptors.push_back(guest.arena->file());
    descriptors.push_back(guest.membership);
  }
  descriptors.insert(descriptors.end(), listener_fds.begin(), listener_fds.end());
  const int sealed = Capsule::Seal(handover.Pack(), descriptors);
  if (sealed < 0) SDP_LOG(kError, "the next program will not know its SDP sockets: %s", strerrordesc_np(errno));
  return sealed;
}

void UnlockSockets() {
  Listener::UnlockAllAfterFork();
  AllSockets::Unlock();
}

bool IsConnection(Socket& socket) { return static_cast<StreamSocket&>(socket).connected(); }

bool IsSharedWithOthers(int sdp) {
  const SocketRef socket = FdTable::Get(sdp);
  return socket && static_cast<StreamSocket*>(socket.get())->IsShared();
}

void AdoptSockets(int sealed) {
  auto capsule = Capsule::Open(sealed);
  if (!capsule) return;
  real.close(sealed);
  const auto handover = Handover::Unpack(capsule->content);
  if (!handover || handover->descriptors() != capsule->descriptors.size()) {
    for (const int fd : capsule->descriptors) real.close(fd);
    SDP_LOG(kError, "what another program left of its SDP sockets is not understood");
    return;
  }
  Adopt(*handover, std::move(capsule->descriptors));
}

}  // namespace sdp::preload
