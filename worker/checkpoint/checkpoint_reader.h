// CheckpointReader: a checkpoint that is there, read by ranges of the flat space, however many
// ranks wrote it.
//
// A file is read whole, against its checksum, when something of it is needed first. Files of a
// checkpoint do not change; nobody may remove it meanwhile. Thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_READER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/safetensors_file.h"

namespace lockstep {

class CheckpointReader {
 public:
  // `root`: see checkpoint_writer.h. `files` outlives it. Errors: those of ReadManifest().
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(const FileSystem& files,
                                                                const std::string& root,
                                                                std::int64_t step);

  const CheckpointManifest& manifest() const { return manifest_; }

  // That all files are there and are what was written, so that the manifest claims no more than
  // they have: before memory is allocated by what it says. Errors: NotFound and DataLoss as below.
  absl::Status CheckFiles();

  // The Read functions fill `out`, whose content does not count after an error. Errors:
  //   NotFound: no such slot or tensor, or a file is missing.
  //   OutOfRange: the range is not all in the slot or the block.
  //   DataLoss names the file that is not what was written. Or others of FileSystem.

  // The slot's elements [begin, begin + out.size()) of the flat space.
  absl::Status ReadSlot(absl::string_view slot, std::int64_t begin, std::span<float> out);
  // The parameters [begin, ...) of the flat space, all in the block of that index, as bytes of its
  // type; `out` has room for whole elements.
  absl::Status ReadParameters(std::size_t block, std::int64_t begin, std::span<std::byte> out);

  // A tensor of ReplicatedTensors(), which `out` has the size of.
  absl::Status ReadReplicated(absl::string_view name, std::span<std::byte> out);

 private:
  CheckpointReader(const FileSystem& files, std::string directory, CheckpointManifest manifest);

  // The file of manifest_.files[index].
  absl::StatusOr<const SafetensorsFile*> FileAt(std::size_t index);
  // Elements [begin, ...) of what all shards have of the flat range [whole.begin, whole.end) as
  // `tensor`.
  absl::Status ReadFlat(const std::string& tensor, const Shard& whole, std::int64_t begin,
                        std::int64_t element_bytes, std::span<std::byte> out);

  const FileSystem& files_;
  const std::string directory_;
  const CheckpointManifest manifest_;
  std::vector<bool> verified_;  // by file
  // The last one used: a checkpoint may have more files than a process may open.
  std::optional<SafetensorsFile> open_;
  std::size_t open_index_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKPOINT_READER_H_
