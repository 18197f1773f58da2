#include "tests/fuzz/policy_input.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"
#include "tests/fuzz/message_text.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxBuffers = 48;  // keeps one run short
constexpr std::size_t kMaxMembers = 16;
constexpr int kDTypes = 22;
constexpr absl::string_view kSeparator = "\n--\n";

// Used when the input has none: two layers and a queue.
constexpr absl::string_view kModel =
    "float32[64] bn1.running_mean\n"
    "float32[64] bn1.running_var\n"
    "int64[] bn1.num_batches_tracked\n"
    "float32[128] layer1.0.bn2.running_mean\n"
    "bfloat16[128] layer1.0.bn2.running_var\n"
    "bool[0,3] mask\n"
    "unspecified[] observer.state\n"
    "worker w1\n"
    "worker w2\n";

DType ReadDType(absl::string_view text) {
  for (int number = 0; number < kDTypes; ++number) {
    const auto dtype = static_cast<DType>(number);
    if (text == DTypeName(dtype)) return dtype;
  }
  return static_cast<DType>(text.size() % kDTypes);
}

// "float32[64,3] layer1.weight".
TensorSpec ReadBuffer(absl::string_view line) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 1));
  std::pair<absl::string_view, absl::string_view> type =
      absl::StrSplit(parts.first, absl::MaxSplits('[', 1));
  TensorSpec buffer{.name = std::string(parts.second), .dtype = ReadDType(type.first)};
  absl::ConsumeSuffix(&type.second, "]");
  for (const absl::string_view text : absl::StrSplit(type.second, ',', absl::SkipEmpty())) {
    std::int64_t size = 0;
    if (!absl::SimpleAtoi(text, &size)) size = static_cast<std::int64_t>(text.size());
    buffer.shape.push_back(size);
  }
  return buffer;
}

void ReadModel(absl::string_view text, PolicyInput& input) {
  std::set<std::string> members;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&line, "worker ")) {
      const bool is_name = !line.empty() && IsPrintable(line);
      if (is_name && members.size() < kMaxMembers) members.emplace(line);
    } else if (input.manifest.buffers.size() < kMaxBuffers) {
      input.manifest.buffers.push_back(ReadBuffer(line));
      if (!Validate(input.manifest).ok()) input.manifest.buffers.pop_back();
    }
  }
  input.members.assign(members.begin(), members.end());
}

}  // namespace

PolicyInput ReadPolicyInput(absl::string_view bytes) {
  PolicyInput input;
  if (bytes.empty()) return input;
  const char form = bytes.front();
  bytes.remove_prefix(1);
  const std::size_t separator = bytes.find(kSeparator);
  v1::SyncPolicy policy;
  if (ReadMessage(form, bytes.substr(0, separator), &policy)) input.policy = std::move(policy);
  ReadModel(separator == absl::string_view::npos ? kModel
                                                 : bytes.substr(separator + kSeparator.size()),
            input);
  return input;
}

}  // namespace lockstep
