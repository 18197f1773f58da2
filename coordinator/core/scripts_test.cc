// Runs testdata/*.txt: commands, "----", and what the coordinator did about them.
// testdata/README.md explains the language. To accept a changed behaviour:
//   REWRITE=1 bazel run //coordinator/core:scripts_test
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "coordinator/core/coordinator_fsm.h"
#include "coordinator/core/effects_text.h"
#include "gtest/gtest.h"
#include "tests/golden/command.h"
#include "tests/golden/golden_scripts.h"

namespace lockstep {
namespace {

Manifest Model(const std::string& variant) {
  const auto parameter = [](std::string name, std::vector<std::int64_t> shape) {
    return ParameterSpec{{std::move(name), DType::kFloat32, std::move(shape)}};
  };
  Manifest manifest;
  manifest.parameters = {parameter("fc.weight", {variant == "wide" ? 20 : 10, 8}),
                         parameter("fc.bias", {10})};
  manifest.buffers = {{"bn.running_mean", DType::kFloat32, {8}}};
  if (variant == "counted") {
    manifest.buffers.push_back({"bn.num_batches_tracked", DType::kInt64, {}});
  }
  if (variant == "queue8") manifest.buffers.push_back({"queue", DType::kFloat32, {8}});
  if (variant == "queue16") manifest.buffers.push_back({"queue", DType::kFloat32, {16}});
  if (variant == "no-values") manifest.buffers.push_back({"queue", DType::kUnspecified, {}});
  manifest.optimizer = variant == "slow" ? "SGD(lr=0.01)" : "SGD(lr=0.1)";
  return manifest;
}

class Script {
 public:
  Script() { Restart(); }

  // What one command brought about.
  std::string Run(const std::string& line) {
    const Command command(line);
    lines_.clear();
    Do(command);
    EXPECT_EQ(command.Unasked(), "") << line;
    LOCKSTEP_EXPECT_OK(CheckInvariants(fsm_->state())) << line;
    std::string text;
    for (const std::string& l : lines_) absl::StrAppend(&text, l, "\n");
    return text;
  }

 private:
  void Do(const Command& c) {
    if (c.verb == "create") {
      Request(CreateJob{Spec(c)});
    } else if (c.verb == "delete") {
      Request(DeleteJob{"j"});
    } else if (c.verb == "update") {
      UpdateSyncPolicy update = {.job = "j", .etag = c.Text("etag", "")};
      if (update.etag == "newest") update.etag = Job()->newest_policy().etag;
      update.policy = Policy(c);
      update.validate_only = c.Has("dry");
      Request(std::move(update));
    } else if (c.verb == "sync-now") {
      SyncNow sync = {.job = "j"};
      sync.what.buffers = !c.Has("parameters");
      sync.what.parameters = c.Has("parameters");
      if (c.Gives("root")) sync.what.root = RootRank{c.Number("root", 0)};
      Request(std::move(sync));
    } else if (c.verb == "drain") {
      Request(DrainWorker{"j", c.words.front(), c.Has("allow-waiting")});
    } else if (c.verb == "checkpoint") {
      Request(CheckpointNow{"j"});
    } else if (c.verb == "wait") {
      Wait(c.words.front());
    } else if (c.verb == "restart-coordinator") {
      Restart();
    } else if (c.verb == "state") {
      PrintState();
    } else {
      FromWorker(c);
    }
  }

  void FromWorker(const Command& c) {
    const std::string worker = c.verb;
    ASSERT_FALSE(c.words.empty()) << worker << " does what?";
    const std::string& what = c.words.front();
    if (what == "hello") {
      Hello hello = {.job = c.Text("job", "j"),
                     .worker = worker,
                     .incarnation = Incarnation(c.Number("start", 1)),
                     .manifest = Model(c.Text("model", "")),
                     .transport = c.Text("transport", "shm"),
                     .epoch = Epoch(c.Number("epoch", 0)),
                     .log_number = LogNumber(c.Number("log", 0))};
      const bool is_open = c.Gives("stream");
      if (!is_open) newest_[worker] = Open(worker);
      Step(MessageReceived{is_open ? StreamOf(c) : newest_[worker], std::move(hello)});
      return;
    }
    if (what == "opens") {
      Open(worker);
      return;
    }
    const StreamId stream = c.Gives("stream") ? StreamOf(c) : newest_[worker];
    const JobState* job = Job();
    const Epoch epoch(c.Number("epoch", job && job->epoch ? job->epoch->id.value() : 0));
    if (what == "breaks") {
      Step(StreamBroke{stream});
    } else if (what == "heartbeat") {
      Step(MessageReceived{stream, Heartbeat{.epoch = epoch,
                                             .step = c.Number("step", 0),
                                             .phase = Phase::kTraining}});
    } else if (what == "endpoint") {
      Step(MessageReceived{stream, Endpoint{epoch, c.Text("bytes", "here")}});
    } else if (what == "ready") {
      const std::uint64_t digest = job && job->epoch ? job->epoch->plan.Digest() : 0;
      Step(MessageReceived{stream, Ready{epoch, c.Has("wrong-plan") ? 1 : digest, 0}});
    } else if (what == "applied") {
      Step(MessageReceived{stream,
                           Applied{epoch, LogNumber(c.Number("entry", 0)), c.Number("step", 0)}});
    } else if (what == "stopped") {
      const std::string why = c.Text("why", "");
      Step(MessageReceived{
          stream, EpochStopped{epoch, c.Number("step", 0),
                               why.empty() ? absl::OkStatus() : absl::UnavailableError(why)}});
    } else if (what == "leaves") {
      const std::string why = c.Text("why", "");
      Step(MessageReceived{
          stream, Leave{epoch, why.empty() ? absl::OkStatus() : absl::InternalError(why)}});
    } else {
      FAIL() << "unknown command: " << what;
    }
  }

