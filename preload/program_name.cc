#include "preload/program_name.h"

#include <errno.h>
#include <string.h>

namespace sdp::preload {
namespace {

constinit char name[256];

// Runs before the constructors of ordinary objects. A constructor of another library may ask before.
__attribute__((constructor(101))) void Note() {
  if (name[0] == '\0') strncpy(name, program_invocation_short_name, sizeof name - 1);
}

}  // namespace

const char* ProgramName() {
  Note();
  return name;
}

}  // namespace sdp::preload
