// stdio's streams on sockets.
#include <sys/uio.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "test/posix/support.h"

namespace posix_test {
namespace {

struct Closer {
  void operator()(FILE* stream) const { fclose(stream); }
};
using Stream = std::unique_ptr<FILE, Closer>;

Stream Open(Fd& fd, const char* mode) {
  Stream stream(fdopen(fd, mode));
  REQUIRE(stream != nullptr);
  fd.release();
  return stream;
}

TEST_CASE("stdio: a stream knows its descriptor, and closes it") {
  Pair pair = MakePair();
  const int number = pair.client;
  Stream stream = Open(pair.client, "r+");
  REQUIRE(fileno(stream.get()) == number);
  stream.reset();
  REQUIRE(fcntl(number, F_GETFD) == -1);
  REQUIRE(ReceiveToEnd(pair.server).empty());
}

TEST_CASE("stdio: what is printed leaves when it is flushed, in order with what was sent") {
  Pair pair = MakePair();
  const int number = pair.client;
  Stream stream = Open(pair.client, "w");
  REQUIRE(fprintf(stream.get(), "%s %d", "line", 1) == 6);
  REQUIRE(PollOne(pair.server, POLLIN, kQuietMs) == 0);
  REQUIRE(fflush(stream.get()) == 0);
  REQUIRE(ReceiveExactly(pair.server, 6) == "line 1");
  REQUIRE(SendAll(number, "sent "));
  REQUIRE(fputs("put", stream.get()) >= 0);
  stream.reset();
  REQUIRE(ReceiveToEnd(pair.server) == "sent put");
}

TEST_CASE("stdio: lines and blocks are read, up to the end") {
  Pair pair = MakePair();
  const std::string block = Pattern(300'000);
  auto sender = Async([&] {
    SendAll(pair.server, "first\nsecond line\n");
    SendAll(pair.server, block);
    pair.server.reset();
    return true;
  });
  Stream stream = Open(pair.client, "r");
  char room[64];
  REQUIRE(fgets(room, sizeof room, stream.get()) == std::string("first\n"));
  char* line = nullptr;
  size_t size = 0;
  REQUIRE(getline(&line, &size, stream.get()) == 12);
  REQUIRE(line == std::string("second line\n"));
  free(line);
  std::string got(block.size() + 1, '\0');
  REQUIRE(fread(got.data(), 1, got.size(), stream.get()) == block.size());
  got.pop_back();
  REQUIRE(Hash(got) == Hash(block));
  REQUIRE(feof(stream.get()) != 0);
  REQUIRE(ferror(stream.get()) == 0);
  REQUIRE(Get(sender));
}

TEST_CASE("stdio: a dialogue over two streams of one connection") {
  Pair pair = MakePair();
  Fd copy(dup(pair.server));
  Stream in = Open(pair.server, "r"), out = Open(copy, "w");
  auto service = Async([&] {
    char room[100];
    while (fgets(room, sizeof room, in.get()) != nullptr) {
      fprintf(out.get(), "you said %s", room);
      fflush(out.get());
    }
    return true;
  });
  for (int i = 0; i < 50; ++i) {
    const std::string word = "word" + std::to_string(i) + "\n";
    REQUIRE(SendAll(pair.client, word));
    const std::string answer = "you said " + word;
    REQUIRE(ReceiveExactly(pair.client, answer.size()) == answer);
  }
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(Get(service));
}

TEST_CASE("stdio: one stream reads and writes in turns") {
  Pair pair = MakePair();
  Stream stream = Open(pair.client, "r+");
  char room[32];
  for (int i = 0; i < 5; ++i) {
    REQUIRE(fputs("question\n", stream.get()) >= 0);
    REQUIRE(fflush(stream.get()) == 0);
    REQUIRE(ReceiveExactly(pair.server, 9) == "question\n");
    REQUIRE(SendAll(pair.server, "answer\n"));
    REQUIRE(fgets(room, sizeof room, stream.get()) == std::string("answer\n"));
    REQUIRE_ERRNO(fseek(stream.get(), 0, SEEK_SET), ESPIPE);
  }
}

TEST_CASE("stdio: dprintf") {
  Pair pair = MakePair();
  const std::string big = Pattern(100'000).substr(0, 1) + std::string(200'000, 'x');
  auto receiver = Async([&] { return ReceiveExactly(pair.server, 200'006).size(); });
  REQUIRE(dprintf(pair.client, "%05d", 42) == 5);
  REQUIRE(dprintf(pair.client, "%s", big.c_str()) == static_cast<int>(big.size()));
  REQUIRE(Get(receiver) == 200'006);
}

TEST_CASE("stdio: errors") {
  Pair pair = MakePair();
  signal(SIGPIPE, SIG_IGN);
  REQUIRE(fdopen(pair.client, "nonsense") == nullptr);
  REQUIRE(errno == EINVAL);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(dprintf(pair.client, "late") == -1);
  REQUIRE(errno == EPIPE);
  Stream stream = Open(pair.client, "w");
  fputs("late", stream.get());
  REQUIRE_ERRNO(fflush(stream.get()), EPIPE);
  REQUIRE(ferror(stream.get()) != 0);
}

}  // namespace
}  // namespace posix_test
