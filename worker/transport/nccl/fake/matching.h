// Which operations of the ranks of a communicator belong together: the n-th collective
// of each rank, the n-th Send of a rank to another and that one's n-th Recv from it.
//
// Part of World, whose mutex is held by all callers.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_MATCHING_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_MATCHING_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "worker/transport/nccl/fake/operations.h"

namespace lockstep::fake_nccl {

struct World;

class Matching {
 public:
  // Gives the operations of one group their places, in order. Returns how they differ
  // from those of the ranks that added theirs before; what differs is never done.
  std::vector<std::string> Add(const std::vector<Operation*>& group);

  // Whether all that it takes part with have added an operation, of any group.
  bool HavePartnersCome(const Operation& operation) const;

  // The stream has reached an operation that was added. Once those of all that take
  // part were reached, it is done.
  void Reach(World& world, Operation* operation);

  // What the rank's streams have reached is not done any more, on no rank.
  void Abandon(int rank);

 private:
  struct Slot {
    std::string expected;  // by the rank that placed it first
    int expected_of = 0;
    bool broken = false;
    std::vector<Operation*> reached;
  };

  std::map<Place, Slot> slots_;
  // How many were placed, by sender, receiver, and 0 for Send and 1 for Recv; of
  // collectives by -1, -1, rank.
  std::map<std::tuple<int, int, int>, int> placed_;
};

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_MATCHING_H_
