#include "preload/main_thread.h"

#include <pthread.h>

#include <atomic>

namespace sdp::preload {
namespace {

constinit std::atomic<bool> has_ended{false};
constinit std::atomic<void (*)()> end_listener{nullptr};

void AtEnd(void*) { MainThread::NoteEnd(); }

// A key's destructor runs at the end of every thread that has a value for the key, the first thread included,
// but not at exit.
pthread_key_t KeyOfEnd() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    return pthread_key_create(&made, AtEnd) == 0 ? made : static_cast<pthread_key_t>(-1);
  }();
  return key;
}

}  // namespace

void MainThread::Expect() {
  has_ended = false;  // in the child of a fork
  static constinit char value = 0;
  (void)pthread_setspecific(KeyOfEnd(), &value);  // without effect if all keys are taken
}

void MainThread::NoteEnd() {
  has_ended = true;
  if (const auto listener = end_listener.load()) listener();
}

bool MainThread::HasEnded() { return has_ended; }

void MainThread::SetListener(void (*listener)()) { end_listener = listener; }

}  // namespace sdp::preload
