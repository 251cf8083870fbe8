// Clients and a service over a network that loses, repeats, delays and reorders, in virtual time. Whatever
// happens, every query ends within its limit, agrees with something the service said, and leaves no state on
// either side (SDP 7.2).
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "portmapper/engine/assoc_handle.h"
#include "portmapper/engine/pm_client.h"
#include "portmapper/engine/pm_server.h"
#include "test/portmapper/pm_test_support.h"

namespace sdp::pm {
namespace {

using namespace std::chrono_literals;

struct InFlight {
  size_t client;
  bool to_server;
  Datagram datagram;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed), handles_({seed, ~seed}), loss_(Pick(60)), duplication_(Pick(30)) {
    for (uint16_t port = 80; port < 84; ++port) SetRegistered(port, Pick(2) == 0);
  }

  void Run() {
    for (int i = 0; i < 40; ++i) {
      StartQuery();
      Step();
      if (Pick(4) == 0) SetRegistered(static_cast<uint16_t>(80 + Pick(4)), Pick(2) == 0);
    }
    while (Step()) {
    }
    CheckEnd();
  }

 private:
  uint64_t Pick(uint64_t bound) { return random_() % bound; }

  void SetRegistered(uint16_t port, bool registered) {
    const auto found = services_.find(port);
    if (found != services_.end()) {
      REQUIRE(server_.Unregister(found->second));
      services_.erase(found);
    }
    if (!registered) return;
    const Endpoint sdp{IpVersion::kV4, {}, static_cast<uint16_t>(30000 + Pick(1000))};
    services_[port] = server_.Register({{IpVersion::kV4, {}, port}, sdp});
  }

  void StartQuery() {
    // Few local ports: the same four-tuple comes again under a new handle.
    const Endpoint local{IpVersion::kV4, {10, 0, 0, 1}, static_cast<uint16_t>(1000 + Pick(8))};
    const Endpoint target{IpVersion::kV4, {10, 0, 0, 2}, static_cast<uint16_t>(80 + Pick(4))};
    clients_.emplace_back(PmQuery{handles_.Next(), local, target}, PmClientOptions{}, now_);
    ends_by_.push_back(now_ + 300ms);
    Transmit(clients_.size() - 1);
  }

  void Transmit(size_t client) {
    while (const auto datagram = clients_[client].PollTransmit()) Submit({client, true, *datagram});
  }

  void Submit(const InFlight& message) {
    do {
      if (Pick(100) < loss_) continue;
      // Mostly quick, sometimes later than the query lives.
      const auto delay = std::chrono::milliseconds(Pick(8) == 0 ? Pick(800) : Pick(30));
      network_.emplace(now_ + delay, message);
    } while (Pick(100) < duplication_);
  }

  // The next thing that happens, if there is one.
  bool Step() {
    Time next = std::min(server_.NextTimeout(), network_.empty() ? kNever : network_.begin()->first);
    for (const PmClient& client : clients_) next = std::min(next, client.NextTimeout());
    if (next == kNever) return false;
    now_ = std::max(now_, next);
    server_.HandleTimeout(now_);
    for (size_t i = 0; i < clients_.size(); ++i) {
      clients_[i].HandleTimeout(now_);
      Transmit(i);
    }
    while (!network_.empty() && network_.begin()->first <= now_) {
      const InFlight message = network_.begin()->second;
      network_.erase(network_.begin());
      Deliver(message);
    }
    return true;
  }

  void Deliver(const InFlight& message) {
    if (message.to_server) {
      const auto answer = server_.HandleDatagram(message.datagram, now_);
      REQUIRE(server_.IsConsistent());
      if (!answer) return;
      said_[message.client].push_back(test::Parsed(*answer));
      Submit({message.client, false, *answer});
      return;
    }
    PmClient& client = clients_[message.client];
    const QueryState before = client.state();
    client.HandleDatagram(message.datagram, now_);
    REQUIRE(client.IsConsistent());
    if (before != QueryState::kAsking) REQUIRE(client.state() == before);
    if (before != client.state()) REQUIRE(now_ <= ends_by_[message.client]);
    Transmit(message.client);
  }

  void CheckEnd() {
    REQUIRE(server_.waiting() == 0);
    for (size_t i = 0; i < clients_.size(); ++i) {
      const PmClient& client = clients_[i];
      REQUIRE(client.state() != QueryState::kAsking);
      const auto& said = said_[i];
      const auto agrees = [&](const PmMessage& m) {
        if (client.state() == QueryState::kDenied) return m.type == MessageType::kDeny;
        return m.type == MessageType::kAccept && m.ap == client.sdp_address();
      };
      if (client.state() != QueryState::kSilent) REQUIRE(std::any_of(said.begin(), said.end(), agrees));
      if (client.state() == QueryState::kSilent && loss_ == 0) REQUIRE(client.requests_sent() > 1);
    }
    const PmServerCounters& c = server_.counters();
    // Every accept began a transaction, and each ended in exactly one way (one that was accepted again began
    // anew).
    REQUIRE(c.accepts + c.denies == c.requests);
    REQUIRE(c.acks + c.timeouts + c.evicted <= c.accepts);
    REQUIRE(c.acks + c.timeouts + c.evicted + c.duplicates + c.superseded >= c.accepts);
    REQUIRE(c.evicted == 0);
  }

  std::mt19937_64 random_;
  AssocHandleGenerator handles_;
  uint64_t loss_;         // percent
  uint64_t duplication_;  // percent
  Time now_{};
  PmServer server_;
  std::map<uint16_t, RegistrationId> services_;
  std::deque<PmClient> clients_;
  std::deque<Time> ends_by_;
  std::multimap<Time, InFlight> network_;
  std::map<size_t, std::vector<PmMessage>> said_;
};

TEST_CASE("clients and service recover all state over any network", "[pm_simulation]") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    INFO("seed " << seed);
    Simulation(seed).Run();
  }
}

}  // namespace
}  // namespace sdp::pm
