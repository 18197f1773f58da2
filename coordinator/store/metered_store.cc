#include "coordinator/store/metered_store.h"

#include <algorithm>
#include <variant>

namespace lockstep {
namespace {

void Count(const Record& record, std::map<std::string, JobEvents>& jobs) {
  if (const auto* created = std::get_if<JobCreated>(&record)) {
    jobs[created->spec.name] = {};
  } else if (const auto* deleted = std::get_if<JobDeleted>(&record)) {
    jobs.erase(deleted->job);
  } else if (const auto* started = std::get_if<EpochStarted>(&record)) {
    ++jobs[started->job].epochs_started;
  } else if (const auto* ended = std::get_if<EpochEnded>(&record)) {
    JobEvents& events = jobs[ended->job];
    if (ended->regrouped) {
      ++events.epochs_regrouped;
    } else if (ended->why == kAllMembersFinished) {
      ++events.epochs_finished;
    } else {
      ++events.epochs_failed;
    }
  } else if (const auto* appended = std::get_if<EntryAppended>(&record)) {
    ++jobs[appended->job].entries;
  }
}

}  // namespace

absl::Status MeteredStore::Append(std::span<const Record> records) {
  const MonoTime begin = clock_->Now();
  const absl::Status status = store_->Append(records);
  const double seconds = absl::ToDoubleSeconds(clock_->Now() - begin);
  MutexLock lock(&meter_->mu);
  StoreMeter& meter = meter_->meter;
  const auto bucket = std::ranges::lower_bound(kAppendBounds, seconds) - kAppendBounds.begin();
  ++meter.appends[static_cast<std::size_t>(bucket)];
  meter.append_seconds += seconds;
  if (!status.ok()) return status;
  for (const Record& record : records) Count(record, meter.jobs);
  return status;
}

std::function<StoreMeter()> MeteredStore::meter() const {
  return [shared = meter_] {
    MutexLock lock(&shared->mu);
    return shared->meter;
  };
}

}  // namespace lockstep
