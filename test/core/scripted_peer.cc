#include "test/core/scripted_peer.h"

namespace sdp::engine {

std::vector<std::byte> Encode(wire::Message message, const std::string& payload) {
  std::vector<std::byte> bytes(message.header_size());
  wire::SerializeTo(message, bytes);
  for (const char c : payload) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

ScriptedPeer::ScriptedPeer(const Script& script) : end("z", script.role, script.options), bufs(script.bufs) {
  wire::Message message;
  message.bsdh.bufs = script.bufs;
  if (script.role == Role::kAccepting) {
    message.bsdh.len = kHelloSize;
    message.body = wire::Hello{.max_adverts = 4,
                               .des_rem_rcv_sz = 1000,
                               .local_rcv_sz = script.buffer_size,
                               .loc_ird = 4,
                               .loc_ord = 4};
    PAIR_CHECK(engine().HandleHello(Encode(message, "")).has_value(), "set-up");
    (void)engine().HelloAck();
  } else {
    (void)engine().Hello();
    message.bsdh.len = kHelloAckSize;
    message.body =
        wire::HelloAck{.max_adverts = 4, .act_rcv_sz = script.buffer_size, .loc_ird = 4, .loc_ord = 4};
    PAIR_CHECK(engine().HandleReply(Encode(message, "")).has_value(), "set-up");
  }
  end.Drain();
}

void ScriptedPeer::Say(const wire::Body& body, const std::string& payload, uint8_t flags) {
  SayWrong(body, payload, [flags](wire::Bsdh* bsdh) { bsdh->flags = flags; });
}

void ScriptedPeer::SayWrong(wire::Body body, const std::string& payload,
                            const std::function<void(wire::Bsdh*)>& change) {
  wire::Message message{{.bufs = bufs, .mseq = MSeq(mseq++), .mseq_ack = MSeq(heard == 0 ? 0 : heard - 1)},
                        body};
  message.bsdh.len = static_cast<uint32_t>(message.header_size() + payload.size());
  change(&message.bsdh);
  end.Receive(Encode(message, payload));
}

wire::Message ScriptedPeer::Take() {
  PAIR_CHECK(!end.flights.empty(), "the engine says nothing");
  const wire::Message message = end.Peek();
  payload_.clear();
  for (size_t i = message.header_size(); i < end.flights.front().bytes.size(); ++i) {
    payload_.push_back(static_cast<char>(end.flights.front().bytes[i]));
  }
  end.flights.pop_front();
  ++heard;
  if (!repost) --bufs;
  return message;
}

std::string ScriptedPeer::Hear() {
  if (end.flights.empty()) return "nothing";
  if (end.flights.front().kind != Flight::Kind::kSend) {
    const std::string text = end.Text();
    last_rdma = end.flights.front();
    end.flights.pop_front();
    return text;
  }
  std::string text = ToString(Take());
  for (const char* field : {" bufs=", " mseq=", " ack="}) {
    const size_t from = text.find(field);
    const size_t to = text.find(' ', from + 1);
    text.erase(from, to == std::string::npos ? to : to - from);
  }
  return text;
}

std::string ScriptedPeer::HearAll() {
  std::string all;
  while (!end.flights.empty()) all += (all.empty() ? "" : ", ") + Hear();
  return all.empty() ? "nothing" : all;
}

}  // namespace sdp::engine
