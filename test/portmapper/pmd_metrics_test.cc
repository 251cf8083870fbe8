// Counters for whoever watches: the request's parser, and the real thing on a unix socket and a loopback
// port.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "portmapper/daemon/metrics_request.h"
#include "test/portmapper/local_sockets.h"
#include "test/portmapper/pm_test_support.h"
#include "test/portmapper/pmd_process.h"

namespace sdp::pm {
namespace {

using namespace test;

TEST_CASE("a request for metrics is understood, others are told why not", "[metrics]") {
  const auto parse = [](const std::string& line) {
    return ParseMetricsRequest(line + "\r\nHost: x\r\n\r\n");
  };
  CHECK(parse("GET /metrics HTTP/1.1") == MetricsRequest::kGet);
  CHECK(parse("GET / HTTP/1.0") == MetricsRequest::kGet);
  CHECK(parse("GET /metrics?x=y HTTP/1.1") == MetricsRequest::kGet);
  CHECK(parse("HEAD /metrics HTTP/1.1") == MetricsRequest::kHead);
  CHECK(ParseMetricsRequest("GET /metrics HTTP/1.1\n\n") == MetricsRequest::kGet);
  CHECK(parse("GET /other HTTP/1.1") == MetricsRequest::kNotFound);
  CHECK(parse("POST /metrics HTTP/1.1") == MetricsRequest::kBadMethod);
  CHECK(parse("GET /metrics HTTP/2") == MetricsRequest::kBad);
  CHECK(parse("GET /metrics") == MetricsRequest::kBad);
  CHECK(parse("") == MetricsRequest::kBad);
  CHECK(ParseMetricsRequest("GET /metrics HTTP/1.1\r\n") == MetricsRequest::kIncomplete);
  CHECK(ParseMetricsRequest("") == MetricsRequest::kIncomplete);
  CHECK(ParseMetricsRequest(std::string(kMaxMetricsRequest - 1, 'x')) == MetricsRequest::kIncomplete);
  CHECK(ParseMetricsRequest(std::string(kMaxMetricsRequest, 'x')) == MetricsRequest::kBad);
}

TEST_CASE("an answer says how long it is", "[metrics]") {
  CHECK(MetricsResponse(MetricsRequest::kGet, "# EOF\n").find("Content-Length: 6\r\n") != std::string::npos);
  const std::string head = MetricsResponse(MetricsRequest::kHead, "# EOF\n");
  CHECK(head.find("Content-Length: 6\r\n") != std::string::npos);
  CHECK(head.substr(head.size() - 4) == "\r\n\r\n");
  for (const auto request : {MetricsRequest::kNotFound, MetricsRequest::kBadMethod, MetricsRequest::kBad}) {
    const std::string answer = MetricsResponse(request, "");
    const size_t body = answer.find("\r\n\r\n") + 4;
    CHECK(answer.find("Content-Length: " + std::to_string(answer.size() - body) + "\r\n") !=
          std::string::npos);
  }
}

// Where the daemon says its metrics are.
std::string WhereOf(const PmdProcess& pmd) {
  const size_t at = pmd.ready_line().find(", metrics ");
  CAPTURE(pmd.ready_line(), pmd.Log());
  REQUIRE(at != std::string::npos);
  return pmd.ready_line().substr(at + 10);
}

UniqueFd Connect(const std::string& where) {
  sockaddr_storage name{};
  socklen_t length = 0;
  if (where.compare(0, 5, "unix:") == 0) {
    auto* address = reinterpret_cast<sockaddr_un*>(&name);
    address->sun_family = AF_UNIX;
    std::copy(where.begin() + 5, where.end(), address->sun_path);
    length = sizeof(sockaddr_un);
  } else {
    length = ToSockaddr(At(where), &name);
  }
  UniqueFd fd(socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0);
  return fd;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  pollfd readable{fd, POLLIN, 0};
  while (poll(&readable, 1, 10000) == 1) {
    const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

std::string Get(const std::string& where) {
  const UniqueFd fd = Connect(where);
  // In two pieces, as a slow network would have it.
  for (const char* piece : {"GET /metr", "ics HTTP/1.1\r\nHost: localhost\r\n\r\n"}) {
    REQUIRE(send(fd.get(), piece, std::strlen(piece), MSG_NOSIGNAL) > 0);
  }
  return ReadAll(fd.get());
}

TEST_CASE("counters are served as OpenMetrics", "[pmd][metrics]") {
  const TempDir directory;
  const std::string path = directory.Path("metrics");
  std::string where = GENERATE(as<std::string>(), "0", "127.0.0.1:0", "[::1]:0", "unix:");
  if (where == "unix:") where += path;
  CAPTURE(where);
  const PmdProcess pmd(
      {"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock"), "--metrics", where});
  REQUIRE_FALSE(pmd.ready_line().empty());
  CHECK(Ask(pmd.listen_address(), At("127.0.0.1:80")).state == QueryState::kDenied);
  const std::string answer = Get(WhereOf(pmd));
  CHECK(answer.find("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0") == 0);
  CHECK(answer.find("\n# TYPE sdp_pmd_requests counter\n") != std::string::npos);
  CHECK(answer.find("\nsdp_pmd_requests_total 1\n") != std::string::npos);
  CHECK(answer.find("\nsdp_pmd_denies_total 1\n") != std::string::npos);
  CHECK(answer.find("\nsdp_pmd_registrations 0\n") != std::string::npos);
  CHECK(answer.substr(answer.size() - 7) == "\n# EOF\n");
  if (where.compare(0, 5, "unix:") == 0) {
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0660);
  }
}

TEST_CASE("scrapers that dawdle do not keep others out, nor the service", "[pmd][metrics]") {
  const TempDir directory;
  const PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock"), "--metrics", "0"});
  const std::string where = WhereOf(pmd);
  const size_t before = CountDescriptors(pmd.pid());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 30; ++i) silent.push_back(Connect(where));
  CHECK(Get(where).find("200 OK") != std::string::npos);
  CHECK(CountDescriptors(pmd.pid()) <= before + 8);
  CHECK(Ask(pmd.listen_address(), At("127.0.0.1:80")).state == QueryState::kDenied);
  // The oldest were sent away; the others are, after a while.
  CHECK(AwaitEnd(silent.front().get()));
  CHECK(AwaitEnd(silent.back().get()));
  const UniqueFd strange = Connect(where);
  REQUIRE(send(strange.get(), "\x16\x03\x01\n\n", 5, MSG_NOSIGNAL) == 5);
  CHECK(ReadAll(strange.get()).find("HTTP/1.1 400 ") == 0);
}

TEST_CASE("metrics for the whole network are refused", "[pmd][metrics]") {
  const TempDir directory;
  const std::string where = GENERATE("0.0.0.0:9100", "10.0.0.1:9100", "everywhere", "unix:", "99999");
  PmdProcess pmd({"--listen", "127.0.0.1:0", "--socket", directory.Path("pmd.sock"), "--metrics", where});
  CHECK(pmd.AwaitExit() == 2);
  CHECK(pmd.Log().find("--metrics " + where) != std::string::npos);
}

}  // namespace
}  // namespace sdp::pm
