#include "worker/engine/joining.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/mono_time.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/sharding/replicas.h"
#include "worker/device/host_math.h"
#include "worker/engine/solo_transport.h"
#include "worker/optim/parameter_groups.h"

namespace lockstep {
namespace {

// Where the elements of short types begin in the shard; float32 come first.
std::int64_t ShortBegin(const ShardPlan& plan, const Shard& shard) {
  for (const Block& block : plan.blocks) {
    if (block.dtype == DType::kFloat32) {
      return std::clamp(block.end, shard.begin, shard.end) - shard.begin;
    }
  }
  return 0;
}

absl::StatusOr<ShardCopy> MakeCopy(int owner, const OptimizerConfig& optimizer,
                                   const Manifest& manifest, const ShardPlan& plan,
                                   DeviceMath* math) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<GroupRange> ranges,
                            GroupRangesOf(optimizer, manifest, plan, owner));
  ShardCopy copy = {.owner = owner, .elements = plan.shards[owner]};
  LOCKSTEP_ASSIGN_OR_RETURN(
      copy.optimizer,
      math->MakeOptimizer(optimizer, std::move(ranges), ShortBegin(plan, copy.elements)));
  return copy;
}

// This rank's own, and what it keeps as a buddy.
absl::StatusOr<std::vector<ShardCopy>> MakeCopies(const OptimizerConfig& optimizer,
                                                  const Manifest& manifest, const ShardPlan& plan,
                                                  int rank, int replicas, DeviceMath* math) {
  std::vector<ShardCopy> copies;
  for (const int owner : OwnersKeptBy(rank, static_cast<int>(plan.shards.size()), replicas)) {
    LOCKSTEP_ASSIGN_OR_RETURN(ShardCopy copy, MakeCopy(owner, optimizer, manifest, plan, math));
    copies.push_back(std::move(copy));
  }
  return copies;
}

// Everything of a membership that needs no peer. Each error is for good: the
// next proposal would end the same way.
absl::StatusOr<Membership> Prepare(const std::string& worker, const OptimizerConfig& optimizer,
                                   const Manifest& manifest, std::shared_ptr<DeviceMath> math,
                                   Proposal proposal) {
  const auto me = std::find(proposal.members.begin(), proposal.members.end(), worker);
  if (me == proposal.members.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ", proposal.epoch.value(), " was proposed to worker '", worker,
        "', which is not among its members ", ListNames(proposal.members),
        "; the engine's worker name must be the one that attends"));
  }
  const int rank = static_cast<int>(me - proposal.members.begin());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const ShardPlan plan, PlanShards(manifest, static_cast<int>(proposal.members.size())));
  if (plan.Digest() != proposal.plan.Digest()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the coordinator's shard plan (%016x, %d elements in %d shards) is not the one that "
        "worker '%s' computes from its model (%016x, %d elements in %d shards); run the same "
        "release everywhere",
        proposal.plan.Digest(), proposal.plan.flat_elements, proposal.plan.shards.size(), worker,
        plan.Digest(), plan.flat_elements, plan.shards.size()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      StepProtocol protocol,
      StepProtocol::Create(proposal.members, proposal.log_number, proposal.revision,
                           proposal.policy));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<ShardCopy> copies,
                            MakeCopies(optimizer, manifest, plan, rank,
                                       proposal.optimizer_replicas, math.get()));
  return Membership{.proposal = std::move(proposal),
                    .rank = rank,
                    .protocol = std::move(protocol),
                    .manifest = manifest,
                    .optimizer = optimizer,
                    .math = std::move(math),
                    .copies = std::move(copies)};
}

absl::Status Allocate(Membership& membership) {
  const ShardPlan& plan = membership.proposal.plan;
  for (const Block& block : plan.blocks) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena parameters,
                              membership.transport->Allocate(ArenaUse::kParameters, block.dtype,
                                                             block.elements()));
    LOCKSTEP_ASSIGN_OR_RETURN(const Arena gradients,
                              membership.transport->Allocate(ArenaUse::kGradients, block.dtype,
                                                             block.elements()));
    membership.blocks.push_back({.parameters = parameters,
                                 .gradients = gradients,
                                 .shards = ShardsWithin(plan, block)});
  }
  for (ShardCopy& copy : membership.copies) {
    LOCKSTEP_RETURN_IF_ERROR(PlaceCopy(plan, membership.blocks, copy.owner == membership.rank,
                                       membership.math.get(), copy));
  }
  return absl::OkStatus();
}

