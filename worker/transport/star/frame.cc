#include "worker/transport/star/frame.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep::star {
namespace {

constexpr absl::string_view kMagic = "LS";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 8;

template <typename Number>
void AppendNumber(Number number, std::string& bytes) {
  for (std::size_t i = 0; i < sizeof(number); ++i) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xff));
  }
}

template <typename Number>
Number NumberAt(absl::string_view bytes, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= std::uint64_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  }
  return static_cast<Number>(number);
}

absl::Status CheckSize(absl::string_view payload, std::size_t expected) {
  if (payload.size() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a payload of ", payload.size(), " bytes, expected ", expected));
}

}  // namespace

void AppendFrame(FrameKind kind, absl::string_view payload, std::string& bytes) {
  LOCKSTEP_CHECK(payload.size() <= std::numeric_limits<std::uint32_t>::max());
  absl::StrAppend(&bytes, kMagic);
  AppendNumber(kVersion, bytes);
  AppendNumber(static_cast<std::uint8_t>(kind), bytes);
  AppendNumber(static_cast<std::uint32_t>(payload.size()), bytes);
  absl::StrAppend(&bytes, payload);
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  const std::size_t known = std::min(bytes_.size(), kMagic.size());
  if (absl::string_view(bytes_).substr(0, known) != kMagic.substr(0, known)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no frame begins with ", Quoted(absl::string_view(bytes_).substr(0, 16))));
  }
  // The version says how the rest is to be read.
  if (bytes_.size() > kMagic.size()) {
    const auto version = NumberAt<std::uint8_t>(bytes_, kMagic.size());
    if (version != kVersion) {
      return absl::FailedPreconditionError(absl::StrCat(
          "frames of version ", version, ", this rank speaks version ", kVersion,
          "; all ranks must run the same release"));
    }
  }
  if (bytes_.size() < kHeaderBytes) return std::nullopt;
  const auto kind = NumberAt<std::uint8_t>(bytes_, 3);
  if (kind < static_cast<std::uint8_t>(FrameKind::kHello) ||
      kind > static_cast<std::uint8_t>(FrameKind::kGoodbye)) {
    return absl::FailedPreconditionError(absl::StrCat("a frame of the unknown kind ", kind));
  }
  const std::size_t size = NumberAt<std::uint32_t>(bytes_, 4);
  if (size > max_payload_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of ", size, " bytes, at most ", max_payload_, " were expected"));
  }
  if (bytes_.size() < kHeaderBytes + size) return std::nullopt;
  Frame frame = {.kind = static_cast<FrameKind>(kind),
                 .payload = bytes_.substr(kHeaderBytes, size)};
  bytes_.erase(0, kHeaderBytes + size);
  return frame;
}

std::string Encode(const Hello& hello) {
  std::string payload;
  AppendNumber(hello.nonce, payload);
  AppendNumber(hello.members, payload);
  AppendNumber(hello.epoch, payload);
  AppendNumber(hello.rank, payload);
  return payload;
}

absl::StatusOr<Hello> DecodeHello(absl::string_view payload) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(payload, 32));
  return Hello{.nonce = NumberAt<std::uint64_t>(payload, 0),
               .members = NumberAt<std::uint64_t>(payload, 8),
               .epoch = NumberAt<std::int64_t>(payload, 16),
               .rank = NumberAt<std::int64_t>(payload, 24)};
}

std::string Encode(std::int64_t number) {
  std::string payload;
  AppendNumber(number, payload);
  return payload;
}

absl::StatusOr<std::int64_t> DecodeNumber(absl::string_view payload) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(payload, sizeof(std::int64_t)));
  return NumberAt<std::int64_t>(payload, 0);
}

std::string Encode(const absl::Status& error) {
  std::string payload = Encode(static_cast<std::int64_t>(error.raw_code()));
  const absl::string_view text = error.message().substr(0, kMaxReasonBytes);
  const bool cut = text.size() < error.message().size();
  absl::StrAppend(&payload, cut ? text.substr(0, WellFormedPrefix(text)) : text);
  return payload;
}

absl::Status DecodeError(absl::string_view payload) {
  if (payload.size() < sizeof(std::int64_t)) {
    return absl::InternalError("a peer ended the epoch without a reason");
  }
  const auto code = NumberAt<std::int64_t>(payload, 0);
  const absl::string_view text = payload.substr(sizeof(code));
  // Later releases may know more codes.
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kInternal,
                      text);
}

}  // namespace lockstep::star
