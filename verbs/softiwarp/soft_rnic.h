// The embedded RNIC: iWARP (RDMAP over DDP over MPA) in user space on a TCP socket. These functions make its
// connectors and queue pairs. link_calls.h has the system calls that it uses.
#ifndef SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_
#define SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_

#include <memory>

#include "verbs/rnic.h"
#include "verbs/softiwarp/soft_options.h"

namespace sdp::iwarp {

// Begin a connection: Connect on the connecting side, Listen on the accepting side. `fd` is a connected TCP
// socket; the owner keeps it, and this RNIC never closes it. The owner chooses its O_NONBLOCK flag: the
// set-up never blocks on it. `private_data`: at most 508 bytes (512 in revision 1).
std::unique_ptr<verbs::Connector> Connect(int fd, Bytes private_data, const verbs::QpOptions& qp,
                                          const SoftOptions& options, Time now);
std::unique_ptr<verbs::Connector> Listen(int fd, const SoftOptions& options, Time now);

// The memory that a queue pair on a local link shares with its peer.
class LocalMemory;
// Returns the memory of an embedded queue pair; nullptr if its link is TCP.
std::shared_ptr<LocalMemory> MemoryOf(const verbs::QueuePair& queue_pair);
// Returns the descriptor by which another program of this end gets that memory, or -1. The memory owns it.
int DescriptorOf(LocalMemory* memory);
// Has this process keep the memory of short connections for a moment, since the same two processes may have
// another soon. The thread that keeps the first calls `note`. The caller of KeepMemories() then calls
// ForgetMemories() until that returns false; `note` is called again for the next. With nullptr, keeps none.
void KeepMemories(void (*note)());
// Ends what has been kept for `age`. Returns true if any is left.
bool ForgetMemories(Duration age);
// Call the first before a fork: the child would have what is kept, and what is in use now is kept no more.
// Call the other in the child, before its first connection.
void ShareMemories();
void ForgetMemoriesInChild();
// Returns the memory whose descriptor another program of this end has left; takes `fd` over. Returns nullptr
// and the reason in *why if it is no such memory, or cannot be mapped.
std::shared_ptr<LocalMemory> TakeMemory(int fd, std::string* why);

// Returns a queue pair in the state that Portable::Freeze() of an embedded queue pair has returned, on the
// same TCP connection. `fd` is any descriptor of it in any process, `memory` its memory there. Returns
// nullptr for bytes that are no frozen state. Any bytes that it accepts become a queue pair that is safe to
// use.
std::unique_ptr<verbs::QueuePair> Thaw(int fd, Bytes frozen, std::shared_ptr<LocalMemory> memory = nullptr);
// Returns a queue pair on `fd` that stands for one still to be thawed; no work is posted.
std::unique_ptr<verbs::QueuePair> Blank(int fd, std::shared_ptr<LocalMemory> memory = nullptr);

}  // namespace sdp::iwarp

#endif  // SDP_VERBS_SOFTIWARP_SOFT_RNIC_H_
