#include "preload/socket/core_watch.h"

#include <sched.h>
#include <sys/resource.h>

namespace sdp::preload {
namespace {

// How often the kernel gave this thread's core to another one although this one could have gone on.
long TimesSetAside() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

CoreWatch::CoreWatch() : set_aside_(TimesSetAside()) {}

bool CoreWatch::OfferedAndTaken() {
  sched_yield();
  return TimesSetAside() != set_aside_;
}

}  // namespace sdp::preload
