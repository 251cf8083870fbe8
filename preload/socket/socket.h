// One of the application's stream sockets as the library knows it, from socket() on.
//
// One or more descriptor numbers (dup) stand for a Socket; references are counted. Every method behaves as
// the system call of its name on a TCP socket, and returns its result or -1 with errno. kPassThrough says
// that this socket is, or has just become, a plain TCP socket. Then the caller makes the real call instead,
// and FdTable no longer has the descriptor.
#ifndef SDP_PRELOAD_SOCKET_SOCKET_H_
#define SDP_PRELOAD_SOCKET_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "preload/fail.h"

namespace sdp::preload {

inline constexpr ssize_t kPassThrough = -2;

class FdTable;
class ControlRoom;
class SocketRef;

class Socket {
 public:
  // Makes a stream socket as socket() has just created it for the application: AF_INET or AF_INET6. Its
  // number `fd` is not in the table yet.
  static Socket* New(int domain, int fd);

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  // Returns false if the last reference is gone, and the destructor will run or runs.
  [[nodiscard]] bool TryRef() {
    uint32_t count = references_.load(std::memory_order_relaxed);
    while (count != 0 && !references_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
    }
    return count != 0;
  }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const KeepErrno keep;  // of the call whose thread has the last reference
    delete this;
  }

  virtual ssize_t Send(int fd, const iovec* iov, size_t count, int flags) = 0;
  // Sends data of `file` from `offset` on without reading it into memory. Returns how many bytes, at most
  // `count`; -1 with EAGAIN. Returns 0 if not now, or not at all: then the caller reads, and uses Send().
  virtual ssize_t SendFromFile(int /*fd*/, int /*file*/, off64_t /*offset*/, size_t /*count*/) { return 0; }
  // `out_flags`: the msg_flags that a recvmsg reports; may be null.
  virtual ssize_t Receive(int fd, const iovec* iov, size_t count, int flags, int* out_flags) = 0;

  // Writes the control messages that come with `received` bytes of a recvmsg.
  virtual void WriteControl(ssize_t /*received*/, ControlRoom* /*room*/) {}
  // recvmsg with MSG_ERRQUEUE: returns 0, or -1 with EAGAIN; never sleeps.
  virtual ssize_t ReceiveError(ControlRoom* /*room*/, int* /*out_flags*/) { return kPassThrough; }

  virtual int Bind(int fd, const sockaddr* address, socklen_t length) = 0;
  virtual int Listen(int fd, int backlog) = 0;
  // To be called before Listen: the descriptor listens already, in another process too, which must not lose
  // the listener by what this process does.
  virtual void ListensForOthers() {}
  virtual int Connect(int fd, const sockaddr* address, socklen_t length) = 0;
  // Returns the new descriptor. *connection: the SDP connection, which the caller enters into FdTable under
  // that number; empty: a plain TCP connection. `flags`: SOCK_NONBLOCK, SOCK_CLOEXEC.
  virtual int Accept(int fd, sockaddr* address, socklen_t* length, int flags, SocketRef* connection) = 0;
  virtual int Shutdown(int fd, int how) = 0;
  virtual int GetSockName(int fd, sockaddr* address, socklen_t* length) = 0;
  virtual int GetPeerName(int fd, sockaddr* address, socklen_t* length) = 0;
  virtual int GetSockOpt(int fd, int level, int name, void* value, socklen_t* length) = 0;
  virtual int SetSockOpt(int fd, int level, int name, const void* value, socklen_t length) = 0;
  // FIONREAD, FIONBIO, SIOCATMARK, SIOCOUTQ, SIOCINQ and others; unknown requests go to the kernel.
  virtual int Ioctl(int fd, unsigned long request, void* argument) = 0;
  // Called by close(), dup2() over it and the like for each descriptor number that goes, before the number is
  // free. Closes the number itself; result and errno are those of close().
  virtual int Close(int fd) = 0;
  // One more descriptor number (dup) stands for this socket.
  virtual void AddDescriptor(int fd) = 0;
  // Returns one of its numbers; -1 if none is left.
  virtual int AnyDescriptor() { return -1; }
  // dup2() or dup3() is about to put something else in `from`'s place. The socket lives on as `to`, a
  // duplicate that the caller has made and closes (by Close) next. Returns false if that is not possible:
  // then the caller closes `from` first, and the number is free for a moment.
  virtual bool MoveDescriptor(int /*from*/, int /*to*/) { return false; }
  // The number was closed without the library's knowledge, and already stands for something else. It must not
  // be used again.
  virtual void Vanished(int /*fd*/) {}
  // fcntl(F_GETFL): returns what the application shall see, given the kernel's flags.
  virtual int VisibleStatusFlags(int kernel_flags) { return kernel_flags; }
  // fcntl(F_SETFL): called before the real call; returns the flags for the kernel. (FIONBIO comes through
  // Ioctl.)
  virtual int ChangeStatusFlags(int flags) { return flags; }

  // Returns true if its calls never wait. Does not take the lock, which the calling thread may hold.
  virtual bool DoesNotBlock() { return false; }
  // Returns whether O_APPEND is set, with which splice and sendfile do not write.
  virtual bool Appends(int /*fd*/) { return false; }

  // Takes the error that SO_ERROR would report and returns it; 0: none. Never waits.
  virtual int TakeErrorAhead() { return 0; }
  // The next call is to fail with this error, or SO_ERROR to report it. The error is of a call that had done
  // part of its work.
  virtual void ReportLater(int /*error*/) {}

  // A call on `fd` found no memory in the middle of its work.
  virtual void RanOutOfMemory(int /*fd*/) {}

  // Returns true if its data is, or will be, a stream that the kernel does not know.
  virtual bool IsStream() { return false; }

  // Publishes whether a port mapper knows its listener, which has changed.
  virtual void PublishStanding() {}

  // F_SETOWN, F_SETOWN_EX, FIOSETOWN or SIOCSPGRP has set or removed the receiver of signals for `fd`.
  virtual void OwnerChanged(int /*fd*/) {}

 protected:
  virtual ~Socket() = default;

 private:
  friend class FdTable;  // takes and returns references in batches

  std::atomic<uint32_t> references_{1};
};

// A counted reference.
class SocketRef {
 public:
  SocketRef() = default;
  // Takes over one reference.
  explicit SocketRef(Socket* socket) : socket_(socket) {}
  // Returns one more reference.
  static SocketRef To(Socket* socket) {
    socket->Ref();
    return SocketRef(socket);
  }
  SocketRef(SocketRef&& other) noexcept : socket_(other.socket_) { other.socket_ = nullptr; }
  SocketRef& operator=(SocketRef&& other) noexcept {
    if (this != &other) {
      if (socket_ != nullptr) socket_->Unref();
      socket_ = other.socket_;
      other.socket_ = nullptr;
    }
    return *this;
  }
  ~SocketRef() {
    if (socket_ != nullptr) socket_->Unref();
  }
  explicit operator bool() const { return socket_ != nullptr; }
  Socket* operator->() const { return socket_; }
  Socket* get() const { return socket_; }

 private:
  Socket* socket_ = nullptr;
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_SOCKET_SOCKET_H_
