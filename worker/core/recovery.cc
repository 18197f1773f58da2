#include "worker/core/recovery.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// All copies of an element that are of one state are equal.
struct State {
  Epoch lineage;
  std::int64_t step = 0;

  auto operator<=>(const State&) const = default;
};

State StateOf(const Holding& holding) { return {holding.lineage, holding.step}; }

// Whether it takes this rank to `state` to complete its prepared step.
bool Completes(const Holding& holding, const State& state) {
  return holding.prepared && State{holding.epoch, holding.step + 1} == state;
}

// Of step 0: nobody has taken a step.
State StateToContinue(std::span<const Holding> holdings) {
  std::set<Epoch, std::greater<>> epochs;
  for (const Holding& each : holdings) {
    if (each.lineage.valid()) epochs.insert(each.epoch);
  }
  for (const Epoch epoch : epochs) {
    State newest;
    bool all_prepared = true;
    for (const Holding& each : holdings) {
      if (each.epoch != epoch || !each.lineage.valid()) continue;
      newest = std::max(newest, StateOf(each));
      all_prepared = all_prepared && each.prepared;
    }
    const State state = all_prepared ? State{epoch, newest.step + 1} : newest;
    // Else they hold what the model starts with, which is not worth the steps of others; but
    // a first step that was only prepared before they began was taken back by them.
    const bool is_taken = newest.step > 0 || epoch == *epochs.begin();
    if (state.step > 0 && is_taken) return state;
  }
  return {};
}

bool Holds(const Holding& holding, std::int64_t element) {
  return std::ranges::any_of(holding.copies, [&](const Shard& copy) {
    return copy.begin <= element && element < copy.end;
  });
}

bool HoldsInOneCopy(const Holding& holding, const Shard& elements) {
  return std::ranges::any_of(holding.copies, [&](const Shard& copy) {
    return copy.begin <= elements.begin && elements.end <= copy.end;
  });
}

// Where copies of `ranks` begin or end, sorted: between two of these the same ranks hold one.
std::vector<std::int64_t> Cuts(std::span<const Holding> holdings, const std::vector<int>& ranks) {
  std::vector<std::int64_t> cuts;
  for (const int r : ranks) {
    for (const Shard& copy : holdings[r].copies) {
      if (copy.elements() > 0) cuts.insert(cuts.end(), {copy.begin, copy.end});
    }
  }
  std::ranges::sort(cuts);
  return cuts;
}

}  // namespace

int Recovery::FirstSurvivor() const {
  return static_cast<int>(std::ranges::find(survives, true) - survives.begin());
}

Recovery DecideRecovery(std::span<const Holding> holdings,
                        std::span<const std::vector<Shard>> copies, Epoch missed) {
  const State state = StateToContinue(holdings);
  if (state.step == 0) return {.way = Recovery::Way::kStartAnew, .missed = missed};
  if (missed.valid()) {
    return {.way = Recovery::Way::kRestore,
            .lineage = state.lineage,
            .step = state.step,
            .missed = missed};
  }

  Recovery recovery = {.way = Recovery::Way::kContinue,
                       .lineage = state.lineage,
                       .step = state.step,
                       .completes = std::vector<bool>(holdings.size()),
                       .survives = std::vector<bool>(holdings.size())};
  std::vector<int> heirs;
  for (std::size_t r = 0; r < holdings.size(); ++r) {
    const Holding& held = holdings[r];
    recovery.completes[r] = Completes(held, state);
    // Who holds no copy was in the middle of an update: nothing of it is of that state.
    const bool holds_any = std::ranges::any_of(
        held.copies, [](const Shard& copy) { return copy.elements() > 0; });
    recovery.survives[r] = holds_any && (recovery.completes[r] || StateOf(held) == state);
    if (!recovery.survives[r]) continue;
    heirs.push_back(static_cast<int>(r));
    recovery.samples = recovery.completes[r] ? held.prepared_samples : held.samples;
    recovery.learning_rate = held.learning_rate;
  }

  const std::vector<std::int64_t> cuts = Cuts(holdings, heirs);
  for (std::size_t to = 0; to < copies.size(); ++to) {
    for (const Shard& copy : copies[to]) {
      const std::size_t first = recovery.moves.size();
      for (std::int64_t at = copy.begin, end; at < copy.end; at = end) {
        const auto cut = std::ranges::upper_bound(cuts, at);
        end = cut == cuts.end() ? copy.end : std::min(*cut, copy.end);
        const bool local = recovery.survives[to] && Holds(holdings[to], at);
        const auto heir =
            std::ranges::find_if(heirs, [&](int r) { return Holds(holdings[r], at); });
        if (heir == heirs.end()) {
          return {.way = Recovery::Way::kRestore,
                  .lineage = state.lineage,
                  .step = state.step,
                  .lost = {at, end}};
        }
        const int from = local ? static_cast<int>(to) : *heir;
        if (recovery.moves.size() > first && recovery.moves.back().from == from &&
            HoldsInOneCopy(holdings[from], {recovery.moves.back().elements.begin, end})) {
          recovery.moves.back().elements.end = end;
        } else {
          recovery.moves.push_back({from, static_cast<int>(to), {at, end}});
        }
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
      if (recovery.missed.valid()) {
        return absl::StrCat("cannot continue behind step ", recovery.step, ": the job went on in ",
                            "epoch ", recovery.missed.value(), ", of which no member is here");
      }
      return absl::StrCat("cannot continue behind step ", recovery.step,
                          ": nobody holds the optimizer state of elements ", recovery.lost.begin,
                          " to ", recovery.lost.end);
    case Recovery::Way::kContinue:
      break;
  }
  std::vector<std::string> from, fresh, completing;
  for (std::size_t r = 0; r < members.size(); ++r) {
    (recovery.survives[r] ? from : fresh).push_back(members[r]);
    if (recovery.completes[r]) completing.push_back(members[r]);
  }
  std::string text =
      absl::StrCat("continues behind step ", recovery.step, " with the state of ", ListNames(from));
  if (!completing.empty()) {
    absl::StrAppend(&text, "; completed first by ", ListNames(completing));
  }
  if (!fresh.empty()) absl::StrAppend(&text, "; new: ", ListNames(fresh));
  return text;
}

}  // namespace lockstep
