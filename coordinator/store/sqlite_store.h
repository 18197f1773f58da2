// The records in one SQLite file: table `records`, one row per record, ids from 1
// without gaps, each with a checksum over id and payload (record_codec.h).
//
// Write-ahead log, synchronous=FULL: Append() returns after fsync. The file is
// locked as long as it is open, so that one coordinator uses it.
#ifndef LOCKSTEP_COORDINATOR_STORE_SQLITE_STORE_H_
#define LOCKSTEP_COORDINATOR_STORE_SQLITE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/store/store.h"

namespace lockstep {

struct SqliteStoreOptions {
  std::int64_t max_bytes = 0;  // of the file; 0: as the disk allows
};

// As OpenSqliteStore(path) in store.h.
absl::StatusOr<std::unique_ptr<Store>> OpenSqliteStore(const std::string& path,
                                                       const SqliteStoreOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_STORE_SQLITE_STORE_H_
