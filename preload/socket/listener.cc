#include "preload/socket/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "preload/config.h"
#include "preload/critical.h"
#include "preload/hidden_fds.h"
#include "preload/lasting.h"
#include "preload/link_calls.h"
#include "preload/log.h"
#include "preload/real_calls.h"
#include "preload/socket/clock.h"
#include "preload/socket/link_names.h"
#include "preload/socket/options.h"
#include "preload/socket/registration.h"
#include "preload/socket/sdp_port.h"

namespace sdp::preload {
namespace {

// A process that may have no more descriptors than that needs them for itself: its listener has no queue for
// others.
constexpr rlim_t kFewDescriptors = 64;

// How long a daemon may take to answer, on a busy machine too: listen() itself waits for it.
constexpr Duration kRegistrationLimit = std::chrono::seconds(1);

// Another attempt may end differently.
bool MayChange(pm::RegistrarFailure failure) {
  return failure == pm::RegistrarFailure::kNoDaemon || failure == pm::RegistrarFailure::kTimeout ||
         failure == pm::RegistrarFailure::kBroken || failure == pm::RegistrarFailure::kNotTrusted;
}

// An SDP listener at the very address of the conventional one, on a port of the kernel's choice, with the
// options the application gave that one: its connections inherit them, and some (IP_FREEBIND,
// SO_BINDTODEVICE) it needs for the address.
int OpenSdpListener(int conventional_fd, int domain, int backlog, const OptionLog& options,
                    const Address& conventional, std::string* why) {
  const int fd = real.socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    *why = strerrordesc_np(errno);
    return -1;
  }
  options.Replay(fd);
  KeptOptions::ForgoForAccepted(fd);
  if (domain == AF_INET6) {
    const int v6only = IntOption(conventional_fd, IPPROTO_IPV6, IPV6_V6ONLY).value_or(0);
    real.setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only);
  }
  const int one = 1;
  real.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const auto seconds = static_cast<int>(std::chrono::duration_cast<std::chrono::seconds>(Deferral()).count());
  real.setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
  const auto unbound = BindSdpPort(fd, conventional_fd, conventional);
  if (unbound || real.listen(fd, backlog) != 0) {
    *why = unbound ? unbound->text : strerrordesc_np(errno);
    real.close(fd);
    return -1;
  }
  // For its connections to inherit; before, they would have been for this port.
  for (const int name : {SO_REUSEADDR, SO_REUSEPORT}) CopyOption(conventional_fd, fd, name);
  return fd;
}

bool FewDescriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= kFewDescriptors;
}

// The listeners of this process that have an SDP side.
struct OpenListeners {
  Mutex mutex;
  std::vector<Listener*> all;
};
OpenListeners& open_listeners() { return Lasting<OpenListeners>(); }

// As TCP counts: one more than the backlog, which has no sign there.
size_t RoomOf(int backlog) {
  return std::min<size_t>(static_cast<unsigned>(backlog), Arrivals::kMostTakenOn - 1) + 1;
}

}  // namespace

