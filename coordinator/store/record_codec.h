// Record <-> lockstep.storage.v1: the form in which records are kept on disk.
// Pure functions.
#ifndef LOCKSTEP_COORDINATOR_STORE_RECORD_CODEC_H_
#define LOCKSTEP_COORDINATOR_STORE_RECORD_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/events.h"

namespace lockstep {

std::string EncodeRecord(const Record& record);

// Errors: DataLoss: not a record, or one that this release does not know.
absl::StatusOr<Record> DecodeRecord(absl::string_view bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_STORE_RECORD_CODEC_H_
