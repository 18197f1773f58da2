// Recovery in a small world without threads: processes train, crash, get stuck for some
// epochs and come back with what they held. The state of an element is a number that tells
// apart every history; what the processes really hold is compared with what is decided.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/prng.h"
#include "common/sharding/replicas.h"
#include "gtest/gtest.h"
#include "worker/core/recovery.h"
#include "worker/core/step_commit.h"

namespace lockstep {
namespace {

constexpr int kProcesses = 6;
constexpr int kMaxMembers = 5;
constexpr int kElements = 13;

using Way = Recovery::Way;
using State = std::pair<Epoch, std::int64_t>;  // lineage and step
using Values = std::map<std::int64_t, std::uint64_t>;  // by element

// What a step that `epoch` tries makes of an element. Another epoch has other batches.
std::uint64_t Next(std::uint64_t value, Epoch epoch, std::int64_t step, std::int64_t element) {
  return Prng(value ^ (static_cast<std::uint64_t>(epoch.value()) << 40 |
                       static_cast<std::uint64_t>(step) << 16 |
                       static_cast<std::uint64_t>(element)))
      .Next();
}

std::int64_t Samples(Epoch epoch, std::int64_t step) { return 1 + (epoch.value() * 7 + step) % 5; }

struct Process {
  StepCommit commit;
  std::vector<Shard> copies;
  Values values;  // of the elements of `copies`; of no step in the middle of an update
  std::optional<Epoch> gradient;  // it holds the sums of the next step, as tried there
};

class World {
 public:
  explicit World(std::uint64_t seed)
      : prng_(seed), replicas_(static_cast<int>(prng_.Between(1, 2))), processes_(kProcesses) {}

  // One epoch, from its members' holdings to what they hold when it is over. False: a check
  // has failed.
  bool Live() {
    epoch_ = epoch_.next();
    ChooseMembers();
    const std::vector<std::vector<Shard>> copies = CopiesOf(Plan(), replicas_);
    const std::vector<Holding> holdings = Holdings();
    const Recovery recovery = DecideRecovery(holdings, copies);
    CheckAllDecide(holdings, copies, recovery);
    CheckNothingIsTakenBack(recovery);
    if (testing::Test::HasFailure()) return false;

    ++ways_[recovery.way];
    if (recovery.way == Way::kContinue) {
      if (Continue(recovery, copies)) Train();
    } else {
      std::int64_t step = 0;
      if (recovery.way == Way::kRestore) {
        CheckIsLost(recovery, copies);
        step = prng_.Between(1, recovery.step);  // of the checkpoint
      } else {
        CheckNobodyHasTakenAStep();
      }
      if (Begin(step, copies)) Train();
    }
    CheckValues();
    return !testing::Test::HasFailure();
  }

  // How often what is to be tested has been there.
  const std::map<Way, int>& ways() const { return ways_; }
  int completed() const { return completed_; }
  int cut_short() const { return cut_short_; }
  int vouched() const { return vouched_; }
  int torn() const { return torn_; }

 private:
  bool OneIn(int n) { return prng_.Below(n) == 0; }
  Process& At(std::size_t rank) { return processes_[members_[rank]]; }

  // Mostly those of the epoch before, less one, and some others.
  void ChooseMembers() {
    for (Process& process : processes_) {
      if (OneIn(12)) process = {};
    }
    std::vector<int> members = members_;
    if (OneIn(4)) members.clear();
    if (!members.empty() && !OneIn(3)) {
      const std::int64_t left = members[prng_.Below(members.size())];
      if (OneIn(2)) processes_[left] = {};
      std::erase(members, left);
    }
    for (int p = 0; p < kProcesses; ++p) {
      if (!std::ranges::count(members, p) && OneIn(4)) members.push_back(p);
    }
    if (members.empty()) members.push_back(static_cast<int>(prng_.Below(kProcesses)));
    while (members.size() > kMaxMembers) members.erase(members.begin());
    std::ranges::sort(members);
    members_ = members;
  }

  ShardPlan Plan() {
    ShardPlan plan;
    const std::int64_t n = static_cast<std::int64_t>(members_.size());
    for (std::int64_t r = 0; r < n; ++r) {
      plan.shards.push_back({kElements * r / n, kElements * (r + 1) / n});
    }
    return plan;
  }

