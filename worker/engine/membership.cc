#include "worker/engine/membership.h"

namespace lockstep {

std::int64_t Membership::state_bytes() const {
  std::int64_t bytes = 0;
  for (const ShardCopy& copy : copies) {
    bytes += copy.optimizer->state_bytes();
    if (copy.owner == rank) continue;
    for (std::size_t i = 0; i < copy.parts.size(); ++i) {
      bytes += copy.parts[i].elements.elements() * ElementBytes(blocks[i].parameters.dtype);
    }
  }
  return bytes;
}

}  // namespace lockstep
