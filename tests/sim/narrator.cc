#include "tests/sim/narrator.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/engine/forwarding_transport.h"

namespace lockstep::sim {
namespace {

class TellingTransport final : public ForwardingTransport {
 public:
  TellingTransport(const Telling* tells, Trace* trace, std::unique_ptr<Transport> transport)
      : ForwardingTransport(std::move(transport)), tells_(*tells), trace_(*trace) {}

  absl::Status Pass(std::span<const Passage> passages) override {
    std::map<std::pair<int, bool>, std::int64_t> bytes;  // by the rank that gets them; of sums
    for (const Passage& passage : passages) {
      const bool of_sums = absl::StartsWith(passage.view.spec.name, "the sums of ");
      if (passage.from == rank() && (tells_.steps || (tells_.state && !of_sums))) {
        bytes[{passage.to, of_sums}] += passage.view.bytes();
      }
    }
    for (const auto& [what, count] : bytes) {
      trace_.Say("rank ", rank(), " passes ", count, " bytes of ",
                 what.second ? "sums" : "state and parameters", " to rank ", what.first);
    }
    return ForwardingTransport::Pass(passages);
  }

 private:
  const Telling& tells_;
  Trace& trace_;
};

}  // namespace

std::string Sentence(StepPhase phase, std::int64_t step) {
  switch (phase) {
    case StepPhase::kForward:
      return absl::StrCat("begins step ", step);
    case StepPhase::kCollected:
      return absl::StrCat("has its gradients of step ", step);
    case StepPhase::kAgreed:
      return absl::StrCat("has agreed with all on step ", step);
    case StepPhase::kReducing:
      return absl::StrCat("sums the gradients of its shard in step ", step);
    case StepPhase::kPreparing:
      return absl::StrCat("has its sums of step ", step);
    case StepPhase::kPrepared:
      return absl::StrCat("has prepared step ", step, ": it could complete it alone");
    case StepPhase::kCommitted:
      return absl::StrCat("knows that all have prepared step ", step, ": it is committed");
    case StepPhase::kUpdating:
      return absl::StrCat("updates a copy in step ", step);
    case StepPhase::kSpreading:
      return absl::StrCat("has updated its copies, and spreads the parameters of step ", step);
    case StepPhase::kApplying:
      return absl::StrCat("has taken step ", step);
  }
  return "";
}

std::unique_ptr<Transport> TellPassages(const Telling* tells, Trace* trace,
                                        std::unique_ptr<Transport> transport) {
  return std::make_unique<TellingTransport>(tells, trace, std::move(transport));
}

}  // namespace lockstep::sim
