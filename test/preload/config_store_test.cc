#include "preload/config_store.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

namespace sdp::preload {
namespace {

std::map<std::string, std::string> variables;
const char* Lookup(const char* name) {
  const auto found = variables.find(name);
  return found != variables.end() ? found->second.c_str() : nullptr;
}
const char* Program() { return "nginx"; }

class Fixture {
 public:
  Fixture() {
    char name[] = "/tmp/sdp-config-test-XXXXXX";
    directory_ = mkdtemp(name);
    variables = {{"SDP_CONFIG", path()}};
  }
  ~Fixture() { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string path() const { return directory_ + "/libsdp.conf"; }
  // As an editor does it: a new file in the old one's place.
  void Write(const std::string& text) const {
    std::ofstream(path() + ".new") << text;
    std::filesystem::rename(path() + ".new", path());
  }

 private:
  std::string directory_;
};

// A process never lets go of what it has read; a test does.
class TestStore : public ConfigStore {
 public:
  TestStore() : ConfigStore(Lookup, Program) {}
  ~TestStore() {
    for (const LoadedConfig* loaded = &Get(); loaded != nullptr;) {
      const LoadedConfig* before = loaded->before;
      delete loaded;
      loaded = before;
    }
  }
};

constexpr int64_t kSecond = ConfigStore::kLookInterval;

TEST_CASE("A changed file is read again, once a second at most") {
  const Fixture fixture;
  fixture.Write("use tcp client nginx *:80\nuse tcp client redis *:81\nset pm-port 4000\n");
  TestStore store;
  const LoadedConfig& first = store.Get();
  CHECK(first.config.pm_port == 4000);
  REQUIRE(first.rules.size() == 1);  // the others speak of other programs
  CHECK(first.problems.empty());
  CHECK(store.Refresh(kSecond) == nullptr);

  fixture.Write("use sdp client nginx *:80\nset pm-port 5000\nset nonsense 1\n");
  CHECK(store.Refresh(kSecond + kSecond / 2) == nullptr);
  CHECK(&store.Get() == &first);
  const LoadedConfig* second = store.Refresh(2 * kSecond);
  REQUIRE(second != nullptr);
  CHECK(&store.Get() == second);
  CHECK(second->config.pm_port == 5000);
  CHECK(second->rules.at(0).mode == Mode::kSdp);
  CHECK(second->problems.size() == 1);
  // What was read first is still there for those who hold it.
  CHECK(first.config.pm_port == 4000);

  std::filesystem::remove(fixture.path());
  const LoadedConfig* third = store.Refresh(3 * kSecond);
  REQUIRE(third != nullptr);
  CHECK(third->config.pm_port == 3935);
  CHECK(third->rules.empty());
  CHECK(third->problems.size() == 1);  // it was named, and is not there
  CHECK(store.Refresh(4 * kSecond) == nullptr);
}

TEST_CASE("The environment is asked once") {
  const Fixture fixture;
  fixture.Write("set pm-port 4000\n");
  variables["SDP_PM_TIMEOUT_MS"] = "5";
  TestStore store;
  CHECK(store.Get().config.pm_timeout == std::chrono::milliseconds(5));
  variables.clear();
  fixture.Write("set pm-port 4001\nset pm-timeout-ms 77\n");
  const LoadedConfig* loaded = store.Refresh(kSecond);
  REQUIRE(loaded != nullptr);
  CHECK(loaded->config.pm_port == 4001);
  CHECK(loaded->config.pm_timeout == std::chrono::milliseconds(5));
}

TEST_CASE("Things that are no files do no harm") {
  const Fixture fixture;
  TestStore missing;
  CHECK(missing.Get().problems.size() == 1);
  std::filesystem::create_directory(fixture.path());
  TestStore directory;
  CHECK(directory.Get().rules.empty());
  variables["SDP_CONFIG"] = "/dev/null";
  TestStore null;
  CHECK(null.Get().problems.empty());
  std::filesystem::remove(fixture.path());
  REQUIRE(mkfifo(fixture.path().c_str(), 0600) == 0);
  variables["SDP_CONFIG"] = fixture.path();
  TestStore fifo;  // does not wait for a writer
  CHECK(fifo.Get().rules.empty());
}

TEST_CASE("Threads ask while the file changes") {
  const Fixture fixture;
  fixture.Write("set pm-port 1\n");
  TestStore store;
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const uint16_t port = store.Get().config.pm_port;
        if (port < 1 || port > 20) std::abort();
      }
    });
  }
  for (int i = 2; i <= 20; ++i) {
    fixture.Write("set pm-port " + std::to_string(i) + "\n");
    store.Refresh(i * kSecond);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(store.Get().config.pm_port == 20);
}

}  // namespace
}  // namespace sdp::preload
