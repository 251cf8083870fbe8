#include "tools/sdp-run/service.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/sdpstat/doctor_parts.h"

namespace sdp::run {
namespace {

namespace fs = std::filesystem;

// A root directory with a service, whose program is this very test or what `program` says.
class Root {
 public:
  Root() {
    char name[] = "/tmp/sdp-service-XXXXXX";
    path_ = mkdtemp(name);
    fs::create_directories(path_ / "lib/systemd/system");
    fs::create_directories(path_ / "usr/sbin");
    fs::copy_file("/proc/self/exe", path_ / "usr/sbin/web");
    Write("lib/systemd/system/web.service", "[Service]\nExecStart=-/usr/sbin/web -g 'x'\n");
    Write("lib/systemd/system/web@.service", "[Service]\nExecStart=/usr/sbin/web\n");
  }
  ~Root() { fs::remove_all(path_); }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  [[nodiscard]] std::string Read(const std::string& name) const {
    std::ifstream file(path_ / name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void Remove(const std::string& name) const { fs::remove(path_ / name); }
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] bool Has(const std::string& name) const { return fs::exists(path_ / name); }
  [[nodiscard]] ServiceRequest Request(const std::string& unit) const {
    return {.unit = unit, .root = path_.string(), .library = "/usr/lib/libsdp.so", .settings = {}};
  }

 private:
  fs::path path_;
};

const char* const kDropIn = "etc/systemd/system/web.service.d/sdp.conf";

TEST_CASE("a service is enabled, and disabled without a trace") {
  const Root root;
  ServiceRequest request = root.Request("web");
  request.settings = {{"SDP_LOG", "info"}, {"SDP_LOG_FILE", "/var/log/100% \"sdp\".log"}};
  const ServiceOutcome enabled = EnableService(request);
  INFO(enabled.text);
  REQUIRE(enabled.done);
  CHECK(root.Read(kDropIn) ==
        "# Written by sdp-run --enable; sdp-run --disable takes it away.\n[Unit]\n"
        "Wants=sdp-pmd.service\nAfter=sdp-pmd.service\n[Service]\n"
        "Environment=\"LD_PRELOAD=/usr/lib/libsdp.so\"\nEnvironment=\"SDP_LOG=info\"\n"
        "Environment=\"SDP_LOG_FILE=/var/log/100%% \\\"sdp\\\".log\"\n");
  CHECK(enabled.text.ends_with("Now: systemctl daemon-reload && systemctl restart web.service"));
  CHECK(EnableService(request).done);  // anew, with other settings perhaps
  const ServiceOutcome disabled = DisableService(root.Request("web.service"));
  REQUIRE(disabled.done);
  CHECK(disabled.text.ends_with("Now: systemctl daemon-reload && systemctl restart web.service"));
  CHECK_FALSE(root.Has("etc/systemd/system/web.service.d"));
  CHECK_FALSE(DisableService(root.Request("web")).done);
}

TEST_CASE("an instance has its own file, and its template's program") {
  const Root root;
  CHECK(EnableService(root.Request("web@one")).done);
  CHECK(root.Has("etc/systemd/system/web@one.service.d/sdp.conf"));
}

TEST_CASE("a service that is not there, or whose program cannot be preloaded, is refused") {
  const Root root;
  CHECK(EnableService(root.Request("mail")).text == "there is no service mail.service");
  for (const char* name : {"../web", "/web", "we b", ".web", "-web"}) {
    INFO(name);
    CHECK_FALSE(EnableService(root.Request(name)).done);
    CHECK_FALSE(DisableService(root.Request(name)).done);
  }
  root.Write("lib/systemd/system/gone.service", "[Service]\nExecStart=/usr/sbin/gone\n");
  ServiceRequest gone = root.Request("gone");
  CHECK_FALSE(EnableService(gone).done);
  gone.anyway = true;
  CHECK(EnableService(gone).done);
}

TEST_CASE("the program is that of the unit with its drop-ins, over several lines perhaps") {
  const Root root;
  root.Write("lib/systemd/system/web.service", "[Service]\nExecStart=\\\n  /usr/sbin/gone \\\n  -g\n");
  CHECK_FALSE(EnableService(root.Request("web")).done);
  root.Write("etc/systemd/system/web.service.d/10-add.conf", "[Service]\nExecStart=/usr/sbin/web\n");
  CHECK_FALSE(EnableService(root.Request("web")).done);  // a second program behind the first
  root.Write("etc/systemd/system/web.service.d/05-none.conf", "[Service]\nExecStart=\n");
  CHECK(EnableService(root.Request("web")).done);
  // Of one name /etc has the last word.
  root.Write("lib/systemd/system/web.service.d/10-add.conf", "[Service]\nExecStart=/usr/sbin/gone\n");
  CHECK(EnableService(root.Request("web")).done);
}

TEST_CASE("what in the unit would keep the service on TCP is said") {
  const Root root;
  const auto text = [&] { return EnableService(root.Request("web")).text; };
  CHECK(text().find("sdp.conf. Now: ") != std::string::npos);
  CHECK(text().find("sdp.conf. Now: ") != std::string::npos);  // its own LD_PRELOAD is none of the unit's
  const std::string drop_in = "etc/systemd/system/web.service.d/more.conf";
  for (const char* bad : {"AF_INET \\\n AF_INET6", "~AF_UNIX AF_PACKET"}) {
    root.Write(drop_in, "[Service]\nRestrictAddressFamilies=" + std::string(bad) + "\n");
    CHECK(text().find("RestrictAddressFamilies= leaves out AF_UNIX") != std::string::npos);
  }
  for (const char* fine : {"AF_INET AF_UNIX", "~AF_PACKET", "AF_INET\nRestrictAddressFamilies="}) {
    root.Write(drop_in, "[Service]\nRestrictAddressFamilies=" + std::string(fine) + "\n");
    CHECK(text().find("AF_UNIX") == std::string::npos);
  }
  root.Write(drop_in, "[Service]\nEnvironment=A=b \"LD_PRELOAD=libjemalloc.so.2\"\n");
  CHECK(text().find("It sets LD_PRELOAD itself, too") != std::string::npos);
}

TEST_CASE("doctor finds enabled services whose library, or unit, is gone") {
  const Root root;
  CHECK(sdpstat::ExamineServices(root.path()).empty());
  REQUIRE(EnableService(root.Request("web")).done);
  const auto find = [&] {
    const auto findings = sdpstat::ExamineServices(root.path());
    REQUIRE(findings.size() == 1);
    return findings[0];
  };
  CHECK(find().grade == sdpstat::Finding::Grade::kFailure);
  CHECK(find().text == "web.service is to load /usr/lib/libsdp.so, which is not there");
  root.Write("usr/lib/libsdp.so", "");
  CHECK(find().grade == sdpstat::Finding::Grade::kFine);
  CHECK(find().text == "enabled: web.service");
  root.Remove("lib/systemd/system/web.service");
  CHECK(find().grade == sdpstat::Finding::Grade::kNote);
}

TEST_CASE("a file by another hand stays") {
  const Root root;
  root.Write(kDropIn, "[Service]\nEnvironment=A=b\n");
  CHECK(EnableService(root.Request("web")).text.find("is not by sdp-run") != std::string::npos);
  CHECK_FALSE(DisableService(root.Request("web")).done);
  CHECK(root.Read(kDropIn) == "[Service]\nEnvironment=A=b\n");
}

TEST_CASE("other drop-ins keep their directory") {
  const Root root;
  root.Write("etc/systemd/system/web.service.d/other.conf", "[Service]\n");
  REQUIRE(EnableService(root.Request("web")).done);
  REQUIRE(DisableService(root.Request("web")).done);
  CHECK(root.Has("etc/systemd/system/web.service.d/other.conf"));
}

}  // namespace
}  // namespace sdp::run
