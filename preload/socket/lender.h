// How the calls of a StreamSocket lend the program's memory to the connection, and get it back. Made for one
// call; keeps nothing. Lending has what lasts.
#ifndef SDP_PRELOAD_SOCKET_LENDER_H_
#define SDP_PRELOAD_SOCKET_LENDER_H_

#include "preload/socket/stream_socket.h"

namespace sdp::preload {

class StreamSocket::Lender {
 public:
  explicit Lender(StreamSocket& socket) : s_(socket) {}

  // Mends what this thread's earlier call left behind when a signal handler jumped out of it. Comes first in
  // every call that may sleep, or that takes from the link.
  void MendJump(Lock& lock, int fd, const void* frame);
  // SendLent and ReceiveLent return how many bytes they have moved, from the beginning of the memory. If that
  // is less than all without an error, the caller copies the rest. ReceiveLent returns nothing if the memory
  // could not be lent. `error`: as Waiting::WaitForChange() returns it.
  size_t SendLent(Call& call, Bytes data, int* error);
  std::optional<size_t> ReceiveLent(Call& call, MutableBytes room, bool advertise, int* error);
  // Returns true if the connection waits for nothing but the memory that a sender has lent, and nothing waits
  // to be sent.
  [[nodiscard]] bool AwaitsSolicitedAlone() const;
  void CollectLoans();
  // Asks back loans, and copies as well, since other processes are to have the connection, too.
  void WithdrawLoans();
  // Has the peer send what it offers to be read (SDP 9.5.2.1), if fewer than `enough` bytes are here. For a
  // reader that only looks, or does not wait.
  void WantBcopy(uint64_t enough);

 private:
  class WhileLent;
  // Ends a loan, and waits until the peer has given the memory back. Resets the connection if the peer does
  // not.
  void FinishLoan(Lock& lock, int fd, Loan* loan);
  // Waits until the peer has read the lent memory, the call is interrupted or late, or no reader comes.
  // Returns 0, EINTR or EAGAIN.
  int AwaitReader(Call& call, size_t size);
  int WaitForLoan(Lock& lock, int fd, const Loan& loan, Time deadline, Signals signals,
                  Time solicited_until = Time{});

  StreamSocket& s_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LENDER_H_
