#include "preload/real_calls.h"

#include <dlfcn.h>

#include <cstdarg>

namespace sdp::preload {
namespace {

// Set while this thread looks functions up: dlsym may allocate, and an allocator may read a file.
thread_local bool resolving __attribute__((tls_model("initial-exec"))) = false;

// The first target of a RealCall.
template <auto Member, auto Raw, typename Function>
struct First;

template <auto Member, auto Raw, typename Result, typename... Parameters>
struct First<Member, Raw, Result(Parameters...)> {
  static Result Call(Parameters... arguments) {
    if (resolving) return Raw(arguments...);
    ResolveRealCalls();
    return (real.*Member)(arguments...);
  }
};

// ioctl and fcntl take two arguments and perhaps a third, an integer or a pointer.
template <auto Member, auto Raw, typename Result, typename Descriptor, typename Request>
struct First<Member, Raw, Result(Descriptor, Request, ...)> {
  static Result Call(Descriptor fd, Request request, ...) {
    va_list variable;
    va_start(variable, request);
    void* argument = va_arg(variable, void*);
    va_end(variable);
    if (resolving) return Raw(fd, request, argument);
    ResolveRealCalls();
    return (real.*Member)(fd, request, argument);
  }
};

// prctl takes one argument and up to four others of a word each.
template <auto Member, auto Raw, typename Result, typename Option>
struct First<Member, Raw, Result(Option, ...)> {
  static Result Call(Option option, ...) {
    va_list variable;
    va_start(variable, option);
    unsigned long a[4];
    for (unsigned long& argument : a) argument = va_arg(variable, unsigned long);
    va_end(variable);
    if (resolving) return Raw(option, a[0], a[1], a[2], a[3]);
    ResolveRealCalls();
    return (real.*Member)(option, a[0], a[1], a[2], a[3]);
  }
};

}  // namespace

constinit RealCalls real = {
#define SDP_CALL(result, name, parameters, exception) \
  {&First<&RealCalls::name, &raw::name, result parameters>::Call},
#include "preload/calls.inc"
};

void ResolveRealCalls() {
  if (resolving) return;
  resolving = true;
#define SDP_CALL(result, name, parameters, exception)                                \
  {                                                                                  \
    void* found = dlsym(RTLD_NEXT, #name);                                           \
    using Pointer = decltype(real.name)::Pointer;                                    \
    real.name.Set(found != nullptr ? reinterpret_cast<Pointer>(found) : &raw::name); \
  }
#include "preload/calls.inc"
  resolving = false;
}

}  // namespace sdp::preload
