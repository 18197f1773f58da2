#include "client/ctl/events.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

using Kind = JobEvent::Kind;

v1::Worker& Of(v1::WatchJobResponse& state, const std::string& name) {
  for (v1::Worker& worker : *state.mutable_workers()) {
    if (worker.name() == name) return worker;
  }
  v1::Worker& worker = *state.add_workers();
  worker.set_name(name);
  return worker;
}

void Remove(v1::WatchJobResponse& state, const std::string& name) {
  auto& workers = *state.mutable_workers();
  for (auto it = workers.begin(); it != workers.end(); ++it) {
    if (it->name() != name) continue;
    workers.erase(it);
    return;
  }
  ADD_FAILURE() << "no worker " << name;
}

// Epoch 3 runs at step 40 on w0 and w1; w2 waits for a place.
v1::WatchJobResponse Running() {
  v1::WatchJobResponse state;
  v1::Job& job = *state.mutable_job();
  job.mutable_spec()->set_name("mnist");
  job.set_state(v1::Job::STATE_RUNNING);
  job.set_detail("epoch 3 runs on 2 workers");
  job.set_epoch(3);
  job.set_step(40);
  job.mutable_policy()->set_revision(2);
  job.mutable_policy()->set_state(v1::SyncPolicyRevision::STATE_EFFECTIVE);
  for (int rank = 0; rank < 2; ++rank) {
    v1::Worker& worker = Of(state, "w" + std::to_string(rank));
    worker.set_state(v1::Worker::STATE_TRAINING);
    worker.set_rank(rank);
    worker.set_incarnation(1);
    worker.set_step(40);
  }
  v1::Worker& waiting = Of(state, "w2");
  waiting.set_state(v1::Worker::STATE_ATTENDING);
  waiting.set_rank(-1);
  return state;
}

void EndEpoch(v1::WatchJobResponse& state, const std::string& detail) {
  state.mutable_job()->set_state(v1::Job::STATE_WAITING);
  state.mutable_job()->set_detail(detail);
  for (v1::Worker& worker : *state.mutable_workers()) {
    worker.set_rank(-1);
    worker.set_state(v1::Worker::STATE_ATTENDING);
  }
}

std::vector<std::string> Texts(const std::vector<JobEvent>& events) {
  std::vector<std::string> texts;
  for (const JobEvent& event : events) texts.push_back(KindName(event.kind) + ": " + event.text);
  return texts;
}

using Change = std::function<void(v1::WatchJobResponse&)>;

struct Case {
  const char* name;
  Change before;  // to Running()
  Change after;   // to that
  std::vector<std::string> events;
};

void Nothing(v1::WatchJobResponse&) {}

