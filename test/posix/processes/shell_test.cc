// Commands that a shell runs for the program, on the program's connection: system and popen.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "test/posix/sanitizers.h"
#include "test/posix/support.h"

namespace posix_test {
namespace {

// A connection as descriptor 9, the highest that every shell can name.
struct Nine {
  Pair pair = MakePair();
  Nine() {
    REQUIRE(dup2(pair.server, 9) == 9);
    pair.server.reset(9);
  }
};

bool Succeeded(int status) { return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0; }

TEST_CASE("shell: system writes to the connection, and the program goes on with it") {
  if (kUnderTsan) return Impossible(why::kFlush);
  Nine nine;
  REQUIRE(SendAll(nine.pair.server, std::string("before ")));
  REQUIRE(Succeeded(system("echo 'it'\"'\"'s' \"$0\" >&9; /bin/echo again >&9")));
  REQUIRE(SendAll(nine.pair.server, std::string("after")));
  nine.pair.server.reset();
  REQUIRE(ReceiveToEnd(nine.pair.client) == "before it's sh\nagain\nafter");
}

TEST_CASE("shell: system reads from the connection what the program has left") {
  if (kUnderTsan) return Impossible(why::kFlush);
  Nine nine;
  REQUIRE(SendAll(nine.pair.client, std::string("first second\nthird\n")));
  REQUIRE(ReceiveExactly(nine.pair.server, 6) == "first ");
  REQUIRE(shutdown(nine.pair.client, SHUT_WR) == 0);
  REQUIRE(Succeeded(system("cat <&9 >&9")));
  nine.pair.server.reset();
  REQUIRE(ReceiveToEnd(nine.pair.client) == "second\nthird\n");
}

TEST_CASE("shell: popen in both directions") {
  if (kUnderTsan) return Impossible(why::kFlush);
  Nine nine;
  FILE* const out = popen("cat >&9", "w");
  REQUIRE(out != nullptr);
  const std::string data = Pattern(200'000);
  auto reader = Async([&] { return Hash(ReceiveExactly(nine.pair.client, data.size())); });
  REQUIRE(fwrite(data.data(), 1, data.size(), out) == data.size());
  REQUIRE(Succeeded(pclose(out)));
  REQUIRE(Get(reader) == Hash(data));
  REQUIRE(SendAll(nine.pair.client, std::string("answer\n")));
  FILE* const in = popen("head -n 1 <&9", "r");
  REQUIRE(in != nullptr);
  char line[32] = "";
  REQUIRE(fgets(line, sizeof line, in) != nullptr);
  REQUIRE(std::string(line) == "answer\n");
  REQUIRE(Succeeded(pclose(in)));
}

TEST_CASE("shell: what commands return, beside a connection and without") {
  const bool connected = GENERATE(false, true);
  Pair pair;
  if (connected) pair = MakePair();
  const int status = system("exit 7");
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 7);
  REQUIRE(WTERMSIG(system("kill -9 $$")) == SIGKILL);
  REQUIRE(system(nullptr) != 0);
  REQUIRE(system("test -z \"$SDP_INHERITED\"") == 0);
  if (!connected) return;
  REQUIRE(SendAll(pair.client, std::string("still")));
  REQUIRE(ReceiveExactly(pair.server, 5) == "still");
}

}  // namespace
}  // namespace posix_test