std::unique_ptr<Listener> Listener::Open(Socket* owner, int fd, int domain, int backlog,
                                         const OptionLog& options, const ConnectionTuning& tuning,
                                         bool may_wait, Refusal* refusal) {
  if (std::string why; !HaveRnic(&why)) {
    *refusal = {.reason = stats::FallbackReason::kNoRnic, .text = "SDP_RNIC=verbs: " + why};
    return nullptr;
  }
  const Address conventional = LocalAddress(fd);
  if (conventional.length == 0) {
    *refusal = {.reason = stats::FallbackReason::kOther, .text = "the listener has no address"};
    return nullptr;
  }
  const std::string name = ToEndpoint(conventional).ToString();

  std::unique_ptr<Listener> listener(new Listener(owner, domain, options, tuning));
  Enrolment& enrolment = listener->enrolment_;
  std::string why;
  const int sdp_fd = OpenSdpListener(fd, domain, backlog, options, conventional, &why);
  if (sdp_fd < 0 || HiddenFds::HideTracked(sdp_fd, &listener->sdp_fd_) < 0) {
    *refusal = {.reason = stats::FallbackReason::kResources,
                .text = "no SDP listener: " + (sdp_fd < 0 ? why : strerrordesc_np(errno))};
    SDP_LOG(kError, "listen on %s: %s; conventional clients only", name.c_str(), refusal->text.c_str());
    return nullptr;
  }
  listener->service_ = Port(conventional);
  listener->arrivals_.SetBacklog(RoomOf(backlog));
  listener->sdp_address_ = LocalAddress(listener->sdp_fd());
  // A kernel RNIC's first: whoever asks from here on is sent to it.
  const bool kernel_side = listener->OpenKernelSide(fd, kRegistrationLimit, &why);
  const auto registered = RegisterSdp(fd, listener->sdp_fd(), kRegistrationLimit);
  if (registered && !kernel_side && config().rnic == RnicChoice::kVerbs) {
    real.close(*registered);
    *refusal = {.reason = stats::FallbackReason::kNoRnic, .text = "SDP_RNIC=verbs: " + why};
    SDP_LOG(kInfo, "listen on %s: %s; conventional clients only", name.c_str(), refusal->text.c_str());
    return nullptr;
  }
  if (!registered) {
    {
      std::lock_guard lock(listener->mutex_);
      listener->kernel_.Close();
    }
    enrolment.dormant = may_wait && MayChange(registered.error().failure);
    enrolment.next_look = Now() + kRenewalInterval;
    enrolment.standing = NotRegistered(registered.error());
    refusal->text = "not registered with a port mapper: " + enrolment.standing.text;
    SDP_LOG(kInfo, "listen on %s: %s; conventional clients only", name.c_str(), refusal->text.c_str());
    if (!enrolment.dormant) return nullptr;
  }
  if ((registered && HiddenFds::HideTracked(*registered, &enrolment.fd) < 0) || !listener->arrivals_.Open()) {
    *refusal = {.reason = stats::FallbackReason::kResources, .text = "no descriptor left for the SDP side"};
    SDP_LOG(kError, "listen on %s: %s; conventional clients only", name.c_str(), refusal->text.c_str());
    return nullptr;
  }
  if (FewDescriptors() || !listener->arrivals_.common().Open()) {
    SDP_LOG(kInfo, "listen on %s: no descriptors for a queue that processes share", name.c_str());
  }
  listener->Enlist();
  {
    // Not before: a listener that comes to nothing must be free to go.
    std::lock_guard lock(listener->mutex_);
    listener->kernel_.Start(fd);
  }
  if (enrolment.dormant) return listener;
  enrolment.standing = RegisteredBy(enrolment.fd);
  SDP_LOG(kInfo, "listen on %s: SDP on %s", name.c_str(),
          ToEndpoint(listener->sdp_address_).ToString().c_str());
  // A connect does not wait until the application comes to accept, as it would not with the kernel's backlog.
  listener->renewal_.was_registered = true;
  Background::Add(&listener->watch_, kPatience);
  Background::Add(&listener->renewal_, kPatience);
  return listener;
}

void Listener::Enlist() {
  std::lock_guard lock(open_listeners().mutex);
  open_listeners().all.push_back(this);
}

Listener::~Listener() { Close(); }

