// AtomicFile: a file that has its name only once it is whole and durable, and the checksum
// of what was written. And how whole files are read.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_ATOMIC_FILE_H_
#define LOCKSTEP_WORKER_CHECKPOINT_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/checksum.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {

struct FileSum {
  std::int64_t bytes = 0;
  std::string checksum;  // as Checksum gives it

  bool operator==(const FileSum&) const = default;
};

class AtomicFile {
 public:
  // `path` with a directory. Until Commit() its name is `path`.`tag`.tmp; writers of one path that
  // may be at it at once have different tags. Errors: those of FileSystem.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(FileSystem& files, std::string path,
                                                            absl::string_view tag);
  // Removes what was not committed, as far as that works.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // After an error there is nothing to do but to destroy it.
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Append(absl::string_view text);
  std::int64_t bytes() const { return bytes_; }  // appended so far

  // Called once, last: the file is durable, then it gets its name, durably. If the last of these
  // fails the file may be there under its name, whole.
  absl::StatusOr<FileSum> Commit();

 private:
  AtomicFile(FileSystem& files, std::string path, std::string temporary,
             std::unique_ptr<OutputFile> file);

  FileSystem& files_;
  const std::string path_;
  const std::string temporary_;
  std::unique_ptr<OutputFile> file_;
  Checksum checksum_;
  std::int64_t bytes_ = 0;
  bool has_name_ = false;
};

// "a/b" of "a/b/c"; "." of "c".
std::string DirectoryOf(const std::string& path);

// The whole file. Errors: those of FileSystem; DataLoss: it has more than `most` bytes.
absl::StatusOr<std::string> ReadFile(const FileSystem& files, const std::string& path,
                                     std::int64_t most);

// Reads `file` from its begin to its end. Errors: DataLoss names `path`, what its size or checksum
//   is and what was expected; or those of FileSystem.
absl::Status CheckSum(const InputFile& file, const std::string& path, const FileSum& expected);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_ATOMIC_FILE_H_