const Case kCases[] = {
    {"a step, a phase or a metric is no event", Nothing,
     [](auto& s) {
       s.mutable_job()->set_step(41);
       Of(s, "w0").set_step(41);
       Of(s, "w0").set_phase("evaluating");
       (*Of(s, "w1").mutable_metrics())["loss"] = 1;
     },
     {}},
    {"a worker joins", Nothing, [](auto& s) { Of(s, "w3").set_rank(-1); },
     {"worker-joined: worker w3 attends"}},
    {"a worker is started again", Nothing, [](auto& s) { Of(s, "w0").set_incarnation(2); },
     {"worker-joined: worker w0 attends, started again"}},
    {"a suspect worker is started again",
     [](auto& s) { Of(s, "w0").set_state(v1::Worker::STATE_SUSPECT); },
     [](auto& s) {
       Of(s, "w0").set_incarnation(2);
       Of(s, "w0").set_state(v1::Worker::STATE_ATTENDING);
     },
     {"worker-joined: worker w0 attends, started again"}},
    {"a worker becomes suspect", Nothing,
     [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_SUSPECT); },
     {"worker-suspect: worker w1 is suspect: its connection broke, its lease still runs"}},
    {"a suspect worker is back",
     [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_SUSPECT); },
     [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_TRAINING); },
     {"worker-back: worker w1 is back"}},
    {"a suspect worker is lost and the next epoch is proposed",
     [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_SUSPECT); },
     [](auto& s) {
       Remove(s, "w1");
       Of(s, "w2").set_rank(1);
       s.mutable_job()->set_epoch(4);
       s.mutable_job()->set_state(v1::Job::STATE_FORMING);
       s.mutable_job()->set_detail("epoch 4 is proposed to 2 workers");
     },
     {"worker-lost: worker w1 is lost: it did not come back", "epoch-ended: epoch 3 ended",
      "epoch-proposed: epoch 4 is proposed to 2 workers",
      "job-state: job is forming: epoch 4 is proposed to 2 workers"}},
    {"a member that was not suspect is gone", Nothing,
     [](auto& s) {
       Remove(s, "w1");
       EndEpoch(s, "1 of 2 workers attend (w0); 1 more is needed; worker 'w1' stalled");
     },
     {"worker-lost: worker w1 is gone, last seen at step 40",
      "epoch-ended: epoch 3 ended: 1 of 2 workers attend (w0); 1 more is needed; worker 'w1' "
      "stalled",
      "job-state: job is waiting: 1 of 2 workers attend (w0); 1 more is needed; worker 'w1' "
      "stalled"}},
    {"a member finishes", Nothing, [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_LEFT); },
     {"worker-left: worker w1 finished at step 40"}},
    {"a suspect member turns out to have finished",
     [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_SUSPECT); },
     [](auto& s) { Of(s, "w1").set_state(v1::Worker::STATE_LEFT); },
     {"worker-left: worker w1 finished at step 40"}},
    {"the last member finishes, the other did before",
     [](auto& s) {
       Of(s, "w1").set_state(v1::Worker::STATE_LEFT);
       Remove(s, "w2");
     },
     [](auto& s) {
       Remove(s, "w0");
       Remove(s, "w1");
       EndEpoch(s, "0 of 2 workers attend; 2 more are needed; epoch 3 ended: all members finished");
     },
     {"worker-left: worker w0 finished at step 40",
      "epoch-ended: epoch 3 ended: 0 of 2 workers attend; 2 more are needed; epoch 3 ended: all "
      "members finished",
      "job-state: job is waiting: 0 of 2 workers attend; 2 more are needed; epoch 3 "
      "ended: all members finished"}},
    {"one that waits goes away", Nothing, [](auto& s) { Remove(s, "w2"); },
     {"worker-left: worker w2 does not attend any more"}},
    {"a drained member goes as the epoch regroups",
     [](auto& s) {
       s.mutable_job()->set_detail("epoch 3 runs on 2 workers; regroups as entry 4 asks");
     },
     [](auto& s) {
       Remove(s, "w1");
       s.mutable_job()->set_epoch(4);
       s.mutable_job()->set_detail("epoch 4 runs on 1 workers");
     },
     {"worker-drained: worker w1 was drained behind step 40", "epoch-ended: epoch 3 ended",
      "epoch-proposed: epoch 4 is proposed to 1 worker",
      "epoch-started: epoch 4 runs from step 40"}},
    {"a drained member was not seen to stop", Nothing,
     [](auto& s) {
       Remove(s, "w1");
       EndEpoch(s, "waits for 1; epoch 3 ended: regrouped behind step 41, as entry 4 asks");
     },
     {"worker-drained: worker w1 was drained behind step 40",
      "epoch-ended: epoch 3 ended: waits for 1; epoch 3 ended: regrouped behind step 41, as entry "
      "4 asks",
      "job-state: job is waiting: waits for 1; epoch 3 ended: regrouped behind step 41, as entry "
      "4 asks"}},
    {"an epoch starts that was proposed",
     [](auto& s) { s.mutable_job()->set_state(v1::Job::STATE_FORMING); },
     [](auto& s) { s.mutable_job()->set_state(v1::Job::STATE_RUNNING); },
     {"epoch-started: epoch 3 runs from step 40",
      "job-state: job is running: epoch 3 runs on 2 workers"}},
    {"a proposed epoch does not start",
     [](auto& s) { s.mutable_job()->set_state(v1::Job::STATE_FORMING); },
     [](auto& s) { EndEpoch(s, "not ready: w1"); },
     {"epoch-ended: epoch 3 ended before it was seen to run: not ready: w1",
      "job-state: job is waiting: not ready: w1"}},
    {"epochs are passed over", [](auto& s) { EndEpoch(s, "waits"); },
     [](auto& s) {
       s.mutable_job()->set_epoch(6);
       s.mutable_job()->set_state(v1::Job::STATE_FORMING);
       s.mutable_job()->set_detail("epoch 6 is proposed to 2 workers");
       Of(s, "w0").set_rank(0);
       Of(s, "w1").set_rank(1);
     },
     {"epoch-ended: epochs 4 to 5 came and went between two looks",
      "epoch-proposed: epoch 6 is proposed to 2 workers",
      "job-state: job is forming: epoch 6 is proposed to 2 workers"}},
    {"one epoch comes and goes while the job is seen to wait", [](auto& s) { EndEpoch(s, "a"); },
     [](auto& s) { s.mutable_job()->set_epoch(4); },
     {"epoch-ended: epoch 4 came and went between two looks"}},
    {"a policy is revised", Nothing,
     [](auto& s) {
       s.mutable_job()->mutable_policy()->set_revision(3);
       s.mutable_job()->mutable_policy()->set_state(v1::SyncPolicyRevision::STATE_PENDING);
       s.mutable_job()->mutable_policy()->set_author("ada");
       s.mutable_job()->mutable_policy()->set_reason("drift");
     },
     {"policy-revised: policy revision 3, by ada, because: drift"}},
    {"a policy takes effect",
     [](auto& s) {
       s.mutable_job()->mutable_policy()->set_state(v1::SyncPolicyRevision::STATE_PENDING);
     },
     [](auto& s) {
       s.mutable_job()->mutable_policy()->set_state(v1::SyncPolicyRevision::STATE_EFFECTIVE);
       s.mutable_job()->mutable_policy()->set_effective_step(41);
     },
     {"policy-effective: policy revision 2 is effective after step 41"}},
    {"policies are revised and the last is effective at once", Nothing,
     [](auto& s) {
       s.mutable_job()->mutable_policy()->set_revision(4);
       s.mutable_job()->mutable_policy()->set_effective_step(41);
     },
     {"policy-revised: policy revisions 3 to 4",
      "policy-effective: policy revision 4 is effective after step 41"}},
};

