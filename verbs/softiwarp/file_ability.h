// A queue pair's verbs::FileSource: files whose pages it sends, and the link's room for them. The queue pair
// owns this object, and its owner's lock guards both.
#ifndef SDP_VERBS_SOFTIWARP_FILE_ABILITY_H_
#define SDP_VERBS_SOFTIWARP_FILE_ABILITY_H_

#include <cstddef>
#include <optional>

#include "verbs/abilities.h"
#include "verbs/softiwarp/file_payload.h"

namespace sdp::iwarp {

class SoftQp;

class FileAbility final : public verbs::FileSource {
 public:
  explicit FileAbility(SoftQp& qp) : qp_(qp) {}

  // Returns the borrowed file, or nullptr.
  [[nodiscard]] const FilePayload* file() const { return file_ ? &*file_ : nullptr; }
  // Returns true if a local link that did not take all has room by now: its peer may have made it before this
  // end asked to be told.
  [[nodiscard]] bool HasRoomAgain() const;
  // Ends the wait for the link's room: AwaitRoom()'s, or that of a Flush.
  void ForgetRoom();

  [[nodiscard]] bool BorrowFile(const verbs::FileRange& file) override;
  void ReturnFile() override;
  [[nodiscard]] size_t room() const override;
  bool AwaitRoom() override;
  [[nodiscard]] bool full() const override;
  bool TakeRoom() override;

 private:
  SoftQp& qp_;
  std::optional<FilePayload> file_;  // from BorrowFile() to ReturnFile()
};

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_FILE_ABILITY_H_
