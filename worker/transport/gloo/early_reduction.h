// EarlyReduction: gradients go to their owners while backward still makes them.
//
// The calling thread says what is ready; the communication thread runs the reduction.
// Between two ranks slices (worker/transport/begun_reduction.h) go in their order, so
// that both sides know which comes next; otherwise nobody waits for a turn: each rank
// sends every owner its next slice as soon as it is complete. So an owner is not idle
// while another's shard is being made, and when backward is over all links are in use.
//
// An owner adds a slice up once all versions of it are there, in rank order.
//
// What each function may be called by is said there.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_EARLY_REDUCTION_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_EARLY_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/sharding/shard_plan.h"
#include "worker/transport/begun_reduction.h"
#include "worker/transport/gloo/inbox.h"
#include "worker/transport/gloo/links.h"
#include "worker/transport/ready_ranges.h"
#include "worker/transport/transport.h"

namespace lockstep::gloo_links {

class EarlyReduction {
 public:
  // Versions are received in `inbox` while it runs.
  EarlyReduction(Inbox* inbox, int rank, int world_size, std::int64_t slice_bytes)
      : inbox_(*inbox),
        rank_(rank),
        world_size_(world_size),
        slice_bytes_(slice_bytes),
        begun_(rank) {}

  // The calling thread, while Run() does not.
  void Begin(Links* links, std::vector<BegunReduction::Part> parts);
  BegunReduction& begun() { return begun_; }
  const BegunReduction& begun() const { return begun_; }

  // The calling thread, also while Run() does.
  // Errors: FailedPrecondition: not all elements are ready.
  absl::Status CheckAllReady() const;

  // Any thread.
  void MarkReady(const Arena& gradients, std::int64_t begin, std::int64_t end);
  // Ends Run() where it waits for this rank; the caller ends the waits of the links.
  void Stop(const absl::Status& why);

  // The communication thread. `weights` by rank. Errors: as Links::Await(), or `why` of
  // Stop().
  absl::Status Run(std::vector<float> weights);

 private:
  using Slice = BegunReduction::Slice;

  absl::Status SendWhatIsReady();
  absl::Status PostReceives();
  // Of the slice that is added up next, if there is one; false: poked.
  absl::StatusOr<bool> AwaitVersions();
  // Until this rank can send or add up something; false: all is done.
  absl::StatusOr<bool> AwaitReadiness();
  void AddUpIfReady();

  bool IsReady(const Slice& slice) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CanSend() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CanAddUp() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Inbox& inbox_;
  const int rank_;
  const int world_size_;
  const std::int64_t slice_bytes_;
  Links* links_ = nullptr;
  BegunReduction begun_;
  std::vector<std::vector<Slice>> slices_;  // by owner, as they go there

  // Of Run().
  std::size_t posted_ = 0;  // slices of this rank's shard that are received
  std::size_t added_ = 0;   // those of them that are added up
  std::vector<std::vector<Links::Ticket>> arriving_;  // by such slice
  std::vector<Links::Ticket> sent_;

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<ReadyRanges> ready_ ABSL_GUARDED_BY(mu_);  // by part
  std::vector<std::size_t> next_ ABSL_GUARDED_BY(mu_);   // slice to send, by owner
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_EARLY_REDUCTION_H_
