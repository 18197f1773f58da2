#include "tests/bench/bench_run.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/client.h"
#include "common/base/status_macros.h"
#include "tests/bench/rank_group.h"
#include "tests/bench/report.h"
#include "tests/bench/resnet_buffers.h"
#include "tools/local_cluster/local_cluster.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int kWarmUps = 3;
constexpr absl::Duration kStartTimeout = absl::Minutes(3);
// Where the peers are not there yet they are installed.
constexpr absl::Duration kInstallTimeout = absl::Minutes(30);

// A case and the system that runs it.
struct PlannedCase {
  std::string group;
  std::string name;
  std::int64_t bytes = 0;
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
  } else {
    cases = {{"lockstep", "agree", 40 * options.ranks}};
  }
  return cases;
}

// A folder that goes with everything in it.
class ScratchFolder {
 public:
  ScratchFolder() {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_ = std::filesystem::temp_directory_path().string() + "/lockstep-bench-XXXXXX";
};

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
    for (const std::string& bench : options_.benches) LOCKSTEP_RETURN_IF_ERROR(One(bench));
    return MakeReport(options_, results_, memory_);
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

  absl::Status CreateJob(const std::string& job) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                              Client::Connect(cluster_->address()));
    v1::JobSpec spec;
    spec.set_name(job);
    spec.set_min_workers(options_.ranks);
    return client->CreateJob(spec).status();
  }

  absl::StatusOr<std::unique_ptr<RankGroup>> StartGroup(const std::string& group,
                                                        const std::string& bench) {
    const BenchSizes sizes = SizesOf(options_);
    std::cerr << "bench: starting " << options_.ranks << " ranks of " << group << "\n";
    if (group == "lockstep") LOCKSTEP_RETURN_IF_ERROR(CreateJob(bench));
    const bool is_peer = group == "peers";
    const bool is_probe = group == "probe";
    return RankGroup::Start(
        {.name = group,
         .command = is_peer ? std::vector<std::string>{peer_python_, peer_script_}
                            : std::vector<std::string>{rank_program_},
         .config = {{"bench", is_probe ? "probe" : bench},
                    {"coordinator", cluster_->address()},
                    {"job", bench},
                    {"transport", options_.transport},
                    {"rendezvous", absl::StrCat(folder_.path(), "/rendezvous-", bench)},
                    {"sizes",
                     {{"matrices", sizes.matrices},
                      {"side", sizes.side},
                      {"broadcast_elements", sizes.broadcast_elements},
                      {"agreements", sizes.agreements},
                      {"cold_bytes", sizes.cold_bytes}}}},
         .ranks = options_.ranks,
         .room_bytes = is_probe ? sizes.step_elements() * 4 * (options_.ranks + 1) : 0,
         .folder = folder_.path(),
         .start_timeout = kStartTimeout});
  }

  absl::Status One(const std::string& bench) {
    const std::vector<PlannedCase> cases = PlanCases(bench, options_);
    std::map<std::string, std::unique_ptr<RankGroup>> groups;
    std::vector<CaseResult> results;
    for (const PlannedCase& planned : cases) {
      results.push_back({.name = planned.name, .bytes = planned.bytes});
      if (groups.contains(planned.group)) continue;
      LOCKSTEP_ASSIGN_OR_RETURN(groups[planned.group], StartGroup(planned.group, bench));
    }
    std::cerr << "bench: " << bench << ": " << options_.repeat << " repetitions of "
              << cases.size() << " cases\n";
    for (int round = -kWarmUps; round < options_.repeat; ++round) {
      if (round > 0 && round % 10 == 0) std::cerr << "bench: " << bench << ": " << round << "\n";
      for (std::size_t turn = 0; turn < cases.size(); ++turn) {
        if (interrupted_) return absl::CancelledError("interrupted");
        // No case always follows the same other.
        const std::size_t i = (turn + round + kWarmUps) % cases.size();
        LOCKSTEP_ASSIGN_OR_RETURN(Measured measured, groups[cases[i].group]->Run(cases[i].name));
        if (round >= 0) results[i].repetitions.push_back(std::move(measured));
      }
    }
    for (auto& [name, group] : groups) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Json> memory, group->Stop());
      memory_.insert(memory_.end(), memory.begin(), memory.end());
    }
    results_.insert(results_.end(), results.begin(), results.end());
    return absl::OkStatus();
  }

  const BenchOptions options_;
  const std::atomic<bool>& interrupted_;
  const ScratchFolder folder_;
  std::string rank_program_;
  std::string peer_python_;
  std::string peer_script_;
  std::unique_ptr<LocalCluster> cluster_;
  std::vector<CaseResult> results_;
  std::vector<Json> memory_;  // of the ranks that took steps
};

}  // namespace

absl::StatusOr<Json> RunBenches(const BenchOptions& options, const std::atomic<bool>& interrupted) {
  return Run(options, interrupted).All();
}

}  // namespace lockstep
