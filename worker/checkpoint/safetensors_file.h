// Files in the safetensors format, written at once and read in parts.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/atomic_file.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors.h"

namespace lockstep {

struct FileTensor {
  TensorSpec spec;
  std::span<const std::byte> bytes;  // contiguous, spec.bytes() of them
};

// `tag`: see AtomicFile. Errors: those of LayOutSafetensors() and AtomicFile; InvalidArgument: a
//   tensor has another number of bytes.
absl::StatusOr<FileSum> WriteSafetensors(FileSystem& files, const std::string& path,
                                         absl::string_view tag, const SafetensorsMetadata& metadata,
                                         const std::vector<FileTensor>& tensors);

class SafetensorsFile {
 public:
  // Reads the header; the tensors' bytes only if `expected` is given, which the file must be.
  // Errors: DataLoss names the file; or those of FileSystem.
  static absl::StatusOr<SafetensorsFile> Open(const FileSystem& files, std::string path,
                                              const FileSum* expected);

  const SafetensorsHeader& header() const { return header_; }
  std::int64_t bytes() const { return file_->bytes(); }
  // Bytes of the tensor `entry` of header(), from its byte `from` on.
  absl::Status Read(const SafetensorsEntry& entry, std::int64_t from,
                    std::span<std::byte> bytes) const;

 private:
  SafetensorsFile(std::unique_ptr<InputFile> file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  std::unique_ptr<InputFile> file_;
  SafetensorsHeader header_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SAFETENSORS_FILE_H_
