// What the coordinator finds when it starts. Either a log of records, one on each line:
//
//   t generation_started { generation: 1 }     a storage::v1::Record in text format
//   x \012\002\010\001                         the bytes of a row, with C's escapes
//
// or, behind a first line `tail`, the bytes of the tail file.
//
// Bytes that are no record, and records that contradict those before them, are DataLoss and change
// nothing. What is left is recovered to a state that keeps the core's invariants and from which
// the coordinator starts and lets time pass. Of the tail file, what is opened can be written, and
// is read again as written.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/durable_text.h"
#include "coordinator/core/fold.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/tail_file.h"
#include "lockstep/storage/v1/records.pb.h"
#include "tests/fuzz/cluster_promises.h"
#include "tests/fuzz/message_text.h"
#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxRecords = 200;  // keeps one run short
constexpr int kTicks = 10;

absl::Status IsOkOrDataLoss(const absl::Status& status, absl::string_view of) {
  return IsOkOr({absl::StatusCode::kDataLoss}, status, of);
}

// The bytes of a row.
std::optional<std::string> ReadRow(absl::string_view line) {
  std::string row;
  if (absl::ConsumePrefix(&line, "x ")) {
    return absl::CUnescape(line, &row) ? std::optional(row) : std::nullopt;
  }
  storage::v1::Record message;
  if (!absl::ConsumePrefix(&line, "t ") || !ReadMessage('t', line, &message)) return std::nullopt;
  return message.SerializeAsString();
}

absl::Status CheckStart(const std::vector<Record>& records, const ClusterState& folded) {
  MonoTime now;
  absl::StatusOr<CoordinatorFsm> fsm = CoordinatorFsm::Recover(records, now);
  LOCKSTEP_RETURN_IF_ERROR(
      Holds(fsm.ok(), "what can be folded is recovered", fsm.status().ToString()));
  LOCKSTEP_RETURN_IF_ERROR(Holds(DurableText(fsm->state()) == DurableText(folded),
                                 "what is recovered is the fold", DurableText(folded)));
  LOCKSTEP_RETURN_IF_ERROR(CheckClusterState(fsm->state()));
  std::optional<MonoTime> wake_at = fsm->Begin().wake_at;
  LOCKSTEP_RETURN_IF_ERROR(CheckClusterState(fsm->state()));
  for (int i = 0; i < kTicks && wake_at; ++i) {
    now = std::max(now, *wake_at);
    wake_at = fsm->Step(now, Tick{}).wake_at;
    LOCKSTEP_RETURN_IF_ERROR(CheckClusterState(fsm->state()));
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(!wake_at || *wake_at > now, "a Tick leaves no work undone", ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<Reached> CheckLog(absl::string_view text) {
  std::vector<Record> records;
  ClusterState state;
  bool is_refused = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::optional<std::string> row = ReadRow(line);
    if (!row || records.size() == kMaxRecords) continue;
    const absl::StatusOr<Record> record = DecodeRecord(*row);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrDataLoss(record.status(), "DecodeRecord"));
    is_refused = is_refused || !record.ok();
    if (!record.ok()) continue;
    const absl::StatusOr<Record> again = DecodeRecord(EncodeRecord(*record));
    LOCKSTEP_RETURN_IF_ERROR(Holds(again.ok() && *again == *record,
                                   "a record survives its encoding",
                                   again.ok() ? line : again.status().message()));
    const std::string before = DurableText(state);
    const absl::Status applied = Apply(*record, state);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrDataLoss(applied, "Apply"));
    if (applied.ok()) {
      records.push_back(*record);
      continue;
    }
    is_refused = true;
    LOCKSTEP_RETURN_IF_ERROR(Holds(DurableText(state) == before,
                                   "a record that contradicts the state changes nothing", line));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckStart(records, state));
  if (!records.empty()) return Reached::kChecked;
  return is_refused ? Reached::kRefused : Reached::kUnread;
}

absl::StatusOr<Reached> CheckTail(absl::string_view bytes) {
  const int fd = memfd_create("tail", MFD_CLOEXEC);
  LOCKSTEP_RETURN_IF_ERROR(Holds(fd >= 0, "there is memory for a file", ""));
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  const auto check = [&]() -> absl::StatusOr<Reached> {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    LOCKSTEP_RETURN_IF_ERROR(
        Holds(written == static_cast<ssize_t>(bytes.size()), "memory can be written", ""));
    absl::StatusOr<TailFile> file = TailFile::Open(path);
    LOCKSTEP_RETURN_IF_ERROR(IsOkOrDataLoss(file.status(), "TailFile::Open"));
    if (!file.ok()) return Reached::kRefused;
    Tail next = file->tail().value_or(Tail());
    if (next.id == std::numeric_limits<std::int64_t>::max()) return Reached::kChecked;
    for (int i = 0; i < 3 && next.id < std::numeric_limits<std::int64_t>::max(); ++i) {
      next = {.id = next.id + 1, .checksum = ~next.checksum};
      const absl::Status kept = file->Write(next);
      LOCKSTEP_RETURN_IF_ERROR(Holds(kept.ok(), "a tail can be written", kept.ToString()));
      const absl::StatusOr<TailFile> again = TailFile::Open(path);
      LOCKSTEP_RETURN_IF_ERROR(Holds(again.ok() && again->tail() == next,
                                     "what is read is what was written last", bytes));
    }
    return Reached::kChecked;
  };
  const absl::StatusOr<Reached> reached = check();
  close(fd);
  return reached;
}

}  // namespace

absl::StatusOr<Reached> CheckPromises(absl::string_view bytes) {
  return absl::ConsumePrefix(&bytes, "tail\n") ? CheckTail(bytes) : CheckLog(bytes);
}

}  // namespace lockstep