// What takes all members. May fail because one of them is gone.
absl::Status Form(Membership& membership, const EngineOptions& options, MonoTime deadline,
                  TransportFactory* transports, CoordinatorLink* link) {
  const Epoch epoch = membership.proposal.epoch;
  const auto abort_by_link = [link](Transport* transport) {
    link->OnAbort(transport == nullptr ? std::function<void(const absl::Status&)>()
                                       : [transport](const absl::Status& why) {
                                           transport->Abort(why);
                                         });
  };
  const Group group = {.epoch = epoch,
                       .rank = membership.rank,
                       .members = membership.proposal.members,
                       .deadline = options.operation_timeout,
                       .on_forming = abort_by_link};
  LOCKSTEP_ASSIGN_OR_RETURN(
      membership.transport,
      transports->Create(group, [&](const std::optional<std::string>& mine) {
        return link->ExchangeEndpoint(epoch, mine, deadline - options.Now());
      }));
  abort_by_link(membership.transport.get());
  LOCKSTEP_RETURN_IF_ERROR(Allocate(membership));
  return link->AwaitStart({.epoch = epoch,
                           .plan_digest = membership.proposal.plan.Digest(),
                           .optimizer_bytes = membership.state_bytes()},
                          deadline - options.Now());
}

absl::Status AddLastAttempt(const absl::Status& status, const absl::Status& last_attempt) {
  if (last_attempt.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; before that: ",
                                                  last_attempt.message()));
}

}  // namespace

bool NextProposalMayHelp(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnavailable(status);
}

absl::StatusOr<std::unique_ptr<Membership>> JoinEpoch(
    const EngineOptions& options, const OptimizerConfig& optimizer, const Manifest& manifest,
    TransportFactory* transports, CoordinatorLink* link, std::int64_t step, MonoTime deadline) {
  const std::shared_ptr<DeviceMath> math =
      options.math != nullptr ? options.math : std::make_shared<HostMath>();
  Epoch last_epoch;
  absl::Status last_attempt;
  while (true) {
    absl::StatusOr<Proposal> proposal = link->AwaitProposal(deadline - options.Now());
    if (!proposal.ok()) return AddLastAttempt(proposal.status(), last_attempt);
    const Epoch epoch = proposal->epoch;
    if (epoch <= last_epoch) {
      return absl::InternalError(absl::StrCat("epoch ", epoch.value(), " was proposed after epoch ",
                                              last_epoch.value(), "; epochs must grow"));
    }
    last_epoch = epoch;
    LOCKSTEP_ASSIGN_OR_RETURN(
        Membership prepared,
        Prepare(options.worker, optimizer, manifest, math, *std::move(proposal)));
    auto membership = std::make_unique<Membership>(std::move(prepared));
    last_attempt = Form(*membership, options, deadline, transports, link);
    if (last_attempt.ok()) return membership;
    link->OnAbort(nullptr);
    if (membership->transport != nullptr) membership->transport->Abort(last_attempt);
    if (!NextProposalMayHelp(last_attempt)) return last_attempt;
    link->ReportStopped(epoch, step, last_attempt);
    LogInfo("epoch ", epoch.value(), " did not start (", last_attempt.message(),
            "); waiting for the next proposal");
  }
}

absl::StatusOr<ShardCopy> MakeCopy(int owner, const Membership& membership) {
  const ShardPlan& plan = membership.proposal.plan;
  LOCKSTEP_ASSIGN_OR_RETURN(ShardCopy copy,
                            MakeCopy(owner, membership.optimizer, membership.manifest, plan,
                                     membership.math.get()));
  LOCKSTEP_RETURN_IF_ERROR(
      PlaceCopy(plan, membership.blocks, /*in_place=*/false, membership.math.get(), copy));
  return copy;
}

absl::StatusOr<std::unique_ptr<Membership>> FormAlone(const OptimizerConfig& optimizer,
                                                      const SyncPolicy& policy,
                                                      const Manifest& manifest) {
  const std::string worker = "alone";
  LOCKSTEP_ASSIGN_OR_RETURN(ShardPlan plan, PlanShards(manifest, 1));
  LOCKSTEP_ASSIGN_OR_RETURN(
      Membership prepared,
      Prepare(worker, optimizer, manifest, std::make_shared<HostMath>(),
              {.epoch = Epoch(1), .members = {worker}, .plan = std::move(plan),
               .revision = Revision(1), .policy = policy}));
  auto membership = std::make_unique<Membership>(std::move(prepared));
  membership->transport = std::make_unique<SoloTransport>(worker);
  LOCKSTEP_RETURN_IF_ERROR(Allocate(*membership));
  return membership;
}

}  // namespace lockstep
