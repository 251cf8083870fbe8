#include "verbs/softiwarp/soft_rnic.h"

#include "verbs/softiwarp/soft_connector.h"

namespace sdp::iwarp {

std::unique_ptr<verbs::Connector> Connect(int fd, Bytes private_data, const verbs::QpOptions& qp,
                                          const SoftOptions& options, Time now) {
  return std::make_unique<SoftConnector>(fd, options, private_data, qp, now);
}

std::unique_ptr<verbs::Connector> Listen(int fd, const SoftOptions& options, Time now) {
  return std::make_unique<SoftConnector>(fd, options, now);
}

std::unique_ptr<verbs::QueuePair> Thaw(int fd, Bytes frozen) { return SoftQp::Thaw(fd, frozen); }

std::unique_ptr<verbs::QueuePair> Blank(int fd) {
  return std::make_unique<SoftQp>(fd, MpaAgreement{.role = MpaRole::kResponder}, verbs::QpOptions{},
                                  kMaxSentUlpdu);
}

}  // namespace sdp::iwarp
