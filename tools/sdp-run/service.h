// sdp-run --enable and --disable: a drop-in that names the library for a systemd service.
#ifndef SDP_TOOLS_SDP_RUN_SERVICE_H_
#define SDP_TOOLS_SDP_RUN_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

namespace sdp::run {

struct ServiceRequest {
  std::string unit;     // "nginx" or "nginx.service"
  std::string root;     // another root directory, as systemctl --root; empty: this one
  std::string library;  // as the service will find it
  std::vector<std::pair<std::string, std::string>> settings;  // SDP_ variables and their values
  bool anyway = false;                                        // also for a program that cannot be preloaded
};

struct ServiceOutcome {
  bool done = false;
  std::string text;  // for people: what was done and what to do next, or what stands in the way
};

// Writes ROOT/etc/systemd/system/UNIT.d/sdp.conf. Refuses a unit that is not there, whose program cannot be
// preloaded, or that has a file of that name by another hand.
ServiceOutcome EnableService(const ServiceRequest& request);
// Removes that file, and its directory if nothing else is in it. Refuses a file by another hand.
ServiceOutcome DisableService(const ServiceRequest& request);

// The services for which EnableService() has written a file that is still there, by name.
struct EnabledService {
  std::string unit;
  std::string library;    // as the file has it
  bool is_there = false;  // the unit
};
std::vector<EnabledService> EnabledServices(const std::string& root);

}  // namespace sdp::run

#endif  // SDP_TOOLS_SDP_RUN_SERVICE_H_
