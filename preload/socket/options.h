// Makes the engine's and the RNIC's options from the configuration. Functions without state or lock.
#ifndef SDP_PRELOAD_SOCKET_OPTIONS_H_
#define SDP_PRELOAD_SOCKET_OPTIONS_H_

#include <algorithm>
#include <cstdint>

#include "core/engine/enlargement.h"
#include "core/engine/options.h"
#include "core/wire/bsdh.h"
#include "preload/allowed_calls.h"
#include "preload/config.h"
#include "preload/socket/asked_port.h"
#include "preload/socket/connection_tuning.h"
#include "preload/socket/kernel_rnic.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {

enum class RnicKind : bool { kEmbedded, kKernel };

// SDP_FORCE: a small write waits for the read of its answer.
inline bool ForcesTransactions() { return config().force == Mechanism::kTransaction; }
// SDP_FORCE: senders write into memory that readers lend, and into nothing else.
inline bool AwaitsReadersMemory() { return config().force == Mechanism::kWrite || ForcesTransactions(); }

// A smaller send is not worth the registration of its memory. In bytes, as the next one.
inline constexpr uint32_t kWorthRegistering = 512 * 1024;
// For up to so many bytes, a copy costs less than the messages and wake-ups of Zcopy (scripts/bench zcopy).
inline constexpr uint32_t kWorthLending = 64 * 1024 - 1;

// Sets which mechanisms the engine may use, and from which size on. A kernel RNIC reads large sends (SDP
// 9.2). The embedded RNIC copies all. Its Read Responses would be copied in and out of the kernel, or of
// shared memory, like Sends, and writer and reader would wait for each other. It answers a peer that lends.
// Forcing a mechanism is for measurements: what it cannot carry is copied.
inline void ChooseMechanisms(RnicKind rnic, engine::Options* options) {
  constexpr uint32_t kNever = UINT32_MAX;
  const uint32_t worth_zcopy = rnic == RnicKind::kEmbedded ? kWorthLending : kWorthRegistering;
  const Mechanism force = config().force;
  options->read_zcopy = force != Mechanism::kBcopy;
  options->source_threshold = options->sink_threshold = config().bcopy_threshold.value_or(worth_zcopy);
  switch (force) {
    case Mechanism::kChosen:
      options->follow_hints = true;
      if (rnic == RnicKind::kEmbedded && !config().bcopy_threshold) options->source_threshold = kNever;
      break;
    case Mechanism::kBcopy:
      options->source_threshold = options->sink_threshold = kNever;
      break;
    case Mechanism::kRead:
      options->source_threshold = options->sink_threshold = 1;
      break;
    case Mechanism::kWrite:
    case Mechanism::kTransaction:
      options->source_threshold = kNever;
      options->sink_threshold = 1;
      options->prefer_pipelined = options->follow_hints = options->begin_pipelined =
          options->await_sink_avail = true;
      break;
  }
}

// ULP payload of a Data message that fills a receive Private Buffer: what one FPDU holds, in whole KiB.
inline constexpr uint32_t kUsualPayload = 63 * 1024;
// Bytes of such a buffer, headers included.
inline constexpr uint32_t kUsualBufferSize = wire::Bsdh::kSize + kUsualPayload;

// Returns the number of buffers that suits the RNIC. It bounds how far a sender may be ahead of the reader.
// With more buffers, the reader is woken and grants credit more rarely. Beyond this number a stream gains
// little, and its bytes leave the caches (scripts/bench large iperf3-large). Empty buffers of the embedded
// RNIC take no memory; a device's are registered and pinned.
inline constexpr uint16_t SuitableBufferCount(RnicKind rnic) { return rnic == RnicKind::kEmbedded ? 64 : 16; }

// For SO_RCVBUF set before the connection: Private Buffers that hold about as much. Never reduced below this
// number, since the last ones carry no payload (SDP 10.5), and the peer needs some in flight.
inline constexpr uint32_t kFewestBuffers = 8;
inline constexpr uint32_t kLeastPayload = 256;

