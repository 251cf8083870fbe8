// Whether the peer is this library, which two ends may know of each other, and which end then leaves the link
// first. A value.
#ifndef SDP_PRELOAD_SOCKET_KINSHIP_H_
#define SDP_PRELOAD_SOCKET_KINSHIP_H_

namespace sdp::preload {

class Kinship {
 public:
  // `kin`: the peer is known to be this library, on the first link. To such a peer a FIN behind our DisConn
  // is the end in good order, although we do not wait for its DisConn (SDP 8.2.1).
  void Set(bool kin) { kin_ = kin; }
  [[nodiscard]] bool kin() const { return kin_; }
  // Another program may have the connection next.
  void Forget() { kin_ = leaves_first_ = left_first_ = false; }

  // Both directions are closed here. To kin that has not closed, our direction of the link ends with our
  // DisConn, in one segment. So TIME_WAIT is this end's, which has closed first.
  void LeaveFirst() { leaves_first_ = kin_; }
  [[nodiscard]] bool leaves_first() const { return leaves_first_; }
  // The DisConn is under way.
  void NoteLeft() {
    leaves_first_ = false;
    left_first_ = true;
  }
  // Returns true if that has happened. Then the peer's FIN is all that is awaited.
  [[nodiscard]] bool left_first() const { return left_first_; }

 private:
  bool kin_ = false;
  bool leaves_first_ = false;
  bool left_first_ = false;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_KINSHIP_H_
