// Records that no coordinator wrote: the fold refuses them, and nothing has changed.
#include "coordinator/core/fold.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/durable_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();

JobSpec Spec() {
  JobSpec spec;
  spec.name = "j";
  spec.min_workers = 2;
  spec.workers = {"w0", "w1", "w2"};
  return spec;
}

// Job j, whose epoch 1 runs on w0 and w1.
std::vector<Record> Running() {
  Manifest manifest;
  manifest.parameters = {{{"w", DType::kFloat32, {80}}, true}};
  return {GenerationStarted{Generation(1)},
          JobCreated{Spec(), absl::UnixEpoch()},
          ManifestAgreed{"j", manifest},
          EpochProposed{"j", Epoch(1), {{"w0", Incarnation(1)}, {"w1", Incarnation(1)}}},
          EpochStarted{"j", Epoch(1)}};
}

// The first entry of the log.
Record Appended(Decision decision) {
  return EntryAppended{.job = "j", .entry = {LogNumber(1), std::move(decision)}};
}

ClusterState Fold(const std::vector<Record>& records) {
  ClusterState state;
  for (const Record& record : records) LOCKSTEP_EXPECT_OK(Apply(record, state));
  return state;
}

void ExpectRefused(const std::vector<Record>& before, const Record& record,
                   const std::string& why) {
  ClusterState state = Fold(before);
  const std::string was = DurableText(state);
  EXPECT_THAT(Apply(record, state), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(why)));
  EXPECT_EQ(DurableText(state), was) << why;
}

TEST(Fold, RefusesNumbersThatNoneCanFollow) {
  ExpectRefused({}, GenerationStarted{Generation(kLast)}, "generation");
  std::vector<Record> records = Running();
  records.push_back(EpochEnded{"j", Epoch(1), "over"});
  ExpectRefused(records, EpochProposed{"j", Epoch(kLast), {{"w0", Incarnation(2)}}}, "proposed");
}

TEST(Fold, RefusesAJobThatNobodyCouldCreate) {
  JobSpec spec = Spec();
  spec.min_workers = 0;
  ExpectRefused({}, JobCreated{spec, absl::UnixEpoch()}, "min_workers");
  spec = Spec();
  spec.name = "j\n";
  ExpectRefused({}, JobCreated{spec, absl::UnixEpoch()}, "'j\\n'");
}

TEST(Fold, RefusesMembersThatAreNoneAreNotListedOrWereDrained) {
  std::vector<Record> records = Running();
  records.push_back(Appended(Regroup{"w1"}));
  records.push_back(EpochEnded{"j", Epoch(1), "regrouped", /*regrouped=*/true});
  const auto proposed = [](const std::string& worker, std::int64_t incarnation) {
    return EpochProposed{
        "j", Epoch(2), {{"w0", Incarnation(1)}, {worker, Incarnation(incarnation)}}};
  };
  ExpectRefused(records, proposed("w1", 1), "'w1'");
  ExpectRefused(records, proposed("w3", 1), "'w3'");
  ExpectRefused(records, proposed("w2", 0), "'w2'");
  records.push_back(proposed("w1", 2));
  Fold(records);
}

TEST(Fold, RefusesWhatAWorkerWithoutAPartAppliedOrLeft) {
  std::vector<Record> records = Running();
  records.push_back(Appended(SyncOnce{}));
  ExpectRefused(records, EntryApplied{"j", LogNumber(1), "w2", 3}, "'w2'");
  ExpectRefused(records, MemberLeft{"j", Epoch(1), "w2"}, "'w2'");
  ExpectRefused(records, EntryApplied{"none\n", LogNumber(1), "w0", 3}, "'none\\n'");
}

TEST(Fold, OfARegroupThatNobodyAskedForChangesNothing) {
  std::vector<Record> records = Running();
  records.push_back(Appended(SyncOnce{}));
  // In force on all, which the end of the epoch takes note of.
  for (const char* worker : {"w0", "w1"}) {
    records.push_back(EntryApplied{"j", LogNumber(1), worker, 3});
  }
  ExpectRefused(records, EpochEnded{"j", Epoch(1), "regrouped", /*regrouped=*/true}, "regrouped");
}

TEST(JobSpecOf, MoreWorkersThanAnEpochCanHaveIsRefused) {
  JobSpec spec;
  spec.name = "j";
  spec.max_workers = kMaxWorldSize;
  LOCKSTEP_EXPECT_OK(Validate(spec));
  spec.max_workers = kMaxWorldSize + 1;
  EXPECT_THAT(Validate(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10000")));
  spec.max_workers = 0;
  spec.min_workers = kMaxWorldSize + 1;
  EXPECT_THAT(Validate(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10000")));
}

}  // namespace
}  // namespace lockstep
