// The records in one SQLite file: table `records`, one row per record, ids from 1
// without gaps, each with a checksum over the checksum before it, id and payload
// (record_codec.h). The newest id and checksum are also kept beside it, in PATH.tail
// (tail_file.h): a log that lost its end does not pass for a shorter one. The two files
// belong together, also in a backup.
//
// Write-ahead log, synchronous=FULL: Append() returns after fsync of both. The file is
// locked as long as it is open, so that one coordinator uses it. Format 1, without the
// chain and the tail, is brought to format 2 when it is opened.
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
