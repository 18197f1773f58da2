#include "worker/transport/nccl/fake/matching.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/transport/nccl/fake/world.h"

namespace lockstep::fake_nccl {
namespace {

std::tuple<int, int, int> SideOf(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kSend:
      return {operation.rank, operation.peer, 0};
    case Operation::Kind::kRecv:
      return {operation.peer, operation.rank, 1};
    default:
      return {-1, -1, operation.rank};
  }
}

// Why the memory is not what it was when the operation was called.
std::optional<std::string> WhyUnusable(const World& world, const Operation& operation) {
  for (const Range& range : Touches(operation)) {
    std::optional<std::string> why =
        world.memory.WhyUnusable(operation.device, range.begin, range.bytes);
    if (why.has_value()) return why;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> Matching::Add(const std::vector<Operation*>& group) {
  const auto collectives =
      std::count_if(group.begin(), group.end(),
                    [](const Operation* operation) { return operation->is_collective(); });
  std::vector<std::string> differences;
  int index = 0;
  for (Operation* operation : group) {
    const auto [sender, receiver, side] = SideOf(*operation);
    operation->place = {sender, receiver, placed_[{sender, receiver, side}]++};
    std::string what = Describe(*operation);
    // NCCL schedules the collectives of a group together.
    if (operation->is_collective()) {
      absl::StrAppend(&what, " (", ++index, " of ", collectives, " in its group)");
    }
    Slot& slot = slots_[operation->place];
    if (slot.expected.empty()) {
      slot.expected = what;
      slot.expected_of = operation->rank;
    } else if (slot.expected != what) {
      slot.broken = true;
      differences.push_back(absl::StrCat("rank ", operation->rank, " makes ", what, " where rank ",
                                         slot.expected_of, " made ", slot.expected));
    }
  }
  return differences;
}

bool Matching::HavePartnersCome(const Operation& operation) const {
  const auto [sender, receiver, side] = SideOf(operation);
  const int sides = operation.is_collective() ? operation.ranks : 2;
  for (int other = 0; other < sides; ++other) {
    if (!placed_.contains({sender, receiver, other})) return false;
  }
  return true;
}

void Matching::Reach(World& world, Operation* operation) {
  Slot& slot = slots_[operation->place];
  if (slot.broken) return;
  // As in NCCL, which drops it.
  if (operation->count == 0) {
    operation->done = true;
    return;
  }
  slot.reached.push_back(operation);
  const std::size_t needed = operation->is_collective() ? operation->ranks : 2;
  if (slot.reached.size() < needed) return;
  for (const Operation* reached : slot.reached) {
    const auto why = WhyUnusable(world, *reached);
    if (!why.has_value()) continue;
    world.Violate(reached->device, absl::StrCat(Describe(*reached), " runs on ", *why));
    slot.broken = true;
  }
  if (slot.broken) return;
  std::sort(slot.reached.begin(), slot.reached.end(), [](const Operation* a, const Operation* b) {
    return a->is_collective() ? a->rank < b->rank : a->kind < b->kind;
  });
  Perform(slot.reached);
  for (Operation* reached : slot.reached) reached->done = true;
  slot.reached.clear();
}

void Matching::Abandon(int rank) {
  for (auto& [place, slot] : slots_) {
    const bool took_part = std::any_of(
        slot.reached.begin(), slot.reached.end(),
        [rank](const Operation* operation) { return operation->rank == rank; });
    if (took_part) slot.broken = true;
    if (slot.broken) slot.reached.clear();
  }
}

}  // namespace lockstep::fake_nccl
