// A Session between a real engine and a queue pair of the test's.
#include "preload/socket/session.h"

#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/message.h"
#include "preload/socket/session_direct.h"
#include "preload/socket/session_moves.h"
#include "preload/socket/session_transfer.h"
#include "test/preload/scripted_session.h"

namespace sdp::preload {
namespace {

TEST_CASE("session: more credit than the send queue has room for") {
  Connected c(5000);
  c.queue_pair->room = 100;
  const std::string sent = c.Send(300 * 112);
  REQUIRE(sent.size() == 300 * 112);
  CHECK(c.queue_pair->sent == sent);
  CHECK(c.queue_pair->most_posted == 100);
  CHECK(c.queue_pair->aborts == 0);
}

TEST_CASE("session: a send queue that stays full ends the connection instead of losing bytes") {
  Connected c(5000);
  c.queue_pair->room = 100;
  c.queue_pair->link_full = true;
  c.Send(300 * 112);
  CHECK(c.queue_pair->aborts == 1);
  CHECK(c.session->link_ended());
}

Connected OverMemory() {
  return Connected(10, std::make_unique<ScriptedQueuePair>(ScriptedQueuePair::Kind::kMemory));
}

std::vector<std::byte> Data(uint32_t number, std::string_view text, uint8_t flags = 0) {
  const wire::Message message{
      {.bufs = 10, .flags = flags, .len = static_cast<uint32_t>(16 + text.size()), .mseq = MSeq(number)},
      wire::Data{}};
  std::vector<std::byte> bytes(16);
  wire::SerializeTo(message, bytes);
  const Bytes payload = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

std::string ReceiveDirect(Session& session, size_t most) {
  std::string text(most, '\0');
  const iovec parts[] = {{text.data(), most / 2}, {text.data() + most / 2, most - most / 2}};
  ReceiveCursor room(parts, 2);
  text.resize(session.direct().Receive(&room));
  CHECK(room.left() == most - text.size());
  return text;
}

TEST_CASE("session: to kin a FIN follows our DisConn, and the peer's FIN is then the end in good order") {
  const bool kin = GENERATE(false, true);
  CAPTURE(kin);
  Connected c(10);
  c.session->kinship().Set(kin);
  c.session->kinship().LeaveFirst();
  c.session->Pump();
  CHECK(c.queue_pair->disconnects == 0);  // nothing has been closed
  c.session->engine().CloseSend();
  c.session->Pump();
  CHECK(c.queue_pair->disconnects == (kin ? 1 : 0));
  c.session->Pump();
  CHECK(c.queue_pair->disconnects == (kin ? 1 : 0));
  CHECK(c.session->kinship().left_first() == kin);
  c.queue_pair->ended = true;
  c.queue_pair->facts.cause.end = verbs::LinkEnd::kClosedByPeer;
  c.session->Read();
  CHECK(c.session->link_ended());
  CHECK(c.queue_pair->aborts == (kin ? 0 : 1));
}

TEST_CASE("session: one message goes past the queues where the queue pair can, more than one does not") {
  const auto kind = GENERATE(ScriptedQueuePair::Kind::kMemory, ScriptedQueuePair::Kind::kQueue);
  Connected c(10, std::make_unique<ScriptedQueuePair>(kind));
  const std::string text(113, 'x');
  const Bytes bytes = std::as_bytes(std::span(text));
  const Bytes one[] = {bytes.first(112)};
  CHECK(c.session->Send(one, {}) == 112);
  CHECK(c.queue_pair->direct_sends == 1);
  CHECK(c.queue_pair->flushes == 0);
  CHECK(c.session->Send({&bytes, 1}, {}) == 113);
  CHECK(c.queue_pair->direct_sends == 1);
  CHECK(c.queue_pair->sent.size() == 225);
  CHECK(c.session->recorder().transfers().out[stats::kBcopy] == 3);
}

std::string ReceiveAllDirect(Session& session, size_t most) {
  std::string text(most, '\0');
  text.resize(session.direct().ReceiveAll(std::as_writable_bytes(std::span(text))));
  return text;
}

TEST_CASE("session: a link that is memory gives all that it has, or nothing") {
  Connected c = OverMemory();
  CHECK(c.session->direct().plain());
  CHECK(c.session->direct().link_empty());
  CHECK(c.session->direct().OneComes() == false);
  CHECK(ReceiveAllDirect(*c.session, 10).empty());
  c.queue_pair->in_link = {Data(0, "abc")};
  CHECK(c.session->direct().OneComes() == true);
  CHECK_FALSE(c.session->direct().link_empty());
  CHECK(ReceiveAllDirect(*c.session, 2).empty());
  CHECK(ReceiveAllDirect(*c.session, 3) == "abc");
  c.queue_pair->in_link = {Data(1, "abc"), Data(2, "defg")};
  CHECK_FALSE(c.session->direct().OneComes());
  CHECK(ReceiveAllDirect(*c.session, 7).empty());  // framing counts where there is more than one message
  CHECK(ReceiveAllDirect(*c.session, 100) == "abcdefg");
  CHECK(c.queue_pair->reads == 0);
  CHECK(c.session->reads().Since(CoarseNow() - std::chrono::seconds(1), c.session->recorder()));
}

TEST_CASE("session: what is not usual Data stays for the usual way") {
  Connected c = OverMemory();
  c.queue_pair->in_link = {Data(0, "abc", wire::kOobPres)};
  CHECK_FALSE(c.session->direct().OneComes());
  CHECK(ReceiveAllDirect(*c.session, 100).empty());
  c.queue_pair->in_link = {Data(0, "abc"), Data(1, "d", wire::kOobPres)};
  CHECK_FALSE(c.session->direct().OneComes());
  CHECK(ReceiveAllDirect(*c.session, 100) == "abc");
  CHECK(c.queue_pair->in_link.size() == 1);
}

TEST_CASE("session: whole messages come from a link that is memory, as long as there is room for them") {
  Connected c = OverMemory();
  CHECK_FALSE(c.session->direct().Comes());
  CHECK(c.session->direct().BytesInLink() == 0);
  CHECK(ReceiveDirect(*c.session, 10).empty());
  c.queue_pair->in_link = {Data(0, "abc"), Data(1, "defg")};
  CHECK(c.session->direct().Comes());
  CHECK(c.session->direct().BytesInLink() == 7);
  CHECK(ReceiveDirect(*c.session, 3) == "abc");
  CHECK(c.session->direct().BytesInLink() == 4);
  CHECK(ReceiveDirect(*c.session, 4) == "defg");
  CHECK(c.queue_pair->reads == 0);
  CHECK(std::as_const(*c.session).engine().stats().messages_in == 2);
}

std::string ReceiveReadable(Session& session, size_t most, bool peek = false) {
  std::string text(most, '\0');
  const MutableBytes room = std::as_writable_bytes(std::span(text));
  text.resize(session.engine().Receive({&room, 1}, {.peek = peek}));
  session.Pump();
  return text;
}

TEST_CASE("session: a message larger than the room stays in the link, and is read there piece by piece") {
  Connected c = OverMemory();
  c.queue_pair->in_link = {Data(0, "abc"), Data(1, "defgh"), Data(2, "ij")};
  CHECK(ReceiveDirect(*c.session, 5) == "abc");
  CHECK(c.session->direct().lends());
  const engine::Engine& e = std::as_const(*c.session).engine();
  CHECK(e.readable_bytes() == 5);
  CHECK(c.session->direct().BytesInLink() == 2);
  CHECK_FALSE(c.session->direct().Comes());
  CHECK(ReceiveDirect(*c.session, 9).empty());
  CHECK(ReceiveReadable(*c.session, 5, /*peek=*/true) == "defgh");
  CHECK(ReceiveReadable(*c.session, 2) == "de");
  CHECK(ReceiveReadable(*c.session, 2) == "fg");
  CHECK(c.session->direct().lends());
  CHECK(ReceiveReadable(*c.session, 9) == "h");
  CHECK_FALSE(c.session->direct().lends());
  CHECK(c.queue_pair->lent.empty());
  CHECK(c.session->direct().BytesInLink() == 2);
  CHECK(ReceiveDirect(*c.session, 2) == "ij");
  CHECK(c.queue_pair->reads + c.queue_pair->polls == 0);
  CHECK(e.stats().messages_in == 3);
}

TEST_CASE("session: what comes behind a message that stays is counted once, and only so many messages") {
  Connected c = OverMemory();
  c.queue_pair->in_link = {Data(0, "abcdef")};
  CHECK(ReceiveDirect(*c.session, 4).empty());
  REQUIRE(c.session->direct().lends());
  CHECK(c.session->direct().BytesInLink() == 0);
  const int most = std::as_const(*c.session).engine().receive_buffers() / 4;
  REQUIRE(most > 1);
  for (int i = 1; i <= most; ++i) {
    c.queue_pair->in_link.push_back(Data(static_cast<uint32_t>(i), "gh"));
    CHECK(c.session->direct().BytesInLink() == 2 * i);
    CHECK(c.session->direct().BytesInLink() == 2 * i);
  }
  c.queue_pair->in_link.push_back(Data(static_cast<uint32_t>(most + 1), "gh"));
  CHECK(c.session->direct().BytesInLink() == std::nullopt);
  CHECK(ReceiveReadable(*c.session, 6) == "abcdef");
  CHECK_FALSE(c.session->direct().lends());
}

TEST_CASE("session: whatever else reads the link first takes out the message that stays there") {
  Connected c = OverMemory();
  c.queue_pair->in_link = {Data(0, "abcdef"), Data(1, "gh")};
  CHECK(ReceiveDirect(*c.session, 4).empty());
  CHECK(ReceiveReadable(*c.session, 2) == "ab");
  REQUIRE(c.session->direct().lends());
  SECTION("a read") { c.session->Read(); }
  SECTION("a poll") {
    c.session->Poll();
    CHECK(c.queue_pair->polls == 1);
    c.session->Read();
  }
  SECTION("a sleep") {
    (void)c.session->MaySleep();
    CHECK_FALSE(c.session->direct().lends());
    c.session->Read();
  }
  CHECK_FALSE(c.session->direct().lends());
  CHECK(c.queue_pair->lent.empty());
  CHECK(std::as_const(*c.session).engine().readable_bytes() == 6);
  CHECK(ReceiveReadable(*c.session, 1) == "c");
  CHECK(ReceiveReadable(*c.session, 9) == "defgh");
  // The next is lent as the first was.
  c.queue_pair->in_link = {Data(2, "ijk")};
  CHECK(ReceiveDirect(*c.session, 1).empty());
  CHECK(c.session->direct().lends());
  CHECK(ReceiveReadable(*c.session, 9) == "ijk");
  CHECK_FALSE(c.session->direct().lends());
}

TEST_CASE("session: many small messages in the link are not looked at one by one") {
  Connected c = OverMemory();
  // Of the peer's credit, most has to come back.
  const uint32_t most = std::as_const(*c.session).engine().receive_buffers() / 4;
  for (uint32_t i = 0; i < most; ++i) c.queue_pair->in_link.push_back(Data(i, "ab"));
  CHECK(c.session->direct().BytesInLink() == 2 * most);
  c.queue_pair->in_link.push_back(Data(most, "ab"));
  CHECK(c.session->direct().BytesInLink() == std::nullopt);
}

TEST_CASE("session: what is no usual Data, or comes behind unread bytes, is left to the queues") {
  Connected c = OverMemory();
  c.queue_pair->in_link = {Data(0, "abc", wire::kOobPend)};
  CHECK_FALSE(c.session->direct().Comes());
  CHECK(c.session->direct().BytesInLink() == std::nullopt);
  CHECK(ReceiveDirect(*c.session, 10).empty());
  c.session->Read();
  CHECK(std::as_const(*c.session).engine().readable_bytes() == 3);
  c.queue_pair->in_link = {Data(1, "def")};
  CHECK(c.session->direct().BytesInLink() == std::nullopt);
  CHECK(ReceiveDirect(*c.session, 10).empty());
  // Who is told of the first has to learn what is behind it.
  Connected behind = OverMemory();
  behind.queue_pair->in_link = {Data(0, "abc"), Data(1, "d", wire::kOobPend)};
  CHECK(behind.session->direct().Comes());
  CHECK(behind.session->direct().BytesInLink() == std::nullopt);
  // One out of order ends the connection, as ever.
  Connected other = OverMemory();
  other.queue_pair->in_link = {Data(7, "def")};
  CHECK_FALSE(other.session->direct().Comes());
  CHECK(ReceiveDirect(*other.session, 10).empty());
  CHECK(std::as_const(*other.session).engine().state() == engine::State::kEstablished);
  other.session->Read();
  CHECK(std::as_const(*other.session).engine().state() == engine::State::kAborted);
}

TEST_CASE("session: a frame of which no payload is unsent, but its trailer is, leaves with the next pump") {
  Connected end(8);
  end.session->Pump();
  end.queue_pair->link_full = true;  // for the trailer alone: nothing is posted
  REQUIRE(end.session->has_unsent());
  const int before = end.queue_pair->flushes;
  end.session->Pump();
  CHECK(end.queue_pair->flushes == before + 1);
  end.queue_pair->link_full = false;
  CHECK_FALSE(end.session->has_unsent());
}

TEST_CASE("session: what the link does not take is copied before the call returns") {
  Connected c(16);
  c.queue_pair->link_full = true;
  c.Send(112);
  CHECK(c.queue_pair->detaches > 0);
}

std::vector<std::byte> SuspComm() {
  const wire::Message message{{.bufs = 10, .len = 24}, wire::SuspComm{4711}};
  std::vector<std::byte> bytes(24);
  wire::SerializeTo(message, bytes);
  return bytes;
}

TEST_CASE(
    "session: a peer that suspends (13) waits until somebody tends to the connection, and an RNIC that makes "
    "no other one ends it") {
  Connected c(10, std::make_unique<ScriptedQueuePair>(ScriptedQueuePair::Kind::kDevice));
  c.queue_pair->ready.push_back(SuspComm());
  c.session->Read();
  CHECK(c.session->moving());
  CHECK(c.session->has_unsent());
  CHECK_FALSE(c.session->transfer().freezable());
  CHECK(c.queue_pair->disconnects == 0);
  c.session->moves().Lead({});
  CHECK(c.queue_pair->disconnects == 1);
  c.queue_pair->ended = true;
  c.session->Read();
  CHECK(c.session->moving());
  c.session->moves().Lead({});
  CHECK_FALSE(c.session->moving());
  CHECK(c.session->link_ended());
  CHECK(c.session->cause().end == verbs::LinkEnd::kReset);
  CHECK(c.session->engine().state() == engine::State::kAborted);
  CHECK(c.session->engine().abort_reason() == engine::AbortReason::kLinkLost);
}

// A kernel RNIC's set-up: it fails with the first `errors`, one a connection, and then has a peer that
// answers.
struct Device {
  std::deque<int> errors{};
  std::vector<std::pair<uint16_t, uint16_t>> ports{};  // local and peer's, of each connection
  int alive = 0;                                       // queue pairs that hold their names
  bool crowded = false;                                // a connection was asked for beside another
};

class DeviceConnector final : public verbs::Connector {
 public:
  DeviceConnector(Device& device, Bytes hello) : device_(device) {
    if (!device_.errors.empty()) {
      cause_ = {.end = verbs::LinkEnd::kFailed, .os_error = device_.errors.front(), .text = "in use"};
      device_.errors.pop_front();
      return;
    }
    engine::Engine peer(engine::Role::kAccepting, engine::Options{});
    REQUIRE(peer.HandleHello(hello).has_value());
    const auto ack = peer.HelloAck();
    answer_.assign(ack.begin(), ack.end());
  }
  verbs::ConnectState Step(Time) override {
    return cause_.os_error != 0 ? verbs::ConnectState::kFailed : verbs::ConnectState::kEstablished;
  }
  int event_fd() const override { return 7; }
  void SetEventFd(int) override {}
  verbs::Interest interest() const override { return {}; }
  Time deadline() const override { return kNever; }
  Bytes peer_private_data() const override { return answer_; }
  bool may_send_first() const override { return false; }
  void Accept(Bytes, const verbs::QpOptions&) override {}
  void Reject(Bytes) override {}
  const verbs::LinkCause& cause() const override { return cause_; }
  std::unique_ptr<verbs::QueuePair> TakeQueuePair() override;

 private:
  Device& device_;
  verbs::LinkCause cause_;
  std::vector<std::byte> answer_;
};

class DeviceQueuePair final : public ScriptedQueuePair {
 public:
  DeviceQueuePair(Device& device, bool left)
      : ScriptedQueuePair(Kind::kDevice), device_(device), left_(left) {
    if (!left_) ++device_.alive;
  }
  ~DeviceQueuePair() override {
    if (!left_) --device_.alive;
  }
  void Names(sockaddr_storage* local, sockaddr_storage* peer) const override {
    *reinterpret_cast<sockaddr_in*>(local) = Name(1111);
    *reinterpret_cast<sockaddr_in*>(peer) = Name(2222);
  }
  std::unique_ptr<verbs::QueuePair> Leave() override {
    return std::make_unique<DeviceQueuePair>(device_, true);
  }
  std::unique_ptr<verbs::Connector> ConnectAgain(const sockaddr* local, const sockaddr* target, Bytes hello,
                                                 const verbs::QpOptions&, Duration, Time) override {
    device_.crowded |= device_.alive != 0 || !left_;
    const auto port = [](const sockaddr* name) {
      return ntohs(reinterpret_cast<const sockaddr_in*>(name)->sin_port);
    };
    device_.ports.emplace_back(port(local), port(target));
    return std::make_unique<DeviceConnector>(device_, hello);
  }

 private:
  static sockaddr_in Name(uint16_t port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    return name;
  }

  Device& device_;
  const bool left_;
};

std::unique_ptr<verbs::QueuePair> DeviceConnector::TakeQueuePair() {
  return std::make_unique<DeviceQueuePair>(device_, false);
}

// What became of a session over such a device whose peer has suspended it.
bool GoesOn(Device& device) {
  auto queue = std::make_unique<DeviceQueuePair>(device, false);
  DeviceQueuePair* const queue_pair = queue.get();
  Connected c(10, std::move(queue));
  queue_pair->ready.push_back(SuspComm());
  c.session->Read();
  c.session->moves().Lead({});
  queue_pair->ended = true;
  c.session->Read();
  c.session->moves().Lead({});
  CHECK_FALSE(c.session->moving());
  CHECK_FALSE(device.crowded);
  return !c.session->link_ended() && c.session->engine().state() == engine::State::kEstablished &&
         device.alive == 1;
}

TEST_CASE(
    "session: a peer that suspends a kernel RNIC's connection is followed from the same port, with nothing "
    "left of the old one") {
  Device device;
  CHECK(GoesOn(device));
  CHECK(device.ports == std::vector<std::pair<uint16_t, uint16_t>>{{1111, 4711}});
}

TEST_CASE("session: where that port cannot be had, it is followed from another") {
  const int error = GENERATE(EADDRINUSE, EADDRNOTAVAIL);
  Device device{.errors = {error}};
  CHECK(GoesOn(device));
  CHECK(device.ports == std::vector<std::pair<uint16_t, uint16_t>>{{1111, 4711}, {0, 4711}});
  Device refusing{.errors = {error, ECONNREFUSED}};
  CHECK_FALSE(GoesOn(refusing));
  CHECK(refusing.ports.size() == 2);
  Device gone{.errors = {ENODEV}};
  CHECK_FALSE(GoesOn(gone));
  CHECK(gone.ports.size() == 1);
}

TEST_CASE("session: a peer that ends the link itself behind the SuspCommAck is followed all the same") {
  Connected c(10);
  c.queue_pair->ready.push_back(SuspComm());
  c.session->Read();
  REQUIRE(c.session->moving());
  c.queue_pair->ended = true;
  c.session->Read();
  CHECK(c.session->moving());
  CHECK_FALSE(c.session->link_ended());
  CHECK(c.session->engine().state() != engine::State::kAborted);
}

std::vector<std::byte> Update() {
  const wire::Message message{{.bufs = 16, .len = 16}, wire::Data{}};
  std::vector<std::byte> bytes(16);
  wire::SerializeTo(message, bytes);
  return bytes;
}

TEST_CASE("session: what the set-up has received already is progress of the first look") {
  Connected c(16);
  c.queue_pair->ready.push_back(Update());
  CHECK(c.session->Read());
  CHECK(c.session->engine().stats().messages_in == 1);
  CHECK_FALSE(c.session->Read());
}

TEST_CASE("session: a look in vain of a caller that comes again touches nothing but the completions") {
  Connected c(16);
  c.queue_pair->flushes = 0;
  CHECK_FALSE(c.session->Poll());
  CHECK(c.queue_pair->polls == 1);
  CHECK(c.queue_pair->reads + c.queue_pair->flushes == 0);
  c.queue_pair->ready.push_back(Update());
  CHECK(c.session->Poll());
  CHECK(c.session->engine().stats().messages_in == 1);
}

TEST_CASE("session: a peer that never stops sending has one round at a time") {
  Connected c(16);
  c.queue_pair->endless = true;
  c.queue_pair->again.assign(16, std::byte{});
  c.queue_pair->reads = 0;
  c.session->Read();
  CHECK(c.queue_pair->reads == 1);
}

}  // namespace
}  // namespace sdp::preload
