#include "coordinator/core/forming.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lockstep {

namespace {

// As Candidates::awaited.
std::vector<std::string> FindAwaited(const JobState& job, MonoTime now) {
  // Each part is kept by so many; without replicas a loss is one that nobody promised to avert.
  if (job.spec.optimizer_replicas < 2 || job.holders.size() < 2) return {};
  const auto spare = static_cast<std::size_t>(job.spec.optimizer_replicas - 1);
  std::size_t missing = 0;
  std::vector<std::string> awaited;
  for (const auto& [name, incarnation] : job.holders) {
    const auto it = job.workers.find(name);
    const bool is_known = it != job.workers.end() && it->second.incarnation == incarnation;
    if (is_known && it->second.stage == WorkerStage::kAttending &&
        !IsSilent(job, it->second, now)) {
      continue;
    }
    ++missing;
    if (is_known) awaited.push_back(name);
  }
  if (missing <= spare) awaited.clear();
  return awaited;
}

}  // namespace

EpochDecision DecideEpoch(const std::vector<std::string>& attending, const EpochRules& rules,
                          std::optional<MonoTime> window_end, MonoTime now) {
  const int count = static_cast<int>(attending.size());
  if (count < rules.min_workers) return {.hold = Hold::kTooFew};
  const MonoTime end = window_end.value_or(now + rules.join_window);
  if (count < rules.max_workers && now < end) {
    return {.hold = Hold::kJoinWindowOpen, .window_end = end};
  }
  const int taken = std::min(count, rules.max_workers);
  EpochDecision decision = {.members = {attending.begin(), attending.begin() + taken}};
  std::sort(decision.members.begin(), decision.members.end());
  return decision;
}

Candidates FindCandidates(const JobState& job, MonoTime now) {
  Candidates candidates;
  std::vector<std::string> others;
  bool may_come_back = false;
  for (const auto& [name, worker] : job.workers) {
    // After a start of the coordinator nothing is known of it yet.
    if (worker.is_survivor && worker.is_presumed) may_come_back = true;
    if (worker.stage != WorkerStage::kAttending) continue;
    if (!worker.is_survivor) {
      others.push_back(name);
    } else if (!IsSilent(job, worker, now)) {
      candidates.names.push_back(name);
    }
  }
  candidates.need_not_wait =
      !may_come_back && candidates.names.size() >= static_cast<std::size_t>(job.spec.min_workers);
  candidates.awaited = FindAwaited(job, now);
  candidates.names.insert(candidates.names.end(), others.begin(), others.end());
  return candidates;
}

std::optional<std::string> FindDisagreement(const std::vector<const WorkerState*>& workers,
                                            ModelComparison& models) {
  for (std::size_t i = 1; i < workers.size(); ++i) {
    const WorkerState& a = *workers.front();
    const WorkerState& b = *workers[i];
    if (auto difference = models.FirstDifference(a.name, a.manifest, b.name, b.manifest)) {
      return difference;
    }
    if (a.transport != b.transport) {
      return absl::StrCat("transport: '", a.transport, "' on ", a.name, ", '", b.transport,
                          "' on ", b.name);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