// `receive_buffer`: bytes; 0: as configured.
inline void BoundReceiveBuffers(size_t receive_buffer, engine::Options* options) {
  if (receive_buffer == 0) return;
  if (receive_buffer >= uint64_t{options->receive_buffers} * options->receive_buffer_size) {
    // Buffers that the peer has enlarged have to fit, too.
    const uint64_t fitting =
        std::min<uint64_t>(options->receive_buffer_limit, receive_buffer / engine::kFewestEnlarged);
    options->receive_buffer_limit = std::max(options->receive_buffer_size, static_cast<uint32_t>(fitting));
    return;
  }
  const auto wanted = static_cast<uint32_t>(receive_buffer);
  const uint32_t size = wire::Bsdh::kSize + std::max(wanted / kFewestBuffers, kLeastPayload);
  options->receive_buffer_size = std::min(options->receive_buffer_size, size);
  const uint32_t fitting = std::max(wanted / options->receive_buffer_size, kFewestBuffers);
  options->receive_buffers = static_cast<uint16_t>(std::min<uint32_t>(options->receive_buffers, fitting));
  options->receive_buffer_limit =
      options->receive_buffer_size;  // the peer's wish for larger ones is not granted
}

inline engine::Options EngineOptions(RnicKind rnic, const ConnectionTuning& tuning) {
  const auto first_set = [](auto... values) {
    uint32_t value = 0;
    ((value = value != 0 ? value : values), ...);
    return value;
  };
  engine::Options options;
  options.receive_buffers = static_cast<uint16_t>(
      first_set(tuning.private_buffers(), config().receive_buffers, SuitableBufferCount(rnic)));
  options.receive_buffer_size =
      first_set(tuning.private_buffer_size(), config().receive_buffer_size, kUsualBufferSize);
  // SDP 10.6: a stream of large writes enlarges a peer's smaller buffers to what fills an FPDU. The peer then
  // has fewer, so that it pins no more memory. Ours may become as large.
  options.desired_remote_size = kUsualBufferSize;
  options.enlarge_remote = true;
  options.receive_buffer_limit = first_set(config().receive_buffer_limit, kUsualBufferSize);
  BoundReceiveBuffers(tuning.receive_buffer(), &options);
  options.receive_limit = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{options.receive_buffers} * options.receive_buffer_size, UINT32_MAX));
  options.send_limit = config().send_buffer;
  ChooseMechanisms(rnic, &options);
  return options;
}

// How long to wait for the peer's first message: a round trip, and one loss of the reply or of that message.
// A peer with this library sends it right after the set-up (ConnectAttempt); only another one needs the time.
inline constexpr Duration kAcceptSilence = std::chrono::seconds(3);

inline verbs::QpOptions QpOptions(const engine::Options& options) {
  return {.receive_buffer_size = options.receive_buffer_size,
          .initial_receives = options.receive_buffers,
          .ird = options.ird,
          .ord = options.ord,
          .accept_silence = kAcceptSilence};
}

// The kernel keeps a connection to an SDP listener until the MPA Request has come, at most for so long. A
// silent peer thus costs the process nothing. The kernel rounds other times to these (TCP_DEFER_ACCEPT).
inline Duration Deferral() {
  for (const auto seconds : {std::chrono::seconds(3), std::chrono::seconds(1)}) {
    if (config().handshake_timeout >= seconds) return seconds;
  }
  return {};
}

inline iwarp::SoftOptions SoftOptions() {
  iwarp::SoftOptions options;
  options.want_crc = config().mpa_crc;
  options.want_markers = config().mpa_markers;
  options.peer_to_peer = config().mpa_peer_to_peer;
  // Of the peers with an embedded RNIC only kin put something into their reply.
  options.rtr_way = [](Bytes reply) {
    if (reply.empty()) return iwarp::RtrWay::kAtOnce;
    return AskedPort(reply) ? iwarp::RtrWay::kNone : iwarp::RtrWay::kConfirmed;
  };
  options.local_link = config().link != LinkChoice::kTcp && !Confined();
  if (Confined()) options.why_not_local = "a filter of system calls";
  options.local_link_only = config().link == LinkChoice::kLocal;
  options.startup_timeout = config().handshake_timeout;
  options.deferral = Deferral();
  return options;
}

// Returns true if this host and configuration have an RNIC to offer; else *why.
inline bool HaveRnic(std::string* why) {
  return config().rnic != RnicChoice::kVerbs || MayUseKernelRnic(why);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OPTIONS_H_
