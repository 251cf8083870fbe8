#include "test/posix/suspension/asking_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "portmapper/registrar.h"
#include "preload/config.h"
#include "preload/socket/clock.h"
#include "preload/socket/options.h"
#include "preload/socket/pm_lookup.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::suspension_test {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr Duration kPatience = std::chrono::milliseconds(kPatienceMs);
constexpr size_t kPiece = 100'000;

[[noreturn]] void Die(const std::string& what) {
  std::printf("failed: %s\n", what.c_str());
  std::fflush(stdout);
  std::fprintf(stderr, "asking_peer: %s\n", what.c_str());
  _exit(1);
}

void Check(bool good, const std::string& what) {
  if (!good) Die(what);
}

// As posix_test::Loopback.
sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (const char* const other = std::getenv("SDP_TEST_ADDRESS"))
    ::inet_pton(AF_INET, other, &address.sin_addr);
  address.sin_port = htons(port);
  return address;
}

// The program's RNIC is a kernel's: it cannot come from a port that its listener has, nor from the same port
// to the same port.
bool OfKernel() { return std::getenv("SDP_TEST_ADDRESS") != nullptr; }

sockaddr* Generic(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

sockaddr_in NameOf(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  Check(get(fd, Generic(&address), &length) == 0, "the link has no name");
  return address;
}

int MakeSocket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  return fd;
}

int ListenAt(uint16_t port) {
  const int fd = MakeSocket();
  sockaddr_in address = Loopback(port);
  Check(::bind(fd, Generic(&address), sizeof address) == 0, "bind: " + std::string(std::strerror(errno)));
  Check(::listen(fd, 8) == 0, "listen");
  return fd;
}

// A program that is kept waiting has a peer all the same: the kernel's siw does not outlive one that ends in
// the middle of the set-up.
iwarp::SoftOptions PatientOptions() {
  iwarp::SoftOptions options = preload::SoftOptions();
  options.startup_timeout = kPatience;
  return options;
}

engine::Options OwnOptions() { return preload::EngineOptions(preload::RnicKind::kEmbedded, {}); }

bool WaitFor(int fd, short events) {
  pollfd waited{.fd = fd, .events = events, .revents = 0};
  return ::poll(&waited, 1, kPatienceMs) == 1;
}

// The set-up's next state: over, or a request. It has deadlines of its own: siw may have to hear the RTR
// again.
verbs::ConnectState StepThrough(verbs::Connector& connector, int link, const std::string& what) {
  const Time give_up = preload::Now() + kPatience;
  for (;;) {
    const Time now = preload::Now();
    const verbs::ConnectState state = connector.Step(now);
    if (state != verbs::ConnectState::kInProgress) return state;
    Check(now < give_up, what);
    const verbs::Interest interest = connector.interest();
    pollfd waited{.fd = link,
                  .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
                  .revents = 0};
    const Duration left = std::max(std::min(connector.deadline(), give_up) - now, Duration::zero());
    ::poll(&waited, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }
}

}  // namespace

void AskingPeer::Listen() {
  conventional_ = ListenAt(0);
  sdp_listener_ = ListenAt(0);
  const auto registered = pm::RegisterListener(std::string(std::getenv("SDP_PMD_SOCKET")), conventional_,
                                               sdp_listener_, std::chrono::seconds(10));
  Check(registered.has_value(), "not registered");
  registration_ = *registered;
}

uint16_t AskingPeer::conventional_port() const {
  return ntohs(NameOf(conventional_, ::getsockname).sin_port);
}

void AskingPeer::AcceptFirst() {
  AcceptLink(sdp_listener_, std::make_unique<engine::Engine>(engine::Role::kAccepting, OwnOptions()),
             Port::kNew);
}

void AskingPeer::AcceptBadly() {
  auto connector = AcceptRequest(sdp_listener_);
  const std::vector<std::byte> none(engine::kHelloSize);
  connector->Accept(none, preload::QpOptions(OwnOptions()));
  const bool established =
      StepThrough(*connector, link_, "the set-up hangs") == verbs::ConnectState::kEstablished;
  const auto queue_pair = established ? connector->TakeQueuePair() : nullptr;
  Check(established, "the set-up failed: " + connector->cause().text);
  const Time give_up = preload::Now() + kPatience;
  for (pollfd next{.fd = conventional_, .events = POLLIN, .revents = 0}; ::poll(&next, 1, 5) != 1;) {
    Check(preload::Now() < give_up, "nobody comes to the conventional address");
    queue_pair->ReadLink();  // the program's RNIC wants to hear from this one
    queue_pair->Flush();
  }
  ::close(link_);
}

bool AskingPeer::PlainEndsInOrder() {
  const int plain = ::accept4(conventional_, nullptr, nullptr, SOCK_CLOEXEC);
  Check(plain >= 0 && WaitFor(plain, POLLIN), "the TCP connection does not end");
  char byte = 0;
  const bool in_order = ::recv(plain, &byte, 1, 0) == 0;
  ::close(plain);
  return in_order;
}

