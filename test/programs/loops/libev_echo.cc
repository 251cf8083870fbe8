// An echo server and its client on libev, with whichever of libev's ways to wait LIBEV_FLAGS names.
//
//   libev_echo serve PORT             echoes what each connection sends, in one thread
//   libev_echo send PORT COUNT SIZE   COUNT connections at once: each sends SIZE bytes, checks the echo;
//                                     "ok COUNT"
#include <arpa/inet.h>
#include <errno.h>
#include <ev.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "test/programs/loops/pattern.h"

namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

int NewSocket() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) Die("socket");
  return fd;
}

sockaddr_in Address(const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// The server's end: does not read on before all is written.
struct Served {
  ev_io watcher{};
  std::string left;
};

void Watch(struct ev_loop* loop, Served* served, int events) {
  const int fd = served->watcher.fd;
  ev_io_stop(loop, &served->watcher);
  ev_io_set(&served->watcher, fd, events);
  ev_io_start(loop, &served->watcher);
}

void Forget(struct ev_loop* loop, Served* served) {
  ev_io_stop(loop, &served->watcher);
  close(served->watcher.fd);
  delete served;
}

void OnServed(struct ev_loop* loop, ev_io* watcher, int events) {
  auto* const served = static_cast<Served*>(watcher->data);
  if ((events & EV_READ) != 0) {
    char buffer[65536];
    const ssize_t got = read(watcher->fd, buffer, sizeof buffer);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return Forget(loop, served);
    served->left.append(buffer, static_cast<size_t>(got));
  }
  const ssize_t put = write(watcher->fd, served->left.data(), served->left.size());
  if (put < 0 && errno != EAGAIN) return Forget(loop, served);
  if (put > 0) served->left.erase(0, static_cast<size_t>(put));
  Watch(loop, served, served->left.empty() ? EV_READ : EV_WRITE);
}

void OnListener(struct ev_loop* loop, ev_io* watcher, int /*events*/) {
  const int fd = accept4(watcher->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno != EAGAIN) Die("accept");
    return;
  }
  auto* const served = new Served;
  ev_io_init(&served->watcher, OnServed, fd, EV_READ);
  served->watcher.data = served;
  ev_io_start(loop, &served->watcher);
}

void Serve(struct ev_loop* loop, const char* port) {
  const int fd = NewSocket();
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const sockaddr_in address = Address(port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(fd, 128) != 0)
    Die("listen");
  ev_io listener{};
  ev_io_init(&listener, OnListener, fd, EV_READ);
  ev_io_start(loop, &listener);
  ev_run(loop, 0);
}

// The client's end: reads and writes at once, by two watchers of one descriptor.
struct Sender {
  ev_io reader{}, writer{};
  std::string bytes;
  size_t written = 0, checked = 0;
  bool connected = false;
};

int open_senders = 0;

void OnWritable(struct ev_loop* loop, ev_io* watcher, int /*events*/) {
  auto* const sender = static_cast<Sender*>(watcher->data);
  if (!sender->connected) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(watcher->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      errno = error;
      Die("connect");
    }
    sender->connected = true;
  }
  const ssize_t put =
      write(watcher->fd, sender->bytes.data() + sender->written, sender->bytes.size() - sender->written);
  if (put < 0 && errno != EAGAIN) Die("write");
  if (put > 0) sender->written += static_cast<size_t>(put);
  if (sender->written < sender->bytes.size()) return;
  ev_io_stop(loop, watcher);
  if (shutdown(watcher->fd, SHUT_WR) != 0) Die("shutdown");
}

void OnReadable(struct ev_loop* loop, ev_io* watcher, int /*events*/) {
  auto* const sender = static_cast<Sender*>(watcher->data);
  char buffer[65536];
  const ssize_t got = read(watcher->fd, buffer, sizeof buffer);
  if (got < 0 && errno == EAGAIN) return;
  if (got < 0) Die("read");
  const auto size = static_cast<size_t>(got);
  if (size > sender->written - sender->checked ||
      std::memcmp(buffer, sender->bytes.data() + sender->checked, size) != 0) {
    std::fputs("other bytes came back\n", stderr);
    std::exit(1);
  }
  sender->checked += size;
  if (size != 0) return;
  if (sender->checked != sender->bytes.size()) {
    std::fputs("the connection ended early\n", stderr);
    std::exit(1);
  }
  ev_io_stop(loop, watcher);
  close(watcher->fd);
  delete sender;
  if (--open_senders == 0) ev_break(loop, EVBREAK_ALL);
}

void Send(struct ev_loop* loop, const char* port, int count, size_t size) {
  const sockaddr_in address = Address(port);
  for (int i = 0; i < count; ++i) {
    const int fd = NewSocket();
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS)
      Die("connect");
    auto* const sender = new Sender;
    sender->bytes = Pattern(static_cast<unsigned>(i), size);
    ev_io_init(&sender->writer, OnWritable, fd, EV_WRITE);
    ev_io_init(&sender->reader, OnReadable, fd, EV_READ);
    sender->writer.data = sender->reader.data = sender;
    ev_io_start(loop, &sender->writer);
    ev_io_start(loop, &sender->reader);
    ++open_senders;
  }
  ev_run(loop, 0);
  std::printf("ok %d\n", count);
}

}  // namespace

int main(int argc, char** argv) {
  struct ev_loop* const loop = ev_default_loop(EVFLAG_AUTO);
  if (loop == nullptr) Die("libev");
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0) {
    Serve(loop, argv[2]);
  } else if (argc == 5 && std::strcmp(argv[1], "send") == 0) {
    Send(loop, argv[2], std::atoi(argv[3]), static_cast<size_t>(std::atol(argv[4])));
  } else {
    return 2;
  }
  return 0;
}
