// A signal handler that has interrupted malloc, whose lock is taken then: what POSIX lets a handler do with
// descriptors must not ask for memory.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "test/posix/support.h"
#include "test/support/skipped.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

thread_local bool interrupts = false;  // the next malloc
thread_local bool interrupted = false;
thread_local int asked = 0;  // for memory, or to take it back, meanwhile

}  // namespace

extern "C" {

void* __libc_malloc(size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) noexcept {
  if (interrupted) ++asked;
  if (interrupts) {
    interrupts = false;
    interrupted = true;
    raise(SIGUSR1);
    interrupted = false;
  }
  return __libc_malloc(size);
}

void free(void* memory) noexcept {
  if (interrupted && memory != nullptr) ++asked;
  __libc_free(memory);
}

}  // extern "C"

namespace posix_test {
namespace {

int the_socket = -1;
int null_device = -1;
volatile sig_atomic_t moved = 0;

// Standard output becomes the socket, for a while and again; the other two do, and a number of no meaning.
void MoveAbout(int) {
  const int other = dup(the_socket);
  if (other < 0 || close(other) != 0) return;
  if (dup2(the_socket, 1) != 1 || dup2(null_device, 1) != 1 || dup2(the_socket, 1) != 1) return;
  if (dup2(the_socket, 0) != 0 || dup2(the_socket, 2) != 2) return;
  moved = 1;
}

TEST_CASE("handlers: one that interrupts malloc makes a socket the standard streams") {
  Pair pair = MakePair();
  fflush(stdout);
  const pid_t pid = Child([&] {
    pair.client.reset();
    the_socket = pair.server;
    null_device = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct sigaction action {};
    action.sa_handler = MoveAbout;
    if (sigaction(SIGUSR1, &action, nullptr) != 0) return 1;
    interrupts = true;
    void* volatile memory = malloc(100);
    free(memory);
    if (moved == 0) return 2;
    if (asked != 0) return 3;
    char word[8];
    if (printf("said ") != 5 || fflush(stdout) != 0 || fputs("at once", stderr) < 0) return 4;
    return fgets(word, sizeof word, stdin) == std::string("heard\n") ? 0 : 5;
  });
  pair.server.reset();
  REQUIRE(SendAll(pair.client, "heard\n"));
  REQUIRE(ReceiveToEnd(pair.client) == "said at once");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

}  // namespace
}  // namespace posix_test

#else

TEST_CASE("handlers: one that interrupts malloc makes a socket the standard streams") {
  sdp::test::Skipped("a sanitizer's malloc is not to be replaced");
}

#endif
