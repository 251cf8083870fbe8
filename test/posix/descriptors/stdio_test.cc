// stdio's streams on sockets.
#include <sys/uio.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "test/posix/processes.h"

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

// In a child, whose standard output is none of Catch's business.
int AsStandardOutput(Pair& pair, const std::function<int()>& body) {
  fflush(stdout);
  const pid_t pid = Child([&] {
    pair.client.reset();
    const int result = body();
    fflush(stdout);
    return result;
  });
  pair.server.reset();
  const std::string got = ReceiveToEnd(pair.client);
  CAPTURE(got);
  REQUIRE(ExitedWith(Reap(pid), 0));
  REQUIRE(got == "before first second third");
  return 0;
}

TEST_CASE("stdio: a program makes its standard output a socket, for a while and again") {
  const int way = GENERATE(0, 1, 2);
  Pair pair = MakePair();
  AsStandardOutput(pair, [&] {
    const auto make = [&] {
      if (way == 0) return dup2(pair.server, 1);
      if (way == 1) return dup3(pair.server, 1, O_CLOEXEC);
      close(1);
      return dup(pair.server);
    };
    const Fd kept(dup(1)), null(open("/dev/null", O_WRONLY));
    if (printf("before ") != 7) return 1;  // and it is not flushed
    if (make() != 1 || printf("first ") != 6 || fflush(stdout) != 0) return 2;
    if (dup2(null, 1) != 1 || puts("lost") < 0 || fflush(stdout) != 0) return 3;
    if (make() != 1 || fputs("second ", stdout) < 0 || putchar('t') != 't' || fflush(stdout) != 0) return 4;
    if (dup2(null, 1) != 1 || make() != 1 || printf("%s", "hird") != 4 || fflush(stdout) != 0) return 5;
    return 0;
  });
}

TEST_CASE("stdio: what is printed to a socket and not flushed goes to what stands there then") {
  Pair pair = MakePair();
  AsStandardOutput(pair, [&] {
    Pipe pipe;
    if (dup2(pair.server, 1) != 1 || fputs("before first second third", stdout) < 0 || fflush(stdout) != 0)
      return 1;
    if (fputs("late", stdout) < 0 || dup2(pipe.out, 1) != 1 || fflush(stdout) != 0) return 2;
    char room[8];
    return read(pipe.in, room, sizeof room) == 4 && memcmp(room, "late", 4) == 0 ? 0 : 3;
  });
}

