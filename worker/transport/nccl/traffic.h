// Traffic: the payload of one transport so far, counted while any thread may look.
// Thread-safe.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_TRAFFIC_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_TRAFFIC_H_

#include <atomic>
#include <cstdint>

namespace lockstep::nccl_link {

struct Traffic {
  std::atomic<std::int64_t> sent_bytes = 0;
  std::atomic<std::int64_t> received_bytes = 0;
};

}  // namespace lockstep::nccl_link

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_TRAFFIC_H_
