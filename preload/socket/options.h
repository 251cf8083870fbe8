// The engine's and the RNIC's options, as the configuration wants them.
#ifndef SDP_PRELOAD_SOCKET_OPTIONS_H_
#define SDP_PRELOAD_SOCKET_OPTIONS_H_

#include "core/engine/options.h"
#include "preload/config.h"
#include "preload/socket/kernel_rnic.h"
#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_rnic.h"

namespace sdp::preload {

inline engine::Options EngineOptions() {
  engine::Options options;
  options.receive_buffers = config().receive_buffers;
  options.receive_buffer_size = config().receive_buffer_size;
  options.desired_remote_size = config().receive_buffer_size;
  options.receive_limit = config().receive_buffers * config().receive_buffer_size;
  options.send_limit = config().send_buffer;
  return options;
}

inline verbs::QpOptions QpOptions(const engine::Options& options) {
  return {.receive_buffer_size = options.receive_buffer_size,
          .initial_receives = options.receive_buffers,
          .ird = options.ird,
          .ord = options.ord};
}

inline iwarp::SoftOptions SoftOptions() {
  iwarp::SoftOptions options;
  options.want_crc = config().mpa_crc;
  options.want_markers = config().mpa_markers;
  options.peer_to_peer = config().mpa_peer_to_peer;
  options.startup_timeout = config().handshake_timeout;
  return options;
}

// True if this host and configuration have an RNIC to offer; else *why.
inline bool HaveRnic(std::string* why) { return config().rnic != RnicChoice::kVerbs || MayUseKernelRnic(why); }

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OPTIONS_H_
