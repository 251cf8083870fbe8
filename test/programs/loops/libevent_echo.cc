// An echo server and its client on libevent's buffers, with whichever of its ways to wait EVENT_NOEPOLL and
// EVENT_NOPOLL leave.
//
//   libevent_echo serve PORT             echoes what each connection sends, in one thread
//   libevent_echo send PORT COUNT SIZE   COUNT connections at once, each sends SIZE bytes and checks the
//   echo; prints "ok COUNT"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "test/programs/loops/pattern.h"

// What is used here of libevent 2.1's interface: to run memcached, Debian's library is installed without its
// headers.
extern "C" {
struct event_base;
struct evconnlistener;
struct bufferevent;
struct evbuffer;
using DataCallback = void (*)(bufferevent*, void*);
using EventCallback = void (*)(bufferevent*, short, void*);
using AcceptCallback = void (*)(evconnlistener*, int, sockaddr*, int, void*);
event_base* event_base_new();
const char* event_base_get_method(const event_base*);
int event_base_dispatch(event_base*);
evconnlistener* evconnlistener_new_bind(event_base*, AcceptCallback, void*, unsigned, int, const sockaddr*,
                                        int);
bufferevent* bufferevent_socket_new(event_base*, int, int);
int bufferevent_socket_connect(bufferevent*, const sockaddr*, int);
void bufferevent_setcb(bufferevent*, DataCallback, DataCallback, EventCallback, void*);
int bufferevent_enable(bufferevent*, short);
int bufferevent_write(bufferevent*, const void*, size_t);
size_t bufferevent_read(bufferevent*, void*, size_t);
int bufferevent_getfd(bufferevent*);
void bufferevent_free(bufferevent*);
evbuffer* bufferevent_get_input(bufferevent*);
evbuffer* bufferevent_get_output(bufferevent*);
int evbuffer_add_buffer(evbuffer*, evbuffer*);
size_t evbuffer_get_length(const evbuffer*);
}

namespace {

constexpr short kRead = 0x02, kWrite = 0x04;
constexpr short kEnd = 0x10, kConnected = 0x80;
constexpr int kCloseOnFree = 1;
constexpr unsigned kCloseListener = 1U << 1, kReusable = 1U << 3;

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

sockaddr_in Address(const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// --- The server's end

void Echo(bufferevent* served, void* /*base*/) {
  evbuffer_add_buffer(bufferevent_get_output(served), bufferevent_get_input(served));
}

void FreeWhenWritten(bufferevent* served, void* /*base*/) {
  if (evbuffer_get_length(bufferevent_get_output(served)) == 0) bufferevent_free(served);
}

void OnServedEvent(bufferevent* served, short events, void* base) {
  if ((events & kEnd) == 0) return bufferevent_free(served);
  bufferevent_setcb(served, nullptr, FreeWhenWritten, OnServedEvent, base);
  FreeWhenWritten(served, base);
}

void OnAccepted(evconnlistener* /*listener*/, int fd, sockaddr* /*peer*/, int /*length*/, void* base) {
  bufferevent* const served = bufferevent_socket_new(static_cast<event_base*>(base), fd, kCloseOnFree);
  bufferevent_setcb(served, Echo, nullptr, OnServedEvent, base);
  bufferevent_enable(served, kRead | kWrite);
}

void Serve(event_base* base, const char* port) {
  const sockaddr_in address = Address(port);
  if (evconnlistener_new_bind(base, OnAccepted, base, kCloseListener | kReusable, 128,
                              reinterpret_cast<const sockaddr*>(&address), sizeof address) == nullptr)
    Die("listen");
  event_base_dispatch(base);
}

// --- The client's end

struct Sender {
  std::string bytes;
  size_t checked = 0;
};

int open_senders = 0;

void OnEcho(bufferevent* connection, void* argument) {
  auto* const sender = static_cast<Sender*>(argument);
  char buffer[65536];
  while (const size_t size = bufferevent_read(connection, buffer, sizeof buffer)) {
    if (size > sender->bytes.size() - sender->checked ||
        std::memcmp(buffer, sender->bytes.data() + sender->checked, size) != 0) {
      std::fputs("other bytes came back\n", stderr);
      std::exit(1);
    }
    sender->checked += size;
  }
}

void OnWritten(bufferevent* connection, void* /*sender*/) {
  if (shutdown(bufferevent_getfd(connection), SHUT_WR) != 0) Die("shutdown");
}

void OnSenderEvent(bufferevent* connection, short events, void* argument) {
  auto* const sender = static_cast<Sender*>(argument);
  if ((events & kConnected) != 0) {
    bufferevent_write(connection, sender->bytes.data(), sender->bytes.size());
    return;
  }
  if ((events & kEnd) == 0) Die("connection");
  OnEcho(connection, argument);
  if (sender->checked != sender->bytes.size()) {
    std::fputs("the connection ended early\n", stderr);
    std::exit(1);
  }
  bufferevent_free(connection);
  delete sender;
  --open_senders;
}

void Send(event_base* base, const char* port, int count, size_t size) {
  const sockaddr_in address = Address(port);
  for (int i = 0; i < count; ++i) {
    bufferevent* const connection = bufferevent_socket_new(base, -1, kCloseOnFree);
    bufferevent_setcb(connection, OnEcho, OnWritten, OnSenderEvent,
                      new Sender{.bytes = Pattern(static_cast<unsigned>(i), size)});
    bufferevent_enable(connection, kRead | kWrite);
    if (bufferevent_socket_connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0)
      Die("connect");
    ++open_senders;
  }
  event_base_dispatch(base);  // until nothing is waited for
  if (open_senders != 0) Die("a connection has not ended");
  std::printf("ok %d\n", count);
}

}  // namespace

int main(int argc, char** argv) {
  event_base* const base = event_base_new();
  if (base == nullptr) Die("libevent");
  std::fprintf(stderr, "%s\n", event_base_get_method(base));
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0) {
    Serve(base, argv[2]);
  } else if (argc == 5 && std::strcmp(argv[1], "send") == 0) {
    Send(base, argv[2], std::atoi(argv[3]), static_cast<size_t>(std::atol(argv[4])));
  } else {
    return 2;
  }
  return 0;
}