bool Listener::IsShut() const {
  int listens = 1;
  socklen_t length = sizeof listens;
  return LinkGetOption(sdp_fd(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens == 0;
}

void Listener::End(bool for_all) {
  {
    std::lock_guard lock(open_listeners().mutex);
    std::erase(open_listeners().all, this);
  }
  std::lock_guard lock(mutex_);
  closed_ = true;
  const bool shared = arrivals_.shared();
  // At once, though the helper sleeps on it and so keeps it alive in the kernel: who connects from here on is
  // refused.
  if ((for_all || !shared) && sdp_fd() >= 0) LinkShutdown(sdp_fd(), SHUT_RD);
  kernel_.Close();
  // The daemon is to forget it, though others have this descriptor.
  if (for_all && shared && enrolment_.fd >= 0) LinkShutdown(enrolment_.fd, SHUT_RDWR);
  HiddenFds::Close(enrolment_.fd.exchange(-1));
  if (!for_all) HiddenFds::Close(sdp_fd_.exchange(-1));
  arrivals_.Close(for_all);
  // The helper's sleep on it keeps the listener alive in the kernel.
  if (Background::Holds(&watch_)) Background::Add(&watch_, Duration::zero());
  if (Background::Holds(&renewal_)) Background::Add(&renewal_, Duration::zero());
}

void Listener::SetSignals(int fd) {
  std::lock_guard lock(mutex_);
  arrivals_.signal().Set(closed_ ? -1 : fd);
}

void Listener::SetBacklog(int backlog) {
  real.listen(sdp_fd(), backlog);
  std::lock_guard lock(mutex_);
  arrivals_.SetBacklog(RoomOf(backlog));
}

void Listener::SetTuning(const ConnectionTuning& tuning) {
  std::lock_guard lock(mutex_);
  tuning_ = tuning;
}

Listener::Taken::~Taken() {
  if (fd >= 0) HiddenFds::Contains(fd) ? HiddenFds::Close(fd) : (void)real.close(fd);
}

bool Listener::dormant() {
  std::lock_guard lock(mutex_);
  return enrolment_.dormant;
}

Standing Listener::standing() {
  std::lock_guard lock(mutex_);
  return enrolment_.standing;
}

void Listener::NoteUse() {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || (enrolment_.dormant ? !enrolment_.WakesUp(kRenewalInterval) : used_)) return;
    used_ = true;
  }
  Background::Add(&watch_, kPatience);
  Background::Add(&renewal_, kPatience);
}

size_t Listener::waiting() {
  std::lock_guard lock(mutex_);
  return arrivals_.waiting();
}

void Listener::AnswerConnectTo(const Address& sdp_address) {
  std::lock_guard all_lock(open_listeners().mutex);
  for (Listener* listener : open_listeners().all) {
    if (Port(listener->sdp_address_) != Port(sdp_address)) continue;
    {
      std::lock_guard lock(listener->mutex_);
      // Another process accepts from it, and is to have the connections in the order in which they are made.
      if (!listener->first_hand()) continue;
      listener->watch_.at_once = true;
    }
    Background::Add(&listener->watch_, Duration::zero());
  }
}

// For a moment the kernel is told that the listener shares its port with whoever of this user asks for that.
int Listener::BindBeside(int fd, const Address& address) {
  std::lock_guard lock(open_listeners().mutex);
  const auto& all = open_listeners().all;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](Listener* l) { return Port(l->sdp_address_) == Port(address); });
  if (found == all.end()) return real.bind(fd, address.get(), address.length);
  const int before = IntOption((*found)->sdp_fd(), SOL_SOCKET, SO_REUSEPORT).value_or(0);
  const int one = 1;
  real.setsockopt((*found)->sdp_fd(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
  const int result = real.bind(fd, address.get(), address.length);
  const int error = errno;
  real.setsockopt((*found)->sdp_fd(), SOL_SOCKET, SO_REUSEPORT, &before, sizeof before);
  errno = error;
  return result;
}

void Listener::ShareAll() {
  for (Listener* listener : open_listeners().all) listener->Share();
}

void Listener::LockAllForFork() {
  open_listeners().mutex.lock();
  for (Listener* listener : open_listeners().all) listener->mutex_.lock();
}

void Listener::UnlockAllAfterFork() {
  for (Listener* listener : open_listeners().all) listener->mutex_.unlock();
  open_listeners().mutex.unlock();
}

bool Listener::OpenKernelSide(int conventional_fd, Duration limit, std::string* why) {
  std::unique_lock lock(mutex_);
  return !closed_ && first_hand() &&
         kernel_.Open(&lock, conventional_fd, domain_, arrivals_.backlog(), limit, why);
}

void Listener::CountAccepted(const Session& session) {
  const pm::Endpoint at = ToEndpoint(NamesOf(session).local);
  std::lock_guard lock(mutex_);
  kernel_.CountAccepted(at);
}

}  // namespace sdp::preload