  std::vector<Holding> Holdings() {
    std::vector<Holding> holdings;
    for (const int p : members_) holdings.push_back(processes_[p].commit.holding());
    return holdings;
  }

  // Every rank has the same answer, and the order of ranks does not matter to what it is.
  void CheckAllDecide(const std::vector<Holding>& holdings,
                      const std::vector<std::vector<Shard>>& copies, const Recovery& expected) {
    for (std::size_t r = 0; r < holdings.size(); ++r) {
      std::vector<Holding> received(holdings.size());
      std::memcpy(received.data(), holdings.data(), holdings.size() * sizeof(Holding));
      const Recovery own = DecideRecovery(received, copies);
      EXPECT_EQ(own.way, expected.way);
      EXPECT_EQ(own.moves, expected.moves);
      EXPECT_EQ(own.completes, expected.completes);
      EXPECT_EQ(own.samples, expected.samples);
    }
    const std::vector<Holding> reversed(holdings.rbegin(), holdings.rend());
    const Recovery other = DecideRecovery(reversed, copies);
    EXPECT_EQ(other.way, expected.way);
    EXPECT_EQ(other.lineage, expected.lineage);
    EXPECT_EQ(other.step, expected.step);
    EXPECT_EQ(other.samples, expected.samples);
  }

  // With two replicas a step that a rank has seen committed outlives any one rank.
  void CheckNothingIsTakenBack(const Recovery& recovery) {
    if (replicas_ < 2 || !seen_ || ran_.size() < 2) return;
    int lost = 0;
    for (const int p : ran_) {
      const bool there = std::ranges::count(members_, p) > 0;
      const Holding held = processes_[p].commit.holding();
      const bool torn = processes_[p].commit.stage() == StepCommit::Stage::kUpdating;
      if (!there || torn || held.epoch != ran_in_ || gone_.contains(p)) ++lost;
    }
    if (lost > 1) return;
    ++vouched_;
    if (seen_->second == 0) return;
    EXPECT_EQ(recovery.way, Way::kContinue);
    EXPECT_GE(recovery.step, seen_->second);
    EXPECT_GE(recovery.lineage, seen_->first);
  }

  // What the process has, or can have without others, of an element behind that state.
  bool HasOrCanHave(const Process& process, std::int64_t element, const State& state) {
    const auto value = process.values.find(element);
    if (value == process.values.end()) return false;
    if (process.commit.stage() == StepCommit::Stage::kUpdating) return false;
    const std::uint64_t wanted = history_.at(state)[element];
    if (value->second == wanted) return true;
    return process.gradient && replicas_ > 1 &&
           Next(value->second, *process.gradient, process.commit.step() + 1, element) == wanted;
  }

  void CheckIsLost(const Recovery& recovery, const std::vector<std::vector<Shard>>& copies) {
    EXPECT_LT(recovery.lost.begin, recovery.lost.end);
    const State state = {recovery.lineage, recovery.step};
    ASSERT_TRUE(history_.contains(state));
    std::vector<bool> held(kElements);
    for (std::int64_t e = 0; e < kElements; ++e) {
      for (const int p : members_) held[e] = held[e] || HasOrCanHave(processes_[p], e, state);
    }
    std::int64_t first = -1;  // in the order in which copies are filled
    for (const std::vector<Shard>& wanted : copies) {
      for (const Shard& copy : wanted) {
        for (std::int64_t e = copy.begin; e < copy.end; ++e) {
          if (first < 0 && !held[e]) first = e;
        }
      }
    }
    EXPECT_EQ(first, recovery.lost.begin);
    for (std::int64_t e = recovery.lost.begin; e < recovery.lost.end; ++e) {
      EXPECT_FALSE(held[e]) << "element " << e;
    }
  }

  void CheckNobodyHasTakenAStep() {
    for (const int p : members_) EXPECT_EQ(processes_[p].commit.holding().step, 0);
  }

  // From the model's own values, or from a checkpoint.
  bool Begin(std::int64_t step, const std::vector<std::vector<Shard>>& copies) {
    std::vector<std::uint64_t>& values = history_[{epoch_, step}];
    for (std::int64_t e = 0; e < kElements; ++e) values.push_back(Next(0, epoch_, step, e));
    samples_[{epoch_, step}] = step;
    return TakeOver({epoch_, step}, copies, std::vector<Values>(members_.size(), Every(values)));
  }

