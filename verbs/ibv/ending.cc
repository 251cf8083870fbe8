#include "verbs/ibv/ending.h"

#include <cstring>
#include <utility>

namespace sdp::ibv {

using verbs::LinkEnd;

void Ending::Disconnect() {
  if (!std::exchange(disconnected_, true)) resources_.api.rdma_disconnect(resources_.id);
}

void Ending::StopDevice() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  resources_.api.ibv_modify_qp(resources_.id->qp, &attributes, IBV_QP_STATE);
  Disconnect();
}

void Ending::SetFailure(int os_error, std::string text) {
  failure_ = {.end = LinkEnd::kFailed, .os_error = os_error, .text = std::move(text)};
}

void Ending::NoteFailure(const ibv_wc& wc, const char* what) {
  flushed_ = flushed_ || wc.status == IBV_WC_WR_FLUSH_ERR;
  if (wc.status == IBV_WC_WR_FLUSH_ERR || has_failure()) return;
  const bool remote = wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_OP_ERR ||
                      wc.status == IBV_WC_REM_INV_REQ_ERR;
  failure_.end = remote ? LinkEnd::kTerminated : LinkEnd::kFailed;
  failure_.text = std::string(what) + " failed: " + resources_.api.ibv_wc_status_str(wc.status);
}

void Ending::Refuse(int error) {
  broken_ = facts_.send_failed = true;
  if (!has_failure())
    SetFailure(error, std::string(facts_.rnic) + " refused a work request: " + strerrordesc_np(error));
  StopDevice();
}

void Ending::NoteDeviceFailure() {
  if (has_failure()) return;
  failure_.end = LinkEnd::kFailed;
  failure_.text = std::string(facts_.rnic) + ": " + resources_.device_failure();
}

bool Ending::End(LinkEnd end, std::string text) {
  if (ended_) return false;
  ended_ = facts_.send_failed = true;
  facts_.cause.end = end;
  facts_.cause.text = std::move(text);
  facts_.cause.os_error = failure_.os_error;
  // Each side gives up its half. Then the id is free; a device can be removed only when all its ids are free.
  Disconnect();
  return true;
}

bool Ending::EndByPeer() {
  return has_failure() ? EndByFailure() : End(LinkEnd::kClosedByPeer, "closed by the peer");
}

bool Ending::Abort() {
  if (ended_) return false;
  StopDevice();
  if (has_failure()) return EndByFailure();
  facts_.cause.local = true;
  return End(LinkEnd::kReset, "aborted here");
}

}  // namespace sdp::ibv
