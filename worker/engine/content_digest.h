// The digest of a tensor's type, shape and bytes: equal where these are.
#ifndef LOCKSTEP_WORKER_ENGINE_CONTENT_DIGEST_H_
#define LOCKSTEP_WORKER_ENGINE_CONTENT_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/digest.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

inline std::uint64_t ContentDigest(const TensorView& view) {
  Digester digester;
  digester.Add(static_cast<std::int64_t>(view.spec.dtype));
  for (const std::int64_t size : view.spec.shape) digester.Add(size);
  return digester.Add(std::span<const std::byte>(view.data, static_cast<std::size_t>(view.bytes())))
      .Finish();
}

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_CONTENT_DIGEST_H_
