// One SDP connection as a value. Messages, completions and the application's calls go in, and work for the
// RNIC comes out.
//
// Four kinds of method, and no others:
//   getters        const, cheap
//   inputs         HandleX(...): something happened on the RNIC or the link
//   commands       what the application wants: Send, Receive, CloseSend, ...
//   outputs        PollAction(): call it until it returns false, after every input or command
//
// The engine makes no system call, reads no clock, starts no thread and takes no lock; the owner serialises
// all calls. The constructor allocates, and so does the first use of the send buffer; no message allocates.
//
// Memory of others: an action's payload refers to the application's memory (given to Send) or to the engine's
// send buffer. It is valid until the next input or command. So the owner posts all actions, and then flushes
// or detaches (verbs::QueuePair::DetachBorrowed), before its next call and before the application's call
// returns. The owner lends the pieces of a received message to the engine until the engine emits
// ReleaseReceive with the message's token.
//
// The draft is sdp-iwarp-draft-01. Comments name its sections where they decide.
#ifndef SDP_CORE_ENGINE_ENGINE_H_
#define SDP_CORE_ENGINE_ENGINE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/archive.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "core/engine/action.h"
#include "core/engine/options.h"
#include "core/engine/status.h"
#include "core/engine/vocabulary.h"

namespace sdp::engine {

struct Rep;  // core/engine/rep.h: what an engine is made of

class Engine {
 public:
  Engine(Role role, const Options& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // --- Freeze and thaw: the connection and its link move to another process (fork, exec, passed descriptor).
  // Returns true if PollAction() has returned false and nothing is In-Process. Then no signaled Send, RDMA
  // Read or RDMA Write waits for its completion, and the application offers no memory. A connection in any
  // state reaches such a point by itself, with the completions of what it has posted.
  [[nodiscard]] bool freezable() const;
  // Returns the whole state as bytes, including the send buffer and all received, unread data. Needs
  // freezable(). Allocates. Afterwards only one of the two continues: this engine, or the thawed one if this
  // engine is destroyed without another call. Memory lent by unreleased receives stays with the old process's
  // RNIC: the new process has a copy, and never returns those tokens. The new owner's RNIC takes over the
  // link as it is: the stream's position, stats().posted_receives posted receives, and every received Send
  // not yet passed to HandleReceive.
  [[nodiscard]] std::vector<std::byte> Freeze() const;
  // Appends that state to `ar`, which refers to the data until the engine's next call.
  void Freeze(Writer& ar) const;
  // Returns an engine that continues where the frozen one stopped, including its WorkIds. Bytes from anywhere
  // are refused, or become an engine that is safe to use.
  [[nodiscard]] static Result<Engine, ThawError> Thaw(Bytes frozen);

  // --- Connection set-up (8.1.1). The Hello travels as the private data of the RNIC's connection request.
  // Connecting peer, first call: returns the Hello's bytes.
  [[nodiscard]] std::array<std::byte, kHelloSize> Hello();
  // Accepting peer: checks 8.1.1, 3a. On an error the owner rejects the connection request.
  Result<void, AbortReason> HandleHello(Bytes hello);
  // Accepting peer, after HandleHello: HelloAck() returns the bytes for the reply's private data.
  // SendHelloAck() has them posted as the first Send with SE instead. Either call establishes the connection.
  [[nodiscard]] std::array<std::byte, kHelloAckSize> HelloAck();
  void SendHelloAck();
  // Connecting peer: takes the private data of the reply. If empty, the HelloAck comes as the first message.
  // Otherwise checks 8.1.1, 7a.
  Result<void, AbortReason> HandleReply(Bytes private_data);

  // Sends a gratuitous update of credit (10.4) although none is due, as soon as one may leave. Serves a peer
  // whose RNIC must hear a message from us before it may send.
  void SendUpdate();

  // --- Inputs
  // Takes a message that arrived. The engine may keep the token (data) or release it at once.
  void HandleReceive(const ReceivedMessage& message);
  // Copies what is unread of the message with `token`, whose memory the owner needs back: it is not released
  // any more, unless it was read before.
  void KeepReceived(uint64_t token);
  // Notes that a signaled Send completed successfully.
  void HandleSendCompleted(WorkId id);
  // Take successful completions of PostRdmaRead and PostRdmaWrite. A failed one ends the link.
  void HandleRdmaReadCompleted(WorkId id);
  void HandleRdmaWriteCompleted(WorkId id);
  // Tells that memory is lacking for the last polled action, a SetReceiveSize: the size stays, and the engine
  // tells the peer so (10.6). Unlike other inputs it may come in the middle of polling.
  void HandleReceiveSizeRefused();
  // Tells that the link is gone: everything outstanding is over. `orderly`: FIN on a message boundary.
  void HandleLinkEnd(bool orderly);

  // --- Commands
  // Takes bytes of `data` in order and returns how many. What credit allows leaves as actions; more may be
  // copied, see Buffering. If it returns 0 and writable() is false, the owner waits until writable(). Call it
  // only while can_send().
  size_t Send(std::span<const Bytes> data, SendFlags flags);
  // Copies received bytes out and returns how many; 0 when there are none. Stops before and after the
  // Out-Of-Band mark as TCP does.
  size_t Receive(std::span<const MutableBytes> out, ReceiveFlags flags);
  // Ends sending; DisConn leaves after the last data (8.2.1). Idempotent.
  void CloseSend();
  // Ends receiving: what has come stays readable, even after Abort(). Later payload is dropped, and
  // refused_data() then returns true.
  void RefuseReceive();
  // Ends receiving and reading: also drops what has come.
  void CloseReceive();
  // Closes abortively (8.2.2): AbortConn first if DisConn was sent, then the link is aborted.
  void Abort(AbortReason reason);
  // Changes the Flow Control Mode of the half-connection in which we are `half`. Returns false unless we are
  // its Mode Master now and figure 26 has the transition. The ModeChange leaves with the next actions.
  bool ChangeMode(Half half, FlowMode mode);
  // Asks the peer for receive Private Buffers of `size` bytes (10.6): larger ones for a stream of large
  // writes, or smaller ones to free memory of the peer's. Returns false if we may not ask now, or not any
  // more. stats().remote_buffer_size has the result. Options::enlarge_remote asks by itself where it pays.
  bool AskPeerBufferSize(uint32_t size);
  // SO_OOBINLINE. If true, Out-Of-Band bytes stay in the stream, including one that is here and neither taken
  // nor passed. Otherwise each is taken out and waits for TakeOob(); the next one replaces an untaken one.
  void SetOutOfBandInline(bool value);
  // Returns the Out-Of-Band byte, once (any number of times with `peek`).
  std::optional<std::byte> TakeOob(ReceiveFlags flags);

  // --- The direct way, for links that are memory. A usual Data message passes between the link and the
  // program's memory without an action or an input of its own; its effects are the same.
  // Returns true if SendDirect() may follow: `size` bytes fit one message, credit allows it, and nothing else
  // is under way.
  [[nodiscard]] bool may_send_direct(size_t size) const;
  // Returns true if nothing is under way but usual Data, both ways, nothing received is unread, and no action
  // is due. Only what this end does, or receives, ends that.
  [[nodiscard]] bool plain() const;
  // Returns how many bytes the oldest piece of an unread message has; 0 while Out-Of-Band data is known.
  [[nodiscard]] uint32_t readable_piece() const;
  // Receive() that fills `out`, which is smaller than readable_piece(). Less is unread then. Nothing else
  // changes, and no action is due.
  void ReceiveWithin(MutableBytes out);
  // Counts the next `size` bytes of the stream as sent. Writes the header that precedes them on the link.
  void SendDirect(uint32_t size, std::span<std::byte, kDataHeader> header);
  // Returns true if a message of `length` bytes that begins with `header` may be taken by ReceiveDirect().
  [[nodiscard]] bool may_receive_direct(std::span<const std::byte, kDataHeader> header,
                                        uint32_t length) const;
  // Returns true if such a message is nothing but data. What comes behind others is judged when it is next.
  [[nodiscard]] static bool IsPlainData(std::span<const std::byte, kDataHeader> header, uint32_t length);
  // Takes the message, whose payload the owner copies to the program. Returns how many receive Private
  // Buffers to post for it.
  uint32_t ReceiveDirect(std::span<const std::byte, kDataHeader> header);
  // Returns true if the owner should poll actions after one of the two.
  [[nodiscard]] bool due_after_direct() const;

  // --- Zcopy (9.2 to 9.5.5): one buffer a direction, lent by a blocking call until its result is there.
  //   offer  -> actions, inputs ... -> Take...Result() has a value -> deregister: the buffer is the caller's
  //   revoke -> the same, soon: for a time-out, a signal, a close
  // Returns true if the engine would use a send buffer of `size` bytes without copying it. Ask before
  // registering.
  [[nodiscard]] bool wants_source(uint64_t size) const;
  // Offers the next bytes of the stream. They travel by Read Zcopy, Write Zcopy, or (if the peer forces it)
  // Bcopy. Returns false, and takes nothing, if it cannot now (an offer is active, sending is over). Until
  // the result is there Send() takes nothing, except after an offer that was moved.
  [[nodiscard]] bool OfferSource(const SourceBuffer& buffer);
  [[nodiscard]] SinkWish sink_wish(uint64_t size) const;
  // Offers a buffer for the next bytes of the stream, once readable_bytes() is 0. The offer ends as soon as
  // the buffer holds bytes that the peer made available in one piece. It ends with 0 bytes when data came by
  // Bcopy instead: then Receive() returns that data. Returns false if it cannot now.
  [[nodiscard]] bool OfferSink(const SinkBuffer& buffer);
  // Asks for the buffer back; no effect if none is offered. The result comes at once if the peer knows
  // nothing of the buffer, else with the peer's answer (SrcAvailCancel 9.5.4, SinkAvailCancel 9.5.5). An
  // owner that cannot wait for a silent peer ends the link: then every result is there at once.
  void RevokeSource();
  // Takes the offered, unrevoked buffer back at once, without waiting for the peer. `copy`, of the same size
  // and content, replaces it under the same STag and Tagged Offsets (verbs::MovableRegions), and the result
  // is the copy's. Send() continues after it, into the send buffer. A later RevokeSource() asks for the copy
  // back, so that the engine can be frozen. What the peer has not read follows as Data from the send buffer,
  // and the result then counts all bytes.
  void MoveSource(Bytes copy);
  void RevokeSink();
  // Takes the offered receive buffer, which sink_promised(), back at once, and replaces it by `copy`
  // likewise. Returns how many bytes at its beginning the reader now owns. What the peer writes after them is
  // for Receive(). The copy is asked back as by RevokeSink(). The result says when it is no longer used; its
  // byte count means nothing.
  uint64_t MoveSink(MutableBytes copy);
  [[nodiscard]] bool source_offered() const;
  // Returns true if the peer knows of the offered send buffer, or is owed it. Then a revoked buffer may come
  // back only with the peer's answer.
  [[nodiscard]] bool source_promised() const;
  [[nodiscard]] bool sink_offered() const;
  // Returns true if the peer knows of the offered receive buffer, or RDMA Reads into it are under way.
  [[nodiscard]] bool sink_promised() const;
  // Sets whether our completions as Data Sink hint at Pipelined Mode (Options::prefer_pipelined): the reader
  // is expected to post large buffers before the peer sends.
  void PreferPipelined(bool value);
  // Returns the room of the peer's oldest SinkAvail; 0 if there is none. A source offer goes there at once.
  [[nodiscard]] uint32_t sink_avail_bytes() const;
  // Sets the Bcopy threshold for send and receive buffers. Larger buffers may avoid the copy from now on;
  // UINT32_MAX: none does.
  void SetZcopyThreshold(uint32_t bytes);
  // Frees the send buffer's memory if it is empty and was not used since the last call.
  void TrimSendBuffer();
  [[nodiscard]] size_t send_buffer_memory() const;  // bytes
  // Return the result of an offer, once; write_edge() or read_edge() has grown. Only then may the next offer
  // come.
  std::optional<OfferResult> TakeSourceResult();
  std::optional<OfferResult> TakeSinkResult();
  // Answers the waiting SrcAvails with SendSm (9.5.2.1), because the reader polls, peeks, does not block or
  // has a small buffer. The engine also does this by itself while a source offer of ours is advertised and no
  // sink offer is active (the deadlock of 9.2).
  void ForceBcopy();
  // Returns how many bytes the peer offers for reading and no answer has decided on: a reader would get them.
  [[nodiscard]] uint64_t advertised_bytes() const;

  // --- Socket Duplication and Managed Failover (13): the session continues over another LLP connection.
  //   Local Peer:  Suspend(port) -> suspended() -> the peer ends the link -> HandleLinkEnd
  //                -> [Freeze, Thaw elsewhere] -> Resume -> set-up as accepting peer at `port`
  //   Remote Peer: suspended_port() -> end the link -> HandleLinkEnd -> Resume -> set-up as connecting peer
  // Asks the peer to suspend, and to connect to TCP port `port` of our address. The port belongs to another
  // process, or in a failover to another RNIC or host. Its owner already listens, and accepts only the peer's
  // own address and port (13.1.1, 1). In-Process transfers finish first. New data and offers wait for the
  // next connection; current offers end with what they have moved. Returns false if both directions are
  // closed, or if one of ours is under way. If the peer asks at the same time, suspended_port() has its port
  // instead, and our request follows in the next connection (13.1.2).
  bool Suspend(uint16_t port);
  // Call it after suspended() and HandleLinkEnd. This engine is then one before set-up (Hello or HandleHello
  // comes next), with the session's unread and unsent bytes, closed halves, urgent data and Private Buffers'
  // size. stats().posted_receives is the number of receives that the new QueuePair starts with. `ird` and
  // `ord` are its RNIC's. Received memory is copied: its tokens are not given back. Returns false if not
  // suspended or not freezable() (take the results of offers first). Allocates.
  bool Resume(uint16_t ird, uint16_t ord);

  // --- Outputs. Returns false if there is nothing more to do now.
  bool PollAction(Action* out);

  // --- Getters
  [[nodiscard]] State state() const;
  [[nodiscard]] AbortReason abort_reason() const;  // kNone unless state() is kAborted
  [[nodiscard]] bool can_send() const;             // established, CloseSend not called, not aborted
  [[nodiscard]] bool send_closed() const;          // CloseSend was called, whatever came since
  [[nodiscard]] bool writable() const;             // Send would take at least a useful amount
  [[nodiscard]] uint64_t readable_bytes() const;
  [[nodiscard]] uint64_t readable_to_mark() const;      // bytes before an out-of-line mark
  [[nodiscard]] uint64_t readable_to_any_mark() const;  // bytes before any mark: what one Receive takes
  // Returns how many messages have left that the peer has not acknowledged yet (MSeqAck, 6.1.6).
  [[nodiscard]] uint64_t unacknowledged_messages() const;
  [[nodiscard]] bool refused_data() const;
  [[nodiscard]] bool end_of_stream() const;  // DisConn received and all data read, or the link ended after it
  [[nodiscard]] bool peer_closed() const;    // DisConn received, data may be left
  // Returns true if the peer has acknowledged all but gratuitous updates, and not all of these. Until the
  // link's end there may be more to send.
  [[nodiscard]] bool only_updates_unheard() const;
  // Grow by each event that an edge-triggered reader or writer must learn of: data or the end arrived; space
  // became available. A Send that is taken whole makes no edge.
  [[nodiscard]] uint64_t read_edge() const;
  [[nodiscard]] uint64_t write_edge() const;
  // Return the bytes of Send() not yet handed to the RNIC, and whether any send, offer or DisConn is
  // unfinished.
  [[nodiscard]] uint64_t buffered_bytes() const;
  [[nodiscard]] bool has_unfinished_sends() const;
  // Returns how many bytes of the source offer have not left.
  [[nodiscard]] uint64_t offered_bytes() const;
  // Returns true if both directions are closed (or aborted) and no work is left: the owner may close the
  // link.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool oob_pending() const;  // the peer announced an Out-Of-Band byte that is not here yet
  // Returns how many bytes were announced since this engine was made or thawed: each is worth a SIGURG.
  [[nodiscard]] uint32_t urgent_announcements() const;
  [[nodiscard]] bool oob_available() const;  // TakeOob() has one
  [[nodiscard]] bool urgent() const;         // pending, available, or (inline) unread in the stream
  [[nodiscard]] bool at_mark() const;        // SIOCATMARK: the mark is at the position of the next read
  // Returns true if the session has left its connection and waits for the next one, see Suspend().
  [[nodiscard]] bool suspended() const;
  // If suspended() and we are the Remote Peer: returns the port to connect to.
  [[nodiscard]] std::optional<uint16_t> suspended_port() const;
  // Return how many RDMA Reads the peer, and we, may have outstanding. ord() is final once the connection is
  // established (8.1.1, 4e and 7d): the owner gives it to the RNIC.
  [[nodiscard]] uint16_t ird() const;
  [[nodiscard]] uint16_t ord() const;
  [[nodiscard]] uint8_t minor_version() const;  // the lesser of both (8.1.1, 3b and 7b)
  [[nodiscard]] const Stats& stats() const;
  [[nodiscard]] uint16_t receive_buffers() const;   // Options::receive_buffers
  [[nodiscard]] uint32_t source_threshold() const;  // Options::source_threshold
  [[nodiscard]] uint32_t sink_threshold() const;    // Options::sink_threshold
  [[nodiscard]] uint32_t receive_limit() const;     // Options::receive_limit
  // Return how many SrcAvails and SinkAvails are not answered yet: the peer's, and ours.
  [[nodiscard]] uint32_t advertised_in() const;
  [[nodiscard]] uint32_t advertised_out() const;
  [[nodiscard]] bool IsConsistent() const;  // checks the invariants; debug builds, tests and fuzzers call it

 private:
  std::unique_ptr<Rep> rep_;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ENGINE_H_
