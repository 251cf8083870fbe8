// The application's memory on loan to a connection, in both directions (loan.h), and the threads that lent
// it. A blocking call lends, sleeps until the loan is over, and takes the result. Every other call that makes
// progress collects what has come back. A call that ends or shares the connection asks for the memory. The
// socket sleeps, and chooses whether to lend (options.h). Guarded by the socket's lock.
#ifndef SDP_PRELOAD_SOCKET_LENDING_H_
#define SDP_PRELOAD_SOCKET_LENDING_H_

#include <memory>

#include "preload/socket/call_mark.h"
#include "preload/socket/loan.h"
#include "preload/socket/reader_patience.h"
#include "preload/socket/session.h"

namespace sdp::preload {

class Lending {
 public:
  // One direction: the memory, and the sleeping thread that lent it.
  struct Side {
    explicit Side(Loan::Kind kind) : loan(kind) {}
    Loan loan;
    Sleeper lender;
  };

  // Both make room for both directions, once: most connections never lend. any() tells whether there is room.
  Side& source() { return sides().source; }
  Side& sink() { return sides().sink; }
  [[nodiscard]] bool any() const { return sides_ != nullptr; }
  [[nodiscard]] ReaderPatience& patience() { return patience_; }
  // Returns true if the engine has an offer of this process's memory, or of a copy.
  [[nodiscard]] bool offered() const {
    return sides_ != nullptr && (sides_->source.loan.offered() || sides_->sink.loan.offered());
  }

  // After progress. Returns true if memory has come back; the caller wakes its lender.
  [[nodiscard]] bool Collect(Session& session);
  // The connection is closed: a copy replaces what was to be sent, if possible.
  void AskBack(Session& session);
  // Other processes will share the connection: copies come back as well.
  void Withdraw(Session& session);
  // The connection is gone, and nothing refers to the memory any more.
  void Drop();
  // In the child of fork. The forking thread may be in a signal handler, inside a call that lends.
  void ForgetInChild();

 private:
  struct Sides {
    Side source{Loan::Kind::kSource};
    Side sink{Loan::Kind::kSink};
  };
  Sides& sides() {
    if (sides_ == nullptr) sides_ = std::make_unique<Sides>();
    return *sides_;
  }

  std::unique_ptr<Sides> sides_;
  ReaderPatience patience_;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_LENDING_H_
