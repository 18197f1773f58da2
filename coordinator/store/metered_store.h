// MeteredStore: another store, and what went through it: how often which kind of record was
// appended for which job, and how long appends took.
//
// The store is used by one thread; Meter() may be called by any.
#ifndef LOCKSTEP_COORDINATOR_STORE_METERED_STORE_H_
#define LOCKSTEP_COORDINATOR_STORE_METERED_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "coordinator/store/store.h"

namespace lockstep {

// Of one job since this process started.
struct JobEvents {
  std::int64_t epochs_started = 0;
  std::int64_t epochs_finished = 0;   // each member had done its work
  std::int64_t epochs_failed = 0;     // a member was lost, or it ended before it started
  std::int64_t epochs_regrouped = 0;  // ended because members came or went, as all agreed
  std::int64_t entries = 0;           // of the control log
};

// Upper bounds of buckets, in seconds; the last one has none.
inline constexpr std::array kAppendBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01,
                                             0.025,  0.05,  0.1,    0.5,   2.5};

struct StoreMeter {
  std::map<std::string, JobEvents> jobs;
  std::array<std::int64_t, kAppendBounds.size() + 1> appends = {};  // by bucket
  double append_seconds = 0;
};

class MeteredStore final : public Store {
 public:
  // `clock` outlives it.
  MeteredStore(std::unique_ptr<Store> store, const Clock* clock)
      : store_(std::move(store)), clock_(clock), meter_(std::make_shared<Shared>()) {}

  absl::StatusOr<std::vector<Record>> Load() override { return store_->Load(); }
  absl::Status Append(std::span<const Record> records) override;

  // A function for others to ask by; it outlives the store.
  std::function<StoreMeter()> meter() const;

 private:
  struct Shared {
    Mutex mu;
    StoreMeter meter ABSL_GUARDED_BY(mu);
  };

  const std::unique_ptr<Store> store_;
  const Clock* const clock_;
  const std::shared_ptr<Shared> meter_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_STORE_METERED_STORE_H_
