// Bytes between an SDP connection and a TCP connection within the host, both ways, until both have ended.
// What ends the one ends the other in the same way: a half-close, an end, a reset.
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
  // `sdp` and `far_end` are the pump's from here on. `reads_at_once`: the program is meant to read the
  // connection, also while others hold it.
  BridgePump(int sdp, int far_end, bool reads_at_once);

  // Moves what can be moved.
  void Step();
  [[nodiscard]] bool over() const { return sdp_ < 0; }
  // What to wait for next: fills two entries, and returns for how long at most (ms; -1: for ever).
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

  // Both false: the connection it reads from, or writes to, has failed.
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
  int rests_ = 0;  // waits for the last bytes to be acknowledged
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_BRIDGE_PUMP_H_
