// Options and ioctls of a StreamSocket that the library answers itself. Made for one call; keeps nothing.
#ifndef SDP_PRELOAD_SOCKET_OPTION_CALLS_H_
#define SDP_PRELOAD_SOCKET_OPTION_CALLS_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::OptionCalls {
 public:
  explicit OptionCalls(StreamSocket& socket) : s_(socket) {}

  int GetStreamInfo(int fd, void* value, socklen_t* length);
  int PutPeerName(void* value, socklen_t* length) const;
  int ReceiveNothingMapped(void* value, socklen_t* length);
  void AfterKeptOption(int fd, int level, int name);
  [[nodiscard]] bool IsTuning(int level, int name) const;
  int SetTuning(int name, const void* value, socklen_t length);
  int GetTuning(int name, void* value, socklen_t* length) const;
  void ApplyBcopyThreshold();
  [[nodiscard]] uint64_t ReadableAtOnce() const { return s_.urgent_mark_.readable_at_once(s_.engine()); }
  [[nodiscard]] bool FillsReceiveBuffer() const;
  // Returns FIONREAD's answer if all that counts is here or can stay in the link.
  std::optional<int> CountWhereItIs();

 private:
  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_OPTION_CALLS_H_
