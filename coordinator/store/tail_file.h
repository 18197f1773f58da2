// TailFile: the newest record's number and checksum, kept durably beside a store's
// database, so that a log that lost its end is noticed.
//
// SQLite takes a damaged write-ahead log for one that ends before the damage: what it
// had acknowledged is gone without an error. The file is written after the records are
// durable; a crash in between leaves it behind the log, which is no loss. It has two
// slots that are written in turn, so that a write that was torn leaves the other.
//
// Used by one thread.
#ifndef LOCKSTEP_COORDINATOR_STORE_TAIL_FILE_H_
#define LOCKSTEP_COORDINATOR_STORE_TAIL_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

struct Tail {
  std::int64_t id = 0;  // of the newest record; 0: there is none
  std::int64_t checksum = 0;

  bool operator==(const Tail&) const = default;
};

class TailFile {
 public:
  // Makes a file that says that there is no record yet, durably. Errors: as Write().
  static absl::StatusOr<TailFile> Create(const std::string& path);

  // Errors: NotFound: there is none; DataLoss: it is damaged; Internal.
  static absl::StatusOr<TailFile> Open(const std::string& path);

  TailFile(TailFile&& other) noexcept;
  TailFile& operator=(TailFile&& other) noexcept;
  ~TailFile();

  // As last written. Nothing: an operator accepts whatever the database has, by a file
  // that holds the word "accept" alone.
  const std::optional<Tail>& tail() const { return tail_; }

  // Durable when it returns. Errors: ResourceExhausted: no space; Internal.
  absl::Status Write(const Tail& tail);

 private:
  TailFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status Error(absl::string_view doing) const;

  std::string path_;
  int fd_ = -1;
  int next_slot_ = 0;
  std::optional<Tail> tail_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_STORE_TAIL_FILE_H_
