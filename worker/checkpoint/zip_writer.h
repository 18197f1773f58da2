// ZipWriter: a zip archive of stored (not compressed) records, as PyTorch's files are: the bytes
// of each begin at a multiple of 64, so that they can be mapped.
//
// Archives and records of 4 GiB and more get zip64's fields. Thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_ZIP_WRITER_H_
#define LOCKSTEP_WORKER_CHECKPOINT_ZIP_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/checkpoint/atomic_file.h"

namespace lockstep {

class ZipWriter {
 public:
  static constexpr std::int64_t kAlignment = 64;
  // Sizes and offsets that zip's 32 bits do not hold.
  static constexpr std::uint64_t kZip64From = 0xffffffff;

  // `file` is empty and outlives it. `zip64_from`: smaller ones for tests.
  explicit ZipWriter(AtomicFile* file, std::uint64_t zip64_from = kZip64From)
      : file_(file), zip64_from_(zip64_from) {}

  // `name`: ASCII, of less than 64 KiB, not yet in the archive. Errors: those of AtomicFile.
  absl::Status Add(absl::string_view name, std::span<const std::byte> bytes);
  absl::Status Add(absl::string_view name, absl::string_view text);

  // The directory of records; called once, last.
  absl::Status Finish();

 private:
  struct Record {
    std::string name;
    std::uint64_t bytes;
    std::uint64_t offset;  // of its local header
    std::uint32_t crc;
  };

  std::string DirectoryEntry(const Record& record) const;

  AtomicFile* file_;
  const std::uint64_t zip64_from_;
  std::vector<Record> records_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_ZIP_WRITER_H_
