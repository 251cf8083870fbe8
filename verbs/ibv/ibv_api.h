// The functions of librdmacm and libibverbs. This process loads the libraries when it first needs them, so
// that it also runs on a host without them.
#ifndef SDP_VERBS_IBV_IBV_API_H_
#define SDP_VERBS_IBV_IBV_API_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <string>

// The headers define macros for some of the functions, with a detour for optional features that are not used
// here.
#undef ibv_reg_mr

namespace sdp::ibv {

struct Api {
#define SDP_IBV_CALLS(X)        \
  X(rdma_create_event_channel)  \
  X(rdma_destroy_event_channel) \
  X(rdma_create_id)             \
  X(rdma_destroy_id)            \
  X(rdma_bind_addr)             \
  X(rdma_resolve_addr)          \
  X(rdma_resolve_route)         \
  X(rdma_create_qp)             \
  X(rdma_destroy_qp)            \
  X(rdma_connect)               \
  X(rdma_listen)                \
  X(rdma_accept)                \
  X(rdma_reject)                \
  X(rdma_disconnect)            \
  X(rdma_get_cm_event)          \
  X(rdma_ack_cm_event)          \
  X(rdma_migrate_id)            \
  X(rdma_get_devices)           \
  X(ibv_alloc_pd)               \
  X(ibv_dealloc_pd)             \
  X(ibv_reg_mr)                 \
  X(ibv_dereg_mr)               \
  X(ibv_create_comp_channel)    \
  X(ibv_destroy_comp_channel)   \
  X(ibv_create_cq)              \
  X(ibv_destroy_cq)             \
  X(ibv_get_cq_event)           \
  X(ibv_ack_cq_events)          \
  X(ibv_modify_qp)              \
  X(ibv_query_device)           \
  X(ibv_get_async_event)        \
  X(ibv_ack_async_event)        \
  X(ibv_wc_status_str)
#define SDP_IBV_DECLARE(name) decltype(&::name) name = nullptr;
  SDP_IBV_CALLS(SDP_IBV_DECLARE)
#undef SDP_IBV_DECLARE
};

// Loads the libraries at the first call; safe from any thread. Returns null if they are missing or unusable;
// ApiFailure() then returns the reason in one line.
const Api* LoadApi();
const std::string& ApiFailure();

}  // namespace sdp::ibv

#endif  // SDP_VERBS_IBV_IBV_API_H_
