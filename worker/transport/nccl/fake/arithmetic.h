// NCCL's element types and reductions of them. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_ARITHMETIC_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_ARITHMETIC_H_

#include <cstddef>
#include <vector>

#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::fake_nccl {

std::size_t ElementBytes(ncclDataType_t type);  // 0: unknown
const char* NameOf(ncclDataType_t type);

// Sum, product, max and min, of all types but the 8-bit floating ones.
bool CanReduce(ncclDataType_t type, ncclRedOp_t op);

// into[i] = sources[0][i] op sources[1][i] op ..., each step in the type itself, which is
// why sums of many ranks differ from those made in double.
void Fold(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& sources, void* into,
          std::size_t count);

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_ARITHMETIC_H_
