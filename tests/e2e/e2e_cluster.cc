#include "tests/e2e/e2e_cluster.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);

}  // namespace

std::string MakeFolder() {
  std::string folder = testing::TempDir() + "/lockstep-XXXXXX";
  LOCKSTEP_CHECK(mkdtemp(folder.data()) != nullptr);
  return folder;
}

E2eCluster::E2eCluster() {
  absl::StatusOr<std::unique_ptr<LocalCluster>> processes = LocalCluster::Create(MakeFolder());
  EXPECT_THAT(processes, IsOk());
  LOCKSTEP_CHECK(processes.ok());
  processes_ = *std::move(processes);
  EXPECT_THAT(processes_->StartCoordinator(), IsOk());
  ConnectAgain();
}

void E2eCluster::ConnectAgain() {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(processes_->address());
  EXPECT_THAT(client, IsOk());
  LOCKSTEP_CHECK(client.ok());
  client_ = *std::move(client);
}

v1::JobSpec E2eCluster::SpecFor(const std::string& job, int workers) const {
  v1::JobSpec spec;
  spec.set_name(job);
  spec.set_min_workers(workers);
  for (int i = 0; i < workers; ++i) spec.add_workers(LocalCluster::WorkerName(i));
  spec.mutable_lease()->set_seconds(2);
  return spec;
}

void E2eCluster::CreateJob(const v1::JobSpec& spec) {
  EXPECT_THAT(client_->CreateJob(spec), IsOk());
}

std::vector<std::string> E2eCluster::TrainerFlags(const std::vector<std::string>& flags) {
  const absl::StatusOr<std::string> data = FindMnist();
  EXPECT_THAT(data, IsOk());
  std::vector<std::string> all = {"--data", data.value_or(""), "--model", "mlp", "--batch", "8"};
  // A flag given twice is refused: the test's own wins.
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const auto given = std::find(all.begin(), all.end(), flags[i]);
    if (given != all.end()) all.erase(given, given + 2);
  }
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

void E2eCluster::StartWorker(int index, const std::string& job,
                             const std::vector<std::string>& flags) {
  EXPECT_THAT(processes_->StartWorker(index, job, TrainerFlags(flags)), IsOk());
}

v1::Job E2eCluster::GetJob(const std::string& job) {
  const absl::StatusOr<v1::Job> found = client_->GetJob(job);
  EXPECT_THAT(found, IsOk());
  return found.value_or(v1::Job());
}

void E2eCluster::AwaitJob(const std::string& job, const std::string& what,
                          const std::function<bool(const v1::Job&)>& condition) {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end;
       absl::SleepFor(kPoll)) {
    if (condition(GetJob(job))) return;
  }
  FAIL() << "job " << job << " was not " << what << " within " << kPatience << ": "
         << GetJob(job).ShortDebugString();
}

E2eCluster::Ended E2eCluster::AwaitWorker(int index) {
  const std::optional<ChildExit> exit = processes_->worker(index).Wait(kPatience);
  const std::string log = processes_->LastWords(LocalCluster::WorkerName(index));
  EXPECT_TRUE(exit.has_value()) << "worker " << index << " did not end; its log: " << log;
  return {.exit = exit.value_or(ChildExit{.code = -1}), .log = log};
}

nlohmann::json E2eCluster::Report(int index) {
  const absl::StatusOr<std::string> text = ReadFile(processes_->ReportPath(index));
  EXPECT_THAT(text, IsOk());
  return nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
}

std::vector<int> ProcessesWith(const std::string& variable) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const absl::StatusOr<std::string> environment = ReadFile(entry.path().string() + "/environ");
    if (!environment.ok()) continue;
    for (const absl::string_view text : absl::StrSplit(*environment, '\0')) {
      if (text == variable) found.push_back(pid);
    }
  }
  return found;
}

}  // namespace lockstep
