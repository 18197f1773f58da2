#include "worker/core/step_commit.h"

#include <algorithm>

#include "common/base/check.h"

namespace lockstep {

StepCommit::StepCommit(Epoch lineage, Epoch epoch, std::int64_t step, std::int64_t samples,
                       std::span<const Shard> copies)
    : held_{.lineage = lineage, .epoch = epoch, .step = step, .samples = samples} {
  LOCKSTEP_CHECK(copies.size() <= held_.copies.size());
  std::ranges::copy(copies, held_.copies.begin());
}

void StepCommit::Prepared(std::int64_t samples) {
  LOCKSTEP_CHECK(stage_ == Stage::kIdle);
  stage_ = Stage::kPrepared;
  held_.prepared = true;
  held_.prepared_samples = held_.samples + samples;
}

void StepCommit::BeginUpdate(std::int64_t samples) {
  LOCKSTEP_CHECK(stage_ == Stage::kIdle);
  held_.prepared_samples = held_.samples + samples;
  stage_ = Stage::kUpdating;
}

void StepCommit::BeginUpdate() {
  LOCKSTEP_CHECK(stage_ == Stage::kPrepared);
  held_.prepared = false;
  stage_ = Stage::kUpdating;
}

void StepCommit::Updated() {
  LOCKSTEP_CHECK(stage_ == Stage::kUpdating);
  stage_ = Stage::kIdle;
  held_ = Next();
}

Holding StepCommit::holding() const {
  if (stage_ != Stage::kUpdating) return held_;
  Holding torn = Next();
  torn.copies = {};
  return torn;
}

Holding StepCommit::Next() const {
  Holding next = held_;
  next.lineage = held_.epoch;
  next.step = held_.step + 1;
  next.samples = held_.prepared_samples;
  next.prepared_samples = 0;
  return next;
}

}  // namespace lockstep
