#include "verbs/ibv/ibv_api.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "verbs/descriptor_calls.h"

namespace sdp::ibv {
namespace {

struct Loaded {
  Api api;
  bool usable = false;
  std::string failure;

  Loaded() {
    // Without the device file the libraries cannot work, and loading them costs a process megabytes. The
    // check is a system call, because a preloaded process has other functions under the plain names.
    constexpr char kDevice[] = "/dev/infiniband/rdma_cm";
    if (::syscall(SYS_faccessat, AT_FDCWD, kDevice, R_OK | W_OK) != 0) {
      failure = std::string(kDevice) + ": " + strerrordesc_np(errno);
      return;
    }
    void* const verbs = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void* const cm = verbs != nullptr ? ::dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (cm == nullptr) {
      const char* const text = ::dlerror();
      failure = text != nullptr ? text : "librdmacm.so.1 cannot be loaded";
      return;
    }
    usable = true;
#define SDP_IBV_LOOK_UP(name) LookUp(cm, #name, &api.name);
    SDP_IBV_CALLS(SDP_IBV_LOOK_UP)
#undef SDP_IBV_LOOK_UP
    if (usable) HideDevices();
  }

  // librdmacm opens a device at its first use and keeps it open. This function has it opened now, while no
  // other thread can be using the descriptor numbers that change.
  void HideDevices() const {
    int count = 0;
    // Never freed: that might close them.
    ibv_context** const devices = api.rdma_get_devices(&count);
    if (devices == nullptr) return;
    for (int i = 0; i < count; ++i) {
      devices[i]->cmd_fd = verbs::descriptor_calls().hide(devices[i]->cmd_fd);
      devices[i]->async_fd = verbs::descriptor_calls().hide(devices[i]->async_fd);
    }
  }

  // librdmacm depends on libibverbs, so one handle finds the functions of both.
  template <typename Function>
  void LookUp(void* library, const char* name, Function* function) {
    void* const address = ::dlsym(library, name);
    std::memcpy(function, &address, sizeof address);
    if (address != nullptr) return;
    usable = false;
    failure = std::string("librdmacm or libibverbs is too old: no ") + name;
  }
};

const Loaded& loaded() {
  static const Loaded* const instance = new Loaded;
  return *instance;
}

}  // namespace

const Api* LoadApi() { return loaded().usable ? &loaded().api : nullptr; }
const std::string& ApiFailure() { return loaded().failure; }

}  // namespace sdp::ibv
