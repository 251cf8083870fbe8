// A socket over a kernel RNIC: a real StreamSocket, engine and queue pair, with a device and a peer that the
// test plays.
#ifndef SDP_TEST_PRELOAD_KERNEL_LINK_H_
#define SDP_TEST_PRELOAD_KERNEL_LINK_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "preload/fd_table.h"
#include "preload/socket/background.h"
#include "preload/socket/stream_socket.h"
#include "test/verbs/fake_device.h"
#include "verbs/ibv/ibv_qp.h"

namespace sdp::preload::test {

using ibv::test::FakeDevice;
using Armed = FakeDevice::Armed;

constexpr size_t kBufferSize = 4096;
constexpr auto kPatience = std::chrono::seconds(60);

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// The accepting engine, and what carries its messages. By one thread.
class Peer {
 public:
  Peer(FakeDevice& device, const engine::Options& options)
      : engine(engine::Role::kAccepting, options), device_(device) {}

  // Takes what the socket has posted, and answers.
  void Exchange() {
    Take();
    Answer();
  }
  void Send(std::string_view text) {
    const Bytes piece = std::as_bytes(std::span(text.data(), text.size()));
    REQUIRE(engine.Send({&piece, 1}, {}) == text.size());
    Answer();
  }
  void SendUpdate() {
    engine.SendUpdate();
    Exchange();
  }
  // Reads so much, from the memory of whoever offers it, or as it comes by itself where the offer is over.
  void Read(size_t size) {
    got.assign(size, 0);
    MutableBytes rest = std::as_writable_bytes(std::span(got));
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!rest.empty()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      size_t n = engine.Receive({&rest, 1}, {});
      if (n == 0 && engine.sink_wish(rest.size()) == engine::SinkWish::kRead) {
        REQUIRE(
            engine.OfferSink({.data = rest, .stag = STag(5), .va = reinterpret_cast<uint64_t>(rest.data())}));
        Answer();
        const auto result = engine.TakeSinkResult();
        REQUIRE(result);
        n = result->bytes;
      }
      rest = rest.subspan(n);
      if (n == 0) std::this_thread::yield();
      Exchange();
    }
  }

  engine::Engine engine;
  Armed last_found_armed = Armed::kNot;  // by our last message
  std::string got;

 private:
  void Take() {
    for (const FakeDevice::Sent& sent : device_.TakeSent()) {
      if (sent.signaled) device_.Complete(sent.id);
      if (sent.opcode != IBV_WR_SEND && sent.opcode != IBV_WR_SEND_WITH_INV) continue;
      const Bytes message(received_.emplace_back(sent.bytes));
      engine.HandleReceive({.length = static_cast<uint32_t>(message.size()),
                            .pieces = {&message, 1},
                            .token = received_.size(),
                            .cost = 0});
    }
  }
  void Answer() {
    engine::Action action;
    while (engine.PollAction(&action)) {
      std::visit(Overloaded{[&](const engine::PostSend& send) {
                              std::string message;
                              Append(&message, send.header_bytes());
                              for (const Bytes& piece : send.payload()) Append(&message, piece);
                              last_found_armed = device_.Bring(message, send.solicited);
                              if (send.signaled) engine.HandleSendCompleted(send.id);
                            },
                            [&](const engine::PostRdmaRead& read) {
                              std::memcpy(reinterpret_cast<void*>(read.local_va),
                                          reinterpret_cast<const void*>(read.remote_va), read.length);
                              engine.HandleRdmaReadCompleted(read.id);
                            },
                            [](const auto&) {}},
                 action);
    }
  }
  static void Append(std::string* to, Bytes bytes) {
    to->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  FakeDevice& device_;
  std::deque<std::vector<std::byte>> received_;
};

inline engine::Options EngineSizes() {
  engine::Options options;
  options.receive_buffers = 16;
  options.receive_buffer_size = kBufferSize;
  options.read_zcopy = true;
  options.source_threshold = options.sink_threshold = 1000;
  return options;
}

struct Link {
  Link() {
    auto engine = std::make_unique<engine::Engine>(engine::Role::kConnecting, EngineSizes());
    const auto hello = engine->Hello();
    REQUIRE(peer.engine.HandleHello(hello).has_value());
    const auto ack = peer.engine.HelloAck();
    REQUIRE(engine->HandleReply(ack).has_value());
    auto queue_pair = std::make_unique<ibv::IbvQp>(
        device.Make(64), verbs::QpOptions{.receive_buffer_size = kBufferSize, .initial_receives = 16});
    REQUIRE(queue_pair->Prepare());
    queue_pair->Establish(4, 4);
    auto owned = std::make_unique<Session>(std::move(engine), std::move(queue_pair));
    session = owned.get();
    fd = ::eventfd(0, EFD_CLOEXEC);  // any file
    socket = new StreamSocket(AF_INET, fd, std::move(owned), Address{}, Address{}, KeptOptions{},
                              /*nonblocking=*/false);
    FdTable::Set(fd, socket);
    peer.Exchange();
  }
  ~Link() {
    device.SetOnPoll({});
    device.SetOnArm({});
    // The helper may have the socket, for what a sender has left to it. With the session goes all that knows
    // of the device.
    Background::RestForFork();
    Background::LockForFork();
    session->engine().Abort(engine::AbortReason::kLocal);  // nothing to log
    session->Abort();
    Background::UnlockAfterFork();
    socket->Close(fd);
    socket->Unref();
  }
  ssize_t Receive(void* room, size_t size, int flags = 0) {
    const iovec piece{.iov_base = room, .iov_len = size};
    return socket->Receive(fd, &piece, 1, flags, nullptr);
  }
  // Has `step` run in front of look number `look`, from the next on, at the completion queues.
  void AtLook(int look, std::function<void()> step) {
    steps.emplace_back(look, std::move(step));
    device.SetOnPoll([this] {
      // Each look asks both queues.
      if (polls++ % 2 != 0) return;
      const int now = polls / 2;
      for (auto& [when, what] : steps) {
        if (when == now) what();
      }
    });
  }

  // From now on: once the receives are armed for so much or more. Who arms them goes on, under the socket's
  // lock.
  std::future<void> Arming(Armed least) {
    struct Signal {
      std::promise<void> armed;
      std::once_flag once;
    };
    auto signal = std::make_shared<Signal>();
    device.SetOnArm([signal, least](Armed now) {
      if (now >= least) std::call_once(signal->once, [&] { signal->armed.set_value(); });
    });
    return signal->armed.get_future();
  }

  FakeDevice device;
  Peer peer{device, EngineSizes()};
  Session* session = nullptr;
  StreamSocket* socket = nullptr;
  int fd = -1;
  int polls = 0;
  std::vector<std::pair<int, std::function<void()>>> steps;
};

inline void WaitUntil(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

}  // namespace sdp::preload::test

#endif  // SDP_TEST_PRELOAD_KERNEL_LINK_H_
