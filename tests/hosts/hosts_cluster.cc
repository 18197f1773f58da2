#include "tests/hosts/hosts_cluster.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/chaos/serial_training.h"
#include "tests/e2e/e2e_cluster.h"
#include "tools/process/runfiles.h"

namespace lockstep {
namespace {

constexpr char kJob[] = "mnist";
constexpr absl::Duration kPoll = absl::Milliseconds(50);

std::string Program(const std::string& path) {
  const absl::StatusOr<std::string> program = FindRunfile("lockstep/" + path);
  LOCKSTEP_CHECK(program.ok());
  return *program;
}

std::string HostOf(int worker) { return worker % 2 == 0 ? kHostA : kHostB; }

std::string NameOf(int worker) { return absl::StrCat("w", worker); }

void Append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

const std::map<std::string, std::string>& HostAddresses() {
  static const auto* const addresses = new std::map<std::string, std::string>{
      {kCoordinatorHost, "192.0.2.1"}, {kHostA, "192.0.2.2"}, {kHostB, "192.0.2.3"}};
  return *addresses;
}

HostsCluster::HostsCluster(const std::vector<std::string>& job_flags,
                           std::vector<std::string> trainer_flags, const LineQuality& quality)
    : directory_(MakeFolder()), trainer_flags_(std::move(trainer_flags)), workers_(kWorkers) {
  MakeCertificate("ca", {"server", HostAddresses().at(kCoordinatorHost)});
  MakeCertificate("ca", {"operator", "alice"});
  for (int i = 0; i < kWorkers; ++i) MakeCertificate("ca", {"worker", NameOf(i)});
  absl::StatusOr<std::unique_ptr<Network>> network =
      Network::Create(directory_, HostAddresses(), quality);
  EXPECT_THAT(network, IsOk());
  LOCKSTEP_CHECK(network.ok());
  network_ = *std::move(network);
  StartCoordinator();
  std::vector<std::string> create = {"job", "create", kJob};
  Append(create, job_flags);
  Ctl(create);
}

HostsCluster::~HostsCluster() {
  for (int i = 0; testing::Test::HasFailure() && i < kWorkers; ++i) {
    std::cout << "---- log of " << NameOf(i) << ":\n" << WorkerLog(i);
  }
  workers_.clear();
  coordinator_.reset();
}

void HostsCluster::MakeCertificate(const std::string& authority,
                                   const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {Path(authority)};
  Append(all, arguments);
  const auto made = RunProgram(
      {.program = Program("tools/dev_ca.sh"), .arguments = std::move(all)}, kPatience);
  EXPECT_THAT(made, IsOk());
  EXPECT_TRUE(made.ok() && made->exit.ok()) << made->output;
}

std::vector<std::string> HostsCluster::TlsFlags(const std::string& name) const {
  return {"--tls-certificate", absl::StrCat(Path("ca/"), name, ".pem"),
          "--tls-key", absl::StrCat(Path("ca/"), name, ".key"),
          "--tls-authorities", Path("ca/ca.pem")};
}

void HostsCluster::StartCoordinator() {
  std::vector<std::string> arguments = {
      "--listen", absl::StrCat(HostAddresses().at(kCoordinatorHost), ":7070"),
      "--store", Path("coordinator.db"), "--port-file", Path("coordinator.address")};
  Append(arguments, TlsFlags("server"));
  auto started = network_->Start(kCoordinatorHost,
                                 {.program = Program("coordinator/server/coordinator"),
                                  .arguments = std::move(arguments),
                                  .output_file = Path("coordinator.log")});
  EXPECT_THAT(started, IsOk());
  LOCKSTEP_CHECK(started.ok());
  coordinator_ = *std::move(started);
  const absl::Time end = absl::Now() + kPatience;
  while (!std::filesystem::exists(Path("coordinator.address")) && absl::Now() < end &&
         !coordinator_->Wait(kPoll)) {
  }
  EXPECT_TRUE(std::filesystem::exists(Path("coordinator.address")))
      << ReadFile(Path("coordinator.log")).value_or("");
}

std::string HostsCluster::Ctl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"--coordinator", absl::StrCat(HostAddresses().at(kCoordinatorHost), ":7070")});
  const std::vector<std::string> tls = TlsFlags("alice");
  arguments.insert(arguments.begin(), tls.begin(), tls.end());
  const auto result = network_->Run(
      kCoordinatorHost,
      {.program = Program("client/ctl/lockstepctl"), .arguments = std::move(arguments)}, kPatience);
  EXPECT_THAT(result, IsOk());
  if (!result.ok()) return "";
  EXPECT_TRUE(result->exit.ok()) << result->output;
  return result->output;
}

void HostsCluster::AwaitJob(const std::string& what,
                            const std::function<bool(const nlohmann::json&)>& condition) {
  std::string status;
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; absl::SleepFor(kPoll)) {
    status = Ctl({"--json", "job", "status", kJob});
    const auto job = nlohmann::json::parse(status, nullptr, /*allow_exceptions=*/false);
    if (!job.is_discarded() && condition(job)) return;
  }
  FAIL() << "the job was not " << what << " within " << kPatience << ": " << status;
}

