#include "tools/sdpstat/doctor.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "test/support/skipped.h"
#include "test/tools/stats_fixture.h"
#include "tools/sdpstat/doctor_parts.h"

namespace sdp::sdpstat {
namespace {

using Grade = Finding::Grade;

TEST_CASE("doctor reads ld.so.preload as the loader does") {
  CHECK(ExaminePreloadFile("").empty());
  CHECK(ExaminePreloadFile("/usr/lib/other.so # not libsdp.so\n").empty());

  const auto bare = ExaminePreloadFile("/lib/a.so:libsdp.so\n");
  REQUIRE(bare.size() == 1);
  CHECK(bare[0].grade == Grade::kWarning);
  CHECK(bare[0].text.find("setuid programs print an error") != std::string::npos);

  const auto missing = ExaminePreloadFile("# ours\n/no/such/libsdp.so\n");
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].grade == Grade::kFailure);

  const auto fine = ExaminePreloadFile("/usr/$LIB/libsdp.so");
  REQUIRE(fine.size() == 1);
  CHECK(fine[0].grade == Grade::kFine);
}

int Writes(const std::string& /*directory*/) { return 0; }
int IsFull(const std::string& /*directory*/) { return ENOSPC; }

TEST_CASE("doctor judges the directory of the statistics as the library does") {
  const stats::TemporaryDirectory directory;
  const std::string own = directory.path() + "/own";
  CHECK(ExamineStatsPlace(own, Writes).grade == Grade::kFine);  // the library makes it
  CHECK(ExamineStatsPlace(directory.path() + "/no/such", Writes).text.ends_with("No such file or directory"));
  std::filesystem::create_directory(own);
  CHECK(ExamineStatsPlace(own, TryToWrite).grade == Grade::kFine);
  CHECK(std::filesystem::is_empty(own));

  const Finding full = ExamineStatsPlace(own, IsFull);
  CHECK(full.grade == Grade::kFailure);
  CHECK_THAT(full.text, Catch::Contains("has no room"));
  CHECK_THAT(full.remedy, Catch::Contains("df " + own));

  const std::string link = directory.path() + "/link", file = directory.path() + "/file";
  std::filesystem::create_symlink(own, link);
  std::ofstream(file).put('x');
  CHECK_THAT(ExamineStatsPlace(link, Writes).text, Catch::Contains("is a symbolic link"));
  CHECK_THAT(ExamineStatsPlace(file, Writes).text, Catch::Contains("is not a directory"));
  CHECK_THAT(ExamineStatsPlace("//", Writes).text, Catch::Contains("is the root directory"));
  if (geteuid() != 0) {
    test::Skipped("only root makes a directory another user's");
  } else {
    REQUIRE(chown(own.c_str(), 65533, 65533) == 0);
    CHECK_THAT(ExamineStatsPlace(own, Writes).text, Catch::Contains("belongs to user 65533"));
  }
}

TEST_CASE("doctor has advice of its own for each trouble with the port mapper's socket") {
  using run::DaemonState;
  const auto judge = [](DaemonState state, uid_t user = 0) {
    return JudgeDaemon("/run/sdp/pmd.sock", {.state = state, .user = user, .error = ELOOP});
  };
  const uid_t stranger = geteuid() + 7;
  CHECK(judge(DaemonState::kAnswers).grade == Grade::kFine);
  std::set<std::string> texts;
  for (const Finding& finding :
       {judge(DaemonState::kNoSocket), judge(DaemonState::kNoDaemon), judge(DaemonState::kNoDaemon, stranger),
        judge(DaemonState::kForbidden), judge(DaemonState::kForbidden, stranger),
        judge(DaemonState::kStranger, stranger), judge(DaemonState::kBroken)}) {
    CHECK(finding.grade == Grade::kFailure);
    CHECK_FALSE(finding.remedy.empty());
    texts.insert(finding.text);
  }
  CHECK(texts.size() == 7);
  CHECK_THAT(judge(DaemonState::kForbidden).remedy, Catch::Contains("--socket-mode"));
  CHECK_THAT(judge(DaemonState::kStranger, stranger).text,
             Catch::Contains("is served by user " + std::to_string(stranger)));
}

TEST_CASE("doctor names a listener that no port mapper knows") {
  stats::ConnectionRecord listener;
  listener.kind = stats::Kind::kListener;
  listener.counters.state = stats::State::kListening;
  listener.local = stats::Ipv4(1, 80);
  stats::ProcessStats process;
  process.pid = 7;
  process.program = "web";
  process.records = {listener};
  CHECK(JudgeListeners({}).grade == Grade::kFine);
  stats::Snapshot snapshot;
  snapshot.processes = {process};
  CHECK(JudgeListeners(snapshot).text == "1 registered");
  listener.counters.state = stats::State::kUnregistered;
  stats::SetText(listener.reason_text, "no sdp-pmd (/a)");
  snapshot.processes[0].records.push_back(listener);
  const Finding finding = JudgeListeners(snapshot);
  CHECK(finding.grade == Grade::kWarning);
  CHECK(finding.text == "1 of 2 not registered, such as web[7] on 10.0.0.1:80: no sdp-pmd (/a)");
}

