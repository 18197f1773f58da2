// Recovery: how a job goes on from what the members of a new epoch hold.
//
// Each member says what it brings; all of them make the same decision from that. State is
// told apart by its lineage and step alone: any two copies of an element of the same
// lineage and step are equal, whichever rank and epoch they come from. A step that is taken
// back and tried again has other values; it is of another epoch, and so of another lineage.
//
//   nobody has taken a step            -> start anew, from the model's own values
//   every element has a copy           -> continue from there; copies move as is decided here
//   the state of some elements is gone -> restore: from a checkpoint, or not at all
//   all missed the job's last epoch    -> restore: how far it came, nobody here knows
//
// The members of the latest epoch say behind which step: others fell behind, and what they
// hold counts only where it is that state, or becomes it. Whether a step that was under way
// is completed or taken back, by the rule of the commit point (step_commit.h): it may have
// been committed only if every member of its epoch had prepared it. So it is completed if
// all of them that are left have, and else nobody has seen it committed. Pure;
// thread-compatible.
#ifndef LOCKSTEP_WORKER_CORE_RECOVERY_H_
#define LOCKSTEP_WORKER_CORE_RECOVERY_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/sharding/shard_plan.h"

namespace lockstep {

// A rank holds at most three copies in an epoch: of its own shard; as a buddy, of another's; and
// one that a drained rank left. And two more while it cannot know whether all others have taken
// over those of a new epoch.
inline constexpr int kMaxCopies = 5;

// What a rank brings into an epoch. Trivially copyable: it is moved as bytes.
struct Holding {
  // The epoch that committed `step`, or that began or was restored behind it; not valid: it
  // brings nothing.
  Epoch lineage;
  // The last epoch in which this rank trained.
  Epoch epoch;
  std::int64_t step = 0;     // its copies are behind this step
  std::int64_t samples = 0;  // committed with the steps so far
  // It holds all that it takes to complete step + 1 of its copies, without others.
  bool prepared = false;
  std::int64_t prepared_samples = 0;  // committed with step + 1
  double learning_rate = 0;           // of the steps to come
  std::array<Shard, kMaxCopies> copies = {};  // as of CopiesOf(); empty ones count for nothing
};

// Elements of the flat space whose state goes from a copy of one rank to one of another or
// of the same.
struct Move {
  int from = 0;
  int to = 0;
  Shard elements;

  bool operator==(const Move&) const = default;
};

struct Recovery {
  enum class Way { kStartAnew, kContinue, kRestore };
  Way way = Way::kStartAnew;
  // Of kContinue and kRestore: the state that members are to hold.
  Epoch lineage;
  std::int64_t step = 0;
  // Of kContinue:
  std::int64_t samples = 0;
  double learning_rate = 0;
  std::vector<bool> completes;  // by rank: it completes its prepared step first
  std::vector<bool> survives;   // by rank: it was there at that step; the others are new
  // What fills the new copies, each from one copy to one: in the order of `copies` and their
  // elements, without gap or overlap. From the rank itself where it can be, and else from the
  // lowest that has it.
  std::vector<Move> moves;
  // Of kRestore: elements that nobody holds, the first in the order of `copies`; none if
  // instead all missed an epoch.
  Shard lost;
  Epoch missed;

  int FirstSurvivor() const;  // of kContinue
};

// `holdings`, `copies`: by rank of the new epoch; `copies` as of CopiesOf(). `missed`: as of
// Proposal.
Recovery DecideRecovery(std::span<const Holding> holdings,
                        std::span<const std::vector<Shard>> copies, Epoch missed = Epoch());

// "continues behind step 41 with the state of w0, w2; completed first by w2; new: w3".
std::string Describe(const Recovery& recovery, const std::vector<std::string>& members);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CORE_RECOVERY_H_
