#include "test/verbs/rnic_pairs.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::verbs::test {
namespace {

using iwarp::test::Fd;
using iwarp::test::Now;

constexpr auto kPatience = std::chrono::seconds(60);

Bytes AsBytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

sockaddr_in RnicAddress(uint16_t port = 0) {
  const char* const text = std::getenv("SDP_TEST_RNIC_ADDRESS");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, text != nullptr ? text : "10.77.0.1", &address.sin_addr) == 1);
  return address;
}

const sockaddr* Generic(const sockaddr_in& address) { return reinterpret_cast<const sockaddr*>(&address); }

// Where the accepting side listens.
struct Place {
  Fd tcp;
  std::unique_ptr<ibv::Listener> rdma;
  sockaddr_in address{};
};

Place Listen(const Options& options) {
  Place place;
  const bool any_rnic = options.a == Backend::kIbv || options.z == Backend::kIbv;
  if (any_rnic) {
    place.address = RnicAddress();
  } else {
    place.address.sin_family = AF_INET;
    place.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  if (options.z == Backend::kIbv) {
    std::string why;
    place.rdma = ibv::Listener::Open(Generic(place.address), 8, &why);
    INFO(why);
    REQUIRE(place.rdma != nullptr);
    place.address.sin_port = htons(place.rdma->port());
    return place;
  }
  place.tcp = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t length = sizeof place.address;
  REQUIRE(::bind(place.tcp.value, Generic(place.address), length) == 0);
  REQUIRE(::listen(place.tcp.value, 8) == 0);
  REQUIRE(::getsockname(place.tcp.value, reinterpret_cast<sockaddr*>(&place.address), &length) == 0);
  return place;
}

End Connect(const Options& options, const Place& place) {
  End end;
  if (options.a == Backend::kIbv) {
    end.connector = ibv::Connect(nullptr, Generic(place.address), AsBytes(options.hello), options.qp,
                                 std::chrono::seconds(20), Now());
    return end;
  }
  end.fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(end.fd.value, Generic(place.address), sizeof place.address) == 0);
  iwarp::SoftOptions soft;
  soft.want_crc = options.crc;
  soft.local_link = options.a == Backend::kLocal;
  end.connector = iwarp::Connect(end.fd.value, AsBytes(options.hello), options.qp, soft, Now());
  return end;
}

void MaybeAccept(const Options& options, const Place& place, End* end) {
  if (end->connector != nullptr) return;
  if (place.rdma != nullptr) {
    end->connector = place.rdma->Accept(std::chrono::seconds(20), Now());
    return;
  }
  end->fd = Fd(::accept4(place.tcp.value, nullptr, nullptr, SOCK_CLOEXEC));
  if (end->fd.value < 0) return;
  iwarp::SoftOptions soft;
  soft.want_crc = options.crc;
  soft.local_link = options.z == Backend::kLocal;
  end->connector = iwarp::Listen(end->fd.value, soft, Now());
}

bool Over(const End& end) {
  return end.state == ConnectState::kEstablished || end.state == ConnectState::kRejected ||
         end.state == ConnectState::kFailed;
}

}  // namespace

const char* ToString(Backend backend) {
  return backend == Backend::kSoft ? "embedded" : backend == Backend::kLocal ? "local" : "kernel";
}

bool Have(Backend backend) {
  if (backend != Backend::kIbv) return true;
  std::string why;
  static const bool have = [&] {
    const bool found = ibv::Available(&why) && !ibv::DeviceOf(Generic(RnicAddress())).empty();
    if (!found)
      std::printf("skipped: no kernel RNIC (%s); scripts/siw-guest has one\n",
                  why.empty() ? "no device" : why.c_str());
    return found;
  }();
  return have;
}

RnicPair Meet(const Options& options) {
  const Place place = Listen(options);
  RnicPair pair;
  pair.a = Connect(options, place);
  bool answered = false;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!Over(pair.a) || !Over(pair.z)) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    if (!Over(pair.a)) pair.a.state = pair.a.connector->Step(Now());
    MaybeAccept(options, place, &pair.z);
    if (pair.z.connector != nullptr && !Over(pair.z)) {
      pair.z.state = pair.z.connector->Step(Now());
      if (pair.z.state == ConnectState::kRequested && !answered) {
        answered = true;
        const Bytes hello = pair.z.connector->peer_private_data();
        CHECK(std::string(reinterpret_cast<const char*>(hello.data()), hello.size()) == options.hello);
        if (options.reject) {
          pair.z.connector->Reject(AsBytes(options.welcome));
        } else {
          pair.z.connector->Accept(AsBytes(options.welcome), options.qp);
        }
        continue;
      }
    }
    std::array<pollfd, 3> fds{};
    fds[0] = {.fd = place.rdma != nullptr ? place.rdma->event_fd() : place.tcp.value,
              .events = POLLIN,
              .revents = 0};
    int timeout = 100;
    for (size_t i = 0; i < 2; ++i) {
      const End& side = i == 0 ? pair.a : pair.z;
      fds[i + 1].fd = -1;
      if (side.connector == nullptr || Over(side)) continue;
      const Interest interest = side.connector->interest();
      fds[i + 1] = {
          .fd = side.connector->event_fd(),
          .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
          .revents = 0};
      if (side.connector->deadline() < Now() + std::chrono::milliseconds(100)) timeout = 1;
    }
    ::poll(fds.data(), fds.size(), timeout);
  }
  for (End* side : {&pair.a, &pair.z}) {
    if (side->state == ConnectState::kEstablished) side->qp = side->connector->TakeQueuePair();
  }
  return pair;
}

bool RunUntil(RnicPair& pair, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    pollfd fds[2];
    QueuePair* const sides[2] = {pair.a.qp.get(), pair.z.qp.get()};
    for (int i = 0; i < 2; ++i) {
      const Interest interest =
          sides[i] != nullptr ? sides[i]->interest() : Interest{.read = false, .write = false};
      fds[i] = {.fd = interest.read || interest.write ? sides[i]->event_fd() : -1,
                .events = static_cast<short>((interest.read ? POLLIN : 0) | (interest.write ? POLLOUT : 0)),
                .revents = 0};
    }
    ::poll(fds, 2, 100);
    for (int i = 0; i < 2; ++i) {
      if ((fds[i].revents & POLLOUT) != 0) sides[i]->Flush();
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) sides[i]->ReadLink();
    }
  }
  return true;
}

Completion Next(End& self, RnicPair& pair) {
  Completion completion;
  const bool came = RunUntil(pair, [&] { return self.qp->PollCompletion(&completion); });
  INFO(pair.a.qp->cause().text << " / " << pair.z.qp->cause().text);
  REQUIRE(came);
  return completion;
}

std::string Text(const Completion& c) {
  std::string text;
  for (size_t i = 0; i < c.piece_count; ++i) {
    text.append(reinterpret_cast<const char*>(c.pieces[i].data()), c.pieces[i].size());
  }
  return text;
}

PostResult Send(End& end, std::string_view text, bool signaled) {
  const Bytes payload = AsBytes(text);
  const PostResult result =
      end.qp->PostSend({.id = WorkId(1), .signaled = signaled, .payload = std::span(&payload, 1)});
  if (!end.qp->Flush()) end.qp->DetachBorrowed();
  return result;
}

}  // namespace sdp::verbs::test
