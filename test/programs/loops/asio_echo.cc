// An echo server and its client on asio, two threads in one io_context.
//
//   asio_echo serve PORT             echoes what each connection sends
//   asio_echo send PORT COUNT SIZE   COUNT connections at once: each sends SIZE bytes, checks the echo;
//                                    "ok COUNT"
#include <array>
#include <asio.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "test/programs/loops/pattern.h"

namespace {

using asio::ip::tcp;

void Check(const asio::error_code& error, const char* what) {
  if (!error) return;
  std::fprintf(stderr, "%s: %s\n", what, error.message().c_str());
  std::_Exit(1);
}

class Served : public std::enable_shared_from_this<Served> {
 public:
  explicit Served(tcp::socket socket) : socket_(std::move(socket)) {}
  void Read() {
    socket_.async_read_some(asio::buffer(buffer_),
                            [self = shared_from_this()](const asio::error_code& error, size_t got) {
                              if (!error) self->Write(got);
                            });
  }

 private:
  void Write(size_t size) {
    asio::async_write(socket_, asio::buffer(buffer_, size),
                      [self = shared_from_this()](const asio::error_code& error, size_t) {
                        if (!error) self->Read();
                      });
  }

  tcp::socket socket_;
  std::array<char, 65536> buffer_;
};

void Accept(tcp::acceptor& acceptor) {
  acceptor.async_accept(asio::make_strand(acceptor.get_executor()),
                        [&acceptor](const asio::error_code& error, tcp::socket socket) {
                          Check(error, "accept");
                          std::make_shared<Served>(std::move(socket))->Read();
                          Accept(acceptor);
                        });
}

class Sender : public std::enable_shared_from_this<Sender> {
 public:
  Sender(asio::io_context& context, unsigned number, size_t size)
      : socket_(asio::make_strand(context)), bytes_(Pattern(number, size)), echo_(size, '\0') {}
  void Start(const tcp::endpoint& server) {
    socket_.async_connect(server, [self = shared_from_this()](const asio::error_code& error) {
      Check(error, "connect");
      self->socket_.set_option(tcp::no_delay(true));
      self->Exchange();
    });
  }

 private:
  void Exchange() {
    asio::async_write(socket_, asio::buffer(bytes_),
                      [self = shared_from_this()](const asio::error_code& error, size_t) {
                        Check(error, "write");
                        self->socket_.shutdown(tcp::socket::shutdown_send);
                      });
    asio::async_read(socket_, asio::buffer(echo_),
                     [self = shared_from_this()](const asio::error_code& error, size_t) {
                       Check(error, "read");
                       Check(self->echo_ == self->bytes_ ? asio::error_code() : asio::error::fault,
                             "other bytes came back");
                       self->AwaitEnd();
                     });
  }
  void AwaitEnd() {
    socket_.async_read_some(asio::buffer(echo_),
                            [self = shared_from_this()](const asio::error_code& error, size_t) {
                              Check(error == asio::error::eof ? asio::error_code() : asio::error::fault,
                                    "the connection does not end");
                            });
  }

  tcp::socket socket_;
  std::string bytes_, echo_;
};

void RunInTwoThreads(asio::io_context& context) {
  std::thread other([&] { context.run(); });
  context.run();
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  asio::io_context context(2);
  const tcp::endpoint server(asio::ip::address_v4::loopback(), static_cast<uint16_t>(std::atoi(argv[2])));
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0) {
    tcp::acceptor acceptor(context, server);
    Accept(acceptor);
    RunInTwoThreads(context);
  } else if (argc == 5 && std::strcmp(argv[1], "send") == 0) {
    const int count = std::atoi(argv[3]);
    for (int i = 0; i < count; ++i)
      std::make_shared<Sender>(context, static_cast<unsigned>(i), static_cast<size_t>(std::atol(argv[4])))
          ->Start(server);
    RunInTwoThreads(context);
    std::printf("ok %d\n", count);
  } else {
    return 2;
  }
  return 0;
}
