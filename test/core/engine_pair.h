// Two engines, a (connecting) and z (accepting), over virtual RNICs. Nothing moves by itself: the test
// delivers each message and completion. Every rule that the wire shows is checked on the way: order, Bufs,
// credit, sizes, solicited events.
#ifndef SDP_TEST_CORE_ENGINE_PAIR_H_
#define SDP_TEST_CORE_ENGINE_PAIR_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/wire/message.h"

namespace sdp::engine {

// What one RNIC sends to the other, in order.
struct Flight {
  enum class Kind { kSend, kWrite, kReadRequest, kReadResponse };

  std::vector<std::byte> bytes{};
  bool solicited = false;
  Kind kind = Kind::kSend;
  std::optional<STag> invalidate{};
  // RDMA: where it goes, or comes from.
  STag stag{};
  uint64_t va = 0;
  PostRdmaRead read{};  // of which this is the request or the response
  // kWrite: what is to be written, until the RNIC has taken it (Complete()).
  Bytes source{};
  bool taken = true;
};

// Registered memory.
struct Region {
  MutableBytes memory{};
  uint64_t va = 0;
  bool remote_read = false;
  bool remote_write = false;
};

// One end: an engine, its receive buffers, what it has sent and what the link did.
class End {
 public:
  End(std::string name, Role role, const Options& options);

  // Carries out all actions.
  void Drain();
  // The oldest message of `peer` arrives here, in random pieces if `random` is given.
  void Deliver(End& peer, std::mt19937_64* random);
  void Receive(std::vector<std::byte> bytes, std::mt19937_64* random = nullptr,
               std::optional<STag> invalidated = {});
  void Complete();

  // Application's calls; each drains.
  size_t Send(std::span<const Bytes> data, SendFlags flags);
  size_t Send(const std::string& text, SendFlags flags = {});
  std::string Read(size_t size, ReceiveFlags flags = {});
  // The direct way. SendDirect() sends all of `data` in one message, or returns false. ReceiveDirect() takes
  // the oldest message of `peer` into `room`, and returns its payload; 0: it has to be delivered.
  bool SendDirect(std::span<const Bytes> data);
  size_t ReceiveDirect(End& peer, MutableBytes room);
  void CloseSend();
  void CloseReceive();
  void Abort();
  void LoseLink(bool orderly);

  // The application lends memory: registered with a new STag until the result is taken. `question` is sent
  // behind the offer, before anything leaves.
  bool OfferSource(MutableBytes data);
  bool OfferSink(MutableBytes data, bool advertise, Bytes question = {});
  std::optional<OfferResult> SourceResult();
  std::optional<OfferResult> SinkResult();
  // The offered buffer is its owner's again, and a copy goes on in its place. False: none is offered, or it
  // was asked back.
  bool MoveSource();
  // Likewise; how many bytes of it are the application's. Nothing: the peer knows nothing of it.
  std::optional<uint64_t> MoveSink();
  void RevokeSource();
  void RevokeSink();
  void ForceBcopy();
  bool Suspend(uint16_t port);
  // A new link, before the Hello; false while the engine cannot leave the old one.
  bool Resume();
  [[nodiscard]] bool deliverable() const { return !flights.empty() && flights.front().taken; }
  // The engine moves to another process, if it can now; the memory that it was lent stays behind.
  bool Refreeze();

  [[nodiscard]] wire::Message Peek() const;  // the oldest message in flight from here
  [[nodiscard]] std::string Text() const;    // the same, in words

  std::string name;
  Options options;
  Engine engine;
  std::deque<Flight> flights;          // sent, not delivered
  std::deque<WorkId> completions;      // signaled, not completed
  std::map<uint32_t, Region> regions;  // by STag
  STag source_stag{}, sink_stag{};
  size_t question_taken = 0;  // of the last one
  uint32_t reads_outstanding = 0;
  bool link_up = true;
  bool disconnected = false;  // DisconnectLink or AbortLink was carried out
  bool aborted_link = false;
  uint64_t posted = 0;    // receive buffers, over the connection's life
  uint64_t received = 0;  // messages
  uint64_t sent = 0;
  bool hello_ack_sent = false;
  std::deque<uint32_t> posted_sizes;                // of the receive buffers, in the order posted
  uint32_t receive_size = 0;                        // of those posted from now on
  bool no_memory_for_sizes = false;                 // the RNIC cannot give them another size
  std::function<void(const std::string&)> trace{};  // optional

 private:
  void Post(const PostSend& post);
  // Nothing is due, unless the engine has said so.
  void EndDirect();
  MutableBytes Access(STag stag, uint64_t va, size_t size, bool Region::*right);

  using Lent = std::vector<std::vector<std::byte>>;
  void GiveBack(Lent memory);

  std::map<uint64_t, Lent> lent_;
  std::deque<Lent> given_back_;
  uint64_t next_token_ = 1;
  uint32_t next_stag_ = 100;
  MutableBytes source_memory_;
  bool source_revoked_ = false;
  std::vector<std::byte> moved_, moved_sink_;
};

enum class AckIn { kReply, kSend };

struct EnginePair {
  EnginePair(const Options& a_options, const Options& z_options, AckIn ack = AckIn::kReply);

  // Delivers everything, both ways, until nothing moves; how many messages. Fails the test if that takes more
  // than `limit`.
  size_t Settle(size_t limit = 1000);
  // If both have left their connection: its link ends, and the next one is set up by the Remote Peer. False:
  // not yet.
  bool Reconnect(AckIn ack);

  End a;
  End z;

 private:
  static void SetUp(End* connecting, End* accepting, AckIn ack);
};

// A check that also holds outside of Catch's macros (the fuzzers use this file too).
#define PAIR_CHECK(condition, who)                                                      \
  do {                                                                                  \
    if (!(condition)) ::sdp::engine::PairFailed(__FILE__, __LINE__, #condition, (who)); \
  } while (0)
// What was given back holds something else from now on: who still reads it reads rubbish.
void Scribble(MutableBytes memory);

// Throws std::runtime_error, which fails a Catch test and tells the simulation to print its trace.
[[noreturn]] void PairFailed(const char* file, int line, const char* what, const std::string& who);

}  // namespace sdp::engine

#endif  // SDP_TEST_CORE_ENGINE_PAIR_H_
