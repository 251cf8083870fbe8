// What a TCP socket would remember, and neither the engine nor the link does: the error that a call has still
// to report, the directions that are shut down, what connect() has told, the error queue. A value; guarded by
// the socket's lock. tcp_answers.h has what follows from it.
#ifndef SDP_PRELOAD_SOCKET_TCP_SIDE_H_
#define SDP_PRELOAD_SOCKET_TCP_SIDE_H_

#include <cstdint>
#include <utility>

namespace sdp::preload {

struct TcpSide {
  int pending_error = 0;        // SO_ERROR
  bool error_outlived = false;  // pending_error is that of a connection which AF_UNSPEC has ended
  bool receive_shut = false;
  bool send_shut = false;         // in CLOSE_WAIT, when the engine has ended
  bool abort_noted = false;       // calls know of the connection's end
  bool connect_reported = false;  // connect() has said that there is a connection
  // A connect in the background failed. Until the next one the socket is like one whose connection has ended.
  bool connect_failed = false;
  // Sends with MSG_ZEROCOPY: those that the error queue has reported, and all of them.
  uint32_t zero_copies_told = 0;
  uint32_t zero_copies_sent = 0;

  int TakeError() {
    error_outlived = false;
    return std::exchange(pending_error, 0);
  }
  // Returns true if the error queue has a message.
  [[nodiscard]] bool has_queued_message() const { return zero_copies_told != zero_copies_sent; }
  // AF_UNSPEC has ended the connection. The pending error stays.
  void ForgetConnection() {
    abort_noted = connect_reported = receive_shut = send_shut = false;
    zero_copies_told = zero_copies_sent = 0;
  }

  // Reads or writes what another process needs to continue the connection.
  template <typename Archive>
  void Visit(Archive& ar) {
    auto error = static_cast<uint32_t>(pending_error);
    ar.Flag(receive_shut);
    ar.Flag(send_shut);
    ar.Flag(abort_noted);
    ar.Flag(connect_reported);
    ar.Number(error);
    pending_error = static_cast<int>(error);
  }
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_TCP_SIDE_H_
