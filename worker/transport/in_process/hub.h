// Hub: where the ranks of one epoch, as threads of one process, meet.
//
// Thread-safe; one thread for each rank, and Break() from any.
#ifndef LOCKSTEP_WORKER_TRANSPORT_IN_PROCESS_HUB_H_
#define LOCKSTEP_WORKER_TRANSPORT_IN_PROCESS_HUB_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace lockstep {

class Hub {
 public:
  explicit Hub(std::vector<std::string> members);

  const std::vector<std::string>& members() const { return members_; }

  // Waits until every rank came. The last one runs `act` on the payloads of all
  // ranks before anyone goes on; the payload must stay valid until then. Errors:
  //   DeadlineExceeded: not all came; names the missing. The hub is broken then.
  //   or what Break() was given.
  absl::Status Meet(int rank, void* payload, absl::Duration timeout,
                    const std::function<void(std::span<void* const>)>& act)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends this and all later meetings with `why`; the first call counts.
  void Break(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::vector<std::string> members_;
  Mutex mu_;
  CondVar changed_;
  std::vector<void*> payloads_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> present_ ABSL_GUARDED_BY(mu_);
  std::size_t came_ ABSL_GUARDED_BY(mu_) = 0;
  std::int64_t meeting_ ABSL_GUARDED_BY(mu_) = 0;  // that is being gathered for
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRANSPORT_IN_PROCESS_HUB_H_
