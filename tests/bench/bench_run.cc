#include "tests/bench/bench_run.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/client.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tests/bench/cost_plan.h"
#include "tests/bench/cost_report.h"
#include "tests/bench/random_digits.h"
#include "tests/bench/rank_group.h"
#include "tests/bench/report.h"
#include "tests/bench/resident.h"
#include "tests/bench/resnet_buffers.h"
#include "tests/bench/scratch_folder.h"
#include "tests/bench/train_work.h"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kWarmUps = 3;
constexpr absl::Duration kStartTimeout = absl::Minutes(3);
// Where the peers are not there yet they are installed.
constexpr absl::Duration kInstallTimeout = absl::Minutes(30);

constexpr std::int64_t kRandomBatches = 64;
constexpr std::uint64_t kRandomSeed = 1;

// What the kernel thinks can still be had without swapping.
std::int64_t AvailableMemory() {
  const absl::StatusOr<std::string> text = ReadFile("/proc/meminfo");
  return text.ok() ? FieldBytes(*text, "MemAvailable") : 0;
}

// A case and the system that runs it.
struct PlannedCase {
  std::string group;
  std::string name;
  std::int64_t bytes = 0;
};

// Ranks of each system that run the same cases in turns.
struct Setting {
  std::string bench;
  std::string job;
  int ranks = 0;
  BenchSizes sizes;
  std::vector<PlannedCase> cases;
};

std::vector<PlannedCase> PlanCases(const std::string& bench, const BenchOptions& options) {
  const BenchSizes sizes = SizesOf(options);
  const std::int64_t flat_bytes = sizes.step_elements() * 4;
  std::vector<PlannedCase> cases;
  const auto peer = [&](const std::string& name, std::int64_t bytes) {
    if (options.peers) cases.push_back({"peers", name, bytes});
  };
  if (bench == "step") {
    cases = {{"lockstep", "step", flat_bytes}, {"probe", "bandwidth_probe", flat_bytes}};
    peer("zero", flat_bytes);
    peer("zero_fused", flat_bytes);
    peer("fairscale", flat_bytes);
  } else if (bench == "buffers") {
    cases = {{"lockstep", "buffers_hot", kResnetBufferBytes},
             {"lockstep", "buffers_cold", kResnetBufferBytes}};
    peer("ddp_buffers_hot", kResnetBufferBytes);
    peer("ddp_buffers_cold", kResnetBufferBytes);
  } else if (bench == "broadcast") {
    cases = {{"lockstep", "broadcast", sizes.broadcast_elements * 4}};
    peer("gloo_broadcast", sizes.broadcast_elements * 4);
  } else if (bench == "train") {
    // The ranks tell how much the model has.
    cases = {{"lockstep", "train", 0}};
    peer("train_ddp", 0);
    peer("train_ddp_tuned", 0);
  } else {
    cases = {{"lockstep", "agree", 40 * options.ranks}};
  }
  return cases;
}

class Run {
 public:
  Run(const BenchOptions& options, const std::atomic<bool>& interrupted)
      : options_(options), interrupted_(interrupted) {}
  ~Run() {
    if (cluster_ != nullptr) cluster_->Stop();
  }

