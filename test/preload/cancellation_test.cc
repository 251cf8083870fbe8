// Where in a call a thread may be cancelled: where it begins and where it sleeps. Between these a
// cancellation waits.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <functional>

#include "preload/guard.h"
#include "test/preload/managed_descriptor.h"
#include "test/preload/prefixed_calls.h"
#include "test/support/ends_cancelled.h"

namespace sdp::preload {
namespace {

using test::EndsCancelled;

// As a function does that is a cancellation point, while somebody cancels the thread.
void MeetCancellation() {
  pthread_cancel(pthread_self());
  pthread_testcancel();
}

int CancelState() {
  int state;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  pthread_setcancelstate(state, nullptr);
  return state;
}

TEST_CASE("A cancellation that comes in the middle of a call acts behind it", "[cancel]") {
  ManagedDescriptor m;
  m.socket->meanwhile = MeetCancellation;
  std::function<ssize_t()> call;
  SECTION("accept") {
    call = [&] { return sdp_entry_accept(m.fd, nullptr, nullptr); };
  }
  SECTION("connect") {
    call = [&] { return sdp_entry_connect(m.fd, nullptr, 0); };
  }
  SECTION("setsockopt") {
    call = [&] { return sdp_entry_setsockopt(m.fd, 0, 0, nullptr, 0); };
  }
  bool behind = false;
  CHECK(EndsCancelled([&] {
    behind = call() == 0;
    pthread_testcancel();
  }));
  CHECK(behind);
}

TEST_CASE("A close that has begun is done, whoever cancels the thread", "[cancel]") {
  ManagedDescriptor m;
  fake_readiness().meanwhile = MeetCancellation;
  const int fd = dup(m.fd);
  FdTable::Set(fd, m.socket);
  bool closed = false;
  CHECK(EndsCancelled([&] {
    closed = sdp_entry_close(fd) == 0;
    pthread_testcancel();
  }));
  CHECK(closed);
  CHECK(fcntl(fd, F_GETFD) == -1);
  fake_readiness() = {};
}

TEST_CASE("A call that sleeps is cancelled there, if the caller may be", "[cancel]") {
  ManagedDescriptor m;
  bool slept = false;
  m.socket->meanwhile = [&] {
    {
      const SleepMayBeCancelled here;
      MeetCancellation();
    }
    slept = true;
  };
  bool returned = false;
  SECTION("he may") {
    CHECK(EndsCancelled([&] {
      sdp_entry_accept(m.fd, nullptr, nullptr);
      returned = true;
    }));
    CHECK_FALSE(slept);
    CHECK_FALSE(returned);
  }
  SECTION("he holds it off") {
    int behind = -1;
    CHECK_FALSE(EndsCancelled([&] {
      pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
      returned = sdp_entry_accept(m.fd, nullptr, nullptr) == 0;
      behind = CancelState();
    }));
    CHECK(slept);
    CHECK(returned);
    CHECK(behind == PTHREAD_CANCEL_DISABLE);
  }
  SECTION("it is a call that is no cancellation point") {
    CHECK(EndsCancelled([&] {
      returned = sdp_entry_shutdown(m.fd, SHUT_WR) == 0;
      pthread_testcancel();
    }));
    CHECK(slept);
    CHECK(returned);
  }
}

sigjmp_buf outside, inside;

TEST_CASE("A handler that jumps out of a call leaves the thread as the caller had it", "[cancel]") {
  ManagedDescriptor m;
  m.socket->meanwhile = [] { raise(SIGUSR1); };
  struct sigaction action {};
  struct sigaction before {};
  const bool leaves = GENERATE(true, false);
  if (leaves) {
    action.sa_handler = [](int) { sdp_entry_longjmp(outside, 1); };
  } else {
    action.sa_handler = [](int) {
      if (sigsetjmp(inside, 1) == 0) sdp_entry_longjmp(inside, 1);
    };
  }
  REQUIRE(sdp_entry_sigaction(SIGUSR1, &action, &before) == 0);
  const bool held_off = GENERATE(false, true);
  static int in_the_middle, behind;
  in_the_middle = behind = -1;
  const auto interrupted = m.socket->meanwhile;
  m.socket->meanwhile = [&] {
    interrupted();
    in_the_middle = CancelState();
  };
  CHECK_FALSE(EndsCancelled([&] {
    if (held_off) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    if (sigsetjmp(outside, 1) == 0) sdp_entry_accept(m.fd, nullptr, nullptr);
    behind = CancelState();
  }));
  CHECK(in_the_middle == (leaves ? -1 : PTHREAD_CANCEL_DISABLE));
  CHECK(behind == (held_off ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE));
  REQUIRE(sdp_entry_sigaction(SIGUSR1, &before, nullptr) == 0);
  if (leaves) m.socket->Unref();  // the call's own reference
}

}  // namespace
}  // namespace sdp::preload
