// AF_INET_SDP: the address family by which old programs ask for SDP themselves, with the socket options of
// its first implementation. Current kernels call this number AF_IB and have no streams there.
#ifndef SDP_PRELOAD_NATIVE_FAMILY_H_
#define SDP_PRELOAD_NATIVE_FAMILY_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace sdp::preload {

inline constexpr int kFamilySdp = 27;  // AF_INET_SDP

// The setsockopt level SOL_SDP. Besides the options below it has TCP_NODELAY, TCP_CORK and TCP_KEEPIDLE under
// their own numbers.
inline constexpr int kLevelSdp = 1025;
inline constexpr int kSdpZcopyThreshold = 80;  // SDP_ZCOPY_THRESH: bytes; 0: never
inline constexpr int kSdpLastBindError = 81;   // SDP_LAST_BIND_ERR: read only
// Options of this library: the number and size (bytes, headers included) of the receive Private Buffers; 0:
// as configured.
inline constexpr int kSdpPrivateBuffers = 82;     // SDP_PRIVATE_BUFFERS
inline constexpr int kSdpPrivateBufferSize = 83;  // SDP_PRIVATE_BUFFER_SIZE
inline constexpr int kLeastZcopyThreshold = 1024;
inline constexpr int kMostZcopyThreshold = 1 << 20;

// Converts an address as such programs give it to one that the kernel accepts. Handles AF_INET_SDP, and IPv6
// addresses that mean an IPv4 one (for example the wildcard from getaddrinfo). Any other address is left to
// the kernel. Valid as long as the original.
class PlainAddress {
 public:
  PlainAddress(const sockaddr* address, socklen_t length) : address_(address), length_(length) {
    if (address == nullptr || length < sizeof(sockaddr_in)) return;
    if (address->sa_family == kFamilySdp) {
      std::memcpy(&copy_, address, sizeof copy_);
    } else if (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
      sockaddr_in6 in6;
      std::memcpy(&in6, address, sizeof in6);
      const bool mapped = IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
      if (!mapped && !IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr)) return;
      copy_.sin_port = in6.sin6_port;
      if (mapped) std::memcpy(&copy_.sin_addr, &in6.sin6_addr.s6_addr[12], sizeof copy_.sin_addr);
    } else {
      return;
    }
    copy_.sin_family = AF_INET;
    address_ = reinterpret_cast<const sockaddr*>(&copy_);
    length_ = sizeof copy_;
  }
  PlainAddress(const PlainAddress&) = delete;
  PlainAddress& operator=(const PlainAddress&) = delete;
  [[nodiscard]] const sockaddr* get() const { return address_; }
  [[nodiscard]] socklen_t length() const { return length_; }

 private:
  const sockaddr* address_;
  socklen_t length_;
  sockaddr_in copy_{};
};

}  // namespace sdp::preload

#endif  // SDP_PRELOAD_NATIVE_FAMILY_H_