TEST(EventsBetween, TellsWhatChangedFromOneLookToTheNext) {
  for (const Case& one : kCases) {
    v1::WatchJobResponse before = Running();
    one.before(before);
    v1::WatchJobResponse after = before;
    one.after(after);
    EXPECT_EQ(Texts(EventsBetween(before, after)), one.events) << one.name;
    EXPECT_THAT(EventsBetween(after, after), IsEmpty()) << one.name;
  }
}

TEST(EventsBetween, TellsEachWorkerByName) {
  v1::WatchJobResponse after = Running();
  Of(after, "w3");
  EXPECT_THAT(EventsBetween(Running(), after),
              ElementsAre(JobEvent{Kind::kWorkerJoined, "worker w3 attends", "w3"}));
}

TEST(FirstEvent, ShowsWhatThereIs) {
  EXPECT_THAT(FirstEvent(Running()).text, StartsWith("job mnist: running  epoch 3  step 40"));
  EXPECT_EQ(DeletedEvent(Running()).text, "job mnist was deleted");
}

TEST(RenderEvent, AlignsTimeKindAndText) {
  const absl::Time noon = absl::FromUnixMillis(1'772'366'400'250);
  const JobEvent joined = {Kind::kWorkerJoined, "worker w1\nattends", "w1"};
  EXPECT_EQ(RenderEvent(joined, noon, Color::kOff),
            "2026-03-01T12:00:00.250Z  worker-joined     worker w1 attends\n");
  EXPECT_EQ(RenderEvent(joined, noon, Color::kOn),
            "2026-03-01T12:00:00.250Z  \x1b[32mworker-joined\x1b[0m     worker w1 attends\n");
  EXPECT_EQ(RenderEvent({Kind::kPolicyEffective, "x"}, noon, Color::kOff),
            "2026-03-01T12:00:00.250Z  policy-effective  x\n");
}

TEST(RenderEventJson, IsOneObjectALine) {
  const absl::Time noon = absl::FromUnixMillis(1'772'366'400'250);
  const std::string line = RenderEventJson({Kind::kWorkerLost, "a\nb \xFF", "w1"}, noon);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2026-03-01T12:00:00.250Z");
  EXPECT_EQ(json["kind"], "worker-lost");
  EXPECT_EQ(json["worker"], "w1");
  EXPECT_FALSE(nlohmann::json::parse(RenderEventJson({Kind::kJobState, "x"}, noon))
                   .contains("worker"));
}

}  // namespace
}  // namespace lockstep
