#include "coordinator/runtime/change_log.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChangeLogLines : public testing::Test {
 protected:
  JobState JobWith(WorkerStage stage) {
    JobState job;
    job.workers["w0"].name = "w0";
    job.workers["w0"].stage = stage;
    return job;
  }
  std::vector<std::string> lines_;
  std::vector<LogFields> fields_;
  ChangeLog log_{[this](LogLevel, const std::string& line, const LogFields& fields) {
    lines_.push_back(line);
    fields_.push_back(fields);
  }};
};

TEST_F(ChangeLogLines, TellWhyAnEpochEnded) {
  log_.OnRecord(EpochEnded{.job = "mnist", .epoch = Epoch(3), .why = "w1 was lost"});
  EXPECT_THAT(lines_, ElementsAre("job mnist: epoch 3 ended: w1 was lost"));
}

TEST_F(ChangeLogLines, SayOfWhichJobAndEpochTheyAre) {
  log_.OnRecord(GenerationStarted{.generation = Generation(1)});
  log_.OnRecord(JobCreated{.spec = {.name = "mnist"}});
  log_.OnRecord(EpochStarted{.job = "mnist", .epoch = Epoch(3)});
  JobState job = JobWith(WorkerStage::kAttending);
  log_.OnJob("other", &job);
  job.workers.clear();
  log_.OnJob("other", &job);
  EXPECT_THAT(fields_, ElementsAre(LogFields(), LogFields{.job = "mnist"},
                                   LogFields{.job = "mnist", .epoch = 3},
                                   LogFields{.job = "other"}, LogFields{.job = "other"}));
}

TEST_F(ChangeLogLines, NameTheMembersOfAProposedEpoch) {
  log_.OnRecord(EpochProposed{
      .job = "mnist", .epoch = Epoch(1), .members = {{.worker = "w0"}, {.worker = "w1"}}});
  EXPECT_THAT(lines_, ElementsAre("job mnist: epoch 1 proposed to 2 workers: w0, w1"));
}

TEST_F(ChangeLogLines, SayWhoChangedThePolicyAndWhy) {
  log_.OnRecord(EntryAppended{
      .job = "mnist",
      .entry = {.number = LogNumber(1), .decision = PolicyRevised{.revision = Revision(2)}},
      .author = "ada",
      .reason = "drift"});
  EXPECT_THAT(lines_, ElementsAre(testing::AllOf(HasSubstr("policy revision 2"),
                                                 HasSubstr("by ada, because: drift"))));
}

TEST_F(ChangeLogLines, StayShortWhateverAPolicyHolds) {
  PolicyRevised revised{.revision = Revision(2)};
  revised.policy.ignore_list.assign(1000, std::string(1000, 'x'));
  log_.OnRecord(EntryAppended{.job = "mnist", .entry = {.decision = revised}});
  EXPECT_LT(lines_.at(0).size(), 2000u);
}

TEST_F(ChangeLogLines, TellOfAWorkerOnceAndNotWithEachHeartbeat) {
  const JobState job = JobWith(WorkerStage::kAttending);
  log_.OnJob("mnist", &job);
  log_.OnJob("mnist", &job);
  EXPECT_THAT(lines_, ElementsAre("job mnist: worker w0 attends"));
}

TEST_F(ChangeLogLines, FollowAWorkerFromSilenceToReturnOrLoss) {
  JobState job = JobWith(WorkerStage::kTraining);
  log_.OnJob("mnist", &job);
  job = JobWith(WorkerStage::kSuspect);
  log_.OnJob("mnist", &job);
  job = JobWith(WorkerStage::kTraining);
  log_.OnJob("mnist", &job);
  job = JobWith(WorkerStage::kSuspect);
  log_.OnJob("mnist", &job);
  job.workers.clear();
  log_.OnJob("mnist", &job);
  EXPECT_THAT(lines_,
              ElementsAre("job mnist: worker w0 attends", HasSubstr("w0 is suspect"),
                          "job mnist: worker w0 is back", HasSubstr("w0 is suspect"),
                          HasSubstr("w0 is lost")));
}

TEST_F(ChangeLogLines, TellThatAWorkerThatSaidGoodbyeIsGone) {
  JobState job = JobWith(WorkerStage::kTraining);
  log_.OnJob("mnist", &job);
  job.workers.clear();
  log_.OnJob("mnist", &job);
  EXPECT_EQ(lines_.back(), "job mnist: worker w0 is gone");
}

TEST_F(ChangeLogLines, ForgetADeletedJob) {
  const JobState job = JobWith(WorkerStage::kLeft);
  log_.OnJob("mnist", &job);
  lines_.clear();
  log_.OnJob("mnist", nullptr);
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace lockstep
