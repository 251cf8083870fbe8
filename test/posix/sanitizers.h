// What a sanitizer's run time does to a case is no finding about the library. Such a case begins with
// `if (kUnderTsan) return Impossible(why);` and the like.
#ifndef SDP_TEST_POSIX_SANITIZERS_H_
#define SDP_TEST_POSIX_SANITIZERS_H_

#include <dlfcn.h>

#include <cstdio>

namespace posix_test {

// The cases are compiled once, and linked with the run time of each sanitizer.
inline bool HasRunTime(const char* entry) { return dlsym(RTLD_DEFAULT, entry) != nullptr; }
inline const bool kUnderAsan = HasRunTime("__asan_init");
inline const bool kUnderTsan = HasRunTime("__tsan_init");
inline const bool kUnderUbsan = HasRunTime("__ubsan_handle_out_of_bounds");
inline const bool kUnderSanitizer = kUnderAsan || kUnderTsan || kUnderUbsan;

// The line that run.py shows and counts.
inline void Impossible(const char* why) {
  std::printf("skipped under a sanitizer: %s\n", why);
  std::fflush(stdout);  // the case may leave by _exit
}

// Reasons that several cases share.
namespace why {
constexpr const char* kHandlerRestarts =
    "TSan holds a handler back until recv returns, and with SA_RESTART recv does not return";
constexpr const char* kFilter = "the sanitizer's run time makes system calls that the filter does not know";
constexpr const char* kClose = "TSan reports a close under a sleeping call, whatever comes of it";
constexpr const char* kPipe =
    "UBSan tests memory with a pipe, and takes it for wild where no file descriptor is left";
constexpr const char* kCancelled =
    "ASan does not learn that a cancelled thread has left its frames, and reports what lies there next";
constexpr const char* kCancelledInterceptor =
    "TSan does not learn that a cancelled thread has left its interceptors, and misses the locks it takes "
    "from there on";
constexpr const char* kHandlerJumps =
    "TSan holds a handler back until recv returns, and the handler's jump is what ends that recv";
constexpr const char* kInterceptors =
    "the sanitizer's interceptors read what the pointer names, and end the process";
constexpr const char* kChild =
    "TSan switches its interceptors off in a child of a process with threads, and runs no handler";
constexpr const char* kFlush =
    "TSan flushes stdout again at exit, where the program has closed it and the library has freed its stream";
constexpr const char* kThread = "TSan has a thread of its own: no process has one thread alone";
}  // namespace why

}  // namespace posix_test

#endif  // SDP_TEST_POSIX_SANITIZERS_H_
