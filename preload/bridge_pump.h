// Moves bytes between an SDP connection and a TCP connection within the host, both ways, until both have
// ended. What ends one ends the other in the same way: a half-close, an end, a reset. Only the bridge's one
// thread uses it.
#ifndef SDP_PRELOAD_BRIDGE_PUMP_H_
#define SDP_PRELOAD_BRIDGE_PUMP_H_

#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sdp::preload {

class BridgePump {
 public:
  // The pump owns `sdp` and `far_end` from here on. `reads_at_once`: the program is meant to read the
  // connection even while other processes hold it.
  BridgePump(int sdp, int far_end, bool reads_at_once);

  // Moves what can be moved without waiting.
  void Step();
  [[nodiscard]] bool over() const { return sdp_ < 0; }
  // Fills two entries with what to wait for next. Returns the longest wait in ms; -1: for ever.
  int Wait(pollfd* fds) const;

 private:
  static constexpr size_t kRoom = 128 << 10;
  enum class Way : uint8_t { kOpen, kEnded, kShut };  // kEnded: what is in `bytes` is still to be sent
  struct Flow {
    std::unique_ptr<char[]> bytes{new char[kRoom]};
    size_t begin = 0, end = 0;
    Way way = Way::kOpen;
    [[nodiscard]] bool empty() const { return begin == end; }
  };

  // Return false if the connection they read from, or write to, has failed.
  bool Fill(Flow* flow, ssize_t (*receive)(int, void*, size_t), int from);
  bool Empty(Flow* flow, ssize_t (*send)(int, const void*, size_t), int to);
  void ResetProgram();
  void ResetPeer();
  void Finish();
  [[nodiscard]] bool MayRead() const;

  int sdp_;
  int far_end_;
  bool reads_at_once_;
  Flow up_;    // from the program
  Flow down_;  // to it
  bool shared_ = true;
  int naps_ = 0;
  int rests_ = 0;  // waits for the peer to acknowledge the last bytes
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_BRIDGE_PUMP_H_
