// A peer over the embedded RNIC that asks for Socket Duplication (SDP 13.1.1) as the Local Peer does: it
// listens, sends SuspComm with the port, waits until the old link has ended, accepts the new one, and goes on
// there. No library is preloaded where it runs.
#ifndef SDP_TEST_SUSPENSION_ASKING_PEER_H_
#define SDP_TEST_SUSPENSION_ASKING_PEER_H_

#include <netinet/in.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "preload/socket/session.h"
#include "test/posix/suspension/pattern.h"

namespace sdp::suspension_test {

// Where the next connection is to come.
enum class Port {
  kNew,      // a port of its own
  kSame,     // the one that the link has now
  kClosed,   // nobody listens there
  kRejects,  // MPA rejects
  kSilent,   // TCP connects, and nobody answers
  kHeld,     // the same, and nobody waits for its end
};

class AskingPeer {
 public:
  // Whoever connects to the conventional address of this listener finds the peer, by way of the port mapper.
  // AcceptFirst() comes next.
  void Listen();
  [[nodiscard]] uint16_t conventional_port() const;
  void AcceptFirst();
  // The same, but answers with private data that is no HelloAck. The program goes to the conventional
  // address.
  void AcceptBadly();
  // Of the TCP connection that came of that. False: it was reset.
  bool PlainEndsInOrder();
  // Connects to the program that listens at `port` of the loopback address.
  void Connect(uint16_t port);

  // All of these end the process with a message where something is not as it has to be, and after a minute.
  void Send(uint64_t bytes);     // until all has left
  void Receive(uint64_t bytes);  // and compares them
  // Both at once, with `suspensions` in between, one at a time.
  void Exchange(uint64_t out, uint64_t in, int suspensions, Port port);
  void SendUrgent(char byte);
  void CloseSend();
  void ReceiveEnd();
  // True when the session goes on over the next connection.
  bool Suspend(Port port);
  // The session is over, both ways.
  void Finish();
  // Until the link tells or `fd` is readable.
  void Idle(int fd);

 private:
  // The MPA Request of who comes to `listener`.
  std::unique_ptr<verbs::Connector> AcceptRequest(int listener);
  void AcceptLink(int listener, std::unique_ptr<engine::Engine> engine, Port port);
  void Drive(const std::function<bool()>& done, const char* what);
  void Step(int also, int timeout_ms);
  void TakeReceived(uint64_t most);
  void PutSent(uint64_t* left);
  [[nodiscard]] bool BeginSuspension(Port port);
  bool FinishSuspension(Port port);

  int link_ = -1;
  int sdp_listener_ = -1;
  int conventional_ = -1;
  int registration_ = -1;
  int next_listener_ = -1;
  sockaddr_in program_{};          // the link's other end, before it is left
  bool program_accepted_ = false;  // and so has its listener's port, until it comes from another
  std::unique_ptr<preload::Session> session_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

}  // namespace sdp::suspension_test

#endif  // SDP_TEST_SUSPENSION_ASKING_PEER_H_
