// The application's memory on loan to a connection, in both directions (loan.h), and who lent it. A blocking
// call lends, sleeps until the loan is over, and takes the result; every other call that makes progress
// collects what has come back, and a call that ends or shares the connection asks for it. Sleeping, and the
// choice whether to lend (transfer_policy.h), are left to the socket. Guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_LENDING_H_
#define SDP_PRELOAD_SOCKET_LENDING_H_

#include "preload/socket/call_mark.h"
#include "preload/socket/loan.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Lending {
 public:
  // One direction: the memory, and the thread whose it is, asleep.
  struct Side {
    explicit Side(Loan::Kind kind) : loan(kind) {}
    Loan loan;
    Sleeper lender;
  };

  Side& source() { return source_; }
  Side& sink() { return sink_; }
  [[nodiscard]] const Side& source() const { return source_; }
  [[nodiscard]] const Side& sink() const { return sink_; }
  // The engine has an offer of memory of this process's, or of a copy.
  [[nodiscard]] bool offered() const { return source_.loan.offered() || sink_.loan.offered(); }

  // After progress. True: memory has come back, and its lender is to be woken.
  [[nodiscard]] bool Collect(Session& session);
  // The connection is closed: a copy takes the place of what was to be sent, where that can be.
  void AskBack(Session& session);
  // The connection is to be other processes', too: copies come back as well.
  void Withdraw(Session& session);
  // The connection is gone, and with it whatever knew of the memory.
  void Drop();
  // In the child of fork. The thread that forks may do it in a handler, and be in a call that lends.
  void ForgetInChild();

 private:
  Side source_{Loan::Kind::kSource};
  Side sink_{Loan::Kind::kSink};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LENDING_H_
