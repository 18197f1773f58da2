#include "worker/core/recovery.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// The ranks of the newest lineage.
std::vector<int> Heirs(std::span<const Holding> holdings) {
  Epoch lineage;
  for (const Holding& each : holdings) {
    lineage = std::max(lineage, each.lineage);
  }
  std::vector<int> heirs;
  for (std::size_t r = 0; lineage.valid() && r < holdings.size(); ++r) {
    if (holdings[r].lineage == lineage) heirs.push_back(static_cast<int>(r));
  }
  return heirs;
}

// Whether step + 1 of the newest of them is completed.
bool IsCompleted(std::span<const Holding> holdings, const std::vector<int>& heirs,
                 std::int64_t newest) {
  Epoch attempt;
  for (const int r : heirs) {
    if (holdings[r].step == newest && holdings[r].prepared) {
      attempt = std::max(attempt, holdings[r].epoch);
    }
  }
  if (!attempt.valid()) return false;
  return std::ranges::all_of(heirs, [&](int r) {
    // Others were not of that epoch, or stopped before: it was tried without them.
    return holdings[r].epoch != attempt || holdings[r].prepared;
  });
}

bool Holds(const Holding& holding, std::int64_t element) {
  return std::ranges::any_of(holding.copies, [&](const Shard& copy) {
    return copy.begin <= element && element < copy.end;
  });
}

std::int64_t EndOfCopy(const Holding& holding, std::int64_t element) {
  std::int64_t end = element;
  for (const Shard& copy : holding.copies) {
    if (copy.begin <= element && element < copy.end) end = std::max(end, copy.end);
  }
  return end;
}

}  // namespace

int BuddyOf(int owner, int world_size, int optimizer_replicas) {
  if (optimizer_replicas < 2 || world_size < 2) return -1;
  return (owner + 1) % world_size;
}

std::vector<std::vector<Shard>> CopiesOf(const ShardPlan& plan, int optimizer_replicas) {
  const int world_size = static_cast<int>(plan.shards.size());
  std::vector<std::vector<Shard>> copies(world_size);
  for (int owner = 0; owner < world_size; ++owner) copies[owner].push_back(plan.shards[owner]);
  for (int owner = 0; owner < world_size; ++owner) {
    const int buddy = BuddyOf(owner, world_size, optimizer_replicas);
    if (buddy >= 0) copies[buddy].push_back(plan.shards[owner]);
  }
  return copies;
}

int Recovery::FirstSurvivor() const {
  return static_cast<int>(std::ranges::find(survives, true) - survives.begin());
}

Recovery DecideRecovery(std::span<const Holding> holdings,
                        std::span<const std::vector<Shard>> copies) {
  const std::vector<int> heirs = Heirs(holdings);
  if (heirs.empty()) return {.way = Recovery::Way::kStartAnew};

  Recovery recovery = {.way = Recovery::Way::kContinue,
                       .completes = std::vector<bool>(holdings.size()),
                       .survives = std::vector<bool>(holdings.size())};
  std::int64_t newest = 0;
  for (const int r : heirs) newest = std::max(newest, holdings[r].step);
  recovery.lineage = holdings[heirs[0]].lineage;
  recovery.step = IsCompleted(holdings, heirs, newest) ? newest + 1 : newest;
  // What the model starts with is not lost.
  if (recovery.step == 0) return {.way = Recovery::Way::kStartAnew};
  // Those that are behind step - 1, or did not prepare the step, are of no use.
  Epoch attempt;
  for (const int r : heirs) {
    const Holding& held = holdings[r];
    if (held.step + 1 == recovery.step && held.prepared) attempt = std::max(attempt, held.epoch);
  }
  for (const int r : heirs) {
    const Holding& held = holdings[r];
    recovery.completes[r] =
        held.step + 1 == recovery.step && held.prepared && held.epoch == attempt;
    recovery.survives[r] = held.step == recovery.step || recovery.completes[r];
    if (recovery.survives[r]) {
      recovery.samples = recovery.completes[r] ? held.prepared_samples : held.samples;
      recovery.learning_rate = held.learning_rate;
    }
  }

  for (std::size_t to = 0; to < copies.size(); ++to) {
    for (const Shard& copy : copies[to]) {
      for (std::int64_t at = copy.begin; at < copy.end;) {
        std::optional<int> from;
        if (recovery.survives[to] && Holds(holdings[to], at)) from = static_cast<int>(to);
        for (const int r : heirs) {
          if (!from && recovery.survives[r] && Holds(holdings[r], at)) from = r;
        }
        if (!from) {
          std::int64_t end = copy.end;
          for (const int r : heirs) {
            for (const Shard& held : holdings[r].copies) {
              if (recovery.survives[r] && held.begin > at && held.begin < held.end) {
                end = std::min(end, held.begin);
              }
            }
          }
          return {.way = Recovery::Way::kRestore, .step = recovery.step, .lost = {at, end}};
        }
        std::int64_t end = std::min(copy.end, EndOfCopy(holdings[*from], at));
        // As soon as it has some itself.
        if (*from != static_cast<int>(to) && recovery.survives[to]) {
          for (const Shard& own : holdings[to].copies) {
            if (own.begin > at && own.begin < own.end) end = std::min(end, own.begin);
          }
        }
        recovery.moves.push_back({*from, static_cast<int>(to), {at, end}});
        at = end;
      }
    }
  }
  return recovery;
}

std::string Describe(const Recovery& recovery, const std::vector<std::string>& members) {
  switch (recovery.way) {
    case Recovery::Way::kStartAnew:
      return "starts anew";
    case Recovery::Way::kRestore:
      return absl::StrCat("cannot continue behind step ", recovery.step,
                          ": nobody holds the optimizer state of elements ", recovery.lost.begin,
                          " to ", recovery.lost.end);
    case Recovery::Way::kContinue:
      break;
  }
  std::vector<std::string> from, fresh;
  for (std::size_t r = 0; r < members.size(); ++r) {
    (recovery.survives[r] ? from : fresh).push_back(members[r]);
  }
  std::string text =
      absl::StrCat("continues behind step ", recovery.step, " with the state of ", ListNames(from));
  if (std::ranges::count(recovery.completes, true) > 0) absl::StrAppend(&text, ", who complete it");
  if (!fresh.empty()) absl::StrAppend(&text, "; new: ", ListNames(fresh));
  return text;
}

}  // namespace lockstep