  static Values Every(const std::vector<std::uint64_t>& values) {
    Values all;
    for (std::int64_t e = 0; e < kElements; ++e) all[e] = values[e];
    return all;
  }

  // False: the epoch ends before it has begun.
  bool Continue(const Recovery& recovery, const std::vector<std::vector<Shard>>& copies) {
    const State state = {recovery.lineage, recovery.step};
    EXPECT_TRUE(history_.contains(state));
    if (!history_.contains(state)) return false;
    const std::vector<std::uint64_t>& truth = history_.at(state);
    EXPECT_EQ(recovery.samples, samples_.at(state));

    const int fails = OneIn(6) ? static_cast<int>(prng_.Below(members_.size())) : -1;
    for (const std::size_t r : Shuffled()) {
      if (!recovery.completes[r]) continue;
      ++completed_;
      // Who is not there does not complete it, and what it holds is worth nothing from now on.
      for (const int p : ran_) {
        if (!std::ranges::count(members_, p)) gone_.insert(p);
      }
      if (fails == static_cast<int>(r)) {
        ++cut_short_;
        if (OneIn(3)) Tear(At(r));
        return false;
      }
      Update(At(r));
    }
    std::vector<Values> filled(members_.size());
    for (const Move& move : recovery.moves) {
      for (std::int64_t e = move.elements.begin; e < move.elements.end; ++e) {
        int from = move.to;
        if (!Has(from, e, truth)) {
          from = 0;
          while (from < static_cast<int>(members_.size()) && !Has(from, e, truth)) ++from;
        }
        EXPECT_EQ(move.from, from) << "element " << e << " of rank " << move.to;
        if (!At(move.from).values.contains(e)) return false;
        EXPECT_EQ(At(move.from).values.at(e), truth[e]) << "element " << e << " of " << move.from;
        EXPECT_TRUE(filled[move.to].emplace(e, truth[e]).second) << "element " << e << " twice";
      }
    }
    for (std::size_t r = 0; r < members_.size(); ++r) {
      std::size_t wanted = 0;
      for (const Shard& copy : copies[r]) wanted += static_cast<std::size_t>(copy.elements());
      EXPECT_EQ(filled[r].size(), wanted);
    }
    return TakeOver(state, copies, filled);
  }

  bool Has(int rank, std::int64_t element, const std::vector<std::uint64_t>& truth) {
    const auto found = At(rank).values.find(element);
    return found != At(rank).values.end() && found->second == truth[element] &&
           At(rank).commit.stage() != StepCommit::Stage::kUpdating;
  }

  // False: some have, and then the epoch ends.
  bool TakeOver(const State& state, const std::vector<std::vector<Shard>>& copies,
                const std::vector<Values>& values) {
    std::size_t left = OneIn(6) ? prng_.Below(members_.size()) : members_.size();
    seen_.reset();
    gone_.clear();
    for (const std::size_t r : Shuffled()) {
      if (left-- == 0) {
        ++cut_short_;
        return false;
      }
      Process& process = At(r);
      process = {.commit = StepCommit(state.first, epoch_, state.second, samples_.at(state),
                                      copies[r]),
                 .copies = copies[r]};
      for (const Shard& copy : copies[r]) {
        for (std::int64_t e = copy.begin; e < copy.end; ++e) {
          EXPECT_TRUE(values[r].contains(e)) << "rank " << r << " lacks element " << e;
          if (values[r].contains(e)) process.values[e] = values[r].at(e);
        }
      }
    }
    ran_ = members_;
    ran_in_ = epoch_;
    seen_ = state;
    return true;
  }

  // Some whole steps, and one in which ranks stop anywhere.
  void Train() {
    for (std::int64_t n = prng_.Between(0, 2); n > 0; --n) {
      Try();
      for (const std::size_t r : Shuffled()) Prepare(At(r));
      for (const std::size_t r : Shuffled()) Update(At(r));
    }
    Try();
    std::size_t prepared = 0;
    for (const std::size_t r : Shuffled()) {
      if (OneIn(6)) continue;
      Prepare(At(r));
      ++prepared;
    }
    if (prepared < members_.size()) return;
    for (const std::size_t r : Shuffled()) {
      if (OneIn(2)) continue;
      if (OneIn(6)) {
        Tear(At(r));
      } else {
        Update(At(r));
      }
    }
  }

