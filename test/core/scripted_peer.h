// One engine against a peer that the test plays by hand.
#ifndef SDP_TEST_CORE_SCRIPTED_PEER_H_
#define SDP_TEST_CORE_SCRIPTED_PEER_H_

#include <optional>
#include <string>

#include "test/core/engine_pair.h"

namespace sdp::engine {

struct Script {
  Options options{};
  Role role = Role::kAccepting;  // the engine's
  uint16_t bufs = 24;            // the peer's receive Private Buffers
  uint32_t buffer_size = 1016;   // their size: 1000 bytes of payload
};

class ScriptedPeer {
 public:
  explicit ScriptedPeer(const Script& script = {});

  // A message to the engine, with the right MSeq, MSeqAck, Bufs and Len.
  void Say(const wire::Body& body, const std::string& payload = "", uint8_t flags = 0);
  // The same, after `change` has spoilt it.
  void SayWrong(wire::Body body, const std::string& payload, const std::function<void(wire::Bsdh*)>& change);
  // The engine's oldest message, in words, without its numbers: "Data payload=3"; "nothing". It is received
  // by the peer.
  std::string Hear();
  wire::Message Take();
  // Everything the engine has to say, joined by ", ".
  std::string HearAll();
  [[nodiscard]] std::string payload() const { return payload_; }  // of the last message heard

  Engine& engine() { return end.engine; }
  [[nodiscard]] AbortReason reason() const { return end.engine.abort_reason(); }

  End end;
  uint32_t mseq = 0;
  uint32_t heard = 0;  // messages
  uint16_t bufs = 0;
  Flight last_rdma{};  // the RDMA Read or Write that Hear() told of last
  bool repost = true;  // the peer keeps its buffers posted

 private:
  std::string payload_;
};

std::vector<std::byte> Encode(wire::Message message, const std::string& payload);

}  // namespace sdp::engine

#endif  // SDP_TEST_CORE_SCRIPTED_PEER_H_
