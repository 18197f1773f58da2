#include "tests/reports/world.h"

#include <cstddef>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/sharding/shard_plan.h"
#include "worker/engine/manual_link.h"
#include "worker/torch/guard.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"
#include "worker/transport/in_process/in_process_transport.h"

namespace lockstep {
namespace {

absl::Status RunRank(const World& world, const std::shared_ptr<TransportFactory>& transports,
                     const std::vector<std::string>& members, int rank, torch::nn::Module& module,
                     EndpointBoard* board, const std::function<absl::Status(Session&)>& body) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, ModuleModel(TensorsOf(module)).Describe());
  LOCKSTEP_ASSIGN_OR_RETURN(ShardPlan plan,
                            PlanShards(manifest, static_cast<int>(members.size())));
  const auto own_policy = world.policy_of.find(rank);
  auto link = std::make_unique<ManualLink>(board);
  link->Propose(
      {.epoch = Epoch(1),
       .members = members,
       .plan = std::move(plan),
       .revision = Revision(1),
       .policy = own_policy == world.policy_of.end() ? world.policy : own_policy->second,
       .ready_timeout = absl::Seconds(60)});
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::JoinBy(std::move(link), transports,
                      {.worker = members[rank], .operation_timeout = world.operation_timeout},
                      module, world.optimizer));
  const absl::Status status = GuardTorch("the test", [&] { return body(*session); });
  session->Leave(status);
  return status;
}

}  // namespace

std::vector<absl::Status> RunModules(
    const World& world, const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const std::function<absl::Status(Session& session)>& body) {
  const std::shared_ptr<TransportFactory> transports =
      world.transports != nullptr ? world.transports : std::make_shared<InProcessFactory>();
  std::vector<std::string> members;
  for (std::size_t rank = 0; rank < modules.size(); ++rank) {
    members.push_back(absl::StrCat("w", rank));
  }
  EndpointBoard board;
  std::vector<absl::Status> statuses(modules.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < modules.size(); ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = RunRank(world, transports, members, static_cast<int>(rank), *modules[rank],
                               &board, body);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status FirstError(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) LOCKSTEP_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

SyncPolicy OnCommandOnly() {
  return {.schedule = {.at_start = false, .every_forwards = 0},
          .broadcast_parameters_at_start = false};
}

}  // namespace lockstep
