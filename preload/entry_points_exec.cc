// Another program in this process's place, or beside it: the sockets that it gets stay connected.
//
// A program that will load the library gets the state of its SDP sockets in a descriptor, which an
// environment variable names (inheritance.h). Each exec passes the variable on, whatever environment the
// caller gives.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "preload/activation.h"
#include "preload/allowed_calls.h"
#include "preload/bridge.h"
#include "preload/critical.h"
#include "preload/entry_points.h"
#include "preload/exec_target.h"
#include "preload/inheritance.h"
#include "preload/signal_end.h"
#include "preload/spawn_actions.h"
#include "preload/startup.h"
#include "preload/user_memory.h"

namespace sdp::preload {

bool HasHeirlooms(Heirloom which) {
  if (!Started() || !OwnsProcess() || ForeignCall::Active()) return false;
  bool any = false;
  FdTable::ForEach([&](int fd, Socket*) {
    any = any || which == Heirloom::kAll || (real.fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
  });
  return any;
}

namespace {

// Returns whether connections end with this program, so that the exec may have to wait for them. Not in a
// confined process, which may not make the necessary system calls. Nor in a handler, which may have
// interrupted malloc.
bool EndsBeforeExec() {
  return (HasHeirlooms(Heirloom::kAll) ||
          (Started() && OwnsProcess() && !ForeignCall::Active() && HasLingering())) &&
         !Confined() && !Critical::IsInHandler();
}

// `environment` plus the variable that names `sealed`.
class HeirEnvironment {
 public:
  HeirEnvironment(char* const environment[], int sealed) {
    const size_t name = std::strlen(kInheritedVariable);
    std::snprintf(variable_, sizeof variable_, "%s=%d", kInheritedVariable, sealed);
    for (char* const* v = environment; v != nullptr && *v != nullptr; ++v) {
      if (std::strncmp(*v, kInheritedVariable, name) != 0 || (*v)[name] != '=') variables_.push_back(*v);
    }
    variables_.push_back(variable_);
    variables_.push_back(nullptr);
  }
  char* const* get() const { return variables_.data(); }

 private:
  char variable_[40];
  std::vector<char*> variables_;
};

// From here on signals are the next program's. `exec(environment)` is the real call.
template <typename Exec>
int ExecAside(char* const environment[], Exec exec) {
  const SignalEnd::Aside signals;
  Critical::UnblockForExec();
  return exec(environment);
}

template <typename Exec>
int ExecWithSockets(Target target, char* const environment[], Exec exec) {
  if (target == Target::kNone) return ExecAside(environment, exec);
  if (target == Target::kStranger) {
    const Bridge bridge;
    return ExecAside(environment, exec);
  }
  const int sealed = SealSockets(Heirloom::kOpen, Giver::kGoes);
  if (sealed >= 0) {
    real.fcntl(sealed, F_SETFD, 0);
    const HeirEnvironment heir(environment, sealed);
    ExecAside(heir.get(), exec);
  } else {
    ExecAside(environment, exec);
  }
  const KeepErrno keep;
  UnlockSockets();
  if (sealed >= 0) real.close(sealed);
  return -1;
}

// `target()` finds out what becomes of the program; a process without sockets need not know.
template <typename FindTarget, typename Exec>
int ExecTarget(FindTarget target, char* const environment[], Exec exec) {
  SignalEnd::AwaitIfUnderWay();  // before anything is locked
  const bool gives = HasHeirlooms(Heirloom::kOpen);
  const bool ends = EndsBeforeExec();
  if (!gives && !ends) return ExecAside(environment, exec);
  const NoCancellation no_cancellation;
  // If the environment is not in the program's memory, the kernel returns the error.
  const Target found = environment == nullptr || MayReadStrings(environment) ? target() : Target::kNone;
  if (ends && found != Target::kNone) FinishBeforeExec();
  return gives ? ExecWithSockets(found, environment, exec) : ExecAside(environment, exec);
}

template <typename Exec>
int ExecDescriptor(int fd, char* const environment[], Exec exec) {
  return ExecTarget([&] { return TargetOf(fd, environment); }, environment, exec);
}

// Returns the arguments of an execl: `first` and what follows up to the null pointer. *rest then stands after
// that pointer.
std::vector<char*> Arguments(const char* first, va_list* rest) {
  std::vector<char*> arguments{const_cast<char*>(first)};
  while (arguments.back() != nullptr) arguments.push_back(va_arg(*rest, char*));
  return arguments;
}

// The child rearranges the program's descriptors, and none of our code runs there. So the program gets every
// socket that it may use, and drops the rest. `path()` names the program; `spawn(environment)` is the real
// call.
template <typename Path, typename Spawn>
int SpawnWithSockets(Path path, const posix_spawn_file_actions_t* actions, char* const environment[],
                     Spawn spawn) {
  const NoCancellation no_cancellation;
  const Heirloom which = actions != nullptr ? Heirloom::kAll : Heirloom::kOpen;
  const bool gives = HasHeirlooms(which) && (environment == nullptr || MayReadStrings(environment));
  const Target target = gives ? TargetOf(path(), environment) : Target::kNone;
  if (target == Target::kNone) return spawn(environment);
  if (target == Target::kStranger) {
    Bridge bridge(SpawnActions::MovesOf(actions));
    Critical::UnblockForExec();
    const int result = spawn(environment);
    if (result == 0) bridge.Begin();
    return result;
  }
  const SealedForChild sealed(which);
  if (sealed.fd() < 0) return spawn(environment);
  const HeirEnvironment heir(environment, sealed.fd());
  return spawn(heir.get());
}

// Runs before the program's own code, which finds inherited sockets as it would find any others.
void TakeUpInherited() {
  const char* const sealed = secure_getenv(kInheritedVariable);
  if (sealed == nullptr) return;
  char* end = nullptr;
  const long number = std::strtol(sealed, &end, 10);
  const bool is_number = end != sealed && *end == '\0' && number >= 0 && number <= INT_MAX;
  unsetenv(kInheritedVariable);
  if (!is_number) return;
  EnsureStarted();
  AdoptSockets(static_cast<int>(number));
  ReopenStandardStreams();
}

__attribute__((constructor)) void WhenConstructed() {
  TakeUpInherited();
  TakeUpPassedListeners();
}

}  // namespace

// A child of vfork runs in this process's memory, where nothing can be prepared for the program that it will
// exec. If that program may get a managed socket, the child is made by fork, as POSIX allows.
extern "C" __attribute__((used, visibility("hidden"))) pid_t (*SDP_ENTRY(vfork_to_use)())() {
  using Fork = pid_t (*)();
  static const Fork real_vfork = reinterpret_cast<Fork>(dlsym(RTLD_NEXT, "vfork"));
  if (real_vfork == nullptr || HasHeirlooms(Heirloom::kAll)) return &fork;
  return real_vfork;
}

#ifdef __x86_64__
// Both processes return on this stack, so no frame of ours may be on it: a jump.
__attribute__((naked)) pid_t SDP_ENTRY(vfork)() noexcept {
  asm("sub $8, %rsp\n\tcall " SDP_SYMBOL(vfork_to_use) "\n\tadd $8, %rsp\n\tjmp *%rax");
}
#else
pid_t SDP_ENTRY(vfork)() noexcept { return fork(); }
#endif

int SDP_ENTRY(execve)(const char* path, char* const argv[], char* const envp[]) noexcept {
  return ExecTarget([&] { return MayReadString(path) ? TargetOf(std::string(path), envp) : Target::kNone; },
                    envp, [&](char* const* environment) { return real.execve(path, argv, environment); });
}

int SDP_ENTRY(execv)(const char* path, char* const argv[]) noexcept {
  return SDP_ENTRY(execve)(path, argv, environ);
}

int SDP_ENTRY(execvpe)(const char* file, char* const argv[], char* const envp[]) noexcept {
  return ExecTarget([&] { return TargetOf(FindProgram(file), envp); }, envp,
                    [&](char* const* environment) { return real.execvpe(file, argv, environment); });
}

int SDP_ENTRY(execvp)(const char* file, char* const argv[]) noexcept {
  return SDP_ENTRY(execvpe)(file, argv, environ);
}

int SDP_ENTRY(fexecve)(int fd, char* const argv[], char* const envp[]) noexcept {
  return ExecDescriptor(fd, envp,
                        [&](char* const* environment) { return real.fexecve(fd, argv, environment); });
}

int SDP_ENTRY(execveat)(int directory, const char* path, char* const argv[], char* const envp[],
                        int flags) noexcept {
  const auto exec = [&](char* const* environment) {
    return real.execveat(directory, path, argv, environment, flags);
  };
  if (!MayReadString(path) || (!HasHeirlooms(Heirloom::kOpen) && !EndsBeforeExec())) {
    SignalEnd::AwaitIfUnderWay();
    return ExecAside(envp, exec);
  }
  const bool itself = *path == '\0' && (flags & AT_EMPTY_PATH) != 0;
  int fd = itself ? directory : openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 && errno == EACCES) fd = openat(directory, path, O_PATH | O_CLOEXEC);
  const int result = ExecDescriptor(fd, envp, exec);
  const KeepErrno keep;
  if (!itself && fd >= 0) real.close(fd);
  return result;
}

int SDP_ENTRY(execl)(const char* path, const char* argument, ...) noexcept {
  va_list rest;
  va_start(rest, argument);
  const std::vector<char*> argv = Arguments(argument, &rest);
  va_end(rest);
  return SDP_ENTRY(execve)(path, argv.data(), environ);
}

int SDP_ENTRY(execlp)(const char* file, const char* argument, ...) noexcept {
  va_list rest;
  va_start(rest, argument);
  const std::vector<char*> argv = Arguments(argument, &rest);
  va_end(rest);
  return SDP_ENTRY(execvpe)(file, argv.data(), environ);
}

int SDP_ENTRY(execle)(const char* path, const char* argument, ...) noexcept {
  va_list rest;
  va_start(rest, argument);
  const std::vector<char*> argv = Arguments(argument, &rest);
  char* const* const envp = va_arg(rest, char* const*);
  va_end(rest);
  return SDP_ENTRY(execve)(path, argv.data(), envp);
}

int SDP_ENTRY(posix_spawn)(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                           const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return SpawnWithSockets([&] { return std::string(MayReadString(path) ? path : ""); }, actions, envp,
                          [&](char* const* environment) {
                            return real.posix_spawn(pid, path, actions, attributes, argv, environment);
                          });
}

int SDP_ENTRY(posix_spawnp)(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                            const posix_spawnattr_t* attributes, char* const argv[], char* const envp[]) {
  return SpawnWithSockets([&] { return FindProgram(file); }, actions, envp,
                          [&](char* const* environment) {
                            return real.posix_spawnp(pid, file, actions, attributes, argv, environment);
                          });
}

}  // namespace sdp::preload