  // The step behind the newest, as this epoch takes it.
  void Try() {
    tried_ = {epoch_, seen_->second + 1};
    const std::vector<std::uint64_t> before = history_.at(*seen_);
    std::vector<std::uint64_t>& after = history_[tried_];
    for (std::int64_t e = 0; e < kElements; ++e) {
      after.push_back(Next(before[e], epoch_, tried_.second, e));
    }
    samples_[tried_] = samples_.at(*seen_) + Samples(epoch_, tried_.second);
  }

  void Prepare(Process& process) {
    process.gradient = epoch_;
    if (replicas_ > 1) process.commit.Prepared(Samples(epoch_, process.commit.step() + 1));
  }

  void BeginUpdate(Process& process) {
    // A recovery that completes a step has shown it to nobody.
    if (*process.gradient == epoch_) seen_ = tried_;
    if (process.commit.stage() == StepCommit::Stage::kPrepared) return process.commit.BeginUpdate();
    process.commit.BeginUpdate(Samples(*process.gradient, process.commit.step() + 1));
  }

  void Tear(Process& process) {
    ++torn_;
    BeginUpdate(process);
    if (!process.values.empty()) process.values.begin()->second = 0;
  }

  void Update(Process& process) {
    BeginUpdate(process);
    const Epoch epoch = *process.gradient;
    process.commit.Updated();
    for (auto& [e, value] : process.values) value = Next(value, epoch, process.commit.step(), e);
    process.gradient.reset();
  }

  // Copies of one lineage and step are equal, in all processes and for all time.
  void CheckValues() {
    for (const Process& process : processes_) {
      const Holding held = process.commit.holding();
      if (!held.lineage.valid() || process.commit.stage() == StepCommit::Stage::kUpdating) continue;
      for (const auto& [e, value] : process.values) {
        const auto [known, is_new] =
            known_.try_emplace({{held.lineage, held.step}, e}, value);
        EXPECT_EQ(known->second, value)
            << "two values of element " << e << " behind step " << held.step;
      }
    }
  }

  std::vector<std::size_t> Shuffled() {
    std::vector<std::size_t> order(members_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      std::swap(order[i], order[prng_.Below(i + 1)]);
    }
    return order;
  }

  Prng prng_;
  int replicas_;
  std::vector<Process> processes_;
  Epoch epoch_;
  std::vector<int> members_;  // processes by rank
  // By the epoch that tried the step, or began with it.
  std::map<State, std::vector<std::uint64_t>> history_;
  std::map<State, std::int64_t> samples_;
  std::map<std::pair<State, std::int64_t>, std::uint64_t> known_;
  // The last epoch that trained, if no rank has taken over another's copies since, and the
  // newest state that one of its ranks has seen committed.
  std::vector<int> ran_;
  Epoch ran_in_;
  std::set<int> gone_;  // of those
  std::optional<State> seen_;
  State tried_;
  std::map<Way, int> ways_;
  int completed_ = 0, cut_short_ = 0, vouched_ = 0, torn_ = 0;
};

TEST(RecoveryProperty, NoCommittedStepIsLostAndNoStateIsMixedWhoeverCrashesAndComesBack) {
  std::map<Way, int> ways;
  int completed = 0, cut_short = 0, vouched = 0, torn = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    World world(seed);
    for (int epoch = 0; epoch < 12; ++epoch) {
      ASSERT_TRUE(world.Live()) << "seed " << seed << ", epoch " << epoch + 1;
    }
    for (const auto& [way, times] : world.ways()) ways[way] += times;
    completed += world.completed();
    cut_short += world.cut_short();
    vouched += world.vouched();
    torn += world.torn();
  }
  // What has not been there has not been tested.
  EXPECT_GT(ways[Way::kStartAnew], 1000);
  EXPECT_GT(ways[Way::kContinue], 10000);
  EXPECT_GT(ways[Way::kRestore], 1000);
  EXPECT_GT(completed, 1000);
  EXPECT_GT(cut_short, 1000);
  EXPECT_GT(vouched, 1000);
  EXPECT_GT(torn, 100);
}

}  // namespace
}  // namespace lockstep
