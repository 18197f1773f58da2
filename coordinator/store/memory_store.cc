#include "coordinator/store/memory_store.h"

#include <utility>

#include "common/base/status_macros.h"
#include "coordinator/store/record_codec.h"

namespace lockstep {

absl::StatusOr<std::vector<Record>> MemoryStore::Load() {
  std::vector<Record> records;
  for (const std::string& bytes : encoded_) {
    LOCKSTEP_ASSIGN_OR_RETURN(Record record, DecodeRecord(bytes));
    records.push_back(std::move(record));
  }
  return records;
}

absl::Status MemoryStore::Append(std::span<const Record> records) {
  ++appends_;
  if (appends_until_failure_ > 1) {
    --appends_until_failure_;
  } else if (appends_until_failure_ == 1) {
    return failure_;
  }
  for (const Record& record : records) encoded_.push_back(EncodeRecord(record));
  return absl::OkStatus();
}

void MemoryStore::FailAppend(int n, absl::Status why) {
  appends_until_failure_ = n;
  failure_ = std::move(why);
}

void MemoryStore::Crash() { appends_until_failure_ = 0; }

}  // namespace lockstep
