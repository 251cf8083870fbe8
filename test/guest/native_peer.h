// A peer that knows nothing of SDP's RNIC interface: librdmacm and libibverbs as any RDMA program uses them,
// one work request at a time. What the embedded RNIC is held against.
#ifndef SDP_TEST_GUEST_NATIVE_PEER_H_
#define SDP_TEST_GUEST_NATIVE_PEER_H_

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace sdp::guest {

// The address of an RDMA device of this host: SDP_TEST_RNIC_ADDRESS, or scripts/siw-guest's.
std::string RnicAddress();
// True if librdmacm finds a device behind RnicAddress(); else prints why not.
bool HaveRnic();

class NativePeer {
 public:
  NativePeer() = default;
  NativePeer(const NativePeer&) = delete;
  NativePeer& operator=(const NativePeer&) = delete;
  ~NativePeer();

  // All of these throw std::runtime_error with what failed and the errno, or with what did not come within a
  // minute. None waits for longer.
  void Listen(uint16_t* port);
  void Accept(std::string_view private_data);
  void Reject(std::string_view private_data);
  // False: the peer said no; private_data() has its words.
  bool Connect(const std::string& address, uint16_t port, std::string_view private_data);
  [[nodiscard]] const std::string& private_data() const { return private_data_; }

  struct Region {
    uint32_t stag;
    uint64_t to;
  };
  // Memory that the peer may read and write.
  Region Expose(std::vector<char>& memory);

  void PostReceive();
  // The text of the next Send. Which STag it invalidated siw's provider does not say.
  std::string Receive();

  // Each waits for its completion and returns its status.
  ibv_wc_status Send(std::string_view text, bool solicited = false, uint32_t invalidate = 0);
  ibv_wc_status Write(std::string_view text, Region target);
  ibv_wc_status Read(std::vector<char>* into, Region source);

  // Waits for RDMA_CM_EVENT_DISCONNECTED.
  void AwaitDisconnect();
  void Disconnect();

  // What it does, and what its connection manager has said so far. In any thread.
  [[nodiscard]] std::string State() const;

 private:
  struct Event {
    rdma_cm_event_type type;
    rdma_cm_id* id;
    rdma_conn_param parameters;  // but for the private data
    std::string private_data;
  };

  void OpenChannel();
  void DestroyId();
  // The next event that is wanted, acknowledged. One that ends a connection is wanted or an error.
  Event Await(std::initializer_list<rdma_cm_event_type> wanted);
  void MakeQueuePair();
  ibv_wc_status Run(const char* what, ibv_send_wr& work, ibv_mr* local);
  ibv_wc Await(const char* what, bool receive);
  void Begin(const char* what);

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::string private_data_;
  std::vector<char> send_buffer_;
  std::vector<char> receive_buffer_;
  ibv_mr* send_mr_ = nullptr;
  ibv_mr* receive_mr_ = nullptr;
  std::vector<ibv_mr*> regions_;
  size_t next_slot_ = 0;

  mutable std::mutex mutex_;
  std::string doing_ = "nothing yet";
  std::string events_;
};

}  // namespace sdp::guest

#endif  // SDP_TEST_GUEST_NATIVE_PEER_H_
