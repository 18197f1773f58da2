#include "tests/script/story.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "gtest/gtest.h"

namespace lockstep::sim {
namespace {

// Of simulated time: far more than anything in a story takes.
constexpr absl::Duration kPatience = absl::Minutes(5);

absl::Status Unknown(const Command& command) {
  return absl::InvalidArgumentError(absl::StrCat("there is no such command: ", command.verb));
}

// "0.158020s w0 ..." with milliseconds.
std::string Readable(const std::string& line) {
  const std::size_t end = line.find("s ");
  double seconds = 0;
  if (!absl::SimpleAtod(line.substr(0, end), &seconds)) return line;
  return absl::StrFormat("%7.3fs %s", seconds, line.substr(end + 2));
}

}  // namespace

std::string Story::Run(const std::string& line) {
  const Command command(line);
  const absl::Status done = Do(command);
  EXPECT_TRUE(done.ok()) << line << ": " << done;
  EXPECT_EQ(command.Unasked(), "") << line;
  if (cluster_ != nullptr) {
    EXPECT_EQ(cluster_->checker().violation(), "") << line;
  }
  return News();
}

std::string Story::News() {
  std::string text;
  if (trace_ == nullptr) return text;
  for (; told_ < trace_->lines().size(); ++told_) {
    absl::StrAppend(&text, Readable(trace_->lines()[told_]), "\n");
  }
  return text;
}

absl::Status Story::Do(const Command& command) {
  if (command.verb == "cluster") return Begin(command);
  if (cluster_ == nullptr) return absl::FailedPreconditionError("a story begins with 'cluster'");
  if (command.verb == "run") return RunOn(command);
  if (command.verb == "coordinator") return OfCoordinator(command);
  if (command.verb == "tell") {
    cluster_->Tell({.state = true, .steps = !command.Has("no")});
    return absl::OkStatus();
  }
  if (command.verb == "policy") {
    SyncPolicy policy;
    policy.ignore_list = command.List("ignore");
    policy.schedule.every_steps = command.Number("every-steps", 0);
    cluster_->RevisePolicy(policy);
    return absl::OkStatus();
  }
  return OfWorker(command);
}

absl::Status Story::Begin(const Command& command) {
  cluster_.reset();
  scheduler_ = std::make_unique<Scheduler>(static_cast<std::uint64_t>(command.Number("seed", 1)));
  trace_ = std::make_unique<Trace>(scheduler_.get(), /*live=*/false);
  told_ = 0;
  const int workers = static_cast<int>(command.Number("workers", 3));
  ClusterOptions options = {
      .workers = workers,
      .job = {.name = "job",
              .min_workers = static_cast<int>(command.Number("least", workers)),
              .max_workers = workers,
              .join_window = command.Duration("window", absl::Seconds(1)),
              .lease = absl::Seconds(10),
              .ready_timeout = absl::Seconds(10),
              .optimizer_replicas = static_cast<int>(command.Number("replicas", 1))},
      .fabric = {.tells_peers = true, .fences = true},
      .training = {.seed = 1, .optimizer = AdamW{.lr = 0.05}},
      .compute = absl::Milliseconds(100)};
  const std::string without = command.Text("without", "");
  if (!without.empty()) {
    const std::optional<Without> rule = WithoutOf(without);
    if (!rule.has_value()) return absl::InvalidArgumentError("there is no such rule");
    options.without = *rule;
  }
  cluster_ = std::make_unique<Cluster>(scheduler_.get(), trace_.get(), options);
  cluster_->Tell({.state = true});
  cluster_->StartCoordinator();
  cluster_->CreateJob();
  while (cluster_->coordinator().state()->jobs.empty()) scheduler_->Once();
  const std::int64_t trained = command.Number("trained", 0);
  if (trained == 0) return absl::OkStatus();
  for (int worker = 0; worker < workers; ++worker) cluster_->StartWorker(worker);
  LOCKSTEP_RETURN_IF_ERROR(RunUntil(trained, /*epoch=*/1));
  told_ = trace_->lines().size();
  return absl::OkStatus();
}

bool Story::HasCome(std::int64_t step, std::int64_t epoch) const {
  if (!cluster_->IsWhole() || cluster_->checker().newest_whole() < Epoch(epoch)) return false;
  for (int worker = 0; worker < cluster_->workers(); ++worker) {
    if (cluster_->StepOf(worker).value_or(step) < step) return false;
  }
  return true;
}

absl::Status Story::RunUntil(std::int64_t step, std::int64_t epoch) {
  bool ended = false;
  scheduler_->At(scheduler_->now() + kPatience, nullptr, [&ended] { ended = true; });
  while (!HasCome(step, epoch)) {
    if (ended || !scheduler_->Once() || !cluster_->checker().violation().empty()) {
      return absl::DeadlineExceededError("the job did not come so far");
    }
  }
  return absl::OkStatus();
}

// "run 3s", "run until step=4 epoch=2"
absl::Status Story::RunOn(const Command& command) {
  if (command.Has("until")) return RunUntil(command.Number("step", 0), command.Number("epoch", 0));
  absl::Duration duration;
  if (command.words.empty() || !absl::ParseDuration(command.words[0], &duration)) {
    return absl::InvalidArgumentError("'run 3s' or 'run until step=4'");
  }
  bool ended = false;
  scheduler_->At(scheduler_->now() + duration, nullptr, [&ended] { ended = true; });
  while (!ended && scheduler_->Once()) continue;
  return absl::OkStatus();
}

absl::Status Story::OfCoordinator(const Command& command) {
  if (command.Has("killed")) {
    cluster_->coordinator().Crash();
  } else if (command.Has("starts")) {
    cluster_->StartCoordinator();
  } else {
    return Unknown(command);
  }
  return absl::OkStatus();
}

// "w1 starts", "w1 is killed at=prepared", "w1 is drained", ...
absl::Status Story::OfWorker(const Command& command) {
  int worker = -1;
  absl::string_view number = command.verb;
  if (!absl::ConsumePrefix(&number, "w") || !absl::SimpleAtoi(number, &worker) || worker < 0 ||
      worker >= cluster_->workers()) {
    return Unknown(command);
  }
  const std::string at = command.Text("at", "");
  if (command.Has("starts")) {
    cluster_->StartWorker(worker);
  } else if (command.Has("killed") && at.empty()) {
    cluster_->CrashWorker(worker, std::nullopt);
  } else if (command.Has("killed")) {
    const std::optional<StepPhase> phase = StepPhaseOf(at);
    if (!phase.has_value()) return absl::InvalidArgumentError("there is no such phase");
    cluster_->Plan(worker, *phase, Cluster::Fate::kCrash, std::nullopt);
  } else if (command.Has("stopped")) {
    cluster_->StopWorker(worker);
  } else if (command.Has("continued")) {
    cluster_->ContinueWorker(worker);
  } else if (command.Has("cut-off")) {
    cluster_->BlockControl(worker, ControlNet::kDown,
                           command.Duration("for", absl::Milliseconds(500)));
  } else if (command.Has("drained")) {
    cluster_->Drain(worker);
  } else {
    return Unknown(command);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::sim
