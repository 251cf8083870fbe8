// For poll and select on an epoll descriptor that has an EpollSet.
#ifndef SDP_PRELOAD_READINESS_NESTED_H_
#define SDP_PRELOAD_READINESS_NESTED_H_

#include <memory>

#include "preload/readiness/epoll_set.h"

namespace sdp::preload {

bool HaveEpollSets();
std::shared_ptr<EpollSet> FindEpollSet(int epfd);

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_READINESS_NESTED_H_
