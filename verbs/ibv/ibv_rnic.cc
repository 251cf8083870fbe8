#include "verbs/ibv/ibv_rnic.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "verbs/ibv/ibv_connector.h"
#include "verbs/ibv/tcp_port.h"

namespace sdp::ibv {
namespace {

// The number of ports tried for a listener that may have any port.
constexpr int kMostPorts = 8;

sockaddr_storage Stored(const sockaddr* address) {
  sockaddr_storage stored{};
  std::memcpy(&stored, address, address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return stored;
}

class CmListener final : public Listener {
 public:
  explicit CmListener(const Api& api) : resources_(api) {}

  // A port that RDMA has free may belong to a TCP socket. siw's listener is a TCP socket, too
  // (siw_create_listen).
  bool Start(const sockaddr* local, int backlog, std::string* why) {
    if (!resources_.Open()) return Failed(why);
    sockaddr_storage address = Stored(local);
    const bool any_port = PortOf(*local) == 0;
    for (int tried = 1;; ++tried) {
      if (Listen(reinterpret_cast<sockaddr*>(&address), backlog)) return true;
      if (!any_port || error_ != EADDRINUSE || tried == kMostPorts) return Failed(why);
      SetPort(&address, FreeTcpPort(address));
    }
  }

  [[nodiscard]] int event_fd() const override { return resources_.event_fd; }
  [[nodiscard]] uint16_t port() const override { return ntohs(resources_.id->route.addr.src_sin.sin_port); }
  [[nodiscard]] const std::string& device() const override { return device_; }
  [[nodiscard]] bool gone() const override { return gone_; }

  std::unique_ptr<verbs::Connector> Accept(Duration timeout, Time now) override {
    while (rdma_cm_event* event = resources_.NextCmEvent()) {
      if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) gone_ = true;
      if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        resources_.api.rdma_ack_cm_event(event);
        continue;
      }
      rdma_cm_id* const id = event->id;
      // The event's data ends with its acknowledgement, and the id cannot move to its own channel before
      // that.
      std::byte data[UINT8_MAX];
      rdma_conn_param request = event->param.conn;
      if (request.private_data != nullptr) std::memcpy(data, request.private_data, request.private_data_len);
      request.private_data = request.private_data != nullptr ? data : nullptr;
      resources_.api.rdma_ack_cm_event(event);
      return std::make_unique<IbvConnector>(resources_.api, id, request, timeout, now);
    }
    return nullptr;
  }

 private:
  bool Listen(sockaddr* local, int backlog) {
    error_ = 0;
    if (!resources_.MakeId()) return false;
    if (resources_.api.rdma_bind_addr(resources_.id, local) != 0) return Refused("rdma_bind_addr");
    if (resources_.id->verbs == nullptr) {
      failure_ = "no RDMA device has this address";
      return false;
    }
    if (resources_.api.rdma_listen(resources_.id, backlog) != 0) return Refused("rdma_listen");
    device_ = resources_.id->verbs->device->name;
    return true;
  }
  bool Refused(const char* what) {
    error_ = errno;
    return resources_.Fail(what);
  }
  bool Failed(std::string* why) const {
    *why = failure_.empty() ? resources_.failure() : failure_;
    return false;
  }

  Resources resources_;
  int error_ = 0;        // of the last try
  std::string failure_;  // empty: the resources'
  std::string device_;
  bool gone_ = false;
};

}  // namespace

bool Available(std::string* why) {
  if (LoadApi() != nullptr) return true;
  *why = ApiFailure();
  return false;
}

std::string DeviceOf(const sockaddr* local) {
  const Api* const api = LoadApi();
  if (api == nullptr) return {};
  sockaddr_storage address{};
  if (local->sa_family == AF_INET) {
    auto* const in = reinterpret_cast<sockaddr_in*>(&address);
    *in = *reinterpret_cast<const sockaddr_in*>(local);
    in->sin_port = 0;
  } else if (local->sa_family == AF_INET6) {
    auto* const in6 = reinterpret_cast<sockaddr_in6*>(&address);
    *in6 = *reinterpret_cast<const sockaddr_in6*>(local);
    in6->sin6_port = 0;
  } else {
    return {};
  }
  Resources resources(*api);
  if (!resources.Open() || !resources.MakeId()) return {};
  if (api->rdma_bind_addr(resources.id, reinterpret_cast<sockaddr*>(&address)) != 0 ||
      resources.id->verbs == nullptr)
    return {};
  return resources.id->verbs->device->name;
}

std::unique_ptr<verbs::Connector> Connect(const sockaddr* local, const sockaddr* target, Bytes private_data,
                                          const verbs::QpOptions& qp, Duration timeout, Time now) {
  return std::make_unique<IbvConnector>(*LoadApi(), nullptr, local, target, private_data, qp, timeout, now);
}

std::unique_ptr<Listener> Listener::Open(const sockaddr* local, int backlog, std::string* why) {
  const Api* const api = LoadApi();
  if (api == nullptr) {
    *why = ApiFailure();
    return nullptr;
  }
  auto listener = std::make_unique<CmListener>(*api);
  if (!listener->Start(local, backlog, why)) return nullptr;
  return listener;
}

}  // namespace sdp::ibv
