#include "preload/fd_table.h"

#include <catch2/catch.hpp>
#include <climits>
#include <thread>

#include "test/preload/fake_rooms.h"

namespace sdp::preload {
namespace {

SocketRef NewSocket() { return SocketRef(new FakeSocket); }

TEST_CASE("FdTable knows nothing it was not told") {
  for (int fd : {0, 1, 32767, 32768, 1 << 20, INT_MAX, -1, INT_MIN}) {
    CHECK_FALSE(FdTable::Has(fd));
    CHECK_FALSE(FdTable::Get(fd));
    CHECK_FALSE(FdTable::Remove(fd));
  }
}

TEST_CASE("FdTable keeps a socket alive until it is removed") {
  const int fd = GENERATE(0, 7, 4096, 32767, 32768, 1'000'000, (1 << 30) - 1);
  const int before = FakeSocket::alive;
  SocketRef socket = NewSocket();
  const Socket* address = socket.get();
  FdTable::Set(fd, socket.get());
  socket = {};
  CHECK(FakeSocket::alive == before + 1);
  CHECK(FdTable::Has(fd));
  CHECK(FdTable::Get(fd).get() == address);
  CHECK_FALSE(FdTable::Has(fd + 1));
  SocketRef removed = FdTable::Remove(fd);
  CHECK(removed.get() == address);
  CHECK_FALSE(FdTable::Has(fd));
  CHECK(FakeSocket::alive == before + 1);
  removed = {};
  CHECK(FakeSocket::alive == before);
}

TEST_CASE("A reference outlives the entry it came from") {
  const int before = FakeSocket::alive;
  FdTable::Set(5, NewSocket().get());
  SocketRef held = FdTable::Get(5);
  FdTable::Remove(5);
  CHECK(FakeSocket::alive == before + 1);
  held = {};
  CHECK(FakeSocket::alive == before);
}

TEST_CASE("Setting drops what stood there; removing can insist on whom it removes") {
  const int before = FakeSocket::alive;
  const SocketRef second = NewSocket();
  FdTable::Set(6, NewSocket().get());
  FdTable::Set(6, second.get());
  CHECK(FakeSocket::alive == before + 1);
  const SocketRef other = NewSocket();
  CHECK_FALSE(FdTable::Remove(6, other.get()));
  CHECK(FdTable::Get(6).get() == second.get());
  CHECK(FdTable::Remove(6, second.get()).get() == second.get());
}

TEST_CASE("Look-ups never run out of references, held or returned") {
  const int before = FakeSocket::alive;
  FdTable::Set(8, NewSocket().get());
  std::vector<SocketRef> held;
  for (int i = 0; i < 100'000; ++i) {
    SocketRef socket = FdTable::Get(8);
    if (i % 2 == 0) held.push_back(std::move(socket));
  }
  FdTable::Remove(8);
  CHECK(FakeSocket::alive == before + 1);
  held.clear();
  CHECK(FakeSocket::alive == before);
}

TEST_CASE("One socket under many numbers") {
  const int before = FakeSocket::alive;
  {
    const SocketRef socket = NewSocket();
    for (int fd = 100; fd < 5100; ++fd) FdTable::Set(fd, socket.get());
  }
  int visited = 0;
  FdTable::ForEach([](int, Socket*, void* count) { ++*static_cast<int*>(count); }, &visited);
  CHECK(visited == 5000);
  for (int fd = 100; fd < 5100; ++fd) FdTable::Remove(fd);
  CHECK(FakeSocket::alive == before);
}

TEST_CASE("Look-ups race with entering and removing", "[threads]") {
  constexpr int kNumbers = 4;
  constexpr int kRounds = 5'000;
  const int before = FakeSocket::alive;
  std::atomic<bool> stop{false};
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int fd = 0; !stop; fd = (fd + 1) % kNumbers) {
        if (const SocketRef socket = FdTable::Get(fd)) {
          // A dead socket would answer with garbage, or not at all.
          found += socket->VisibleStatusFlags(0) == O_NONBLOCK;
        }
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < kRounds; ++round) {
        const int fd = (round + t) % kNumbers;
        if (round % 3 == 0) {
          FdTable::Remove(fd);
        } else {
          FdTable::Set(fd, NewSocket().get());
        }
      }
    });
  }
  threads[3].join();
  threads[4].join();
  while (found == 0) std::this_thread::yield();
  stop = true;
  for (int t = 0; t < 3; ++t) threads[static_cast<size_t>(t)].join();
  for (int fd = 0; fd < kNumbers; ++fd) FdTable::Remove(fd);
  CHECK(FakeSocket::alive == before);
}

}  // namespace
}  // namespace sdp::preload
