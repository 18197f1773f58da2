// The calls that were made: counted, and replaced by what tests inject.
//
// Part of World, whose mutex is held by all callers.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_CALLS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_CALLS_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/transport/nccl/fake/fake_nccl.h"

namespace lockstep::fake_nccl {

struct World;

class Calls {
 public:
  // Counts a call. A value: what it returns at once; may wait before.
  std::optional<int> Enter(World& world, const std::string& function, int device);

  // What CommGetAsyncError was told to report on `device`, if anything.
  std::optional<int> AsyncError(int device) const;
  // It goes with the communicator that it was of.
  void ForgetAsyncError(int device);

  void Inject(const FakeNccl::Injection& injection) { injections_.push_back(injection); }
  int CallsOf(const std::string& function, std::optional<int> device) const;
  int held() const { return held_; }
  void Release() { released_ = true; }

 private:
  std::map<std::pair<std::string, int>, int> counts_;  // by function and device
  std::vector<FakeNccl::Injection> injections_;
  std::map<std::optional<int>, int> async_errors_;  // by device; nullopt: all
  int held_ = 0;
  bool released_ = false;
};

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_CALLS_H_
