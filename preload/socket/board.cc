#include "preload/socket/board.h"

#include <utility>

#include "preload/socket/link_names.h"

namespace sdp::preload {

void Board::Forget(ReadinessObserver* observer, int fd) {
  std::erase_if(observers_, [&](const Observation& o) { return o.observer == observer && o.fd == fd; });
}

void Board::TellObservers(Session& session, short watch, bool changed) {
  for (Observation& o : observers_) {
    if (std::exchange(o.watch, watch) != watch)
      o.observer->OnWatch(o.fd, LinkOf(session, o.fd), watch, session);
    if (changed) o.observer->OnChange(o.fd);
  }
}

void Board::TellPlain() {
  for (const Observation& o : observers_) o.observer->OnPlain(o.fd);
  observers_.clear();
  WakeAll();
}

}  // namespace sdp::preload
