// Store: what the coordinator must not forget, as an ordered list of records.
//
// Used by one thread.
#ifndef LOCKSTEP_COORDINATOR_STORE_STORE_H_
#define LOCKSTEP_COORDINATOR_STORE_STORE_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/events.h"

namespace lockstep {

class Store {
 public:
  virtual ~Store() = default;

  // All records, oldest first. Errors: DataLoss: damaged, says where.
  virtual absl::StatusOr<std::vector<Record>> Load() = 0;

  // All or nothing; durable when it returns. After an error the coordinator
  // must stop: it may not go on from memory.
  // Errors: ResourceExhausted: no space; DataLoss: damaged; Internal: other.
  virtual absl::Status Append(std::span<const Record> records) = 0;
};

// A file that exists already is gone on with. Errors: FailedPrecondition:
//   another coordinator has it open; InvalidArgument: not a file that can be
//   opened or made there; DataLoss: not a Lockstep store, or damaged.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_STORE_STORE_H_
