// CheckedTransport: what all transports have in common, so that an
// implementation only moves bytes.
//
// Before any data moves the ranks exchange one small record each and compare it.
// Where they differ, each rank makes the same error from the same records, and no
// tensor was touched. After the first error the transport is dead.
//
//   alive --error of any operation, or Abort()--> dead
//
// An implementation provides the primitives below; they are called in the same
// order on all ranks, with layouts that are known to be equal.
#ifndef LOCKSTEP_WORKER_TRANSPORT_CHECKED_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_CHECKED_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "worker/transport/call.h"
#include "worker/transport/transport.h"

namespace lockstep {

// Errors: InvalidArgument: no members, the rank is not one of them, or the
//   deadline is not positive.
absl::Status Validate(const Group& group);

class CheckedTransport : public Transport {
 public:
  int rank() const final { return group_.rank; }
  int world_size() const final { return static_cast<int>(group_.members.size()); }

  absl::Status Exchange(std::span<const Transfer> transfers) final;
  absl::Status Pass(std::span<const Passage> passages) final;
  absl::StatusOr<Arena> Allocate(ArenaUse use, DType dtype, std::int64_t elements) final;
  absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                              std::span<const float> weights, const ConsumeSums& consume) final;
  absl::Status BroadcastFromOwners(const Arena& parameters,
                                   std::span<const Shard> shards) final;
  absl::Status UpdateShards(const Arena& gradients, const Arena& parameters,
                            std::span<const Shard> shards, std::span<const float> weights,
                            const ConsumeSums& update) final;
  absl::Status BeginReduction(std::span<const ArenaShards> parts, float weight) final;
  absl::StatusOr<Agreement> Agree(const ControlWord& mine) final;
  void Abort(absl::Status why) final;

 protected:
  explicit CheckedTransport(Group group);

  const Group& group() const { return group_; }
  // When the operation in progress must have ended.
  MonoTime deadline() const { return deadline_; }
  // Also for the time of forming, before the first operation.
  void StartDeadline() { deadline_ = clock_.Now() + group_.deadline; }
  absl::Duration TimeLeft() const { return deadline_ - clock_.Now(); }

  // All ranks' records by rank; a barrier: what a rank wrote before, all see
  // after.
  virtual absl::StatusOr<std::vector<Call>> ExchangeCalls(const Call& mine) = 0;
  // `views` hold at least one byte.
  virtual absl::Status MoveBroadcast(std::span<const TensorView> views, int root) = 0;
  // The weights are of a mean, by rank, or none.
  virtual absl::Status MoveAllReduce(std::span<const TensorView> views, ReduceOp op,
                                     std::span<const double> weights) = 0;
  // By default one broadcast for each, which all ranks take part in.
  virtual absl::Status MovePassages(std::span<const Passage> passages);
  // Memory for arena number `index`; nobody touches it before all ranks have it.
  virtual absl::StatusOr<Arena> MakeArena(int index, ArenaUse use, DType dtype,
                                          std::int64_t elements) = 0;
  // The sums of this rank's shard of arena number `gradients`, handed to `consume`.
  virtual absl::Status MoveToOwners(int gradients, std::span<const Shard> shards,
                                    std::span<const float> weights,
                                    const ConsumeSums& consume) = 0;
  // Of an arena that is not shared; afterwards it may be read, also in a world of one rank. By
  // default one broadcast for each owner.
  virtual absl::Status MoveFromOwners(const Arena& arena, std::span<const Shard> shards);
  // The two in turn; by default one after the other, and none of the second but a
  // barrier where all ranks share the parameters.
  virtual absl::Status MoveUpdates(int gradients, const Arena& parameters,
                                   std::span<const Shard> shards,
                                   std::span<const float> weights, const ConsumeSums& update);
  // Starts a reduction in the background; by default nothing is. Another thread then
  // calls ReduceBegun(), and uses the primitives until JoinReduction() has returned.
  struct BegunPart {
    int arena = 0;
    std::vector<Shard> shards;
  };
  virtual absl::Status StartReduction(std::vector<BegunPart> parts, float weight) {
    return absl::OkStatus();
  }
  // Waits for it, if there is one, within the deadline of operations. The error is one
  // that Fail() or ReduceBegun() has given.
  virtual absl::Status JoinReduction() { return absl::OkStatus(); }
  // The ranks meet about what they began, then `reduce` moves it. `weights` by rank.
  absl::Status ReduceBegun(std::span<const BegunPart> parts, float weight,
                           const std::function<absl::Status(std::vector<float> weights)>& reduce);
  // Whether what was begun of an arena is what is called for now, alike on all ranks.
  virtual absl::Status CheckBegun(int gradients, std::span<const Shard> shards,
                                  std::span<const float> weights) const {
    return absl::OkStatus();
  }
  // An error that this rank alone knows of: peers are told.
  absl::Status Fail(absl::Status error);

  // Ends the waits of this rank, and of peers where that is possible. Any thread;
  // at most once for each transport.
  virtual void Interrupt(const absl::Status& why) = 0;

 private:
  // What ranks may disagree on; a later list only if they agree on the ones before.
  using Layouts = std::vector<std::vector<LayoutLine>>;

  absl::Status BeginOperation();
  absl::Status CheckAlive();
  // Exchanges and compares; `layouts` are made only where they differ.
  absl::StatusOr<std::vector<Call>> Meet(const Call& mine,
                                         const std::function<Layouts()>& layouts);
  absl::Status MeetAbout(CallKind kind, std::span<const int> arenas,
                         std::span<const Shard> shards, std::span<const float> weights);
  absl::Status ExplainLayouts(CallKind kind, const Layouts& layouts);
  // The ranks' difference in one list, "" if there is none.
  absl::StatusOr<std::string> CompareLayouts(const std::vector<LayoutLine>& lines);
  // An error that every rank makes by itself.
  absl::Status Refuse(absl::Status error);

  // `any_shared`: of all transfers of the exchange.
  absl::Status Move(const Transfer& transfer, bool any_shared);

  int ArenaIndex(const Arena& arena) const;
  // Where a view lies in memory that all ranks share; nothing: it does not.
  struct Place {
    std::int64_t arena = 0;
    std::int64_t byte = 0;

    std::string ToString() const;
  };
  std::optional<Place> SharedPlace(const TensorView& view) const;
  bool AnyShared(std::span<const Transfer> transfers) const;
  std::uint64_t DigestOf(std::span<const Transfer> transfers, bool any_shared) const;
  Layouts LayoutsOf(std::span<const Transfer> transfers) const;
  std::vector<LayoutLine> LinesOf(std::span<const int> arenas, std::span<const Shard> shards,
                                  std::span<const float> weights) const;
  absl::Status CheckPlaces(std::span<const Transfer> transfers) const;
  absl::Status CheckReducible(const Arena& gradients, std::span<const float> weights) const;
  absl::Status CheckShards(const Arena& arena, std::span<const Shard> shards) const;

  const Group group_;
  const RealClock clock_;
  MonoTime deadline_;
  std::vector<Arena> arenas_;
  bool has_shared_arena_ = false;

  Mutex mu_;
  absl::Status death_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_CHECKED_TRANSPORT_H_