TEST_CASE("stdio: exit flushes a standard output that the program has made a socket") {
  Pair pair = MakePair();
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    pair.client.reset();
    if (dup2(pair.server, 1) != 1 || printf("unflushed") != 9) _exit(1);
    pair.server.reset();
    exit(0);
  }
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "unflushed");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("stdio: a program makes its standard input a socket, behind what it has read ahead") {
  Pair pair = MakePair();
  Pipe pipe;
  const pid_t pid = Child([&] {
    char room[32];
    if (dup2(pipe.in, 0) != 0 || fgets(room, sizeof room, stdin) != std::string("one\n")) return 1;
    if (dup2(pair.server, 0) != 0 || fgets(room, sizeof room, stdin) != std::string("ahead\n")) return 2;
    if (fgets(room, sizeof room, stdin) != std::string("of the socket\n")) return 3;
    const Fd null(open("/dev/null", O_RDONLY));
    return dup2(null, 0) == 0 && fgets(room, sizeof room, stdin) == nullptr ? 0 : 4;
  });
  REQUIRE(write(pipe.out, "one\nahead\n", 10) == 10);
  REQUIRE(SendAll(pair.client, "of the socket\n"));
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("stdio: what was read ahead of a socket comes before what stands there then") {
  Pair first = MakePair(), second = MakePair();
  Pipe pipe;
  REQUIRE(write(pipe.out, "of the pipe\n", 12) == 12);
  REQUIRE(SendAll(first.client, "one\nahead\n"));
  REQUIRE(SendAll(second.client, "of the second\n"));
  const pid_t pid = Child([&] {
    char room[32];
    if (dup2(first.server, 0) != 0 || fgets(room, sizeof room, stdin) != std::string("one\n")) return 1;
    if (dup2(pipe.in, 0) != 0 || fgets(room, sizeof room, stdin) != std::string("ahead\n")) return 2;
    if (fgets(room, sizeof room, stdin) != std::string("of the pipe\n")) return 3;
    return dup2(second.server, 0) == 0 && fgets(room, sizeof room, stdin) == std::string("of the second\n")
               ? 0
               : 4;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("stdio: the end of one socket is not that of the next") {
  Pair first = MakePair(), second = MakePair();
  REQUIRE(SendAll(first.client, "one\n"));
  REQUIRE(shutdown(first.client, SHUT_WR) == 0);
  REQUIRE(SendAll(second.client, "of the second\n"));
  const pid_t pid = Child([&] {
    char room[32];
    const Fd null(open("/dev/null", O_RDONLY));
    if (dup2(first.server, 0) != 0 || fgets(room, sizeof room, stdin) != std::string("one\n")) return 1;
    if (fgets(room, sizeof room, stdin) != nullptr || feof(stdin) == 0) return 2;
    if (dup2(null, 0) != 0 || feof(stdin) == 0) return 3;
    clearerr(stdin);
    if (dup2(second.server, 0) != 0 || feof(stdin) != 0) return 4;
    return fgets(room, sizeof room, stdin) == std::string("of the second\n") ? 0 : 5;
  });
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("stdio: buffering is as the program has chosen it, though its standard output becomes a socket") {
  Pair pair = MakePair();
  fflush(stdout);
  const pid_t pid = Child([&] {
    pair.client.reset();
    const Fd null(open("/dev/null", O_WRONLY));
    if (dup2(null, 1) != 1 || setvbuf(stdout, nullptr, _IOLBF, 0) != 0) return 1;
    if (dup2(pair.server, 1) != 1 || printf("a line\nand more") != 15) return 2;
    if (dup2(pair.server, 2) != 2 || fputs("at once", stderr) < 0) return 3;
    _exit(0);
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "a line\nat once");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

TEST_CASE("stdio: freopen puts a file in the place of a stream's socket") {
  Pair pair = MakePair();
  const int number = pair.client;
  Stream stream = Open(pair.client, "r+");
  REQUIRE(fputs("before", stream.get()) >= 0);
  const bool exists = GENERATE(true, false);
  FILE* const reopened = freopen(exists ? "/dev/null" : "/nonexistent/file", "r", stream.get());
  REQUIRE(ReceiveToEnd(pair.server) == "before");
  if (!exists) {
    REQUIRE(reopened == nullptr);
    REQUIRE(fcntl(number, F_GETFD) == -1);
    (void)stream.release();  // it is closed, and cannot be used for anything
    return;
  }
  REQUIRE(reopened == stream.get());
  REQUIRE(fileno(stream.get()) == number);
  char room[8];
  REQUIRE(fgets(room, sizeof room, stream.get()) == nullptr);
  REQUIRE(feof(stream.get()) != 0);
  REQUIRE(read(number, room, 1) == 0);
  REQUIRE(freopen("/dev/full", "w", stream.get()) == stream.get());
  REQUIRE(fputs("much", stream.get()) >= 0);
  REQUIRE_ERRNO(fflush(stream.get()), ENOSPC);
  REQUIRE_ERRNO(write(number, "much", 4), ENOSPC);
}

TEST_CASE("stdio: freopen of a stream whose descriptor the program has closed") {
  const bool lowest = GENERATE(true, false);
  Pair pair = MakePair();
  const int number = pair.client;
  Stream stream = Open(pair.client, "r+");
  std::vector<Fd> lower;
  while (lower.empty() || lower.back() < number) lower.emplace_back(open("/dev/null", O_RDONLY));
  REQUIRE(close(number) == 0);
  REQUIRE(ReceiveToEnd(pair.server).empty());
  if (!lowest) lower.front().reset();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(freopen("/dev/zero", "r", stream.get()) == stream.get());
    REQUIRE(fileno(stream.get()) == number);
    REQUIRE(fcntl(number, F_GETFD) == 0);
    REQUIRE(fgetc(stream.get()) == 0);
    if (i == 0) REQUIRE(close(number) == 0);
  }
  REQUIRE(freopen("/dev/full", "w", stream.get()) == stream.get());
  REQUIRE(fputs("much", stream.get()) >= 0);
  REQUIRE_ERRNO(fflush(stream.get()), ENOSPC);
}

TEST_CASE("stdio: freopen without a path does not open a socket once more") {
  Pair pair = MakePair();
  const int number = pair.client;
  Stream stream = Open(pair.client, "r+");
  errno = 0;
  REQUIRE(freopen(nullptr, "r", stream.get()) == nullptr);
  REQUIRE(errno == ENXIO);
  REQUIRE(fcntl(number, F_GETFD) == -1);
  REQUIRE(ReceiveToEnd(pair.server).empty());
  (void)stream.release();
}

TEST_CASE("stdio: freopen of a standard stream whose descriptor the program has made a socket") {
  Pair pair = MakePair();
  fflush(stdout);
  const pid_t pid = Child([&] {
    pair.client.reset();
    if (dup2(pair.server, 1) != 1) return 1;
    if (freopen("/dev/null", "w", stdout) != stdout || fileno(stdout) != 1) return 2;
    if (puts("lost") < 0 || fflush(stdout) != 0 || write(1, "lost", 4) != 4) return 3;
    return SendAll(pair.server, "by its own number") ? 0 : 4;
  });
  pair.server.reset();
  REQUIRE(ReceiveToEnd(pair.client) == "by its own number");
  REQUIRE(ExitedWith(Reap(pid), 0));
}

// Its standard input and its standard error are the connection; POSIX_TEST_FILE is a file.
TEST_CASE("reopen inherited streams", "[.inherited-streams]") {
  char line[32];
  REQUIRE(fgets(line, sizeof line, stdin) == std::string("from the peer\n"));
  REQUIRE(fputs("to the peer", stderr) >= 0);
  REQUIRE(freopen("/dev/null", "w", stderr) == stderr);
  REQUIRE(fputs("lost", stderr) >= 0);
  REQUIRE(write(2, "lost", 4) == 4);
  REQUIRE(freopen(getenv("POSIX_TEST_FILE"), "r", stdin) == stdin);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(fgets(line, sizeof line, stdin) == std::string("from a file\n"));
    REQUIRE(fgets(line, sizeof line, stdin) == nullptr);
    REQUIRE(fseek(stdin, 0, SEEK_SET) == 0);
  }
}

TEST_CASE("stdio: freopen of standard streams that the program got as sockets") {
  Pair pair = MakePair();
  REQUIRE(SendAll(pair.client, "from the peer\n"));
  char path[] = "/tmp/posix-test-XXXXXX";
  const Fd file(mkstemp(path));
  REQUIRE(file >= 0);
  REQUIRE(write(file, "from a file\n", 12) == 12);
  REQUIRE(setenv("POSIX_TEST_FILE", path, 1) == 0);
  Program program("[.inherited-streams]", 0);
  const pid_t pid = Fork([&] {
    pair.client.reset();
    Silence();
    dup2(pair.server, 0);
    dup2(pair.server, 2);
    pair.server.reset();
    execve(program.path.c_str(), program.argv.data(), program.envp.data());
    return 1;
  });
  pair.server.reset();
  const std::string got = ReceiveToEnd(pair.client);
  const int status = Reap(pid);
  unlink(path);
  REQUIRE(got == "to the peer");
  REQUIRE(ExitedWith(status, 0));
}

}  // namespace
}  // namespace posix_test
