// One SDP connection as a value: messages, completions and the application's calls go in, work for the RNIC
// comes out.
//
// Four kinds of method, and no others:
//   getters        const, cheap
//   inputs         HandleX(...): something happened on the RNIC or the link
//   commands       what the application wants: Send, Receive, CloseSend, ...
//   outputs        PollAction(): take actions until it returns false, after every input or command
// The engine makes no system call, reads no clock, starts no thread and takes no lock; the owner serialises
// all calls. Memory is allocated when it is made, and when the send buffer is first needed; never per
// message.
//
// Memory of others: an action's payload references the application's memory (given to Send) or the engine's
// send buffer. It is valid until the next input or command, so the owner posts all actions and then flushes,
// or detaches (verbs::QueuePair::DetachBorrowed), before it calls again and before the application's call
// returns. A received message's pieces are lent to the engine until it emits ReleaseReceive with the
// message's token.
//
// Draft: sdp-iwarp-draft-01. Sections are named where they decide.
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

  // --- Freeze and thaw: the connection moves to another process (fork, exec, a passed descriptor), its link
  // with it. freezable(): PollAction() was taken until it said false, and nothing is In-Process: no signaled
  // Send, RDMA Read or RDMA Write waits for its completion, and no memory of the application's is offered. A
  // connection in any state comes to such a point by itself, with the completions of what it has posted.
  [[nodiscard]] bool freezable() const;
  // The whole state as bytes: the send buffer and all received, unread data, too. Needs freezable().
  // Allocates. Afterwards one of the two lives on: either this engine, or, when this one is destroyed without
  // another call, what is thawed. The memory lent by receives that were not released stays with the old
  // process's RNIC: the new process has a copy and never gives those tokens back. The new owner's RNIC takes
  // over the link as it is: the stream's position, posted receives as stats().posted_receives says, and every
  // received Send that was not yet handed in.
  [[nodiscard]] std::vector<std::byte> Freeze() const;
  // The same behind what `ar` has, which refers to the data until the engine's next call.
  void Freeze(Writer& ar) const;
  // An engine that goes on where the frozen one stood; its WorkIds go on counting, too. Bytes from anywhere
  // are refused or become an engine that is safe to use.
  [[nodiscard]] static Result<Engine, ThawError> Thaw(Bytes frozen);

  // --- Connection set-up (8.1.1). The Hello travels as the private data of the RNIC's connection request.
  // Connecting peer, first: the Hello's bytes.
  [[nodiscard]] std::array<std::byte, kHelloSize> Hello();
  // Accepting peer: checks 3a. An error means the connection request has to be rejected.
  Result<void, AbortReason> HandleHello(Bytes hello);
  // Accepting peer, after HandleHello: either take the HelloAck's bytes for the private data of the reply, or
  // have it posted as the first Send with SE. The connection is established from here on.
  [[nodiscard]] std::array<std::byte, kHelloAckSize> HelloAck();
  void SendHelloAck();
  // Connecting peer: the private data of the reply. Empty: the HelloAck comes as the first message. Anything
  // else: checks 7a.
  Result<void, AbortReason> HandleReply(Bytes private_data);

  // A gratuitous update of credit (10.4) although none is due, as soon as one may leave: for a peer whose
  // RNIC must hear a message from us before it may send.
  void SendUpdate();

  // --- Inputs
  // A message arrived. The engine may keep the token (data) or release it at once.
  void HandleReceive(const ReceivedMessage& message);
  // A signaled Send completed successfully.
  void HandleSendCompleted(WorkId id);
  // Successful completions of PostRdmaRead and PostRdmaWrite; a failed one is the link's end.
  void HandleRdmaReadCompleted(WorkId id);
  void HandleRdmaWriteCompleted(WorkId id);
  // There is no memory for what the last polled action, a SetReceiveSize, wants: the size stays, and the peer
  // hears so (10.6). Unlike other inputs it may come in the middle of polling.
  void HandleReceiveSizeRefused();
  // The link is gone: everything outstanding is over. `orderly`: FIN on a message boundary.
  void HandleLinkEnd(bool orderly);

  // --- Commands
  // Takes bytes of `data` in order, returns how many: what credit allows leaves as actions, more may be
  // copied, see Buffering. 0 with writable() false: wait until writable(). May be called only while
  // can_send().
  size_t Send(std::span<const Bytes> data, SendFlags flags);
  // Copies received bytes out, returns how many; 0 when nothing is there. Stops before and after the
  // out-of-band mark as TCP does.
  size_t Receive(std::span<const MutableBytes> out, ReceiveFlags flags);
  // Nothing more is sent; DisConn leaves behind the last data (8.2.1). Idempotent.
  void CloseSend();
  // The application takes no more: what has come stays to be read, even behind Abort(); what comes is
  // dropped, and refused_data() says so.
  void RefuseReceive();
  // It reads no more, either: what has come is dropped, too.
  void CloseReceive();
  // Abortive close (8.2.2): AbortConn first if DisConn had been sent, then the link is aborted.
  void Abort(AbortReason reason);
  // Changes the Flow Control Mode of the half-connection in which we are `half`, if we are its Mode Master
  // now and figure 26 has the transition; else false. The ModeChange leaves with the next actions.
  bool ChangeMode(Half half, FlowMode mode);
  // Asks the peer for receive Private Buffers of `size` bytes (10.6): larger ones for a stream of large
  // writes, smaller ones to give it its memory back. False if it may not be asked now, or not any more.
  // stats().remote_buffer_size tells. Options::enlarge_remote does it by itself where it pays.
  bool AskPeerBufferSize(uint32_t size);
  // SO_OOBINLINE, for Out-Of-Band bytes that arrive from now on: they stay in the stream. Otherwise each is
  // taken out and waits for TakeOob(); one that was not taken is lost when the next arrives.
  void SetOutOfBandInline(bool value);
  // The Out-Of-Band byte, once (any number of times with `peek`).
  std::optional<std::byte> TakeOob(ReceiveFlags flags);

  // --- Zcopy (9.2 to 9.5.5): one buffer a direction, lent by a blocking call until its result is there.
  //   offer  -> actions, inputs ... -> Take...Result() has a value -> the buffer is the caller's again,
  //   deregister revoke -> the same, soon: time-out, signal, close
  // Would the engine use a send buffer of `size` bytes otherwise than by copying it? Ask before registering.
  [[nodiscard]] bool wants_source(uint64_t size) const;
  // The next bytes of the stream. Travels by Read Zcopy, Write Zcopy, or (the peer forces it) Bcopy. False:
  // not now (an offer is active, sending is over): nothing was taken. Until the result is there Send() takes
  // nothing, except behind an offer that was moved.
  [[nodiscard]] bool OfferSource(const SourceBuffer& buffer);
  [[nodiscard]] SinkWish sink_wish(uint64_t size) const;
  // To be filled with the next bytes of the stream, once readable_bytes() is 0. Ends as soon as anything is
  // in it that the peer made available in one piece, or with 0 bytes when data has come by Bcopy instead:
  // then Receive() has it. False: not now.
  [[nodiscard]] bool OfferSink(const SinkBuffer& buffer);
  // Asks for the buffer back. No effect when none is offered. The result comes at once if the peer knows
  // nothing of the buffer, else with its answer (SrcAvailCancel 9.5.4, SinkAvailCancel 9.5.5). An owner that
  // cannot wait for a peer that does not answer ends the link: then every result is there at once.
  void RevokeSource();
  // The offered buffer, not revoked, is needed back at once, and nobody has to wait for the peer: `copy`, of
  // the same size and content, takes its place under the same STag and Tagged Offsets
  // (verbs::MovableRegions). The result is the copy's. Send() goes on behind it, into the send buffer.
  // RevokeSource() from then on: the copy, too, is to come back, so that the engine can be frozen. What the
  // peer has not read follows as Data from the send buffer; the result is all of it.
  void MoveSource(Bytes copy);
  void RevokeSink();
  // The offered receive buffer, which sink_promised(), is needed back at once: `copy`, of the same size and
  // content, takes its place likewise. Returns how many bytes at its beginning are the reader's now; what the
  // peer still puts behind them is for Receive(). Asked back as by RevokeSink(); the result says when the
  // copy is no longer used, and its count nothing.
  uint64_t MoveSink(MutableBytes copy);
  [[nodiscard]] bool source_offered() const;
  // The peer knows of the offered send buffer, or is owed it: revoked, it may take the peer's answer to come
  // back.
  [[nodiscard]] bool source_promised() const;
  [[nodiscard]] bool sink_offered() const;
  // The peer knows of the offered receive buffer, or RDMA Reads into it are under way.
  [[nodiscard]] bool sink_promised() const;
  // Whether a hint to use Pipelined Mode goes with what we complete as Data Sink (Options::prefer_pipelined):
  // the reader is expected to post large buffers before the peer sends.
  void PreferPipelined(bool value);
  // Whether the peer's hints change the mode of the half-connection in which we are Data Source
  // (Options::follow_hints). Without, ChangeMode does.
  void FollowHints(bool value);
  // What the peer's oldest SinkAvail has room for, 0 without one: a source offer goes there at once.
  [[nodiscard]] uint32_t sink_avail_bytes() const;
  // A send or receive buffer of more bytes than this may go otherwise than by copying, from now on (the Bcopy
  // threshold); UINT32_MAX: none.
  void SetZcopyThreshold(uint32_t bytes);
  void SetSourceThreshold(uint32_t bytes);
  // Lets go of the send buffer's memory if nothing is in it and nothing has been since the last call.
  void TrimSendBuffer();
  [[nodiscard]] size_t send_buffer_memory() const;  // bytes
  // The result of an offer, once; write_edge() or read_edge() has grown. Another offer can be made only then.
  std::optional<OfferResult> TakeSourceResult();
  std::optional<OfferResult> TakeSinkResult();
  // Answers the SrcAvails that wait with SendSm (9.5.2.1): the reader polls, peeks, does not block or has a
  // small buffer. Also done by itself while a source offer of ours is advertised and no sink offer is active
  // (the deadlock of 9.2).
  void ForceBcopy();
  // Bytes that the peer offers to be read and that are not decided on: a reader would get them if it came.
  [[nodiscard]] uint64_t advertised_bytes() const;

  // --- Socket Duplication and Managed Failover (13): the session goes on over another LLP connection.
  //   Local Peer:  Suspend(port) -> suspended() -> the peer ends the link -> HandleLinkEnd -> [Freeze, Thaw
  //   elsewhere]
  //                -> Resume -> set-up as accepting peer at `port`
  //   Remote Peer: suspended_port() -> end the link -> HandleLinkEnd -> Resume -> set-up as connecting peer
  // Asks the peer to suspend, and to connect to TCP port `port` of our address: of another process, or in a
  // failover of another RNIC or host. The owner listens there already and takes only the peer's own address
  // and port (13.1.1, 1). What is In-Process is finished first; new data and offers wait for the next
  // connection, offers that are under way end with what they have moved. False: sending or receiving is all
  // over, or one is under way. If the peer asks at the same time, suspended_port() comes up instead and ours
  // follows in the next connection (13.1.2).
  bool Suspend(uint16_t port);
  // With suspended() and the link's end told: this engine is one before set-up again (Hello, or HandleHello,
  // comes next), with the unread and unsent bytes, closed halves, urgent data and Private Buffers' size of
  // the session; stats().posted_receives says how many receives the new QueuePair starts with. `ird`, `ord`:
  // its RNIC's. Received memory was copied: its tokens are not given back. False: not suspended, or not
  // freezable() (results of offers have to be taken). Allocates.
  bool Resume(uint16_t ird, uint16_t ord);

  // --- Outputs. False: there is nothing more to do now.
  bool PollAction(Action* out);

  // --- Getters
  [[nodiscard]] State state() const;
  [[nodiscard]] AbortReason abort_reason() const;  // kNone unless state() is kAborted
  [[nodiscard]] bool can_send() const;             // established, CloseSend not called, not aborted
  [[nodiscard]] bool send_closed() const;          // CloseSend was called, whatever came since
  [[nodiscard]] bool writable() const;             // Send would take at least a useful amount
  [[nodiscard]] uint64_t readable_bytes() const;
  [[nodiscard]] uint64_t readable_to_mark() const;      // of these, those before an out-of-line mark
  [[nodiscard]] uint64_t readable_to_any_mark() const;  // also one in line: what one Receive takes
  // Messages that have left and that the peer has not acknowledged yet (MSeqAck, 6.1.6).
  [[nodiscard]] uint64_t unacknowledged_messages() const;
  [[nodiscard]] bool refused_data() const;
  [[nodiscard]] bool end_of_stream() const;  // DisConn received and all data read, or the link ended after it
  [[nodiscard]] bool peer_closed() const;    // DisConn received, data may be left
  // Grows by each event that an edge-triggered reader (writer) has to hear of: data or end arrived; space
  // became available.
  [[nodiscard]] uint64_t read_edge() const;
  [[nodiscard]] uint64_t write_edge() const;
  // Accepted but not yet handed to the RNIC: bytes in the send buffer, and the DisConn behind them.
  [[nodiscard]] uint64_t buffered_bytes() const;
  [[nodiscard]] bool has_unfinished_sends() const;
  // Bytes of the source offer that have not left.
  [[nodiscard]] uint64_t offered_bytes() const;
  // Both directions are closed (or aborted) and nothing is left to do: the owner may close the link.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool oob_pending() const;  // the peer announced an Out-Of-Band byte that is not here yet
  // How many were announced since this engine was made, or thawed: each is worth a SIGURG.
  [[nodiscard]] uint32_t urgent_announcements() const;
  [[nodiscard]] bool oob_available() const;  // TakeOob() has one
  [[nodiscard]] bool urgent()
      const;  // either of these, or (inline) the byte is in the stream and not yet read
  [[nodiscard]] bool at_mark()
      const;  // SIOCATMARK: the next byte to read is behind (inline: is) the Out-Of-Band byte
  // The session has left its connection and waits for the next one, see Suspend().
  [[nodiscard]] bool suspended() const;
  // suspended(), and we are the Remote Peer: to be connected to.
  [[nodiscard]] std::optional<uint16_t> suspended_port() const;
  // RDMA Reads that the peer may, and that we may, have outstanding. ord() is final once the connection is
  // established (8.1.1, 4e and 7d): the owner gives it to the RNIC.
  [[nodiscard]] uint16_t ird() const;
  [[nodiscard]] uint16_t ord() const;
  [[nodiscard]] uint8_t minor_version() const;  // the lesser of both (8.1.1, 3b and 7b)
  [[nodiscard]] const Stats& stats() const;
  [[nodiscard]] uint16_t receive_buffers() const;   // Options::receive_buffers
  [[nodiscard]] uint32_t source_threshold() const;  // Options::source_threshold
  [[nodiscard]] uint32_t sink_threshold() const;    // Options::sink_threshold
  [[nodiscard]] uint32_t receive_limit() const;     // Options::receive_limit
  // SrcAvails and SinkAvails that are not answered yet: the peer's, and ours.
  [[nodiscard]] uint32_t advertised_in() const;
  [[nodiscard]] uint32_t advertised_out() const;
  [[nodiscard]] bool IsConsistent()
      const;  // the invariants; checked by itself in debug builds, by tests and fuzzers always

 private:
  std::unique_ptr<Rep> rep_;
};

}  // namespace sdp::engine

#endif  // SDP_CORE_ENGINE_ENGINE_H_
