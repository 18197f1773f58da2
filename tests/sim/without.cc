#include "tests/sim/without.h"

#include <utility>
#include <variant>
#include <vector>

#include "worker/engine/forwarding_transport.h"

namespace lockstep::sim {
namespace {

// What begins an epoch is left alone: from the first agreement on its rules are broken.
class Weakened final : public ForwardingTransport {
 public:
  Weakened(Without without, std::unique_ptr<Transport> base)
      : ForwardingTransport(std::move(base)), without_(without) {}

  absl::StatusOr<Agreement> Agree(const ControlWord& mine) override {
    trains_ = true;
    absl::StatusOr<Agreement> agreement = ForwardingTransport::Agree(mine);
    if (agreement.ok() && without_ == Without::kAgreement) {
      agreement->log_number = LogNumber(mine.log_number);
    }
    return agreement;
  }

  absl::Status Exchange(std::span<const Transfer> transfers) override {
    if (trains_ && without_ == Without::kCommitPoint && transfers.empty()) return absl::OkStatus();
    return ForwardingTransport::Exchange(transfers);
  }

  absl::Status Pass(std::span<const Passage> passages) override {
    if (!trains_ || without_ != Without::kBuddy) return ForwardingTransport::Pass(passages);
    std::vector<Passage> elsewhere(passages.begin(), passages.end());
    std::vector<std::vector<std::byte>> unread;
    for (Passage& passage : elsewhere) {
      if (passage.to != rank()) continue;
      unread.emplace_back(passage.view.bytes());
      passage.view.data = unread.back().data();
    }
    return ForwardingTransport::Pass(elsewhere);
  }

 private:
  const Without without_;
  bool trains_ = false;
};

}  // namespace

std::unique_ptr<Transport> Weaken(Without without, std::unique_ptr<Transport> transport) {
  if (without == Without::kNothing || without == Without::kFencing) return transport;
  return std::make_unique<Weakened>(without, std::move(transport));
}

void TakeForCurrent(const ClusterState& state, WorkerMessage& message) {
  if (state.jobs.empty() || !state.jobs.begin()->second.epoch.has_value()) return;
  const Epoch current = state.jobs.begin()->second.epoch->id;
  std::visit(
      [&](auto& said) {
        if constexpr (requires { said.epoch; }) {
          if (said.epoch.valid()) said.epoch = current;
        }
      },
      message);
}

}  // namespace lockstep::sim
