// GroupedSettings: the settings of each parameter group of a shard, and which of its
// elements have which. Thread-compatible.
#ifndef LOCKSTEP_WORKER_OPTIM_GROUPED_SETTINGS_H_
#define LOCKSTEP_WORKER_OPTIM_GROUPED_SETTINGS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "worker/optim/optimizer.h"
#include "worker/optim/shard_optimizer.h"

namespace lockstep {

template <typename Config>  // one of OptimizerConfig's
class GroupedSettings {
 public:
  // `config` passed Validate(), `ranges` CheckRanges().
  GroupedSettings(const Config& config, std::vector<GroupRange> ranges)
      : groups_(config.groups),
        settings_(groups_.size() + 1, WithoutGroups(config)),
        ranges_(std::move(ranges)) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      settings_[i + 1].weight_decay = groups_[i].weight_decay.value_or(config.weight_decay);
    }
    SetLearningRate(config.lr);
  }

  // The optimizer's own, then those of each group; without groups.
  const std::vector<Config>& settings() const { return settings_; }
  std::int64_t elements() const { return ranges_.empty() ? 0 : ranges_.back().end; }

  double learning_rate() const { return settings_[0].lr; }
  // `lr` passed CheckLearningRate().
  void SetLearningRate(double lr) {
    settings_[0].lr = lr;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      settings_[i + 1].lr = lr * groups_[i].lr_scale;
    }
  }

  // Calls `update(index in settings(), part_begin, part_end)` for the longest parts of
  // [begin, end) that have one group, in order.
  template <typename Update>
  void ForEachPart(std::int64_t begin, std::int64_t end, Update update) const {
    auto range = std::ranges::upper_bound(ranges_, begin, {}, &GroupRange::end);
    for (std::int64_t at = begin; at < end; ++range) {
      const std::int64_t stop = std::min(end, range->end);
      update(static_cast<std::size_t>(range->group + 1), at, stop);
      at = stop;
    }
  }

 private:
  static Config WithoutGroups(Config config) {
    config.groups.clear();
    return config;
  }

  std::vector<ParameterGroup> groups_;
  std::vector<Config> settings_;
  std::vector<GroupRange> ranges_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_OPTIM_GROUPED_SETTINGS_H_
