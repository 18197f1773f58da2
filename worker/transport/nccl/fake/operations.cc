#include "worker/transport/nccl/fake/operations.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker/transport/nccl/fake/element_types.h"

namespace lockstep::fake_nccl {
namespace {

using Kind = Operation::Kind;

const std::byte* Bytes(const void* pointer) { return static_cast<const std::byte*>(pointer); }

bool Overlap(const Range& a, const Range& b) {
  return a.bytes > 0 && b.bytes > 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

std::optional<std::string> WhyRangesConflict(const Range& a, const Range& b) {
  if (!Overlap(a, b) || !(a.written || b.written)) return std::nullopt;
  return absl::StrCat(a.bytes, " bytes that are ", a.written ? "written" : "read",
                      " overlap with ", b.bytes, " bytes that are ",
                      b.written ? "written" : "read");
}

}  // namespace

std::vector<Range> Touches(const Operation& operation) {
  const std::size_t bytes = operation.count * ElementBytes(operation.type);
  const std::size_t all = bytes * operation.ranks;
  const std::byte* send = Bytes(operation.send);
  const std::byte* receive = Bytes(operation.receive);
  switch (operation.kind) {
    case Kind::kBroadcast:
      if (operation.rank != operation.peer || send == receive) return {{receive, bytes, true}};
      return {{send, bytes, false}, {receive, bytes, true}};
    case Kind::kAllGather:
      if (send == receive + operation.rank * bytes) return {{receive, all, true}};
      return {{send, bytes, false}, {receive, all, true}};
    case Kind::kSend:
      return {{send, bytes, false}};
    case Kind::kRecv:
      return {{receive, bytes, true}};
  }
  return {};
}

std::optional<std::string> WhyInvalid(const Operation& operation) {
  if (ElementBytes(operation.type) == 0) {
    return absl::StrCat("type ", operation.type, " is unknown");
  }
  if (operation.kind != Kind::kAllGather) {
    if (operation.peer < 0 || operation.peer >= operation.ranks) {
      return absl::StrCat("rank ", operation.peer, " is not one of ", operation.ranks);
    }
  }
  const std::vector<Range> ranges = Touches(operation);
  return ranges.size() < 2 ? std::nullopt : WhyRangesConflict(ranges[0], ranges[1]);
}

std::optional<std::string> WhyInConflict(const Operation& a, const Operation& b) {
  for (const Range& of_a : Touches(a)) {
    for (const Range& of_b : Touches(b)) {
      std::optional<std::string> why = WhyRangesConflict(of_a, of_b);
      if (why.has_value()) return why;
    }
  }
  return std::nullopt;
}

std::string Describe(const Operation& operation) {
  const std::string what = absl::StrCat(" of ", operation.count, " ", NameOf(operation.type));
  switch (operation.kind) {
    case Kind::kBroadcast:
      return absl::StrCat("Broadcast", what, " from rank ", operation.peer);
    case Kind::kAllGather:
      return absl::StrCat("AllGather", what);
    case Kind::kSend:
      return absl::StrCat("transfer", what, " from rank ", operation.rank, " to rank ",
                          operation.peer);
    case Kind::kRecv:
      return absl::StrCat("transfer", what, " from rank ", operation.peer, " to rank ",
                          operation.rank);
  }
  return "";
}

void Perform(const std::vector<Operation*>& operations) {
  const Operation& first = *operations[0];
  const std::size_t bytes = first.count * ElementBytes(first.type);
  std::vector<const void*> sources;
  for (const Operation* operation : operations) sources.push_back(operation->send);
  switch (first.kind) {
    case Kind::kBroadcast:
      for (const Operation* operation : operations) {
        std::memmove(operation->receive, sources[first.peer], bytes);
      }
      break;
    case Kind::kAllGather:
      for (const Operation* operation : operations) {
        for (std::size_t rank = 0; rank < sources.size(); ++rank) {
          std::memmove(static_cast<std::byte*>(operation->receive) + rank * bytes, sources[rank],
                       bytes);
        }
      }
      break;
    case Kind::kSend:
    case Kind::kRecv:
      std::memmove(operations[1]->receive, operations[0]->send, bytes);
      break;
  }
}

}  // namespace lockstep::fake_nccl
