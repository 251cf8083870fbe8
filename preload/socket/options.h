// The engine's and the RNIC's options, as the configuration wants them.
#ifndef SDP_PRELOAD_SOCKET_OPTIONS_H_
#define SDP_PRELOAD_SOCKET_OPTIONS_H_

#include <algorithm>
#include <cstdint>

#include "core/engine/options.h"
#include "core/wire/bsdh.h"
#include "preload/config.h"
#include "preload/socket/kernel_rnic.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {

// Which mechanisms the engine may choose from, and from which size on. Forcing one is for measurements: what
// it cannot carry is copied.
inline void ChooseMechanisms(engine::Options* options) {
  constexpr uint32_t kNever = UINT32_MAX;
  const Mechanism force = config().force;
  options->read_zcopy = force != Mechanism::kBcopy;
  options->source_threshold = options->sink_threshold = config().bcopy_threshold;
  switch (force) {
    case Mechanism::kChosen:
      options->follow_hints = true;
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

enum class RnicKind : bool { kEmbedded, kKernel };

// ULP payload of a Data message that fills a receive Private Buffer. The embedded RNIC's buffers take no
// memory before there is something in them: as much as fits one FPDU, in whole KiB. A device's are registered
// and pinned.
inline constexpr uint32_t kEmbeddedPayload = 63 * 1024;
inline constexpr uint32_t kKernelPayload = 32 * 1024;

// Bytes of a receive Private Buffer, headers included.
inline uint32_t PrivateBufferSize(RnicKind rnic) {
  if (config().receive_buffer_size != 0) return config().receive_buffer_size;
  return wire::Bsdh::kSize + (rnic == RnicKind::kEmbedded ? kEmbeddedPayload : kKernelPayload);
}

inline engine::Options EngineOptions(RnicKind rnic) {
  engine::Options options;
  options.receive_buffers = config().receive_buffers;
  options.receive_buffer_size = PrivateBufferSize(rnic);
  options.desired_remote_size = options.receive_buffer_size;
  options.receive_limit = static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{options.receive_buffers} * options.receive_buffer_size, UINT32_MAX));
  options.send_limit = config().send_buffer;
  ChooseMechanisms(&options);
  return options;
}

// A peer of ours has its first message follow the set-up at once (ConnectAttempt), and only another one is waited for so long: a round
// trip, and one loss of the reply or of that message.
inline constexpr Duration kAcceptSilence = std::chrono::seconds(3);

inline verbs::QpOptions QpOptions(const engine::Options& options) {
  return {.receive_buffer_size = options.receive_buffer_size,
          .initial_receives = options.receive_buffers,
          .ird = options.ird,
          .ord = options.ord,
          .accept_silence = kAcceptSilence};
}

inline iwarp::SoftOptions SoftOptions() {
  iwarp::SoftOptions options;
  options.want_crc = config().mpa_crc;
  options.want_markers = config().mpa_markers;
  options.peer_to_peer = config().mpa_peer_to_peer;
  options.confirm_rtr = true;  // peers with an embedded RNIC put nothing in their reply
  options.startup_timeout = config().handshake_timeout;
  return options;
}

// True if this host and configuration have an RNIC to offer; else *why.
inline bool HaveRnic(std::string* why) {
  return config().rnic != RnicChoice::kVerbs || MayUseKernelRnic(why);
}

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OPTIONS_H_