  absl::StatusOr<Json> All() {
    if (folder_.path().empty()) {
      return absl::InternalError(absl::StrCat("cannot make a folder: ", strerror(errno)));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(rank_program_, FindRunfile("lockstep/tests/bench/bench_rank"));
    if (options_.peers) LOCKSTEP_RETURN_IF_ERROR(FindPeers());
    LOCKSTEP_ASSIGN_OR_RETURN(cluster_, LocalCluster::Create(folder_.path()));
    LOCKSTEP_RETURN_IF_ERROR(cluster_->StartCoordinator());
    if (options_.is_cost()) {
      for (const CostPoint& point : CostPoints(options_.tiny)) {
        LOCKSTEP_RETURN_IF_ERROR(MeasureCost(point));
      }
      return MakeCostReport(options_, results_, left_out_);
    }
    for (const std::string& bench : options_.benches) {
      if (bench == "train") LOCKSTEP_RETURN_IF_ERROR(FindData());
      LOCKSTEP_RETURN_IF_ERROR(Measure({.bench = bench,
                                        .job = bench,
                                        .ranks = options_.ranks,
                                        .sizes = SizesOf(options_),
                                        .cases = PlanCases(bench, options_)}));
    }
    return MakeReport(options_, results_, accounts_);
  }

 private:
  absl::Status FindPeers() {
    LOCKSTEP_ASSIGN_OR_RETURN(peer_script_, FindRunfile("lockstep/tests/bench/peers/peer_rank.py"));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string finder,
                              FindRunfile("lockstep/tests/bench/peers/interpreter.py"));
    const std::string answer = folder_.path() + "/interpreter";
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::unique_ptr<ChildProcess> child,
        ChildProcess::Start({.program = "/usr/bin/python3", .arguments = {finder, answer}}));
    const std::optional<ChildExit> exit = child->Wait(kInstallTimeout);
    if (!exit || !exit->ok()) {
      return absl::UnavailableError(absl::StrCat(
          "the peers' Python environment is not there: ", exit ? exit->ToString() : "it took too long",
          "; leave --peers out to measure without them"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadFile(answer));
    peer_python_ = std::string(absl::StripSuffix(text, "\n"));
    return absl::OkStatus();
  }

  // MNIST as the demo has it, or random images.
  absl::Status FindData() {
    if (!options_.tiny) {
      const absl::StatusOr<std::string> mnist = FindMnist();
      if (mnist.ok()) {
        data_ = *mnist;
        accounts_.data = "MNIST";
        return absl::OkStatus();
      }
      std::cerr << "bench: " << mnist.status() << "; taking random images\n";
    }
    data_ = folder_.path();
    accounts_.data = "random images in MNIST's format";
    return WriteRandomDigits(data_, kRandomBatches * SizesOf(options_).train_batch, kRandomSeed);
  }

  absl::Status CreateJob(const std::string& job, int ranks) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                              Client::Connect(cluster_->address()));
    v1::JobSpec spec;
    spec.set_name(job);
    spec.set_min_workers(ranks);
    spec.set_optimizer_replicas(options_.replicas);
    return client->CreateJob(spec).status();
  }

  absl::StatusOr<std::unique_ptr<RankGroup>> StartGroup(const std::string& group,
                                                        const Setting& setting) {
    const BenchSizes& sizes = setting.sizes;
    std::cerr << "bench: starting " << setting.ranks << " ranks of " << group << "\n";
    if (group == "lockstep") LOCKSTEP_RETURN_IF_ERROR(CreateJob(setting.job, setting.ranks));
    const bool is_peer = group == "peers";
    const bool is_probe = group == "probe";
    return RankGroup::Start(
        {.name = group,
         .command = is_peer ? std::vector<std::string>{peer_python_, peer_script_}
                            : std::vector<std::string>{rank_program_},
         .config = {{"bench", is_probe ? "probe" : setting.bench},
                    {"coordinator", cluster_->address()},
                    {"job", setting.job},
                    {"transport", options_.transport},
                    {"rendezvous", absl::StrCat(folder_.path(), "/rendezvous-", setting.job)},
                    {"data", data_},
                    {"sizes",
                     {{"matrices", sizes.matrices},
                      {"side", sizes.side},
                      {"broadcast_elements", sizes.broadcast_elements},
                      {"agreements", sizes.agreements},
                      {"cold_bytes", sizes.cold_bytes},
                      {"train_batch", sizes.train_batch},
                      {"train_steps", sizes.train_steps}}}},
         .ranks = setting.ranks,
         .room_bytes = is_probe ? sizes.step_elements() * 4 * (setting.ranks + 1) : 0,
         .folder = folder_.path(),
         .start_timeout = kStartTimeout});
  }

  absl::Status MeasureCost(const CostPoint& point) {
    const std::string what = absl::StrCat(point.elements(), " parameters, ", point.ranks,
                                          point.ranks == 1 ? " rank" : " ranks");
    std::cerr << "bench: cost: " << what << "\n";
    const std::int64_t available_bytes = AvailableMemory();
    const CostFit fit = FitOf(point, available_bytes);
    if (fit != CostFit::kStepAndProbe) {
      left_out_.push_back(absl::StrFormat(
          "%s of %s: the memory that is available (%d MiB) does not hold it",
          fit == CostFit::kNothing ? "step and probe" : "the probe", what, available_bytes >> 20));
    }
    if (fit == CostFit::kNothing) return absl::OkStatus();
    const std::int64_t bytes = point.elements() * 4;
    Setting setting = {.bench = "step",
                       .job = absl::StrCat("cost-", point.elements(), "-", point.ranks),
                       .ranks = point.ranks,
                       .sizes = SizesOf(point),
                       .cases = {{"lockstep", "step", bytes}}};
    if (fit == CostFit::kStepAndProbe) setting.cases.push_back({"probe", "bandwidth_probe", bytes});
    return Measure(setting);
  }

  absl::Status Measure(const Setting& setting) {
    const std::vector<PlannedCase>& cases = setting.cases;
    std::map<std::string, std::unique_ptr<RankGroup>> groups;
    std::vector<CaseResult> results;
    for (const PlannedCase& planned : cases) {
      results.push_back({.name = planned.name, .ranks = setting.ranks, .bytes = planned.bytes});
      if (groups.contains(planned.group)) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(groups[planned.group], StartGroup(planned.group, setting));
    }
    std::cerr << "bench: " << setting.bench << ": " << options_.repeat << " repetitions of "
              << cases.size() << " cases\n";
    for (int round = -kWarmUps; round < options_.repeat; ++round) {
      if (round > 0 && round % 10 == 0) {
        std::cerr << "bench: " << setting.bench << ": " << round << "\n";
      }
      for (std::size_t turn = 0; turn < cases.size(); ++turn) {
        if (interrupted_) return absl::CancelledError("interrupted");
        // No case always follows the same other.
        const std::size_t i = (turn + round + kWarmUps) % cases.size();
        LOCKSTEP_ASSIGN_OR_RETURN(Measured measured, groups[cases[i].group]->Run(cases[i].name));
        if (round >= 0) results[i].repetitions.push_back(std::move(measured));
      }
    }
    std::map<std::string, std::vector<Json>> accounts;
    for (auto& [name, group] : groups) {
      LOCKSTEP_ASSIGN_OR_RETURN(accounts[name], group->Stop());
    }
    if (setting.bench == "train") {
      LOCKSTEP_RETURN_IF_ERROR(TakeTraining(setting, accounts, results));
    }
    if (setting.bench == "step") {
      for (CaseResult& result : results) result.parameters = setting.sizes.step_elements();
      accounts_.memory = std::move(accounts["lockstep"]);
    }
    results_.insert(results_.end(), results.begin(), results.end());
    return absl::OkStatus();
  }

  absl::Status TakeTraining(const Setting& setting,
                            const std::map<std::string, std::vector<Json>>& accounts,
                            std::vector<CaseResult>& results) {
    for (const auto& [group, of_ranks] : accounts) {
      for (const Json& account : of_ranks) {
        LOCKSTEP_ASSIGN_OR_RETURN(TrainAccount training, ParseTrainAccount(account));
        accounts_.training.push_back(std::move(training));
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckTraining(accounts_.training));
    for (CaseResult& result : results) {
      result.parameters = accounts_.training.front().parameters;
      result.bytes = result.parameters * 4;
      result.images = setting.sizes.train_batch * setting.ranks;
    }
    return absl::OkStatus();
  }

  const BenchOptions options_;
  const std::atomic<bool>& interrupted_;
  const ScratchFolder folder_;
  std::string rank_program_;
  std::string peer_python_;
  std::string peer_script_;
  std::unique_ptr<LocalCluster> cluster_;
  std::string data_;  // folder of the images to train on
  std::vector<CaseResult> results_;
  RankAccounts accounts_;
  std::vector<std::string> left_out_;
};

}  // namespace

absl::StatusOr<Json> RunBenches(const BenchOptions& options, const std::atomic<bool>& interrupted) {
  return Run(options, interrupted).All();
}

}  // namespace lockstep
