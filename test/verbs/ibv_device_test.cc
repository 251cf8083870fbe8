// A device's asynchronous events, told by a library that the test plays.
#include "verbs/ibv/ibv_device.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <string>

namespace sdp::ibv {
namespace {

std::deque<ibv_async_event> waiting;
int acknowledged = 0;

int GetEvent(ibv_context*, ibv_async_event* event) {
  if (waiting.empty()) return -1;
  *event = waiting.front();
  waiting.pop_front();
  return 0;
}
void Acknowledge(ibv_async_event*) { ++acknowledged; }

struct Fixture {
  Fixture() {
    api.ibv_get_async_event = GetEvent;
    api.ibv_ack_async_event = Acknowledge;
    context.async_fd = ::eventfd(0, EFD_CLOEXEC);
    waiting.clear();
    acknowledged = 0;
    device = Device::Of(api, &context);
    REQUIRE(device != nullptr);
    for (DeviceWatch* watch : {&one, &other}) {
      watch->port = 1;
      device->Add(watch);
    }
    one.queue_pair = &queue_pairs[0];
    other.queue_pair = &queue_pairs[1];
    one.send_cq = one.receive_cq = &queues[0];
    other.send_cq = &queues[1];
    other.receive_cq = &queues[2];
  }
  ~Fixture() {
    device->Remove(&one);
    device->Remove(&other);
    ::close(context.async_fd);
  }
  static ibv_async_event Event(ibv_event_type type) {
    ibv_async_event event;
    std::memset(&event, 0, sizeof event);
    event.event_type = type;
    return event;
  }
  [[nodiscard]] bool Rung() const {
    pollfd bell{.fd = device->bell_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&bell, 1, 0) == 1;
  }

  // Devices live as long as the process, and so does what they refer to: each case has its own.
  Api& api = *new Api;
  ibv_context& context = *new ibv_context{};
  ibv_qp queue_pairs[2]{};
  ibv_cq queues[3]{};
  Device* device = nullptr;
  DeviceWatch one, other;
};

TEST_CASE_METHOD(Fixture, "an event ends the connection that it names, and rings for all") {
  const ibv_event_type type = GENERATE(IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR);
  ibv_async_event event = Event(type);
  event.element.qp = &queue_pairs[1];
  waiting.push_back(event);
  device->TakeEvents();
  CHECK(acknowledged == 1);
  CHECK_FALSE(one.failed());
  REQUIRE(other.failed());
  CHECK(std::string(other.why()).find("queue pair") != std::string::npos);
  CHECK(Rung());
}

TEST_CASE_METHOD(
    Fixture, "a completion queue's event reaches the connection that has it, whichever of the two it is") {
  const int which = GENERATE(1, 2);
  ibv_async_event event = Event(IBV_EVENT_CQ_ERR);
  event.element.cq = &queues[which];
  waiting.push_back(event);
  device->TakeEvents();
  CHECK_FALSE(one.failed());
  CHECK(other.failed());
}

TEST_CASE_METHOD(Fixture, "a port's event reaches its connections, a device's all") {
  other.port = 2;
  ibv_async_event event = Event(IBV_EVENT_PORT_ERR);
  event.element.port_num = 2;
  waiting.push_back(event);
  device->TakeEvents();
  CHECK_FALSE(one.failed());
  REQUIRE(other.failed());
  const std::string first = other.why();
  waiting.push_back(Event(IBV_EVENT_DEVICE_FATAL));
  device->TakeEvents();
  REQUIRE(one.failed());
  CHECK(std::string(one.why()) == "the RDMA device failed");
  CHECK(other.why() == first);  // the first event counts
}

TEST_CASE_METHOD(Fixture, "news that ends nothing is acknowledged, and nobody is woken") {
  for (const ibv_event_type type : {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_QP_LAST_WQE_REACHED,
                                    IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE})
    waiting.push_back(Event(type));
  device->TakeEvents();
  CHECK(acknowledged == 5);
  CHECK_FALSE(one.failed());
  CHECK_FALSE(other.failed());
  CHECK_FALSE(Rung());
}

// librdmacm closes a device that is gone, and may have the next one's context in the same place.
TEST_CASE_METHOD(Fixture, "another device's context in the place of one that is gone does not block either") {
  ::close(context.async_fd);
  context.async_fd = ::eventfd(0, EFD_CLOEXEC);
  CHECK(Device::Of(api, &context) == device);
  CHECK((::fcntl(context.async_fd, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE_METHOD(Fixture, "who was removed hears nothing; a context has one device") {
  device->Remove(&other);
  waiting.push_back(Event(IBV_EVENT_DEVICE_FATAL));
  device->TakeEvents();
  CHECK(one.failed());
  CHECK_FALSE(other.failed());
  CHECK(Device::Of(api, &context) == device);
}

}  // namespace
}  // namespace sdp::ibv
