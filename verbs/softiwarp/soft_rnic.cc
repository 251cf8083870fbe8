#include "verbs/softiwarp/soft_rnic.h"

#include <utility>

#include "verbs/softiwarp/local/kept_memories.h"
#include "verbs/softiwarp/soft_connector.h"

namespace sdp::iwarp {

std::unique_ptr<verbs::Connector> Connect(int fd, Bytes private_data, const verbs::QpOptions& qp,
                                          const SoftOptions& options, Time now) {
  return std::make_unique<SoftConnector>(fd, options, private_data, qp, now);
}

std::unique_ptr<verbs::Connector> Listen(int fd, const SoftOptions& options, Time now) {
  return std::make_unique<SoftConnector>(fd, options, now);
}

std::shared_ptr<LocalMemory> MemoryOf(const verbs::QueuePair& queue_pair) {
  const auto* const soft = dynamic_cast<const SoftQp*>(&queue_pair);
  return soft == nullptr ? nullptr : soft->memory();
}

int DescriptorOf(LocalMemory* memory) {
  if (memory == nullptr) return -1;
  memory->LetGo();
  return memory->fd();
}

void KeepMemories(void (*note)()) { KeptMemories::Begin(note); }
bool ForgetMemories(Duration age) { return KeptMemories::Forget(age); }
void ShareMemories() { KeptMemories::NoteFork(); }
void ForgetMemoriesInChild() { KeptMemories::ForgetInChild(); }

std::shared_ptr<LocalMemory> TakeMemory(int fd, std::string* why) { return LocalMemory::TakeOver(fd, why); }

std::unique_ptr<verbs::QueuePair> Thaw(int fd, Bytes frozen, std::shared_ptr<LocalMemory> memory) {
  return SoftQp::Thaw(fd, frozen, std::move(memory));
}

std::unique_ptr<verbs::QueuePair> Blank(int fd, std::shared_ptr<LocalMemory> memory) {
  return std::make_unique<SoftQp>(fd, MpaAgreement{.role = MpaRole::kResponder}, verbs::QpOptions{},
                                  kMaxSentUlpdu, std::move(memory));
}

}  // namespace sdp::iwarp
