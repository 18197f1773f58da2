#include "worker/engine/recovering.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/sharding/replicas.h"
#include "worker/engine/gather.h"
#include "worker/engine/joining.h"

namespace lockstep {
namespace {

Holding HoldingOf(const HeldMemberships& held) {
  if (held.empty()) return {};
  Holding holding = held.front()->commit.holding();
  holding.learning_rate = held.front()->own().optimizer->learning_rate();
  auto free = std::ranges::find_if(holding.copies,
                                   [](const Shard& copy) { return copy.elements() == 0; });
  for (const auto& later : std::span(held).subspan(1)) {
    for (const ShardCopy& copy : later->copies) {
      LOCKSTEP_CHECK(free != holding.copies.end());
      *free++ = copy.elements;
    }
  }
  return holding;
}

std::vector<Shard> RangesOf(const Membership& membership) {
  std::vector<Shard> ranges;
  for (const ShardCopy& copy : membership.copies) ranges.push_back(copy.elements);
  return ranges;
}

// The copy in which all of `elements` are; null: none.
ShardCopy* CopyWith(Membership& membership, const Shard& elements) {
  for (ShardCopy& copy : membership.copies) {
    if (copy.elements.begin <= elements.begin && elements.end <= copy.elements.end) return &copy;
  }
  return nullptr;
}

ShardCopy* CopyWith(const HeldMemberships& held, const Shard& elements) {
  for (const auto& membership : held) {
    if (ShardCopy* const copy = CopyWith(*membership, elements); copy != nullptr) return copy;
  }
  return nullptr;
}

absl::Status CompletePrepared(Membership& last) {
  last.commit.BeginUpdate();
  for (ShardCopy& copy : last.copies) {
    LOCKSTEP_RETURN_IF_ERROR(UpdateCopy(copy, last.blocks, last.prepared_factor));
  }
  last.commit.Updated();
  return absl::OkStatus();
}

absl::Status CopyWithin(std::span<const TensorView> from, std::span<const TensorView> to,
                        DeviceMath* math) {
  LOCKSTEP_CHECK(from.size() == to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto* source = reinterpret_cast<const float*>(from[i].data);
    LOCKSTEP_RETURN_IF_ERROR(
        math->Copy({source, static_cast<std::size_t>(from[i].bytes()) / sizeof(float)},
                   reinterpret_cast<float*>(to[i].data)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Recovery> AgreeOnRecovery(const HeldMemberships& held, Membership& now) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Holding> holdings,
                            Gather(now.transport.get(), "the holding", HoldingOf(held)));
  return DecideRecovery(holdings, CopiesOf(now.proposal.plan, now.proposal.optimizer_replicas),
                        now.proposal.missed);
}

absl::Status CarryOver(const Recovery& recovery, const HeldMemberships& held, Membership& now) {
  const ShardPlan& plan = now.proposal.plan;
  DeviceMath* const math = now.math.get();
  if (recovery.completes[now.rank]) LOCKSTEP_RETURN_IF_ERROR(CompletePrepared(*held.front()));

  std::vector<Passage> passages;
  for (const Move& move : recovery.moves) {
    ShardCopy* const source = move.from == now.rank ? CopyWith(held, move.elements) : nullptr;
    ShardCopy* const target = move.to == now.rank ? CopyWith(now, move.elements) : nullptr;
    if (move.from == move.to) {
      if (target == nullptr) continue;
      LOCKSTEP_RETURN_IF_ERROR(
          CopyWithin(ViewsOf(plan, now.optimizer, move.elements, source),
                     ViewsOf(plan, now.optimizer, move.elements, target), math));
      continue;
    }
    ShardCopy* const mine = source != nullptr ? source : target;
    for (TensorView& view : ViewsOf(plan, now.optimizer, move.elements, mine)) {
      passages.push_back({.from = move.from, .to = move.to, .view = std::move(view)});
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(now.transport->Pass(passages));
  for (std::size_t i = 0; i < now.blocks.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        now.transport->BroadcastFromOwners(now.blocks[i].parameters, now.blocks[i].shards));
  }
  for (ShardCopy& copy : now.copies) {
    copy.optimizer->set_step(recovery.step);
    LOCKSTEP_RETURN_IF_ERROR(copy.optimizer->SetLearningRate(recovery.learning_rate));
  }
  now.protocol.ContinueBehind(recovery.step);
  return absl::OkStatus();
}

absl::Status HandOverCopiesOf(const std::string& drained, Membership& now) {
  const std::vector<std::string>& members = now.proposal.members;
  const auto found = std::ranges::find(members, drained);
  if (found == members.end()) return absl::OkStatus();
  const int from = static_cast<int>(found - members.begin());
  const ShardPlan& plan = now.proposal.plan;
  std::vector<Passage> passages;
  std::optional<ShardCopy> received;
  for (const HandOver& each : HandOversOf(from, plan, now.proposal.optimizer_replicas)) {
    const Shard& elements = plan.shards[each.owner];
    ShardCopy* mine = from == now.rank ? CopyWith(now, elements) : nullptr;
    if (each.to == now.rank) {
      LOCKSTEP_ASSIGN_OR_RETURN(received, MakeCopy(each.owner, now));
      received->optimizer->set_step(now.commit.step());
      mine = &*received;
    }
    for (TensorView& view : ViewsOf(plan, now.optimizer, elements, mine)) {
      passages.push_back({.from = from, .to = each.to, .view = std::move(view)});
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(now.transport->Pass(passages));
  if (!received.has_value()) return absl::OkStatus();
  now.copies.push_back(*std::move(received));
  const Holding held = now.commit.holding();
  now.commit = StepCommit(held.lineage, held.epoch, held.step, held.samples, RangesOf(now));
  return absl::OkStatus();
}

void TakeOver(const Recovery& recovery, Membership& now) {
  const bool continues = recovery.way == Recovery::Way::kContinue;
  now.commit = StepCommit(continues ? recovery.lineage : now.proposal.epoch, now.proposal.epoch,
                          recovery.step, recovery.samples, RangesOf(now));
}

}  // namespace lockstep