TEST_CASE("doctor names a service below port 1024 whose SDP port clients refuse") {
  stats::ConnectionRecord listener;
  listener.kind = stats::Kind::kListener;
  listener.local = stats::Ipv4(1, 80);
  listener.sdp_local = stats::Ipv4(1, 914);
  stats::Snapshot snapshot;
  snapshot.processes.emplace_back();
  snapshot.processes[0].pid = 7;
  snapshot.processes[0].program = "web";
  auto& records = snapshot.processes[0].records;
  records = {listener};
  CHECK(JudgeSdpPorts(snapshot).empty());
  listener.local = stats::Ipv4(1, 8080);
  listener.sdp_local = stats::Ipv4(1, 45000);
  records.push_back(listener);
  CHECK(JudgeSdpPorts(snapshot).empty());
  listener.local = stats::Ipv4(1, 443);
  records.push_back(listener);
  const std::vector<Finding> findings = JudgeSdpPorts(snapshot);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].grade == Grade::kWarning);
  CHECK(findings[0].text ==
        "1 from 1024 on for services below, such as web[7] on 10.0.0.1:443: 45000: clients use TCP "
        "(pm-untrusted)");
  CHECK_THAT(findings[0].remedy, Catch::Contains("set ports 914-988"));
}

TEST_CASE("doctor does not take another program's UDP port for the port mapper's") {
  CHECK(JudgeUdpPort(3935, true, false).grade == Grade::kFine);
  CHECK(JudgeUdpPort(3935, true, true).grade == Grade::kWarning);
  CHECK(JudgeUdpPort(3935, false, true).grade == Grade::kFine);
  const Finding taken = JudgeUdpPort(3935, false, false);
  CHECK(taken.grade == Grade::kWarning);
  CHECK_THAT(taken.text, Catch::Contains("is taken"));
  CHECK_THAT(taken.remedy, Catch::Contains("ss -lunp sport = :3935"));
}

TEST_CASE("a look at the port mapper's socket tells what is in the way") {
  const stats::TemporaryDirectory directory;
  const std::string path = directory.path() + "/pmd.sock";
  using run::DaemonState;
  CHECK(run::LookForDaemon(path).state == DaemonState::kNoSocket);
  CHECK(run::LookForDaemon(std::string(200, 'x')).state == DaemonState::kBroken);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(run::LookForDaemon(path).state == DaemonState::kNoDaemon);
  REQUIRE(listen(listener, 4) == 0);
  CHECK(run::LookForDaemon(path).state == DaemonState::kAnswers);
  CHECK(run::DaemonRuns(path));
  close(listener);
}

TEST_CASE("doctor tells at which step the way to another host ends") {
  probe::Result result;
  result.connected = true;
  result.milliseconds = 2.5;
  result.record = stats::EstablishedConnection();
  const auto subjects = [](const std::vector<Finding>& findings) {
    std::string out;
    for (const Finding& finding : findings)
      out += (finding.grade == Grade::kFine ? "+" : "-") + finding.subject + " ";
    return out;
  };
  CHECK(subjects(JudgeWay("10.0.0.2", result)) ==
        "+rules +this host +port mapper +its answer +trust +SDP port +MPA +handshake +connection ");
  CHECK(JudgeWay("10.0.0.2", result)[3].text == "SDP at 10.0.0.2:50002");

  result.record->kind = stats::Kind::kFallback;
  const auto ends = [&](const char* reason) {
    stats::SetText(result.record->reason, reason);
    return subjects(JudgeWay("10.0.0.2", result));
  };
  CHECK(ends("pm-timeout") == "+rules +this host -port mapper -connection ");
  CHECK(ends("pm-untrusted") == "+rules +this host +port mapper +its answer -trust -connection ");
  CHECK(ends("sdp-silent") == "+rules +this host +port mapper +its answer +trust -SDP port -connection ");
  CHECK(ends("mpa-failed") ==
        "+rules +this host +port mapper +its answer +trust +SDP port -MPA -connection ");
  CHECK(ends("other") == "-SDP -connection ");
  result.connected = false;
  result.connect_error = "Connection refused";
  CHECK_THAT(JudgeWay("10.0.0.2", result).back().text, Catch::Contains("Connection refused"));
}

}  // namespace
}  // namespace sdp::sdpstat
