// Transport: how the members of one epoch move tensors among each other.
//
// A transport belongs to one epoch. After the first error of any call it is
// dead: every later call fails, peers are told, and a new epoch makes a new one.
// Every operation is collective: all ranks call the same operations in the same
// order with the same layout. Where they do not, every rank gets an error that
// names the difference, and no tensor was touched.
//
// Used by one thread; Abort() and GradientsReady() may be called from any.
//
// Errors of every operation:
//   DeadlineExceeded: ranks that did not come in time, named.
//   Aborted: Abort() was called here or on a peer, or the transport is dead.
//   Unavailable: a peer's process is gone, named.
//   FailedPrecondition: ranks called different operations, named.
//   InvalidArgument: ranks disagree on names, dtypes, shapes, order, operation,
//     root, weights or size; the tensor and each rank's view are named.
#ifndef LOCKSTEP_WORKER_TRANSPORT_TRANSPORT_H_
#define LOCKSTEP_WORKER_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/manifest/dtype.h"
#include "common/sharding/shard_plan.h"
#include "worker/combine/combine.h"
#include "worker/core/agreement.h"
#include "worker/transport/passage.h"
#include "worker/transport/tensor_view.h"
#include "worker/transport/transfer.h"

namespace lockstep {

// What an arena holds decides how a transport may back it.
enum class ArenaUse {
  // Equal contents on all ranks outside of the step's update: may be one memory
  // that all ranks share, in which spreading costs no byte.
  kParameters,
  // Each rank's own contents.
  kGradients,
};

// Memory that the transport allocated; 64-byte aligned, zeroed, lives as long as
// the transport. Owns nothing.
struct Arena {
  DType dtype = DType::kFloat32;
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  // All ranks see one memory: a write by one is a write for all.
  bool shared = false;

  std::int64_t bytes() const { return elements * ElementBytes(dtype); }
  std::byte* at(std::int64_t element) const { return data + element * ElementBytes(dtype); }
  // Of an arena of float32.
  std::span<float> floats() const {
    return {reinterpret_cast<float*>(data), static_cast<std::size_t>(elements)};
  }
};

// Gradients that are to be reduced to their owners.
struct ArenaShards {
  Arena gradients;
  std::span<const Shard> shards;  // by rank, as of ReduceToOwners()
};

// Payload that this rank sent and received over a network: tensors and arenas, not the
// records by which ranks agree.
struct TrafficCounters {
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;

  friend bool operator==(const TrafficCounters&, const TrafficCounters&) = default;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Carries out all transfers in order, after one exchange in which the ranks
  // compared names, dtypes, shapes, order, operations, roots and weights of all of
  // them: a disagreement about any leaves the tensors of all untouched.
  //
  // After a broadcast the bytes of every view equal the root's; any dtype. After a
  // reduction every element is the operation over all ranks' elements in rank order,
  // the same bytes on all ranks: worker/combine says how, common/manifest/
  // reduction.h for which dtypes. Nothing moves in a world of one rank.
  // Errors: also InvalidArgument as CheckManner() says, and for a reduction in
  //   memory that all ranks share; nothing was touched.
  virtual absl::Status Exchange(std::span<const Transfer> transfers) = 0;

  // The same for one transfer.
  absl::Status Broadcast(std::span<const TensorView> views, int root) {
    const Transfer transfer = {.root = root, .views = views};
    return Exchange({&transfer, 1});
  }
  absl::Status AllReduce(std::span<const TensorView> views, ReduceOp op) {
    const Transfer transfer = {.reduce = op, .views = views};
    return Exchange({&transfer, 1});
  }

  // Carries out all passages, which all ranks give in the same order, also those that
  // they take no part in. Disagreements leave the tensors of all untouched. What
  // is passed on and where it goes do not overlap, and lie outside of memory that all ranks
  // share. Errors: also InvalidArgument as CheckPassages() says.
  virtual absl::Status Pass(std::span<const Passage> passages) = 0;

  // Collective. Of a type that IsTrainable(); equal on all ranks.
  // Errors: ResourceExhausted: there is not that much memory.
  virtual absl::StatusOr<Arena> Allocate(ArenaUse use, DType dtype, std::int64_t elements) = 0;