void AskingPeer::Connect(uint16_t port) {
  link_ = MakeSocket();
  program_accepted_ = true;
  sockaddr_in target = Loopback(port);
  const pm::Endpoint endpoint = preload::ToEndpoint(preload::MakeAddress(Generic(&target), sizeof target));
  auto lookup =
      preload::PmLookup::Start(link_, AF_INET, endpoint, 0, preload::config().pm_timeout, preload::Now());
  Check(lookup != nullptr, "no port mapper");
  while (lookup->Step(preload::Now()) == pm::QueryState::kAsking) {
    pollfd asked{.fd = lookup->fd(), .events = POLLIN, .revents = 0};
    ::poll(&asked, 1, 10);
  }
  Check(lookup->Step(preload::Now()) == pm::QueryState::kAccepted, "the program does not listen for SDP");
  target = Loopback(lookup->sdp_address().port);
  Check(::connect(link_, Generic(&target), sizeof target) == 0,
        "connect: " + std::string(std::strerror(errno)));
  auto engine = std::make_unique<engine::Engine>(engine::Role::kConnecting, OwnOptions());
  const auto hello = engine->Hello();
  auto connector =
      iwarp::Connect(link_, hello, preload::QpOptions(OwnOptions()), PatientOptions(), preload::Now());
  Check(StepThrough(*connector, link_, "no MPA Reply") == verbs::ConnectState::kEstablished,
        "the set-up failed: " + connector->cause().text);
  session_ = std::make_unique<preload::Session>(std::move(engine), connector->TakeQueuePair());
  Check(session_->HandleReply(hello, connector->peer_private_data(), false).has_value(),
        "a HelloAck that is none");
  session_->Pump();
  Drive([&] { return session_->engine().state() != engine::State::kHelloSent; }, "HelloAck");
}

std::unique_ptr<verbs::Connector> AskingPeer::AcceptRequest(int listener) {
  Check(WaitFor(listener, POLLIN), "nobody connects");
  link_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  auto connector = iwarp::Listen(link_, PatientOptions(), preload::Now());
  Check(StepThrough(*connector, link_, "no MPA Request") == verbs::ConnectState::kRequested,
        "no connection request: " + connector->cause().text);
  return connector;
}

// The set-up as accepting peer, of a new session or of one that goes on.
void AskingPeer::AcceptLink(int listener, std::unique_ptr<engine::Engine> engine, Port port) {
  auto connector = AcceptRequest(listener);
  if (port == Port::kRejects) {
    connector->Reject({});
    connector->Step(preload::Now());
    return;
  }
  const auto hello = engine->HandleHello(connector->peer_private_data());
  Check(hello.has_value(), "the Hello is not acceptable");
  engine::Options options;
  options.receive_buffer_size = engine->stats().local_buffer_size;
  options.receive_buffers = static_cast<uint16_t>(engine->stats().posted_receives);
  const bool send_first = connector->may_send_first();
  if (send_first) {
    connector->Accept({}, preload::QpOptions(options));
  } else {
    connector->Accept(engine->HelloAck(), preload::QpOptions(options));
  }
  Check(StepThrough(*connector, link_, "the set-up hangs") == verbs::ConnectState::kEstablished,
        "the set-up failed: " + connector->cause().text);
  session_ = std::make_unique<preload::Session>(std::move(engine), connector->TakeQueuePair());
  if (send_first) session_->engine().SendHelloAck();
  session_->Pump();
}

void AskingPeer::Step(int also, int timeout_ms) {
  const short events = session_->link_ended() ? 0 : session_->watch_events();
  pollfd fds[2] = {{.fd = events != 0 ? link_ : -1, .events = events, .revents = 0},
                   {.fd = also, .events = POLLIN, .revents = 0}};
  ::poll(fds, 2, timeout_ms);
  session_->Read();
}

void AskingPeer::Drive(const std::function<bool()>& done, const char* what) {
  const Time give_up = preload::Now() + kPatience;
  session_->Pump();
  while (!done()) {
    Check(preload::Now() < give_up, std::string(what) + " takes too long");
    const bool over = session_->link_ended() && !session_->engine().suspended();
    Check(!over, std::string(what) + ": the connection is lost, " +
                     engine::ToString(session_->engine().abort_reason()) + ", " + session_->cause().text);
    Step(-1, 20);
  }
}

void AskingPeer::PutSent(uint64_t* left) {
  while (*left != 0) {
    const std::string piece = Stretch(From::kPeer, sent_, std::min<uint64_t>(*left, kPiece));
    const Bytes bytes = std::as_bytes(std::span(piece));
    const size_t taken = session_->engine().Send({&bytes, 1}, {});
    session_->Pump();
    sent_ += taken;
    *left -= taken;
    if (taken < piece.size()) return;
  }
}

