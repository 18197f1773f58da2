// A file system for tests, in memory: it fills up, stops working at a chosen operation, and in a
// crash loses what was not synced, or part of it.
//
// Thread-compatible.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
#define LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/prng.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {

class MemoryFileSystem final : public FileSystem {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // There are no directories but "/".
  MemoryFileSystem() = default;

  // Appends that go beyond write what fits and fail with ResourceExhausted.
  void SetCapacity(std::int64_t bytes) { capacity_ = bytes; }
  // The `operation`th from now on that changes or syncs something fails, and all after it; an
  // append that fails has written half of its bytes.
  void StopAt(std::int64_t operation) { stop_at_ = operations_ + operation; }
  std::int64_t operations() const { return operations_; }

  // The machine goes down and comes back: what was synced is there; of the rest each name and each
  // file's content is, by chance, as before or after, and contents may be cut or zero.
  void Crash(Prng& prng);

  // The content of a file that is there; to be changed at will.
  std::string& Content(const std::string& path);
  std::vector<std::string> Paths() const;

  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path) const override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) const override;
  absl::Status SyncDirectory(const std::string& path) override;

 private:
  friend class MemoryOutputFile;
  struct Node {
    bool is_directory = false;
    std::string content;
    std::string synced;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  absl::Status BeginOperation();
  absl::Status CheckParent(const std::string& path) const;
  std::int64_t UsedBytes() const;

  Names names_;
  Names synced_;
  std::int64_t capacity_ = kNever;
  std::int64_t operations_ = 0;
  std::int64_t stop_at_ = kNever;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_MEMORY_FILE_SYSTEM_H_
