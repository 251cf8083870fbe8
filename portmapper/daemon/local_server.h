// Local registration (see local_protocol.h): accepts the listening processes of this host, checks what they
// prove, and keeps each registration for as long as its connection is open.
//
// What one local user can do to the others is bounded: connections a user and in all, a greeting and one
// request a connection, a time-out for those that say nothing, nothing that blocks.
#ifndef SDP_PORTMAPPER_DAEMON_LOCAL_SERVER_H_
#define SDP_PORTMAPPER_DAEMON_LOCAL_SERVER_H_

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/base/types.h"
#include "portmapper/daemon/foreign_descriptors.h"
#include "portmapper/daemon/listener_proof.h"
#include "portmapper/daemon/listener_watch.h"
#include "portmapper/daemon/log.h"
#include "portmapper/daemon/own_addresses.h"
#include "portmapper/daemon/sandbox.h"
#include "portmapper/daemon/unique_fd.h"
#include "portmapper/engine/pm_server.h"

namespace sdp::pm {

struct LocalServerOptions {
  std::string path;
  std::optional<mode_t> mode;  // of the socket; empty: 0666 for root (whoever passes a listener may register
                               // it), else 0600
  std::optional<User> directory_owner;  // of the socket's directory, if it is made here
  size_t max_clients = 8192;
  size_t max_clients_per_user = 2048;
  Duration silence_limit = std::chrono::seconds(1);  // from connecting to the request
};

struct LocalServerCounters {
  uint64_t connections = 0;
  uint64_t registered = 0;
  uint64_t refused = 0;   // by typed refusal
  uint64_t dropped = 0;   // silent or superfluous clients, and those above the bounds
  uint64_t vanished = 0;  // listeners that were gone though their registration was still open
};

class LocalServer {
 public:
  // Binds the socket, and, if it can be had, the abstract name that goes with its path for processes in
  // another root directory. Makes the directory if only it is missing. Replaces the socket of a dead daemon,
  // never a file of another kind; AlreadyExists if a daemon answers. `server` outlives this and gets the
  // registrations.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<LocalServer>> Open(const LocalServerOptions& options,
                                                                         PmServer* server);
  // Unlinks the socket if it is still ours.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Readable when HandleReadable has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.get(); }
  [[nodiscard]] const LocalServerCounters& counters() const { return counters_; }
  [[nodiscard]] size_t clients() const { return by_fd_.size(); }
  // "user 1000 process 4711" for a registration of ours.
  [[nodiscard]] std::string OwnerOf(RegistrationId id) const;

  void HandleReadable(Time now);
  void HandleTimeout(Time now);
  [[nodiscard]] Time NextTimeout() const;

  // False if the listener behind the registration has gone: then the registration is removed and its client
  // closed. The kernel is asked once in 10 ms at most; a registration that is not ours counts as alive.
  bool VerifyAlive(RegistrationId id, Time now);

 private:
  struct Client {
    int fd;
    uid_t uid;
    pid_t pid;
    Time deadline;  // for its request, while it is silent
    bool greeted = false;
    bool registered = false;
    RegistrationId registration{};
    ListenerFacts listener;
    Time verified{};
  };
  using Clients = std::list<Client>;

  LocalServer(const LocalServerOptions& options, PmServer* server, uint64_t netns, UniqueFd listener,
              UniqueFd abstract, UniqueFd epoll);

  void HandleAccept(int listener, Time now);
  // Of a client at the abstract name, which neither the socket's mode nor directories guard: as they are now,
  // they decide here. Beside root and the socket's owner only those may who could go along the path as users
  // that the directories say nothing of, and nobody once the socket is gone from its path.
  [[nodiscard]] bool MayUse(const ucred& client) const;
  void HandleClient(Clients::iterator client, Time now);
  void HandleRequest(Clients::iterator client, const LocalMessage& message, Bytes data, Time now);
  [[nodiscard]] Result<ListenerProof, ProofFailure> Prove(const LocalMessage& message, Bytes data, Time now);
  void Confirm(Clients::iterator client);
  void Refuse(Clients::iterator client, const ProofFailure& failure, Time now);
  // Logs what became of a registration. Drops lines that would fill the log, and counts them.
  void Note(RegistrationId id, const std::string& what, Time now);
  void Drop(Clients::iterator client);
  [[nodiscard]] bool Admit(uid_t uid) const;
  void SetAccepting(bool accepting);

  LocalServerOptions options_;
  PmServer* server_;
  uint64_t netns_;
  UniqueFd listener_;
  UniqueFd abstract_;  // the same at the path's abstract name (abstract_address.h); empty: somebody else has
                       // that name
  UniqueFd epoll_;
  struct stat bound_ {};
  bool accepting_ = true;
  Time accept_again_ = kNever;  // after the descriptors ran out
  Clients silent_;              // in the order of their deadlines
  Clients registered_;
  absl::flat_hash_map<int, Clients::iterator> by_fd_;
  absl::flat_hash_map<RegistrationId, Clients::iterator> by_registration_;
  absl::flat_hash_map<uid_t, size_t> per_user_;
  LocalServerCounters counters_;
  ListenerWatch watch_;
  OwnAddresses own_addresses_;
  ForeignDescriptors foreign_;
  LogLimiter log_limiter_{20};
  LogLimiter note_limiter_{200};
};

}  // namespace sdp::pm

#endif  // SDP_PORTMAPPER_DAEMON_LOCAL_SERVER_H_
