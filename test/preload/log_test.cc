#include "preload/log.h"

#include <fcntl.h>
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
    close(pipe_[1]);
  }
  ~PipedStderr() {
    dup2(saved_, STDERR_FILENO);
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

TEST_CASE("A pipe nobody reads raises no SIGPIPE") {
  PipedStderr captured;
  captured.CloseReader();
  LogLine(LogLevel::kError, "lost");
}

}  // namespace
}  // namespace sdp::preload
