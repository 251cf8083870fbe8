// The embedded RNIC on one end of a TCP connection, a kernel RNIC (siw) with plain librdmacm and libibverbs
// on the other.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "test/guest/native_peer.h"
#include "test/verbs/qp_pair.h"

namespace sdp::guest {
namespace {

using iwarp::RtrWay;
using iwarp::test::AsBytes;
using iwarp::test::Fd;
using iwarp::test::Now;
using verbs::Access;
using verbs::Completion;
using verbs::ConnectState;
using verbs::LinkEnd;
using verbs::Opcode;
using verbs::PostResult;
using verbs::Status;

constexpr auto kPatience = std::chrono::seconds(60);

std::string LongText(size_t size, uint32_t seed) {
  const auto bytes = iwarp::test::Pattern(size, seed);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr verbs::QpOptions kQp{.receive_buffer_size = 128 * 1024, .initial_receives = 64, .ird = 8, .ord = 8};

Fd TcpListener(uint16_t* port) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  REQUIRE(::bind(listener.value, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener.value, 8) == 0);
  REQUIRE(::getsockname(listener.value, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  *port = ntohs(address.sin_port);
  return listener;
}

Fd TcpAccept(const Fd& listener) {
  pollfd fd{.fd = listener.value, .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&fd, 1, 60000) == 1);
  return Fd(::accept4(listener.value, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::string PrivateData(const verbs::Connector& connector) {
  const Bytes data = connector.peer_private_data();
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

struct Meeting {
  bool soft_connects = true;
  iwarp::SoftOptions options;
  std::string hello = std::string(32, 'h');
  std::string welcome = std::string(32, 'w');
  bool reject = false;

  NativePeer native;
  Fd fd;
  std::unique_ptr<verbs::Connector> connector;
  std::unique_ptr<verbs::QueuePair> qp;
  ConnectState state{};
  bool native_accepted = true;

  void Meet();
  // The connector until it is neither in progress nor asks.
  ConnectState Shake(const verbs::QpOptions& qp_options, std::string_view answer);
  // The embedded RNIC until `done`, which is what one waits for.
  void DriveUntil(const char* what, const std::function<bool()>& done);
  Completion Next();
  void Send(std::string_view text, bool solicited = false, std::optional<STag> invalidate = {});
  std::string Receive();

  // What both ends do, for who has waited for them in vain.
  [[nodiscard]] std::string State() const;
  [[noreturn]] void InVain(const std::string& what) const {
    throw std::runtime_error("after a minute still no " + what + "\n" + State());
  }
};

// In the order of ConnectState.
constexpr const char* kSetUp[] = {"shakes hands", "was asked", "established", "rejected", "failed"};

std::string Meeting::State() const {
  tcp_info link{};
  socklen_t length = sizeof link;
  int unread = 0;
  ::getsockopt(fd.value, IPPROTO_TCP, TCP_INFO, &link, &length);
  ::ioctl(fd.value, FIONREAD, &unread);
  const verbs::LinkCause* const cause = qp != nullptr          ? &qp->cause()
                                        : connector != nullptr ? &connector->cause()
                                                               : nullptr;
  const verbs::Interest interest = qp != nullptr          ? qp->interest()
                                   : connector != nullptr ? connector->interest()
                                                          : verbs::Interest{.read = false, .write = false};
  std::string text = std::string("the embedded RNIC: ") + kSetUp[static_cast<size_t>(state)] + ", waits for" +
                     (interest.read ? " bytes" : "") + (interest.write ? " room" : "") +
                     (interest.read || interest.write ? "" : " nothing") + "; ended: '" +
                     (cause != nullptr ? cause->text : "") + "'; TCP state " +
                     std::to_string(link.tcpi_state) + ", " + std::to_string(unread) + " bytes unread, " +
                     std::to_string(link.tcpi_unacked) + " segments not acknowledged";
  if (qp != nullptr) {
    text += "; FPDUs in " + std::to_string(qp->counters().fpdus_in) + ", out " +
            std::to_string(qp->counters().fpdus_out) + ", bytes unsent " + std::to_string(qp->unsent_bytes());
  }
  return text + "\nthe native peer: " + native.State();
}

// What the native peer does, in a thread of its own; join() rethrows what went wrong there, with the state of
// both ends. The peer waits for nothing without a bound, and so neither does who joins.
class Native {
 public:
  Native(const Meeting& meeting, std::function<void()> body)
      : meeting_(meeting), thread_([this, body = std::move(body)] {
          try {
            body();
          } catch (const std::exception& e) {
            failure_ = e.what();
          }
        }) {}
  ~Native() {
    if (!thread_.joinable()) return;
    // The test has failed, perhaps for this.
    thread_.join();
    if (!failure_.empty()) std::fprintf(stderr, "the native peer: %s\n", failure_.c_str());
  }
  void join() {
    thread_.join();
    if (!failure_.empty()) throw std::runtime_error("the native peer: " + failure_ + "\n" + meeting_.State());
  }

 private:
  const Meeting& meeting_;
  std::string failure_;
  std::thread thread_;
};

void Meeting::Meet() {
  uint16_t port = 0;
  if (soft_connects) {
    native.Listen(&port);
    Native thread(*this, [&] { reject ? native.Reject(welcome) : native.Accept(welcome); });
    fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, RnicAddress().c_str(), &address.sin_addr);
    REQUIRE(::connect(fd.value, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    // As libsdp.so does: siw overlooks an RTR that is here before it has its socket back from sending the
    // reply (siw_accept), and is not established then until further bytes come.
    options.rtr_way = [](Bytes reply) { return reply.empty() ? RtrWay::kAtOnce : RtrWay::kConfirmed; };
    connector = iwarp::Connect(fd.value, AsBytes(hello), kQp, options, Now());
    state = Shake(kQp, {});
    thread.join();
  } else {
    const Fd listener = TcpListener(&port);
    Native thread(*this, [&] { native_accepted = native.Connect(RnicAddress(), port, hello); });
    fd = TcpAccept(listener);
    connector = iwarp::Listen(fd.value, options, Now());
    state = Shake(kQp, welcome);
    thread.join();
  }
  if (state == ConnectState::kEstablished) qp = connector->TakeQueuePair();
}

ConnectState Meeting::Shake(const verbs::QpOptions& qp_options, std::string_view answer) {
  bool answered = false;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    state = connector->Step(Now());
    if (state == ConnectState::kRequested && !answered) {
      answered = true;
      reject ? connector->Reject(AsBytes(answer)) : connector->Accept(AsBytes(answer), qp_options);
      continue;
    }
    if (state != ConnectState::kInProgress && state != ConnectState::kRequested) return state;
    if (std::chrono::steady_clock::now() > end) InVain("end of the set-up");
    const verbs::Interest interest = connector->interest();
    pollfd link{.fd = connector->event_fd(),
                .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
                .revents = 0};
    // What it does by the clock is due sooner, perhaps.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(connector->deadline() - Now());
    ::poll(&link, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 100)));
  }
}

void Meeting::DriveUntil(const char* what, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) InVain(what);
    const verbs::Interest interest = qp->interest();
    if (!interest.read && !interest.write) {
      if (done()) return;
      throw std::runtime_error(std::string("the embedded RNIC waits for nothing, and there is no ") + what +
                               "\n" + State());
    }
    pollfd link{.fd = qp->event_fd(),
                .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
                .revents = 0};
    ::poll(&link, 1, 100);
    if ((link.revents & POLLOUT) != 0) qp->Flush();
    if ((link.revents & (POLLIN | POLLHUP | POLLERR)) != 0) qp->ReadLink();
  }
}

Completion Meeting::Next() {
  Completion completion;
  DriveUntil("completion", [&] { return qp->PollCompletion(&completion); });
  return completion;
}

void Meeting::Send(std::string_view text, bool solicited, std::optional<STag> invalidate) {
  const Bytes payload = AsBytes(text);
  REQUIRE(qp->PostSend({.id = WorkId(1),
                        .solicited = solicited,
                        .invalidate = invalidate,
                        .payload = std::span(&payload, 1)}) == PostResult::kOk);
  if (!qp->Flush()) qp->DetachBorrowed();
}

std::string Meeting::Receive() {
  const Completion c = Next();
  REQUIRE(c.opcode == Opcode::kReceive);
  std::string text = iwarp::test::Text(c);
  qp->Release(c.token);
  qp->PostReceives(1);
  return text;
}

// Everything RDMAP has, between established peers.
void ExerciseAll(Meeting& m) {
  verbs::QueuePair& qp = *m.qp;
  // The initiator's first FPDU frees the responder (RFC 5044, 7.1.2, 4).
  if (m.soft_connects) {
    m.Send("first");
    CHECK(m.native.Receive() == "first");
  } else {
    Native thread(m, [&] { m.native.Send("first"); });
    CHECK(m.Receive() == "first");
    thread.join();
  }

  for (const size_t size : {1u, 3u, 4u, 1400u, 1444u, 1460u, 8000u, 65535u, 65536u, 100000u}) {
    CAPTURE(size);
    const std::string text = LongText(size, static_cast<uint32_t>(size));
    {
      std::string got;
      Native thread(m, [&] { got = m.native.Receive(); });
      m.Send(text, /*solicited=*/true);
      m.DriveUntil("room for what is sent", [&] { return qp.unsent_bytes() == 0; });
      thread.join();
      CHECK((got == text));
    }
    {
      ibv_wc_status status{};
      Native thread(m, [&] { status = m.native.Send(text, /*solicited=*/true); });
      const Completion c = m.Next();
      CHECK(c.solicited);
      CHECK((iwarp::test::Text(c) == text));
      qp.Release(c.token);
      qp.PostReceives(1);
      thread.join();
      CHECK(status == IBV_WC_SUCCESS);
    }
  }

  std::vector<char> theirs(300000, 'n');
  const NativePeer::Region region = m.native.Expose(theirs);
  const std::string written = LongText(200001, 5);
  {  // our RDMA Write
    const Bytes payload = AsBytes(written);
    REQUIRE(qp.PostRdmaWrite({.id = WorkId(2),
                              .signaled = true,
                              .local = std::span(&payload, 1),
                              .remote_stag = STag(region.stag),
                              .remote_to = region.to + 1000}) == PostResult::kOk);
    std::string got;
    Native thread(m, [&] { got = m.native.Receive(); });
    m.Send("written");
    const Completion c = m.Next();
    CHECK(c.opcode == Opcode::kRdmaWrite);
    CHECK(c.status == Status::kSuccess);
    thread.join();
    CHECK(got == "written");
    CHECK((std::string(&theirs[1000], written.size()) == written));
    CHECK(theirs[999] == 'n');
    CHECK(theirs[1000 + written.size()] == 'n');
  }
  {  // our RDMA Reads
    std::vector<std::byte> sink(written.size());
    const auto local = qp.Register(sink, Access::kLocal);
    REQUIRE(local);
    const uint32_t half = static_cast<uint32_t>(written.size() / 2);
    for (const uint32_t at : {0u, half}) {
      REQUIRE(qp.PostRdmaRead({.id = WorkId(3),
                               .local_stag = local->stag,
                               .local_to = local->base_to + at,
                               .length = at == 0 ? half : static_cast<uint32_t>(written.size()) - half,
                               .remote_stag = STag(region.stag),
                               .remote_to = region.to + 1000 + at}) == PostResult::kOk);
    }
    qp.Flush();
    for (int i = 0; i < 2; ++i) {
      const Completion c = m.Next();
      CHECK(c.opcode == Opcode::kRdmaRead);
      CHECK(c.status == Status::kSuccess);
    }
    CHECK(std::memcmp(sink.data(), written.data(), written.size()) == 0);
    qp.Deregister(local->stag);
  }
  std::vector<std::byte> ours(300000, std::byte{'o'});
  const auto exposed = qp.Register(ours, static_cast<Access>(3));
  REQUIRE(exposed);
  {  // siw's RDMA Write and Read
    ibv_wc_status write_status{};
    ibv_wc_status read_status{};
    std::vector<char> copy(written.size());
    Native thread(m, [&] {
      const NativePeer::Region target{.stag = exposed->stag.value(), .to = exposed->base_to + 77};
      write_status = m.native.Write(written, target);
      read_status = m.native.Read(&copy, target);
      m.native.Send("done");
    });
    CHECK(m.Receive() == "done");
    thread.join();
    CHECK(write_status == IBV_WC_SUCCESS);
    CHECK(read_status == IBV_WC_SUCCESS);
    CHECK(std::memcmp(&ours[77], written.data(), written.size()) == 0);
    CHECK(ours[76] == std::byte{'o'});
    CHECK(ours[77 + written.size()] == std::byte{'o'});
    CHECK(std::memcmp(copy.data(), written.data(), written.size()) == 0);
  }
  {  // Send with Invalidate, both ways
    Native thread(m, [&] { m.native.Send("gone", /*solicited=*/true, exposed->stag.value()); });
    const Completion c = m.Next();
    CHECK(c.solicited);
    REQUIRE(c.invalidated);
    CHECK(*c.invalidated == exposed->stag);
    CHECK_FALSE(qp.IsRegistered(exposed->stag));
    qp.Release(c.token);
    qp.PostReceives(1);
    thread.join();

    std::string got;
    Native receiver(m, [&] { got = m.native.Receive(); });
    m.Send("yours too", /*solicited=*/true, STag(region.stag));
    receiver.join();
    CHECK(got == "yours too");
  }
}

TEST_CASE("every operation between the embedded RNIC and siw") {
  if (!HaveRnic()) return;
  Meeting m;
  m.soft_connects = GENERATE(true, false);
  m.options.want_crc = GENERATE(false, true);
  m.options.peer_to_peer = GENERATE(true, false);
  m.options.max_ulpdu = m.options.want_crc ? 1000 : 0;
  if (!m.soft_connects && !m.options.peer_to_peer) return;  // the initiator's choice
  CAPTURE(m.soft_connects, m.options.want_crc, m.options.peer_to_peer);
  m.Meet();
  INFO(m.connector->cause().text);
  REQUIRE(m.state == ConnectState::kEstablished);
  if (m.soft_connects) {
    CHECK(PrivateData(*m.connector) == m.welcome);
    CHECK(m.native.private_data() == m.hello);
  } else {
    CHECK(PrivateData(*m.connector) == m.hello);
    CHECK(m.native.private_data() == m.welcome);
    CHECK_FALSE(m.connector->may_send_first());  // siw does not ask for peer-to-peer
  }
  ExerciseAll(m);

  if (GENERATE(true, false)) {
    m.native.Disconnect();
    m.DriveUntil("end of the connection", [&] { return m.qp->cause().end != LinkEnd::kOpen; });
    INFO(m.qp->cause().text);
    CHECK(m.qp->cause().end == LinkEnd::kClosedByPeer);
  } else {
    m.DriveUntil("room for what is sent", [&] { return m.qp->unsent_bytes() == 0; });
    m.qp->Disconnect();
    Native thread(m, [&] { m.native.AwaitDisconnect(); });
    thread.join();
  }
}

TEST_CASE("a rejection reaches the other kind of RNIC") {
  if (!HaveRnic()) return;
  Meeting m;
  m.soft_connects = GENERATE(true, false);
  CAPTURE(m.soft_connects);
  m.reject = true;
  m.welcome = "not you";
  m.Meet();
  CHECK(m.state == ConnectState::kRejected);
  if (m.soft_connects) {
    CHECK(PrivateData(*m.connector) == "not you");
  } else {
    CHECK_FALSE(m.native_accepted);
    CHECK(m.native.private_data() == "not you");
  }
}

TEST_CASE("whoever breaks the rules is terminated") {
  if (!HaveRnic()) return;
  Meeting m;
  m.soft_connects = GENERATE(true, false);
  const int sin = GENERATE(0, 1, 2, 3, 4);
  CAPTURE(m.soft_connects, sin);
  m.Meet();
  REQUIRE(m.state == ConnectState::kEstablished);
  verbs::QueuePair& qp = *m.qp;
  if (m.soft_connects) {
    m.Send("first");
    m.native.Receive();
  } else {
    m.native.Send("first");
    CHECK(m.Receive() == "first");
  }
  std::vector<std::byte> ours(1000);
  std::vector<char> theirs(1000);
  const auto local = qp.Register(ours, Access::kLocal);
  const NativePeer::Region region = m.native.Expose(theirs);
  bool ours_is_wrong = false;
  ibv_wc_status status = IBV_WC_SUCCESS;
  const NativePeer::Region hidden{.stag = local->stag.value(), .to = local->base_to};
  std::vector<char> into(100);
  std::unique_ptr<Native> thread;
  switch (sin) {
    case 0:  // siw reads what it has no right to read
      thread = std::make_unique<Native>(m, [&] { status = m.native.Read(&into, hidden); });
      break;
    case 1:  // siw writes what it has no right to write
      thread = std::make_unique<Native>(m, [&] { status = m.native.Write("overwritten", hidden); });
      break;
    case 2:  // we read beyond the end
      ours_is_wrong = true;
      qp.PostRdmaRead({.id = WorkId(4),
                       .local_stag = local->stag,
                       .local_to = local->base_to,
                       .length = 100,
                       .remote_stag = STag(region.stag),
                       .remote_to = region.to + 950});
      break;
    case 3:
    case 4: {  // we write with an STag that is wrong, or that our Send with Invalidate ended
      ours_is_wrong = true;
      if (sin == 4) m.Send("yours", /*solicited=*/true, STag(region.stag));
      const Bytes payload = AsBytes("overwritten");
      qp.PostRdmaWrite({.id = WorkId(5),
                        .local = std::span(&payload, 1),
                        .remote_stag = STag(sin == 4 ? region.stag : region.stag ^ 0x10000),
                        .remote_to = region.to});
      break;
    }
    default:
      break;
  }
  qp.Flush();
  m.DriveUntil("end of the connection", [&] { return qp.cause().end != LinkEnd::kOpen; });
  INFO(qp.cause().text);
  CHECK(qp.cause().end == LinkEnd::kTerminated);
  CHECK(qp.cause().local != ours_is_wrong);
  if (thread) thread->join();
  CHECK(std::all_of(ours.begin(), ours.end(), [](std::byte b) { return b == std::byte{0}; }));
  CHECK(std::all_of(theirs.begin(), theirs.end(), [](char c) { return c == 0; }));
  if (sin == 0) CHECK(status != IBV_WC_SUCCESS);
  if (sin == 2) {
    Completion c;
    REQUIRE(qp.PollCompletion(&c));
    CHECK(c.opcode == Opcode::kRdmaRead);
    CHECK(c.status != Status::kSuccess);
  }
}

}  // namespace
}  // namespace sdp::guest
