#include "tests/bench/joined_rank.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "worker/agent/grpc_link.h"
#include "worker/agent/incarnation.h"
#include "worker/torch/module_model.h"
#include "worker/torch/named_tensors.h"
#include "worker/transport/gloo/gloo_transport.h"
#include "worker/transport/shm/shm_transport.h"

namespace lockstep {
namespace {

constexpr absl::Duration kJoinTimeout = absl::Seconds(60);

std::unique_ptr<TransportFactory> FactoryOf(const std::string& transport) {
  if (transport == "gloo") return std::make_unique<GlooFactory>(GlooOptions{.interface = "lo"});
  return std::make_unique<ShmFactory>();
}

}  // namespace

std::string RankName(int rank) { return absl::StrFormat("rank-%02d", rank); }

absl::StatusOr<std::unique_ptr<JoinedRank>> JoinedRank::Join(const RankConfig& config,
                                                             torch::nn::Module& module) {
  const OptimizerConfig optimizer = AdamW{};
  LOCKSTEP_ASSIGN_OR_RETURN(Manifest manifest, ModuleModel(TensorsOf(module)).Describe());
  manifest.optimizer = Describe(optimizer);
  const SessionOptions options = {.coordinator = config.coordinator,
                                  .job = config.job,
                                  .worker = RankName(config.rank),
                                  .transport = config.transport,
                                  .join_timeout = kJoinTimeout};
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<CoordinatorLink> link,
      ConnectToCoordinator({.address = options.coordinator, .connect_timeout = kJoinTimeout},
                           {.job = options.job,
                            .worker = options.worker,
                            .incarnation = NewIncarnation(),
                            .manifest = std::move(manifest),
                            .transport = options.transport}));
  std::unique_ptr<JoinedRank> joined(new JoinedRank());
  joined->factory_ = FactoryOf(config.transport);
  auto timed = std::make_shared<WrappingFactory>(
      joined->factory_.get(), [joined = joined.get()](std::unique_ptr<Transport> base) {
        auto transport = std::make_unique<TimedTransport>(std::move(base));
        joined->transport_ = transport.get();
        return transport;
      });
  LOCKSTEP_ASSIGN_OR_RETURN(
      joined->session_,
      Session::JoinBy(std::move(link), std::move(timed), options, module, optimizer));
  return joined;
}

}  // namespace lockstep
