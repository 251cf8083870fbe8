#include "tools/sdp-run/service.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "tools/sdp-run/program_check.h"

namespace sdp::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "# Written by sdp-run --enable; sdp-run --disable takes it away.";
// In systemd's order: the first that has the unit counts.
constexpr const char* kUnitPlaces[] = {"/etc/systemd/system", "/run/systemd/system",
                                       "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
                                       "/lib/systemd/system"};

std::string FullName(const std::string& unit) {
  return unit.ends_with(".service") ? unit : unit + ".service";
}

// Characters that systemd allows in a unit's name. A slash would lead elsewhere.
bool IsName(const std::string& name) {
  return !name.starts_with('.') && !name.starts_with('-') &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || std::strchr(":-_.\\@", c) != nullptr;
         });
}

// getty@tty1.service is an instance of getty@.service.
std::string TemplateOf(const std::string& name) {
  const size_t at = name.find('@');
  return at == std::string::npos ? name : name.substr(0, at + 1) + ".service";
}

std::optional<fs::path> FindUnit(const std::string& root, const std::string& name) {
  for (const std::string& candidate : {name, TemplateOf(name)}) {
    for (const char* place : kUnitPlaces) {
      const fs::path path = root + place + "/" + candidate;
      std::error_code error;
      if (fs::exists(path, error)) return path;
    }
  }
  return std::nullopt;
}

// The program of the unit's first ExecStart=; empty if there is none.
std::string ProgramOf(const fs::path& unit) {
  std::ifstream file(unit);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("ExecStart=")) continue;
    std::istringstream words(line.substr(std::strlen("ExecStart=")));
    std::string program;
    words >> program;
    program.erase(0, program.find_first_not_of("@-:+!"));
    if (!program.empty()) return program;
  }
  return {};
}

// As a word in a unit file: quoted, and without specifiers.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '%') out += '%';
    out += c;
  }
  return out + "\"";
}

std::string Text(const ServiceRequest& request) {
  std::string text = kMark;
  text += "\n[Unit]\nWants=sdp-pmd.service\nAfter=sdp-pmd.service\n[Service]\n";
  text += "Environment=" + Quoted("LD_PRELOAD=" + request.library) + "\n";
  for (const auto& [name, value] : request.settings)
    text += "Environment=" + Quoted(name + "=" + value) + "\n";
  return text;
}

std::string FirstLine(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

fs::path DropIn(const ServiceRequest& request) {
  return request.root + "/etc/systemd/system/" + FullName(request.unit) + ".d/sdp.conf";
}

std::string Next(const std::string& name) {
  return ". Now: systemctl daemon-reload && systemctl restart " + name;
}

// What stands in the way of both; empty: nothing.
std::string Obstacle(const ServiceRequest& request) {
  if (!IsName(FullName(request.unit))) return "'" + request.unit + "' is no name of a service";
  const fs::path path = DropIn(request);
  std::error_code error;
  if (fs::exists(path, error) && FirstLine(path) != kMark)
    return path.string() + " is not by sdp-run: change it yourself";
  return {};
}

}  // namespace

ServiceOutcome EnableService(const ServiceRequest& request) {
  if (std::string obstacle = Obstacle(request); !obstacle.empty()) return {.text = std::move(obstacle)};
  const std::string name = FullName(request.unit);
  const auto unit = FindUnit(request.root, name);
  if (!unit) return {.text = "there is no service " + name};
  const std::string program = ProgramOf(*unit);
  if (!program.empty()) {
    const Check check = CheckProgram({request.root + program});
    if (check.verdict != Verdict::kFine && !request.anyway)
      return {.text =
                  check.path + " " + check.why + ": " + name + " would stay TCP (--anyway writes the file)"};
  }
  const fs::path path = DropIn(request);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::trunc);
  file << Text(request);
  file.close();
  if (error || !file) return {.text = path.string() + " cannot be written: are you root?"};
  return {.done = true, .text = "wrote " + path.string() + Next(name)};
}

ServiceOutcome DisableService(const ServiceRequest& request) {
  if (std::string obstacle = Obstacle(request); !obstacle.empty()) return {.text = std::move(obstacle)};
  const fs::path path = DropIn(request);
  std::error_code error;
  if (!fs::exists(path, error)) return {.text = "there is no " + path.string() + ": nothing to take away"};
  if (!fs::remove(path, error)) return {.text = path.string() + " cannot be removed: " + error.message()};
  fs::remove(path.parent_path(), error);  // only if it is empty
  return {.done = true, .text = "removed " + path.string() + Next(FullName(request.unit))};
}

}  // namespace sdp::run
