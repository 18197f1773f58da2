// FileSystem: the few operations on files that checkpoints are made of, so that tests can
// make each of them fail, and lose what was not made durable.
//
// No buffers of its own and no policy: names, order and syncs are the caller's.
// Thread-safe; one OutputFile or InputFile is thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_FILE_SYSTEM_H_
#define LOCKSTEP_WORKER_CHECKPOINT_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// All errors name the path and what was tried. NotFound, AlreadyExists, PermissionDenied and
// ResourceExhausted (no space, over a quota, too many open files) are what they say; others of the
// system are Internal.
class OutputFile {
 public:
  virtual ~OutputFile() = default;  // closes it
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;
  // What was appended survives a crash of the machine; the file's name may not.
  virtual absl::Status Sync() = 0;
};

class InputFile {
 public:
  virtual ~InputFile() = default;
  virtual std::int64_t bytes() const = 0;  // when it was opened
  // Fills `bytes`. Errors: DataLoss: the file ends before.
  virtual absl::Status ReadAt(std::int64_t offset, std::span<std::byte> bytes) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new, empty file in place of one of that name.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path) const = 0;
  // In one step, in place of what has the name `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // OK if it is there already.
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;  // an empty one
  // Names in it, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) const = 0;
  // What was created, renamed and removed in it survives a crash of the machine.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

// That of this machine; lives as long as the process.
FileSystem& HostFileSystem();

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_FILE_SYSTEM_H_