void AskingPeer::TakeReceived(uint64_t most) {
  std::string room(std::min<uint64_t>(most, kPiece), '\0');
  const MutableBytes out = std::as_writable_bytes(std::span(room));
  const size_t got = session_->engine().Receive({&out, 1}, {});
  if (got == 0) {
    // What is offered by SrcAvail comes by itself.
    if (session_->engine().advertised_bytes() > 0) session_->engine().ForceBcopy();
    return session_->Pump();
  }
  Check(room.compare(0, got, Stretch(From::kProgram, received_, got)) == 0,
        "wrong bytes behind " + std::to_string(received_));
  received_ += got;
  session_->Pump();
}

void AskingPeer::Send(uint64_t bytes) { Exchange(bytes, 0, 0, Port::kNew); }
void AskingPeer::Receive(uint64_t bytes) { Exchange(0, bytes, 0, Port::kNew); }

void AskingPeer::Exchange(uint64_t out, uint64_t in, int suspensions, Port port) {
  const uint64_t end = received_ + in;
  const uint64_t each = (in + out) / static_cast<uint64_t>(suspensions + 1);
  uint64_t left = out;
  int asked = 0;
  bool under_way = false;
  const uint64_t begin = received_ + sent_;
  Drive(
      [&] {
        if (under_way && session_->engine().suspended()) {
          Check(FinishSuspension(port), "the program did not come to the next connection");
          under_way = false;
        }
        PutSent(&left);
        if (received_ != end) TakeReceived(end - received_);
        const uint64_t moved = received_ + sent_ - begin;
        if (!under_way && asked < suspensions && moved >= each * static_cast<uint64_t>(asked + 1)) {
          ++asked;
          under_way = BeginSuspension(port);
        }
        return left == 0 && received_ == end && !under_way && session_->engine().buffered_bytes() == 0 &&
               !session_->has_unsent();
      },
      "exchange");
  Check(asked == suspensions, "fewer suspensions than wanted");
}

void AskingPeer::SendUrgent(char byte) {
  const Bytes bytes = std::as_bytes(std::span(&byte, 1));
  Check(
      session_->engine().Send({&bytes, 1}, {.buffering = engine::Buffering::kFull, .out_of_band = true}) == 1,
      "urgent data");
  session_->Pump();
}

void AskingPeer::CloseSend() {
  session_->engine().CloseSend();
  session_->Pump();
}

void AskingPeer::ReceiveEnd() {
  Drive([&] { return session_->engine().end_of_stream(); }, "end of the stream");
}

bool AskingPeer::BeginSuspension(Port port) {
  program_ = NameOf(link_, ::getpeername);
  const uint16_t own = ntohs(NameOf(link_, ::getsockname).sin_port);
  if (port == Port::kSame && sdp_listener_ >= 0) {
    next_listener_ = ::dup(sdp_listener_);
  } else {
    next_listener_ = ListenAt(port == Port::kSame ? own : 0);
  }
  const uint16_t number = ntohs(NameOf(next_listener_, ::getsockname).sin_port);
  if (port == Port::kClosed) ::close(next_listener_);
  Check(session_->engine().Suspend(number), "may not suspend");
  session_->Pump();
  return true;
}

// suspended(): the program ends the link, and comes to the next one from the same address and port (13.1.1,
// 1).
bool AskingPeer::FinishSuspension(Port port) {
  Drive([&] { return session_->link_ended(); }, "the end of the old link");
  ::close(link_);
  if (port == Port::kClosed) return false;
  // Resume() first: what was received and not read lies in the old queue pair's memory until then.
  const engine::Options own = OwnOptions();
  Check(session_->engine().Resume(own.ird, own.ord), "the engine does not go on");
  auto engine = std::make_unique<engine::Engine>(std::move(session_->engine()));
  session_.reset();
  if (port == Port::kSilent || port == Port::kHeld) {
    Check(WaitFor(next_listener_, POLLIN), "nobody connects");
    const int silent = ::accept4(next_listener_, nullptr, nullptr, SOCK_CLOEXEC);
    char request[1024];
    while (port == Port::kSilent && ::recv(silent, request, sizeof request, 0) > 0) {
    }
    return false;
  }
  AcceptLink(next_listener_, std::move(engine), port);
  ::close(next_listener_);
  if (port == Port::kRejects) return false;
  const sockaddr_in after = NameOf(link_, ::getpeername);
  const bool other_port = OfKernel() && (port == Port::kSame || std::exchange(program_accepted_, false));
  Check((program_.sin_port == after.sin_port || other_port) &&
            program_.sin_addr.s_addr == after.sin_addr.s_addr,
        "the program came from port " + std::to_string(ntohs(after.sin_port)) + ", not " +
            std::to_string(ntohs(program_.sin_port)));
  return true;
}

bool AskingPeer::Suspend(Port port) {
  (void)BeginSuspension(port);
  Drive([&] { return session_->engine().suspended(); }, "SuspCommAck");
  return FinishSuspension(port);
}

void AskingPeer::Finish() {
  Drive([&] { return session_->engine().finished(); }, "the end");
}

void AskingPeer::Idle(int fd) {
  if (session_ == nullptr) {
    (void)WaitFor(fd, POLLIN);
  } else {
    Step(fd, 20);
  }
}

}  // namespace sdp::suspension_test
