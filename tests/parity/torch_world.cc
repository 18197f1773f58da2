#include "tests/parity/torch_world.h"

#include <cstddef>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/sharding/shard_plan.h"
#include "worker/engine/manual_link.h"
#include "worker/torch/guard.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"
#include "worker/torch/torch_math.h"

namespace lockstep {
namespace {

absl::Status TrainRank(const TorchWorldOptions& options, const std::vector<std::string>& members,
                       int rank, torch::nn::Module& module, EndpointBoard* board,
                       const std::function<absl::Status(int, Engine&)>& body) {
  ModuleModel model(TensorsOf(module), options.device);
  LOCKSTEP_ASSIGN_OR_RETURN(const Manifest manifest, model.Describe());
  LOCKSTEP_ASSIGN_OR_RETURN(ShardPlan plan,
                            PlanShards(manifest, static_cast<int>(members.size())));
  ManualLink link(board);
  link.Propose({.epoch = Epoch(1),
                .members = members,
                .plan = std::move(plan),
                .revision = Revision(1),
                .policy = options.policy,
                .ready_timeout = absl::Seconds(60)});
  EngineOptions engine_options = {.worker = members[rank]};
  if (!options.device.is_cpu()) {
    LOCKSTEP_ASSIGN_OR_RETURN(engine_options.math, MakeTorchMath(options.device));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                            Engine::Join(engine_options, options.optimizer, &model,
                                         options.transports.get(), &link));
  const absl::Status status = GuardTorch("training", [&] { return body(rank, *engine); });
  engine->Leave(status);
  return status;
}

}  // namespace

absl::Status TrainTogether(const TorchWorldOptions& options,
                           const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                           const std::function<absl::Status(int rank, Engine& engine)>& body) {
  std::vector<std::string> members;
  for (std::size_t rank = 0; rank < modules.size(); ++rank) {
    members.push_back("w" + std::to_string(rank));
  }
  EndpointBoard board;
  std::vector<absl::Status> statuses(modules.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < modules.size(); ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = TrainRank(options, members, static_cast<int>(rank), *modules[rank], &board,
                                 body);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) LOCKSTEP_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace lockstep
