// MemoryStore: a Store for tests, which can fail and crash on demand.
// Used by one thread.
#ifndef LOCKSTEP_COORDINATOR_STORE_MEMORY_STORE_H_
#define LOCKSTEP_COORDINATOR_STORE_MEMORY_STORE_H_

#include <span>
#include <string>
#include <vector>

#include "coordinator/store/store.h"

namespace lockstep {

class MemoryStore final : public Store {
 public:
  MemoryStore() = default;
  // Of a coordinator before.
  explicit MemoryStore(std::span<const Record> records) { (void)Append(records); }

  absl::StatusOr<std::vector<Record>> Load() override;
  absl::Status Append(std::span<const Record> records) override;

  // The n-th Append from now on (1: the next) and all later ones fail with
  // `why` and store nothing.
  void FailAppend(int n, absl::Status why);

  // The coordinator is gone: what was appended stays, planned failures do not.
  void Crash();

  int appends() const { return appends_; }

 private:
  std::vector<std::string> encoded_;  // through the codec, as on disk
  int appends_ = 0;
  int appends_until_failure_ = 0;  // 0: none is planned
  absl::Status failure_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_STORE_MEMORY_STORE_H_
