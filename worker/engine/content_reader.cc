#include "worker/engine/content_reader.h"

#include "common/base/digest.h"
#include "common/base/status_macros.h"

namespace lockstep {

absl::StatusOr<std::span<const std::byte>> ContentReader::Bytes(const TensorView& view) {
  const std::span<const std::byte> bytes(view.data, static_cast<std::size_t>(view.bytes()));
  if (!view.on_device) return bytes;
  return math_->ToHost(bytes, scratch_);
}

absl::StatusOr<std::uint64_t> ContentReader::Digest(const TensorView& view) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Bytes(view));
  Digester digester;
  digester.Add(static_cast<std::int64_t>(view.spec.dtype));
  for (const std::int64_t size : view.spec.shape) digester.Add(size);
  return digester.Add(bytes).Finish();
}

}  // namespace lockstep
