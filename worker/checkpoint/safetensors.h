// The safetensors format (https://github.com/huggingface/safetensors): 8 bytes with the length of
// a JSON header, little-endian; the header, with name, type, shape and place of each tensor and
// metadata; the tensors' bytes, without gaps.
//
// Headers only, as values; files are in safetensors_file.h. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"

namespace lockstep {

// The format's own bound.
inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
// What stands before the header.
inline constexpr std::int64_t kSafetensorsPrefixBytes = 8;

using SafetensorsMetadata = std::map<std::string, std::string>;

// "F32", "BF16", ...; empty: the format has no such type (complex32, complex128, float8_e4m3fnuz,
// float8_e5m2fnuz).
absl::string_view SafetensorsName(DType dtype);

// How a file of `tensors` begins and goes on.
struct SafetensorsLayout {
  std::string head;  // all before the first tensor; a multiple of 8 bytes
  // Indices of the tensors as they follow, large element types first, so that each is aligned to
  // its type.
  std::vector<std::size_t> order;
};
// Errors: InvalidArgument names the tensor that the format cannot hold: by its type, its name
//   ("__metadata__", twice, not UTF-8) or its shape; or says that the header is too long.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const SafetensorsMetadata& metadata,
                                                    const std::vector<TensorSpec>& tensors);

struct SafetensorsEntry {
  TensorSpec tensor;
  std::int64_t begin = 0;  // bytes from the file's begin, tensor.bytes() of them
};
struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<SafetensorsEntry> entries;  // in the order of the file

  const SafetensorsEntry* Find(absl::string_view name) const;  // null: none
};

// Bytes before the first tensor, from the file's first kSafetensorsPrefixBytes. Errors: DataLoss.
absl::StatusOr<std::int64_t> SafetensorsHeadBytes(absl::string_view prefix,
                                                  std::int64_t file_bytes);
// `head`: that many bytes of the file's begin. Errors: DataLoss says what is not as the format
//   wants it: JSON, members, types, sizes, gaps, overlaps, the file's end.
absl::StatusOr<SafetensorsHeader> ParseSafetensors(absl::string_view head,
                                                   std::int64_t file_bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_H_
