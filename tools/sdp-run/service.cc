#include "tools/sdp-run/service.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

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

// The unit's file, and behind it its drop-ins in systemd's order: by name, and of one name the first place's.
std::vector<fs::path> FilesOf(const std::string& root, const std::string& name, const fs::path& unit) {
  std::map<std::string, fs::path> drop_ins;
  for (const char* place : kUnitPlaces) {
    for (const std::string& owner : {name, TemplateOf(name)}) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(root + place + "/" + owner + ".d", error)) {
        if (entry.path().extension() == ".conf") drop_ins.emplace(entry.path().filename(), entry.path());
      }
    }
  }
  std::vector<fs::path> files = {unit};
  for (const auto& [ignored, path] : drop_ins) files.push_back(path);
  return files;
}

std::string FirstLine(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// A line, with those that a backslash at its end continues.
bool GetWholeLine(std::istream& file, std::string* line) {
  line->clear();
  for (std::string part; std::getline(file, part);) {
    if (!part.ends_with('\\')) return *line += part, true;
    part.back() = ' ';
    *line += part;
  }
  return !line->empty();
}

// The program of the first ExecStart= that counts; empty if there is none. One without a value takes back
// what stands before it.
std::string ProgramOf(const std::vector<fs::path>& files) {
  std::string first;
  for (const fs::path& path : files) {
    std::ifstream file(path);
    for (std::string line; GetWholeLine(file, &line);) {
      if (!line.starts_with("ExecStart=")) continue;
      std::istringstream words(line.substr(std::strlen("ExecStart=")));
      std::string program;
      if (!(words >> program)) {
        first.clear();
      } else if (first.empty()) {
        first = program.substr(std::min(program.find_first_not_of("@-:+!"), program.size()));
      }
    }
  }
  return first;
}

// What in the unit would keep its listeners TCP. Begins a sentence behind another; empty: nothing.
std::string Concerns(const std::vector<fs::path>& files) {
  std::string families;
  bool preloads = false;
  for (const fs::path& path : files) {
    const bool ours = FirstLine(path) == kMark;
    std::ifstream file(path);
    for (std::string line; GetWholeLine(file, &line);) {
      constexpr std::string_view kFamilies = "RestrictAddressFamilies=";
      if (line == kFamilies) families.clear();  // takes back what stands before it
      if (line.starts_with(kFamilies)) families += line.substr(kFamilies.size()) + " ";
      preloads |= !ours && line.starts_with("Environment=") && line.find("LD_PRELOAD=") != std::string::npos;
    }
  }
  std::string out;
  const bool names_it = families.find("AF_UNIX") != std::string::npos;
  if (families.find_first_not_of(' ') != std::string::npos && families.starts_with('~') == names_it)
    out += ". Its RestrictAddressFamilies= leaves out AF_UNIX, by which it registers";
  if (preloads) out += ". It sets LD_PRELOAD itself, too, and systemd takes the last one alone";
  return out;
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
  const std::vector<fs::path> files = FilesOf(request.root, name, *unit);
  const std::string program = ProgramOf(files);
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
  return {.done = true, .text = "wrote " + path.string() + Concerns(files) + Next(name)};
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

std::vector<EnabledService> EnabledServices(const std::string& root) {
  std::vector<EnabledService> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + kUnitPlaces[0], error)) {
    const fs::path path = entry.path() / "sdp.conf";
    if (entry.path().extension() != ".d" || FirstLine(path) != kMark) continue;
    EnabledService service{.unit = entry.path().stem(), .library = {}};
    service.is_there = FindUnit(root, service.unit).has_value();
    std::ifstream file(path);
    const std::string before = "Environment=\"LD_PRELOAD=";
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with(before) || !line.ends_with('"')) continue;
      service.library = line.substr(before.size(), line.size() - before.size() - 1);
    }
    out.push_back(std::move(service));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.unit < b.unit; });
  return out;
}

}  // namespace sdp::run
