// A program with a libstdc++ and an abseil of its own, as shared objects and in force: threads, locale
// streams, exceptions, hash tables, and a socket.
#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

int main() {
  absl::flat_hash_map<std::string, int> table;
  for (int i = 0; i < 1000; ++i) table[absl::StrCat("key", i)] = i;
  int caught = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      try {
        throw std::runtime_error("thrown");
      } catch (const std::exception&) {
      }
    });
    ++caught;
  }
  for (std::thread& thread : threads) thread.join();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || close(fd) != 0) return 1;
  std::ostringstream text;
  text << "abseil " << table.size() << " libstdc++ " << caught;
  std::cout << text.str() << std::endl;
  return 0;
}