void HostsCluster::AwaitTraining(int workers) {
  AwaitJob(absl::StrCat("training by ", workers), [&](const nlohmann::json& status) {
    return status.at("job").at("state") == "STATE_RUNNING" &&
           status.at("job").at("step") != "0" &&
           std::ranges::count_if(status.at("workers"), [](const nlohmann::json& worker) {
             return worker.at("state") == "STATE_TRAINING";
           }) == workers;
  });
}

std::vector<std::string> HostsCluster::WorkerArguments(
    int index, const std::vector<std::string>& tls) const {
  std::vector<std::string> arguments = {
      "--coordinator", absl::StrCat(HostAddresses().at(kCoordinatorHost), ":7070"),
      "--job",         kJob,
      "--name",        NameOf(index),
      "--transport",   "gloo",
      "--interface",   "eth0"};
  Append(arguments, tls);
  Append(arguments, E2eCluster::TrainerFlags(trainer_flags_));
  return arguments;
}

void HostsCluster::StartWorkers() {
  for (int i = 0; i < kWorkers; ++i) {
    std::vector<std::string> arguments = WorkerArguments(i, TlsFlags(NameOf(i)));
    Append(arguments, {"--report", Path(NameOf(i) + ".json")});
    auto started = network_->Start(HostOf(i), {.program = Program("worker/trainer/worker"),
                                               .arguments = std::move(arguments),
                                               .environment = {{"OMP_NUM_THREADS", "1"}},
                                               .output_file = Path(NameOf(i) + ".log")});
    ASSERT_THAT(started, IsOk());
    workers_[i] = *std::move(started);
  }
}

std::string HostsCluster::WorkerLog(int index) const {
  return ReadFile(Path(NameOf(index) + ".log")).value_or("");
}

void HostsCluster::ExpectTurnedAway(
    const std::map<std::string, std::vector<std::string>>& strangers) {
  std::map<std::string, std::unique_ptr<ChildProcess>> processes;
  for (const auto& [log, tls] : strangers) {
    std::vector<std::string> arguments = WorkerArguments(1, tls);
    Append(arguments, {"--join-timeout", "1s"});
    auto started = network_->Start(kHostB, {.program = Program("worker/trainer/worker"),
                                            .arguments = std::move(arguments),
                                            .output_file = Path("stranger-" + log)});
    ASSERT_THAT(started, IsOk());
    processes[log] = *std::move(started);
  }
  for (const auto& [log, process] : processes) {
    const std::optional<ChildExit> exit = process->Wait(kPatience);
    const std::string said = ReadFile(Path("stranger-" + log)).value_or("");
    EXPECT_TRUE(exit.has_value() && exit->code == 1) << said;
    EXPECT_THAT(said, testing::HasSubstr("Socket closed"));  // by the coordinator
  }
}

std::vector<std::string> HostsCluster::OtherAuthority() {
  MakeCertificate("other", {"worker", "w1"});
  return {"--tls-certificate", Path("other/w1.pem"), "--tls-key", Path("other/w1.key"),
          "--tls-authorities", Path("ca/ca.pem")};
}

std::vector<nlohmann::json> HostsCluster::ExpectEqualEnds() {
  std::vector<nlohmann::json> reports;
  for (int i = 0; i < kWorkers; ++i) {
    const std::optional<ChildExit> exit = workers_[i]->Wait(kPatience);
    EXPECT_TRUE(exit.has_value() && exit->ok())
        << NameOf(i) << ": " << (exit.has_value() ? exit->ToString() : "does not end");
    reports.push_back(nlohmann::json::parse(ReadFile(Path(NameOf(i) + ".json")).value_or(""),
                                            nullptr, /*allow_exceptions=*/false));
    EXPECT_FALSE(reports.back().is_discarded()) << NameOf(i) << " left no report";
    if (reports.back().is_discarded()) return {};
    for (const char* what : {"steps", "parameter_digest"}) {
      EXPECT_EQ(reports.back().at(what), reports.front().at(what)) << NameOf(i) << ": " << what;
    }
  }
  return reports;
}

EpochHistory HostsCluster::ExpectRightEnd() {
  EpochHistory history;
  const std::vector<nlohmann::json> reports = ExpectEqualEnds();
  if (reports.empty()) return history;
  for (int i = 0; i < kWorkers; ++i) EXPECT_THAT(history.Add(NameOf(i), reports[i]), IsOk());
  const auto serial = SerialTraining::Create(E2eCluster::TrainerFlags(trainer_flags_));
  EXPECT_THAT(serial, IsOk());
  if (!serial.ok()) return history;
  EXPECT_THAT(history.Replay(reports[0].at("steps"), reports[0].at("parameter_digest"), **serial),
              IsOk());
  for (const auto& [number, epoch] : history.epochs()) {
    std::cout << "epoch " << number << " of " << epoch.world_size << " ranks, behind step "
              << epoch.step << ": " << epoch.stall_seconds.value_or(0) << " s without a step\n";
  }
  return history;
}

}  // namespace lockstep
