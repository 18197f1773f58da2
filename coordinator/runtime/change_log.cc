#include "coordinator/runtime/change_log.h"

#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

// A policy may have a thousand patterns; a log line has not.
constexpr std::size_t kMaxLineBytes = 1000;

struct Line {
  LogLevel level = LogLevel::kInfo;
  std::string text;  // empty: not worth a line
};

// The job and the epoch that a record is about.
template <typename R>
LogFields FieldsOf(const R& r) {
  LogFields fields;
  if constexpr (requires { r.job; }) {
    fields.job = r.job;
  } else if constexpr (requires { r.spec.name; }) {
    fields.job = r.spec.name;
  }
  if constexpr (requires { r.epoch; }) fields.epoch = r.epoch.value();
  return fields;
}

std::string OnJobPrefix(const std::string& job) { return absl::StrCat("job ", job, ": "); }

Line Describe(const GenerationStarted& r) {
  return {.text = absl::StrCat("generation ", r.generation.value(), " starts")};
}
Line Describe(const JobCreated& r) {
  return {.text = absl::StrCat(OnJobPrefix(r.spec.name), "created; an epoch needs ",
                               r.spec.min_workers, " workers")};
}
Line Describe(const JobDeleted& r) { return {.text = absl::StrCat(OnJobPrefix(r.job), "deleted")}; }
Line Describe(const ManifestAgreed& r) {
  return {.text = absl::StrCat(OnJobPrefix(r.job), "model has ", r.manifest.parameters.size(),
                               " parameters and ", r.manifest.buffers.size(), " buffers")};
}
Line Describe(const EpochProposed& r) {
  std::vector<std::string> names;
  for (const Member& member : r.members) names.push_back(member.worker);
  return {.text = absl::StrCat(OnJobPrefix(r.job), "epoch ", r.epoch.value(), " proposed to ",
                               names.size(), " workers: ", ListNames(names))};
}
Line Describe(const EpochStarted& r) {
  return {.text = absl::StrCat(OnJobPrefix(r.job), "epoch ", r.epoch.value(), " started")};
}
Line Describe(const MemberLeft& r) { return {}; }  // told by the worker's line
Line Describe(const EpochEnded& r) {
  return {.text = absl::StrCat(OnJobPrefix(r.job), "epoch ", r.epoch.value(), " ended: ", r.why)};
}
std::string Name(const PolicyRevised& revised) {
  return absl::StrCat("policy revision ", revised.revision.value(), " (",
                      Describe(revised.policy), ")");
}
std::string Name(const SyncOnce&) { return "sync once"; }
std::string Name(const Regroup& regroup) {
  return regroup.drain.empty() ? "regroup" : absl::StrCat("regroup without ", regroup.drain);
}
std::string Name(const CheckpointOnce&) { return "checkpoint once"; }
Line Describe(const EntryAppended& r) {
  const std::string what =
      std::visit([](const auto& decision) { return Name(decision); }, r.entry.decision);
  return {.text = absl::StrCat(
              OnJobPrefix(r.job), "entry ", r.entry.number.value(), ": ", what,
              r.author.empty() ? "" : absl::StrCat(", by ", r.author),
              r.reason.empty() ? "" : absl::StrCat(", because: ", r.reason))};
}
Line Describe(const EntryApplied&) { return {}; }

std::string DescribeStage(WorkerStage stage) {
  switch (stage) {
    case WorkerStage::kAttending:
      return "attends";
    case WorkerStage::kSuspect:
      return "is suspect: its stream broke, its lease still runs";
    case WorkerStage::kLeft:
      return "left: its work is done";
    case WorkerStage::kPreparing:
    case WorkerStage::kReady:
    case WorkerStage::kTraining:
      return "";  // told by the epoch's lines
  }
  return "";
}

}  // namespace

void ChangeLog::OnRecord(const Record& record) {
  Line line = std::visit([](const auto& r) { return Describe(r); }, record);
  if (line.text.size() > kMaxLineBytes) {
    line.text.resize(kMaxLineBytes);
    line.text += " ...";
  }
  if (line.text.empty()) return;
  write_(line.level, line.text, std::visit([](const auto& r) { return FieldsOf(r); }, record));
}

void ChangeLog::OnJob(const std::string& name, const JobState* job) {
  if (job == nullptr) {
    stages_.erase(name);
    return;
  }
  std::map<std::string, WorkerStage>& known = stages_[name];
  for (const auto& [worker_name, worker] : job->workers) {
    const auto [it, is_new] = known.try_emplace(worker_name, worker.stage);
    if (!is_new && it->second == worker.stage) continue;
    const bool is_back = !is_new && it->second == WorkerStage::kSuspect;
    it->second = worker.stage;
    std::string text = DescribeStage(worker.stage);
    if (text.empty() && is_back) text = "is back";
    if (text.empty() && is_new) text = "attends";
    if (text.empty()) continue;
    write_(worker.stage == WorkerStage::kSuspect ? LogLevel::kWarning : LogLevel::kInfo,
           absl::StrCat(OnJobPrefix(name), "worker ", worker_name, " ", text), {.job = name});
  }
  std::erase_if(known, [&](const auto& entry) {
    if (job->workers.contains(entry.first)) return false;
    const bool was_suspect = entry.second == WorkerStage::kSuspect;
    write_(was_suspect ? LogLevel::kWarning : LogLevel::kInfo,
           absl::StrCat(OnJobPrefix(name), "worker ", entry.first,
                        was_suspect ? " is lost: it did not come back within its lease"
                                    : " is gone"),
           {.job = name});
    return true;
  });
}

}  // namespace lockstep
