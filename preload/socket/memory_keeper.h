// Has the helper thread end the memory that ended connections have left for the next ones
// (iwarp::KeepMemories), within a second.
#ifndef SDP_PRELOAD_SOCKET_MEMORY_KEEPER_H_
#define SDP_PRELOAD_SOCKET_MEMORY_KEEPER_H_

namespace sdp::preload::memory_keeper {

// Connections leave memory from now on, or none.
void Begin();
void Stop();

}  // namespace sdp::preload::memory_keeper

#endif  // SDP_PRELOAD_SOCKET_MEMORY_KEEPER_H_
