// NCCL's element types. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_ELEMENT_TYPES_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_ELEMENT_TYPES_H_

#include <cstddef>

#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::fake_nccl {

std::size_t ElementBytes(ncclDataType_t type);  // 0: unknown
const char* NameOf(ncclDataType_t type);

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_ELEMENT_TYPES_H_
