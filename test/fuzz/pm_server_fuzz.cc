// A service under a stream of commands: registrations come and go, time passes, datagrams arrive that are
// mostly well formed. Its tables stay consistent and bounded, and no answer is longer than its question or
// sent to anything but a request. A client hears the answers.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "portmapper/engine/pm_client.h"
#include "portmapper/engine/pm_server.h"

namespace sdp::pm {
namespace {

class Input {
 public:
  explicit Input(std::span<const uint8_t> data) : data_(data) {}
  [[nodiscard]] bool empty() const { return data_.empty(); }
  uint8_t Byte() {
    if (data_.empty()) return 0;
    const uint8_t byte = data_.front();
    data_ = data_.subspan(1);
    return byte;
  }

 private:
  std::span<const uint8_t> data_;
};

// Few addresses and ports, so that commands meet each other.
Endpoint PickEndpoint(Input& input) {
  static const std::array<const char*, 8> kAddresses = {"0.0.0.0:0",   "10.0.0.1:0",          "10.0.0.2:0",
                                                        "[::]:0",      "[::ffff:10.0.0.1]:0", "[::1]:0",
                                                        "127.0.0.1:0", "224.0.0.1:0"};
  const uint8_t choice = input.Byte();
  Endpoint endpoint = *ParseEndpoint(kAddresses[choice & 7]);
  endpoint.port = static_cast<uint16_t>(1 + (choice >> 3 & 3));
  return endpoint;
}

Datagram PickDatagram(Input& input) {
  PmMessage message;
  message.type = static_cast<MessageType>(input.Byte() & 3);
  message.handle = AssocHandle(input.Byte() & 7u);
  message.cp = PickEndpoint(input);
  message.ap = PickEndpoint(input);
  if (message.cp.version != message.ap.version) {
    message.cp = ToMapped(message.cp);
    message.ap = ToMapped(message.ap);
  }
  Datagram datagram = Serialize(message);
  // Now and then one byte is anything.
  const uint8_t position = input.Byte();
  if (position < datagram.size()) datagram[position] = static_cast<std::byte>(input.Byte());
  return datagram;
}

void Run(Input input) {
  PmServerOptions options;
  options.max_transactions = 5;
  PmServer server(options);
  std::vector<RegistrationId> ids;
  Time now{};
  const Endpoint local = *ParseEndpoint("10.0.0.1:1");
  PmClient client({AssocHandle(1), local, *ParseEndpoint("10.0.0.2:1")}, {}, now);

  while (!input.empty()) {
    switch (input.Byte() % 4) {
      case 0:
        if (ids.size() < 8)
          ids.push_back(server.Register({PickEndpoint(input), PickEndpoint(input), (input.Byte() & 1) != 0}));
        break;
      case 1:
        if (!ids.empty()) {
          const size_t which = input.Byte() % ids.size();
          SDP_CHECK(server.Unregister(ids[which]));
          ids.erase(ids.begin() + static_cast<ptrdiff_t>(which));
        }
        break;
      case 2:
        now += std::chrono::milliseconds(input.Byte() * 20);
        server.HandleTimeout(now);
        client.HandleTimeout(now);
        break;
      case 3: {
        const Datagram question = PickDatagram(input);
        const size_t size = input.Byte() == 0 ? input.Byte() % 48 : 48;
        const Bytes bytes = Bytes(question).first(size);
        const auto parsed = Parse(bytes);
        const auto candidate = parsed ? server.FindLocal(*parsed) : std::nullopt;
        const auto answer = server.HandleDatagram(bytes, now);
        SDP_CHECK(answer.has_value() == (parsed && parsed->type == MessageType::kReq));
        if (answer) {
          const auto reply = Parse(*answer);
          SDP_CHECK(reply && reply->handle == parsed->handle && reply->cp == parsed->cp);
          SDP_CHECK(reply->type == MessageType::kDeny || (reply->type == MessageType::kAccept && candidate));
          client.HandleDatagram(*answer, now);
        }
        client.HandleDatagram(bytes, now);
        break;
      }
    }
    (void)client.PollTransmit();
    SDP_CHECK(client.IsConsistent() && server.IsConsistent());
    SDP_CHECK(server.waiting() <= 5 && server.registrations().size() == ids.size());
    SDP_CHECK((server.NextTimeout() == kNever) == (server.waiting() == 0));
  }
}

}  // namespace
}  // namespace sdp::pm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sdp::pm::Run(sdp::pm::Input({data, size}));
  return 0;
}
