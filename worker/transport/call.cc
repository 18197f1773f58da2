#include "worker/transport/call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

std::string ArgumentText(const Call& call) {
  if (call.kind != CallKind::kAllocate) return absl::StrCat("argument ", call.argument);
  return call.argument == 0 ? "use for parameters" : "use for gradients";
}

}  // namespace

absl::string_view CallName(CallKind kind) {
  switch (kind) {
    case CallKind::kNone:
      return "nothing";
    case CallKind::kExchange:
      return "exchange";
    case CallKind::kAllocate:
      return "allocate";
    case CallKind::kReduceToOwners:
      return "reduce to owners";
    case CallKind::kBroadcastFromOwners:
      return "broadcast from owners";
    case CallKind::kUpdateShards:
      return "update of shards";
    case CallKind::kBeginReduction:
      return "beginning of a reduction";
    case CallKind::kPass:
      return "passing on";
    case CallKind::kAgree:
      return "agree";
  }
  return "an unknown operation";
}

std::string MemberText(const std::vector<std::string>& members, int rank) {
  return absl::StrCat(members[rank], " (rank ", rank, ")");
}

absl::Status CompareCalls(std::span<const Call> calls, const std::vector<std::string>& members) {
  const auto list = [&](auto text) {
    std::vector<std::string> views;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      views.push_back(absl::StrCat(text(calls[rank]), " on ", MemberText(members, rank)));
    }
    return ListNames(views);
  };
  const Call& first = calls[0];
  if (std::any_of(calls.begin(), calls.end(),
                  [&](const Call& call) { return call.kind != first.kind; })) {
    return absl::FailedPreconditionError(absl::StrCat(
        "ranks called different operations: ",
        list([](const Call& call) { return std::string(CallName(call.kind)); }),
        "; all ranks must call the same operations in the same order"));
  }
  if (std::any_of(calls.begin(), calls.end(),
                  [&](const Call& call) { return call.argument != first.argument; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks disagree on the ", CallName(first.kind), ": ",
                     list([](const Call& call) { return ArgumentText(call); })));
  }
  return absl::OkStatus();
}

bool SameLayout(std::span<const Call> calls) {
  return std::all_of(calls.begin(), calls.end(),
                     [&](const Call& call) { return call.layout == calls[0].layout; });
}

}  // namespace lockstep
