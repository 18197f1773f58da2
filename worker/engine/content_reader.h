// Contents of tensors, wherever they lie, as the host sees them.
//
// Used by one thread.
#ifndef LOCKSTEP_WORKER_ENGINE_CONTENT_READER_H_
#define LOCKSTEP_WORKER_ENGINE_CONTENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device/device_math.h"
#include "worker/transport/tensor_view.h"

namespace lockstep {

// Reads one tensor after the other.
class ContentReader {
 public:
  // `math`, of the memory of views that are on the device, outlives this.
  explicit ContentReader(DeviceMath* math) : math_(math) {}

  // The tensor's bytes, until the next call or until they change. Errors: as
  //   DeviceMath::ToHost().
  absl::StatusOr<std::span<const std::byte>> Bytes(const TensorView& view);
  // Of its type, shape and bytes: equal where these are. Errors: the same.
  absl::StatusOr<std::uint64_t> Digest(const TensorView& view);

 private:
  DeviceMath* const math_;
  std::vector<std::byte> scratch_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_ENGINE_CONTENT_READER_H_
