// An RDMA device with one connection, played by the test: it keeps what is posted, completes what the test
// says, and tells of it to who is armed, as the verbs have it.
#ifndef SDP_TEST_VERBS_FAKE_DEVICE_H_
#define SDP_TEST_VERBS_FAKE_DEVICE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "verbs/ibv/ibv_resources.h"

namespace sdp::ibv::test {

// One at a time. A thread may use the connection while another one plays.
class FakeDevice {
 public:
  struct Sent {
    uint64_t id;
    ibv_wr_opcode opcode;
    bool signaled;
    bool solicited;
    bool inlined;
    std::vector<std::byte> bytes;  // of a Send or RDMA Write
  };
  enum class Armed : uint8_t { kNot, kSolicited, kAll };

  FakeDevice();
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  [[nodiscard]] static const Api& api();
  // Those of a queue pair of such depth both ways. Go before the device does.
  std::unique_ptr<Resources> Make(uint32_t depth);

  // The work request `id` of the send queue is done with.
  void Complete(uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS);
  // A Send of the peer's takes the first receive that is posted. What the receives were armed for.
  Armed Bring(std::string_view message, bool solicited = false);
  // The queue pair is in error: a receive comes back undone.
  void FlushReceive();
  // The connection manager has news, once each until it is heard.
  void Tell(rdma_cm_event_type type);
  void TellEnd() { Tell(RDMA_CM_EVENT_DISCONNECTED); }
  // So has the device.
  void TellDevice(const ibv_async_event& event);
  // The descriptor that stands for all says that there is something.
  [[nodiscard]] static bool Tells(const Resources& resources);
  [[nodiscard]] Armed sends_armed() const { return ArmedOf(queues_[0]); }
  [[nodiscard]] Armed receives_armed() const { return ArmedOf(queues_[1]); }
  // Completion events so far, and those of them that were taken.
  [[nodiscard]] int events_told() const { return events_told_; }
  [[nodiscard]] int events_taken() const { return events_taken_; }
  // What was posted since it was asked last.
  std::vector<Sent> TakeSent();

  // Called, by who looks at a completion queue, in front of each look.
  void SetOnPoll(std::function<void()> on_poll);
  // Called, by who has armed the receives, with what they are armed for.
  void SetOnArm(std::function<void(Armed)> on_arm);

  // By one thread alone:
  std::vector<Sent> sent;
  size_t room = SIZE_MAX;  // what is posted beyond it is refused
  int refusal = 0;         // with this
  uint32_t vendor = 1;
  int disconnects = 0;    // that were asked for
  bool in_error = false;  // the queue pair was put there
  // Of the connection manager: what it answers, one after the other and then always 0, and the source ports
  // that it was asked for.
  std::deque<int> resolve_errors;
  std::deque<int> connect_errors;
  std::vector<uint16_t> source_ports;
  rdma_conn_param asked{};   // by rdma_connect
  ibv_device_attr limits{};  // what the device has
  ibv_qp_init_attr made{};   // the queue pair
  bool inlines = true;       // a queue pair may be made that does

 private:
  struct Queue {
    ibv_cq cq{};
    std::deque<ibv_wc> done;
    Armed armed = Armed::kNot;
  };
  struct Received {
    uint64_t id;
    void* address;
  };
  static ibv_context& MakeContext();
  static void FillApi();
  static void FillConnectionManager();
  Armed ArmedOf(const Queue& queue) const {
    std::lock_guard lock(mutex_);
    return queue.armed;
  }
  Queue& Of(const ibv_cq* cq) { return cq == &queues_[0].cq ? queues_[0] : queues_[1]; }
  void Put(Queue& queue, const ibv_wc& completion, bool solicited);
  void TellLocked(rdma_cm_event_type type);

  mutable std::mutex mutex_;
  std::atomic<int> events_told_{0};
  std::atomic<int> events_taken_{0};
  std::function<void()> on_poll_;
  std::function<void(Armed)> on_arm_;
  size_t sent_taken_ = 0;
  // Devices live as long as the process, and so does what they refer to.
  ibv_context& context_ = MakeContext();
  ibv_device device_{};
  ibv_qp queue_pair_{};
  ibv_pd domain_{};
  ibv_comp_channel completions_{};
  rdma_event_channel channel_{};
  rdma_cm_id id_{};
  std::deque<rdma_cm_event> cm_events_;
  rdma_cm_event heard_{};  // until it is acknowledged
  bool hears_ = false;
  std::deque<ibv_async_event> device_events_;
  Queue queues_[2];  // of Sends, of receives
  int made_ = 0;     // of them
  std::deque<ibv_cq*> events_;
  std::deque<Received> receives_;
};

}  // namespace sdp::ibv::test

#endif  // SDP_TEST_VERBS_FAKE_DEVICE_H_