  StreamId Open(const std::string& worker) {
    streams_.push_back(absl::StrCat(worker, "/", ++opened_[worker]));
    return StreamId(static_cast<std::int64_t>(streams_.size()));
  }

  StreamId StreamOf(const Command& c) const {
    const auto it = std::find(streams_.begin(), streams_.end(),
                              absl::StrCat(c.verb, "/", c.Text("stream", "")));
    return StreamId(it - streams_.begin() + 1);
  }

  static JobSpec Spec(const Command& c) {
    JobSpec spec;
    spec.name = "j";
    spec.min_workers = static_cast<int>(c.Number("min", 1));
    spec.max_workers = static_cast<int>(c.Number("max", 0));
    spec.workers = c.List("workers");
    spec.join_window = c.Duration("window", absl::Seconds(5));
    spec.lease = c.Duration("lease", absl::Seconds(10));
    spec.ready_timeout = c.Duration("ready", absl::Seconds(60));
    spec.stall_timeout = c.Duration("stall", absl::Minutes(2));
    spec.optimizer_replicas = static_cast<int>(c.Number("replicas", 1));
    spec.policy = Policy(c);
    return spec;
  }

  static SyncPolicy Policy(const Command& c) {
    SyncPolicy policy;
    policy.ignore_list = c.List("ignore");
    for (std::int64_t number = 1; const auto operation = OperationFromNumber(number); ++number) {
      if (OperationName(*operation) == c.Text("operation", "")) policy.operation = *operation;
    }
    return policy;
  }

  void Request(lockstep::Request request) {
    Step(RequestReceived{++request_, absl::UnixEpoch(), std::move(request)});
  }

  // As the runtime does: a Tick whenever one is due.
  void Wait(const std::string& text) {
    absl::Duration duration;
    ASSERT_TRUE(absl::ParseDuration(text, &duration)) << text;
    const MonoTime end = now_ + duration;
    while (wake_at_ && *wake_at_ <= end) {
      now_ = std::max(now_, *wake_at_);
      Step(Tick{});
      ASSERT_TRUE(!wake_at_ || *wake_at_ > now_) << "a Tick at its time changes nothing";
    }
    now_ = end;
  }

  void Restart() {
    absl::StatusOr<CoordinatorFsm> fsm = CoordinatorFsm::Recover(records_, now_);
    ASSERT_THAT(fsm, IsOk());
    fsm_ = *std::move(fsm);
    Show(fsm_->Begin());
  }

  void Step(const Event& event) { Show(fsm_->Step(now_, event)); }

  void Show(const Effects& effects) {
    const std::vector<std::string> lines = EffectLines(effects, [this](StreamId stream) {
      return streams_[static_cast<std::size_t>(stream.value() - 1)];
    });
    const std::string detail = Job() ? Job()->detail : "";
    const bool shows = !lines.empty() || detail != detail_;
    if (shows && now_ != shown_at_) {
      lines_.push_back(absl::StrCat("at ", absl::FormatDuration(now_ - MonoTime())));
      shown_at_ = now_;
    }
    lines_.insert(lines_.end(), lines.begin(), lines.end());
    if (detail != detail_ && !detail.empty()) {
      lines_.push_back(absl::StrCat("job        ", detail));
    }
    detail_ = detail;
    records_.insert(records_.end(), effects.persist.begin(), effects.persist.end());
    wake_at_ = effects.wake_at;
  }

  void PrintState() {
    const JobState* job = Job();
    if (job == nullptr) return;
    lines_.push_back(absl::StrCat("job        ", job->detail));
    lines_.push_back(absl::StrCat("step ", job->step(), ", policy revision ",
                                  job->newest_policy().revision.value()));
    for (const LoggedEntry& logged : job->log) {
      const bool is_effective = IsEffective(*job, logged.entry.number);
      std::string text = absl::StrCat("entry ", logged.entry.number.value(),
                                      is_effective ? " effective" : " pending");
      for (const auto& [worker, step] : logged.applied) {
        absl::StrAppend(&text, ", after step ", step, " on ", worker);
      }
      lines_.push_back(text);
    }
  }

  const JobState* Job() const {
    const auto it = fsm_->state().jobs.find("j");
    return it == fsm_->state().jobs.end() ? nullptr : &it->second;
  }

  std::optional<CoordinatorFsm> fsm_;
  MonoTime now_;
  MonoTime shown_at_;
  std::optional<MonoTime> wake_at_;
  std::vector<Record> records_;
  std::vector<std::string> streams_;  // names by id, from 1
  std::map<std::string, int> opened_;
  std::map<std::string, StreamId> newest_;
  std::string detail_;
  std::vector<std::string> lines_;
  struct Requests {
    RequestId operator++() { return last = last.next(); }
    RequestId last;
  } request_;
};

TEST(Scripts, AllDoWhatTheySay) {
  ExpectScriptsHold("coordinator/core/testdata", [] {
    return [script = std::make_shared<Script>()](const std::string& command) {
      return script->Run(command);
    };
  });
}

}  // namespace
}  // namespace lockstep
