#include "coordinator/store/metered_store.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/manual_clock.h"
#include "common/base/status_matchers.h"
#include "coordinator/store/memory_store.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Each append takes its time.
class SlowStore final : public Store {
 public:
  explicit SlowStore(ManualClock* clock) : clock_(clock) {}
  absl::StatusOr<std::vector<Record>> Load() override { return std::vector<Record>(); }
  absl::Status Append(std::span<const Record>) override {
    clock_->Advance(takes);
    return status;
  }
  absl::Duration takes;
  absl::Status status;

 private:
  ManualClock* const clock_;
};

Record Created(const std::string& job) {
  JobCreated created;
  created.spec.name = job;
  return created;
}

TEST(MeteredStore, CountsWhatHappensToEachJob) {
  ManualClock clock;
  MeteredStore store(std::make_unique<SlowStore>(&clock), &clock);
  const auto meter = store.meter();
  const std::vector<Record> records = {
      Created("a"),
      Created("b"),
      EpochStarted{.job = "a", .epoch = Epoch(1)},
      EpochEnded{.job = "a", .epoch = Epoch(1), .why = "lost"},
      EpochStarted{.job = "a", .epoch = Epoch(2)},
      EpochEnded{.job = "a", .epoch = Epoch(2), .why = "agreed", .regrouped = true},
      EpochEnded{.job = "a", .epoch = Epoch(3), .why = std::string(kAllMembersFinished)},
      EntryAppended{.job = "b"}};
  LOCKSTEP_EXPECT_OK(store.Append(records));
  EXPECT_EQ(meter().jobs.at("a").epochs_started, 2);
  EXPECT_EQ(meter().jobs.at("a").epochs_failed, 1);
  EXPECT_EQ(meter().jobs.at("a").epochs_regrouped, 1);
  EXPECT_EQ(meter().jobs.at("a").epochs_finished, 1);
  EXPECT_EQ(meter().jobs.at("b").entries, 1);
  LOCKSTEP_EXPECT_OK(store.Append(std::vector<Record>{JobDeleted{"a"}}));
  EXPECT_FALSE(meter().jobs.contains("a"));
}

TEST(MeteredStore, PutsAppendsInBuckets) {
  ManualClock clock;
  auto slow = std::make_unique<SlowStore>(&clock);
  SlowStore& inner = *slow;
  MeteredStore store(std::move(slow), &clock);
  for (const absl::Duration takes :
       {absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(2), absl::Seconds(60)}) {
    inner.takes = takes;
    LOCKSTEP_EXPECT_OK(store.Append(std::vector<Record>{Created("a")}));
  }
  const StoreMeter meter = store.meter()();
  EXPECT_EQ(meter.appends[0], 1) << "to half a millisecond";
  EXPECT_EQ(meter.appends[1], 1) << "to one";
  EXPECT_EQ(meter.appends[2], 1);
  EXPECT_EQ(meter.appends.back(), 1) << "beyond all bounds";
  EXPECT_NEAR(meter.append_seconds, 60.003, 1e-9);
}

TEST(MeteredStore, WhatWasNotStoredDidNotHappen) {
  ManualClock clock;
  auto slow = std::make_unique<SlowStore>(&clock);
  slow->status = absl::ResourceExhaustedError("full");
  MeteredStore store(std::move(slow), &clock);
  EXPECT_THAT(store.Append(std::vector<Record>{Created("a")}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(store.meter()().jobs.empty());
}

}  // namespace
}  // namespace lockstep