  // `shards` of an arena: by rank, within it, in elements. `weights` by rank, equal on
  // all ranks. Sums are made in float in rank order, sum of weight * value; a rank of
  // weight 0 contributes nothing, not even NaN.

  // Hands the sums of this rank's shard of `gradients` to `consume`, which may write
  // to that part of this rank's arena; the rest of it is not changed. Ranks may not
  // write elsewhere in their arena before the next collective call has returned.
  virtual absl::Status ReduceToOwners(const Arena& gradients, std::span<const Shard> shards,
                                      std::span<const float> weights,
                                      const ConsumeSums& consume) = 0;

  // Afterwards every shard of `parameters` equals its owner's on all ranks.
  virtual absl::Status BroadcastFromOwners(const Arena& parameters,
                                           std::span<const Shard> shards) = 0;

  // Both at once, for arenas of equal size: hands the sums of this rank's shard of
  // `gradients` to `update`, which writes the same elements of `parameters`; what is
  // written may spread at once. Afterwards every shard of `parameters` equals its
  // owner's on all ranks, and gradients may be written again.
  virtual absl::Status UpdateShards(const Arena& gradients, const Arena& parameters,
                                    std::span<const Shard> shards, std::span<const float> weights,
                                    const ConsumeSums& update) = 0;

  // Lets gradients travel while backward still makes them; over transports that have
  // nothing to gain by it nothing happens. All ranks do it alike. It does not wait:
  // the reduction is carried out in the background, part by part as all ranks have
  // made it, and the next collective call waits for its end. By then all elements must
  // be ready; its deadline counts from that call.
  //
  // ReduceToOwners() or UpdateShards() of each of the arenas, with these shards and
  // with weights that hold the `weight` of each rank, then find the sums made, to the
  // bit as they would make them. Until then owners' gradients may hold anything, and
  // no rank may write to its arenas where it said that they are ready.
  //
  // Errors: InvalidArgument as of those calls, but on this rank alone; FailedPrecondition:
  //   the last reduction was neither used up nor dropped. All else is an error of the
  //   next collective call: also FailedPrecondition: not all elements are ready.
  virtual absl::Status BeginReduction(std::span<const ArenaShards> parts, float weight) {
    return absl::OkStatus();
  }
  // The elements [begin, end) of an arena of the reduction are what this rank
  // contributes. May be said more than once; any thread.
  virtual void GradientsReady(const Arena& gradients, std::int64_t begin, std::int64_t end) {}
  // Not collective, but all ranks do it alike, after a collective call: what was begun
  // is not wanted.
  virtual void DropReduction() {}

  // Exchanges the step's words. Also FailedPrecondition as Combine() says.
  virtual absl::StatusOr<Agreement> Agree(const ControlWord& mine) = 0;

  // Since the transport was formed; nothing where ranks share memory.
  virtual TrafficCounters traffic() const { return {}; }

  // Ends all waits here and on peers as soon as the transport can. Idempotent.
  virtual void Abort(absl::Status why) = 0;
};

// Who forms a transport.
struct Group {
  Epoch epoch;
  int rank = 0;
  std::vector<std::string> members;  // worker names by rank
  absl::Duration deadline = absl::Seconds(60);  // of each operation, and of forming
  // Called by factories that can be aborted while they wait for peers: with the
  // transport before the wait, and with null before it goes if it did not form.
  std::function<void(Transport*)> on_forming = nullptr;
};

// Hands rank 0's bytes to all members of the epoch: rank 0 gives `mine`, the
// others nothing; all get rank 0's. Errors: DeadlineExceeded, Aborted.
using ExchangeEndpoint =
    std::function<absl::StatusOr<std::string>(const std::optional<std::string>& mine)>;

// Makes transports of one kind. Thread-safe.
class TransportFactory {
 public:
  virtual ~TransportFactory() = default;
  virtual std::string name() const = 0;  // "shm", "gloo", "in-process"
  // Collective. Errors: as operations, and those of `exchange`.
  virtual absl::StatusOr<std::unique_ptr<Transport>> Create(const Group& group,
                                                            const ExchangeEndpoint& exchange) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_TRANSPORT_H_
