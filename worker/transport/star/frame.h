// Frames: what goes over a connection of the star, as bytes. All numbers are little-endian.
//
//   "LS"  version: 1 byte  kind: 1 byte  payload bytes: 4  payload
//
// Pure; thread-compatible. What comes may be anything: a reader holds no more than it was told.
#ifndef LOCKSTEP_WORKER_TRANSPORT_STAR_FRAME_H_
#define LOCKSTEP_WORKER_TRANSPORT_STAR_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::star {

enum class FrameKind : std::uint8_t {
  kHello = 1,    // to rank 0: who connects; a Hello
  kWelcome = 2,  // to others: all have come
  kRecord = 3,   // to rank 0: this rank's record of an exchange
  kRecords = 4,  // to others: all ranks' records, one behind the other
  kLeft = 5,     // to others: this rank has left; a number
  // After one of these the sender says no more:
  kEnd = 6,      // the epoch is over, and why; a status
  kOverdue = 7,  // to rank 0: the deadline of exchange number N has passed; a number
  kGoodbye = 8,  // the sender leaves the epoch
};

struct Frame {
  FrameKind kind = FrameKind::kHello;
  std::string payload;
};

// Appends to `bytes`.
void AppendFrame(FrameKind kind, absl::string_view payload, std::string& bytes);

// Cuts frames out of a stream that comes in pieces of any size.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_payload) : max_payload_(max_payload) {}

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }
  void Append(absl::string_view bytes) { absl::StrAppend(&bytes_, bytes); }

  // Nothing: it has not come completely. Errors, after which all that follows is lost:
  //   FailedPrecondition: these are no frames, or of another version;
  //   InvalidArgument: a payload larger than the maximum.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  std::size_t max_payload_;
  std::string bytes_;
};

// Payloads. Decoding gives InvalidArgument for what encoding does not make.

struct Hello {
  std::uint64_t nonce = 0;  // of the listener
  std::uint64_t members = 0;  // digest of their names, by rank
  std::int64_t epoch = 0;
  std::int64_t rank = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};
std::string Encode(const Hello& hello);
absl::StatusOr<Hello> DecodeHello(absl::string_view payload);

std::string Encode(std::int64_t number);
absl::StatusOr<std::int64_t> DecodeNumber(absl::string_view payload);

// An error; its text is cut to kMaxReasonBytes.
std::string Encode(const absl::Status& error);
// Always an error: bytes that hold none give Internal.
absl::Status DecodeError(absl::string_view payload);

inline constexpr std::size_t kMaxReasonBytes = 4096;
// The largest payload that is no record.
inline constexpr std::size_t kMaxControlBytes = kMaxReasonBytes + sizeof(std::int64_t);

}  // namespace lockstep::star

#endif  // LOCKSTEP_WORKER_TRANSPORT_STAR_FRAME_H_
