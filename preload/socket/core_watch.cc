#include "preload/socket/core_watch.h"

#include <sched.h>
#include <sys/resource.h>

namespace sdp::preload {
namespace {

// Returns how often the kernel took this thread's core away although the thread was ready to run.
long TimesSetAside() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace

bool CoreWatch::OfferedAndTaken() {
  if (!set_aside_) set_aside_ = TimesSetAside();
  sched_yield();
  return TimesSetAside() != *set_aside_;
}

}  // namespace sdp::preload
