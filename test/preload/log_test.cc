#include "preload/log.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

namespace sdp::preload {
namespace {

// Standard error is a pipe while this lives.
class PipedStderr {
 public:
  PipedStderr() : saved_(dup(STDERR_FILENO)) {
    REQUIRE(pipe(pipe_) == 0);
    dup2(pipe_[1], STDERR_FILENO);
    NoteStandardError();
    close(pipe_[1]);
  }
  ~PipedStderr() {
    dup2(saved_, STDERR_FILENO);
    NoteStandardError();
    close(saved_);
    CloseReader();
  }
  void CloseReader() {
    if (pipe_[0] >= 0) close(pipe_[0]);
    pipe_[0] = -1;
  }
  std::string Read() {
    char text[8192];
    const ssize_t length = read(pipe_[0], text, sizeof text);
    return std::string(text, static_cast<size_t>(length));
  }

 private:
  int saved_;
  int pipe_[2];
};

TEST_CASE("A line has the process and the text, and leaves errno alone") {
  PipedStderr captured;
  errno = ENOENT;
  LogLine(LogLevel::kError, "port %d: %m", 80);
  CHECK(errno == ENOENT);
  CHECK(captured.Read() == "sdp[" + std::to_string(getpid()) + "]: port 80: No such file or directory\n");
}

TEST_CASE("What is below the level is not written, what is too long is cut") {
  PipedStderr captured;
  LogLine(LogLevel::kDebug, "no");
  LogLine(LogLevel::kError, "%s", std::string(5000, 'x').c_str());
  const std::string text = captured.Read();
  CHECK(text.size() == 1024);
  CHECK(text.back() == '\n');
  CHECK(text.find("no") == std::string::npos);
}

TEST_CASE("A full pipe costs the line, not the program") {
  PipedStderr captured;
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
  const std::string filling(4096, '.');
  while (write(STDERR_FILENO, filling.data(), filling.size()) > 0) {
  }
  fcntl(STDERR_FILENO, F_SETFL, flags);
  LogLine(LogLevel::kError, "lost");
}

// A file whose descriptor is that of standard error; what was there is back when it goes.
class InPlaceOfStderr {
 public:
  explicit InPlaceOfStderr(int fd) : saved_(dup(STDERR_FILENO)) {
    REQUIRE(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
  }
  ~InPlaceOfStderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

TEST_CASE("What the program puts in the place of standard error gets no line") {
  const int data = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  REQUIRE(data >= 0);
  {
    const InPlaceOfStderr place(data);
    LogLine(LogLevel::kError, "not into a file of data");
  }
  CHECK(lseek(data, 0, SEEK_END) == 0);
  {
    // It was there when the program started: a log.
    const InPlaceOfStderr place(data);
    NoteStandardError();
    LogLine(LogLevel::kError, "into a log");
  }
  CHECK(lseek(data, 0, SEEK_END) > 0);
  NoteStandardError();
  close(data);
}

TEST_CASE("A client whom inetd has put there gets no line") {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof address;
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(listen(listener, 1) == 0);
  REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(connect(client, reinterpret_cast<sockaddr*>(&address), length) == 0);
  const int server = accept(listener, nullptr, nullptr);
  REQUIRE(server >= 0);
  {
    const InPlaceOfStderr place(server);
    NoteStandardError();
    LogLine(LogLevel::kError, "not to a client");
  }
  NoteStandardError();
  REQUIRE(close(server) == 0);
  char byte;
  CHECK(recv(client, &byte, 1, 0) == 0);
  close(client);
  close(listener);
}

TEST_CASE("A pipe nobody reads raises no SIGPIPE") {
  PipedStderr captured;
  captured.CloseReader();
  LogLine(LogLevel::kError, "lost");
}

}  // namespace
}  // namespace sdp::preload
