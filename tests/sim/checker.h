// Checker: what must hold in every run, whatever fails. It hears of each epoch, each attempt at a
// step and each step taken, on any worker, and keeps the first broken promise.
//
//   one history   a step that a rank took is never lost nor taken twice, and every rank's
//                 parameters behind it are bit for bit those of the serial reference; samples
//                 have neither gap nor repetition
//   lockstep      all ranks of an epoch try a step under the same revision
//   epochs        an epoch is proposed with one list of members only; all begin it behind the
//                 same step
//   needless loss members that run and can be reached are not left behind with what they hold
//   the word      what a client was answered is never forgotten
//
// A history may end, and another begin from nothing or from a state that somebody had kept, only
// after a loss that replicas do not cover: see MayBeLost(). Thread-compatible.
#ifndef LOCKSTEP_TESTS_SIM_CHECKER_H_
#define LOCKSTEP_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/policy/sync_policy.h"
#include "common/protocol/messages.h"
#include "coordinator/core/state.h"
#include "tests/sim/trace.h"
#include "tests/sim/training.h"

namespace lockstep::sim {

// One start of a worker.
struct Life {
  std::string worker;
  Incarnation incarnation;
};

class Checker final {
 public:
  // `is_out`: whether that life is over, or was out of the coordinator's reach for so long that
  // the job need not wait for it.
  Checker(Trace* trace, const Training& training, int optimizer_replicas,
          std::function<bool(const Life&)> is_out)
      : trace_(*trace),
        training_(training),
        replicas_(optimizer_replicas),
        is_out_(std::move(is_out)) {}

  // "CHECKER: what is wrong", or empty.
  const std::string& violation() const { return violation_; }

  void OnState(const ClusterState& state);
  void OnRevision(Revision revision, const SyncPolicy& policy) { answered_[revision] = policy; }
  void OnEntry(LogNumber number) { entries_ = std::max(entries_, number); }

  void OnProposal(const Life& life, const Proposal& proposal);
  // `step` is the next one to be taken.
  struct Attempt {
    Epoch epoch;
    std::int64_t step = 0;
    int world_size = 0;
    Revision revision;
  };
  void OnAttempt(const Life& life, const Attempt& attempt);
  // Where a rank is: `parameters` are those behind `step`.
  struct Place {
    Epoch epoch;
    std::int64_t step = 0;
    std::int64_t samples = 0;
    std::vector<std::vector<float>> parameters;
  };
  void OnJoined(const Life& life, const Place& place);
  void OnCommitted(const Life& life, const Place& place);
  void OnApplied(const Life& life, Epoch epoch, LogNumber number, std::int64_t step);
  void OnDataLoss(const Life& life);

  std::int64_t last_step() const;
  std::int64_t epochs_begun() const;
  Epoch newest_whole() const { return whole_; }
  int histories() const { return static_cast<int>(lines_.size()); }
  // The members of the newest epoch that all its members have begun.
  std::vector<Life> Holders() const;
  // Whether none was proposed since.
  bool newest_is_whole() const { return !epochs_.empty() && epochs_.rbegin()->first == whole_; }

 private:
  struct Line {
    Epoch first;  // began with it
    std::vector<std::shared_ptr<const SerialReference>> steps;  // by step, from 0
    std::vector<Epoch> taken_in;                                // by step
  };
  struct EpochSeen {
    std::vector<std::string> members;
    std::map<std::string, Incarnation> heard;   // members that took the proposal
    std::map<std::string, Incarnation> joined;  // that trained
    std::int64_t step = 0;                      // behind which it began
  };

  void Break(const std::string& checker, const std::string& what);
  Line* LineOf(Epoch epoch);
  // Whether what the members of the last whole epoch held may be lost in `epoch`; if not, that is
  // said of `whose` as a violation.
  bool MayBeLost(Epoch epoch, const std::string& whose);
  // `exact`: taken in place.epoch, for certain.
  void Compare(const Life& life, const Place& place, bool exact);

  Trace& trace_;
  const Training training_;
  const int replicas_;
  const std::function<bool(const Life&)> is_out_;
  std::string violation_;
  std::vector<Line> lines_;
  std::map<Epoch, EpochSeen> epochs_;
  Epoch whole_;  // the newest epoch that all members have begun
  Epoch given_up_;  // whose state was lost, as it may be, in a later one
  std::map<std::pair<Epoch, std::int64_t>, Attempt> attempts_;
  std::map<std::pair<Epoch, LogNumber>, std::int64_t> applied_;
  std::map<Revision, SyncPolicy> answered_;
  LogNumber entries_;
  std::map<std::string, Incarnation> drained_;  // workers, up to these
  std::string last_epoch_text_;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_CHECKER_H_
