// Call: what a rank is about to do, as a small record that ranks exchange and
// compare before any data moves.
//
// Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_CALL_H_
#define LOCKSTEP_WORKER_TRANSPORT_CALL_H_

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/core/agreement.h"

namespace lockstep {

enum class CallKind : std::int32_t {
  kNone = 0,
  kExchange = 1,
  kAllocate = 2,
  kReduceToOwners = 3,
  kBroadcastFromOwners = 4,
  kAgree = 5,
  kUpdateShards = 6,
  kBeginReduction = 7,
  kPass = 8,
};

// Zero-initialised and without padding that matters: transports move it as bytes.
struct Call {
  CallKind kind = CallKind::kNone;
  std::int32_t argument = 0;  // the ArenaUse
  std::uint64_t layout = 0;   // digest of what is to be moved
  // What may differ among ranks:
  ControlWord word;         // of kAgree; its weight of kBeginReduction
  std::int32_t failed = 0;  // kAllocate: 1 if this rank has no memory
};
static_assert(std::is_trivially_copyable_v<Call>);

// "exchange", "agree", ...
absl::string_view CallName(CallKind kind);

// "w1 (rank 1)".
std::string MemberText(const std::vector<std::string>& members, int rank);

// OK if all ranks are in the same operation with the same argument. Errors:
//   FailedPrecondition: different operations, named.
//   InvalidArgument: different uses of an arena, named.
absl::Status CompareCalls(std::span<const Call> calls, const std::vector<std::string>& members);

bool SameLayout(std::span<const Call> calls);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_CALL_H_
