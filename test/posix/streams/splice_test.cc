// Bytes that move between sockets, pipes and files without passing through the program: splice, tee,
// vmsplice, sendfile, copy_file_range; and the reads and writes that take a position.
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <thread>

#include "test/posix/support.h"

namespace posix_test {
namespace {

struct PlainPipe {
  explicit PlainPipe(int flags = 0) {
    int ends[2];
    REQUIRE(pipe2(ends, flags | O_CLOEXEC) == 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  int queued() const {
    int bytes = -1;
    REQUIRE(ioctl(out, FIONREAD, &bytes) == 0);
    return bytes;
  }
  Fd out;  // to be read
  Fd in;   // to be written
};

std::string Take(const PlainPipe& pipe) {
  std::string data(static_cast<size_t>(pipe.queued()), '\0');
  if (!data.empty()) REQUIRE(read(pipe.out, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
  return data;
}

TEST_CASE("splice: from a socket to a pipe") {
  Pair pair = MakePair();
  PlainPipe pipe;
  REQUIRE(SendAll(pair.client, "through a pipe"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(splice(pair.server, nullptr, pipe.in, nullptr, 7, 0) == 7);
  REQUIRE(Take(pipe) == "through");
  REQUIRE(splice(pair.server, nullptr, pipe.in, nullptr, 4096, SPLICE_F_MOVE | SPLICE_F_MORE) == 7);
  REQUIRE(Take(pipe) == " a pipe");
  auto waiting = Async([&] { return splice(pair.server, nullptr, pipe.in, nullptr, 4096, 0); });
  REQUIRE(StillRunning(waiting));
  REQUIRE(SendAll(pair.client, "late"));
  REQUIRE(Get(waiting) == 4);
  REQUIRE(Take(pipe) == "late");
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE(splice(pair.server, nullptr, pipe.in, nullptr, 4096, 0) == 0);
}

TEST_CASE("splice: from a pipe to a socket") {
  Pair pair = MakePair();
  PlainPipe pipe;
  REQUIRE(write(pipe.in, "out of a pipe", 13) == 13);
  REQUIRE(splice(pipe.out, nullptr, pair.client, nullptr, 3, 0) == 3);
  REQUIRE(pipe.queued() == 10);
  REQUIRE(splice(pipe.out, nullptr, pair.client, nullptr, 4096, 0) == 10);
  REQUIRE(ReceiveExactly(pair.server, 13) == "out of a pipe");
  auto waiting = Async([&] { return splice(pipe.out, nullptr, pair.client, nullptr, 4096, 0); });
  REQUIRE(StillRunning(waiting));
  REQUIRE(write(pipe.in, "late", 4) == 4);
  REQUIRE(Get(waiting) == 4);
  REQUIRE(ReceiveExactly(pair.server, 4) == "late");
  pipe.in.reset();
  REQUIRE(splice(pipe.out, nullptr, pair.client, nullptr, 4096, 0) == 0);
}

TEST_CASE("splice: SPLICE_F_MORE holds back, and what follows takes it along") {
  Pair pair = MakePair();
  PlainPipe pipe;
  REQUIRE(write(pipe.in, "first ", 6) == 6);
  REQUIRE(splice(pipe.out, nullptr, pair.client, nullptr, 6, SPLICE_F_MORE) == 6);
  REQUIRE(SendAll(pair.client, "second"));
  REQUIRE(ReceiveExactly(pair.server, 12) == "first second");
}

TEST_CASE("splice: where it does not wait") {
  Pair pair = MakePair();
  PlainPipe pipe;
  // The flag is the pipe's, O_NONBLOCK each end's own.
  REQUIRE_ERRNO(splice(pipe.out, nullptr, pair.client, nullptr, 10, SPLICE_F_NONBLOCK), EAGAIN);
  SetNonblocking(pair.server);
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, nullptr, 10, 0), EAGAIN);
  SetNonblocking(pipe.out);
  REQUIRE_ERRNO(splice(pipe.out, nullptr, pair.client, nullptr, 10, 0), EAGAIN);
  SetNonblocking(pipe.in);
  while (write(pipe.in, "full", 4) > 0) {
  }
  REQUIRE(errno == EAGAIN);
  REQUIRE(SendAll(pair.client, "data"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, nullptr, 10, SPLICE_F_NONBLOCK), EAGAIN);
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, nullptr, 10, 0), EAGAIN);
  REQUIRE(ReceiveExactly(pair.server, 4) == "data");
  // A full socket leaves in the pipe what it does not take.
  SetNonblocking(pair.client);
  const size_t filled = Fill(pair.client);
  const int before = pipe.queued();
  REQUIRE_ERRNO(splice(pipe.out, nullptr, pair.client, nullptr, 1000, 0), EAGAIN);
  REQUIRE(pipe.queued() == before);
  REQUIRE(Drain(pair.server) <= filled);
}

TEST_CASE("splice: a time-out of the socket's") {
  Pair pair = MakePair();
  PlainPipe pipe;
  const timeval time{.tv_sec = 0, .tv_usec = 40'000};
  REQUIRE(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
  Stopwatch watch;
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, nullptr, 10, 0), EAGAIN);
  REQUIRE(watch.ms() >= 30);
}

TEST_CASE("splice: much data from socket to socket by way of a pipe") {
  Pair from = MakePair();
  Pair to = MakePair();
  const bool small = GENERATE(false, true);
  PlainPipe pipe;
  if (small) REQUIRE(fcntl(pipe.in, F_SETPIPE_SZ, 4096) == 4096);
  const std::string data = Pattern(small ? 300'000 : 5 << 20);
  auto sender = Async([&] {
    const bool sent = SendAll(from.client, data);
    from.client.reset();
    return sent;
  });
  auto relay = Async([&] {
    for (;;) {
      const ssize_t in = splice(from.server, nullptr, pipe.in, nullptr, 1 << 20, SPLICE_F_MOVE);
      if (in <= 0) return in == 0 && shutdown(to.client, SHUT_WR) == 0;
      for (ssize_t left = in; left > 0;) {
        const ssize_t out =
            splice(pipe.out, nullptr, to.client, nullptr, static_cast<size_t>(left), SPLICE_F_MOVE);
        if (out <= 0) return false;
        left -= out;
      }
    }
  });
  REQUIRE(Hash(ReceiveToEnd(to.server)) == Hash(data));
  REQUIRE(Get(relay));
  REQUIRE(Get(sender));
}

TEST_CASE("splice: much data between sockets that do not block, by way of a pipe") {
  Pair from = MakePair();
  Pair to = MakePair();
  PlainPipe pipe(O_NONBLOCK);
  SetNonblocking(from.server);
  SetNonblocking(to.client);
  const std::string data = Pattern(3 << 20);
  auto sender = Async([&] { return SendAll(from.client, data); });
  auto receiver = Async([&] { return ReceiveExactly(to.server, data.size()); });
  size_t in = 0;
  size_t out = 0;
  Stopwatch watch;
  while (out < data.size() && watch.ms() < kPatienceMs) {
    const ssize_t taken = splice(from.server, nullptr, pipe.in, nullptr, 100'000, SPLICE_F_NONBLOCK);
    if (taken > 0) in += static_cast<size_t>(taken);
    const ssize_t given = splice(pipe.out, nullptr, to.client, nullptr, 70'000, SPLICE_F_NONBLOCK);
    if (given > 0) out += static_cast<size_t>(given);
    if (taken <= 0 && given <= 0) {
      pollfd fds[2] = {{from.server, static_cast<short>(in < data.size() && in == out ? POLLIN : 0), 0},
                       {to.client, static_cast<short>(in > out ? POLLOUT : 0), 0}};
      poll(fds, 2, 10);
    }
  }
  REQUIRE(in == data.size());
  REQUIRE(out == data.size());
  REQUIRE(Hash(Get(receiver)) == Hash(data));
  REQUIRE(Get(sender));
}

TEST_CASE("splice: a pipe without a reader, a socket without a peer") {
  signal(SIGPIPE, SIG_IGN);
  Pair pair = MakePair();
  {
    PlainPipe pipe;
    pipe.out.reset();
    REQUIRE(SendAll(pair.client, "kept"));
    REQUIRE(WaitFor(pair.server, POLLIN));
    REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, nullptr, 10, 0), EPIPE);
    REQUIRE(ReceiveExactly(pair.server, 4) == "kept");
  }
  PlainPipe pipe;
  REQUIRE(write(pipe.in, "nobody", 6) == 6);
  REQUIRE(shutdown(pair.client, SHUT_WR) == 0);
  REQUIRE_ERRNO(splice(pipe.out, nullptr, pair.client, nullptr, 10, 0), EPIPE);
  signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("splice: errors") {
  Pair pair = MakePair();
  Pair other = MakePair();
  PlainPipe pipe;
  REQUIRE(SendAll(pair.client, "untouched"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(write(pipe.in, "piped", 5) == 5);
  off64_t offset = 0;
  REQUIRE_ERRNO(splice(pair.server, nullptr, other.client, nullptr, 10, 0), EINVAL);
  REQUIRE_ERRNO(splice(pair.server, &offset, pipe.in, nullptr, 10, 0), EINVAL);
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, &offset, 10, 0), ESPIPE);
  REQUIRE_ERRNO(splice(pipe.out, &offset, pair.client, nullptr, 10, 0), ESPIPE);
  REQUIRE_ERRNO(splice(pipe.out, nullptr, pair.client, &offset, 10, 0), EINVAL);
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.in, nullptr, 10, 0x80), EINVAL);
  REQUIRE_ERRNO(splice(pair.server, nullptr, pipe.out, nullptr, 10, 0), EBADF);
  REQUIRE_ERRNO(splice(pipe.in, nullptr, pair.client, nullptr, 10, 0), EBADF);
  REQUIRE_ERRNO(splice(pair.server, nullptr, 9999, nullptr, 10, 0), EBADF);
  REQUIRE(splice(pair.server, nullptr, pipe.in, nullptr, 0, 0) == 0);
  Fd fresh = TcpSocket();
  REQUIRE_ERRNO(splice(fresh, nullptr, pipe.in, nullptr, 10, SPLICE_F_NONBLOCK), ENOTCONN);
  REQUIRE(ReceiveExactly(pair.server, 9) == "untouched");
  REQUIRE(Take(pipe) == "piped");
}

TEST_CASE("splice: tee and vmsplice know pipes alone") {
  Pair pair = MakePair();
  PlainPipe pipe;
  char memory[8] = "memory";
  const iovec piece{.iov_base = memory, .iov_len = 6};
  REQUIRE(SendAll(pair.client, "untouched"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE_ERRNO(tee(pair.server, pipe.in, 10, 0), EINVAL);
  REQUIRE_ERRNO(tee(pipe.out, pair.client, 10, 0), EINVAL);
  REQUIRE_ERRNO(vmsplice(pair.client, &piece, 1, 0), EBADF);
  REQUIRE(vmsplice(pipe.in, &piece, 1, 0) == 6);
  PlainPipe copy;
  REQUIRE(tee(pipe.out, copy.in, 10, 0) == 6);
  REQUIRE(splice(copy.out, nullptr, pair.client, nullptr, 10, 0) == 6);
  REQUIRE(ReceiveExactly(pair.server, 15) == "untouchedmemory");
  REQUIRE(Take(pipe) == "memory");
}

TEST_CASE("splice: sendfile and copy_file_range of what is no file") {
  Pair pair = MakePair();
  PlainPipe pipe;
  REQUIRE(write(pipe.in, "piped", 5) == 5);
  REQUIRE(SendAll(pair.client, "untouched"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE_ERRNO(sendfile(pair.client, pipe.out, nullptr, 5), EINVAL);
  REQUIRE_ERRNO(sendfile(pair.client, pair.server, nullptr, 5), EINVAL);
  off_t offset = 0;
  REQUIRE_ERRNO(sendfile(pair.client, pair.server, &offset, 5), ESPIPE);
  REQUIRE_ERRNO(sendfile(pipe.in, pair.server, &offset, 5), ESPIPE);
  REQUIRE_ERRNO(copy_file_range(pair.server, nullptr, pair.client, nullptr, 5, 0), EINVAL);
  REQUIRE_ERRNO(copy_file_range(pipe.out, nullptr, pair.client, nullptr, 5, 0), EINVAL);
  REQUIRE(Take(pipe) == "piped");
  REQUIRE(ReceiveExactly(pair.server, 9) == "untouched");
}

TEST_CASE("splice: sendfile from a socket to a pipe") {
  Pair pair = MakePair();
  PlainPipe pipe;
  REQUIRE(SendAll(pair.client, "by sendfile"));
  REQUIRE(WaitFor(pair.server, POLLIN));
  REQUIRE(sendfile(pipe.in, pair.server, nullptr, 3) == 3);
  REQUIRE(sendfile(pipe.in, pair.server, nullptr, 100) == 8);
  REQUIRE(Take(pipe) == "by sendfile");
}

TEST_CASE("splice: reads and writes at a position, and at none") {
  Pair pair = MakePair();
  char data[32] = "positioned";
  const iovec piece{.iov_base = data, .iov_len = 10};
  REQUIRE_ERRNO(pread(pair.server, data, 10, 0), ESPIPE);
  REQUIRE_ERRNO(pwrite(pair.client, data, 10, 0), ESPIPE);
  REQUIRE_ERRNO(preadv(pair.server, &piece, 1, 0), ESPIPE);
  REQUIRE_ERRNO(pwritev(pair.client, &piece, 1, 0), ESPIPE);
  REQUIRE_ERRNO(preadv2(pair.server, &piece, 1, 0, 0), ESPIPE);
  REQUIRE_ERRNO(pwritev2(pair.client, &piece, 1, 0, 0), ESPIPE);
  REQUIRE_ERRNO(preadv2(pair.server, &piece, 1, -2, 0), EINVAL);
  REQUIRE_ERRNO(preadv2(pair.server, &piece, 1, -1, RWF_NOWAIT), EAGAIN);
  REQUIRE(pwritev2(pair.client, &piece, 1, -1, 0) == 10);
  REQUIRE(WaitFor(pair.server, POLLIN));
  memset(data, 0, sizeof data);
  REQUIRE(preadv2(pair.server, &piece, 1, -1, RWF_NOWAIT) == 10);
  REQUIRE(std::string(data) == "positioned");
  REQUIRE_ERRNO(preadv2(pair.server, &piece, 1, -1, 1 << 20), EOPNOTSUPP);
  REQUIRE_ERRNO(lseek(pair.server, 0, SEEK_CUR), ESPIPE);
}

}  // namespace
}  // namespace posix_test
