// daemon, login_tty, forkpty. The C library implements them with a fork, an exit and descriptor calls of its
// own that cannot be interposed. A daemon's parent would end without telling its peers, as if it were killed.
// Sockets at 0, 1 and 2 would be closed without the library's knowledge.
#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "preload/entry_points.h"

namespace sdp::preload {

int SDP_ENTRY(daemon)(int no_chdir, int no_close) noexcept {
  const pid_t pid = fork();
  if (pid < 0) return -1;
  if (pid > 0) ::_exit(0);
  if (setsid() < 0) return -1;
  if (no_chdir == 0) (void)!chdir("/");
  if (no_close != 0) return 0;
  const int null = open("/dev/null", O_RDWR);
  struct stat status {};
  if (null < 0 || fstat(null, &status) != 0) return -1;
  // In a jail /dev/null may be anything.
  if (!S_ISCHR(status.st_mode) || status.st_rdev != makedev(1, 3)) {
    real.close(null);
    return Fail(ENODEV);
  }
  for (int fd = 0; fd <= 2; ++fd) dup2(null, fd);
  if (null > 2) real.close(null);
  return 0;
}

int SDP_ENTRY(login_tty)(int terminal) noexcept {
  setsid();
  if (real.ioctl(terminal, TIOCSCTTY, nullptr) != 0) return -1;
  for (int fd = 0; fd <= 2; ++fd) {
    while (dup2(terminal, fd) < 0 && errno == EBUSY) {
    }
  }
  if (terminal > 2) close(terminal);
  return 0;
}

int SDP_ENTRY(forkpty)(int* controller, char* name, const termios* settings, const winsize* size) noexcept {
  int mine, terminal;
  if (openpty(&mine, &terminal, name, settings, size) != 0) return -1;
  const pid_t pid = fork();
  if (pid < 0) {
    const KeepErrno keep;
    real.close(mine);
    real.close(terminal);
    return -1;
  }
  if (pid == 0) {
    real.close(mine);
    if (SDP_ENTRY(login_tty)(terminal) != 0) ::_exit(1);
    return 0;
  }
  *controller = mine;
  real.close(terminal);
  return pid;
}

}  // namespace sdp::preload
