// Client: what people and programs do with a coordinator, as typed calls.
//
// One call is one request: no retries, and every call has a deadline. Messages
// of the wire (proto/lockstep/v1) are the vocabulary. Thread-safe.
//
// Errors of all calls: the coordinator's own, as the .proto files list them;
//   Unavailable: it cannot be reached, or is stopping; DeadlineExceeded.
#ifndef LOCKSTEP_CLIENT_CLIENT_H_
#define LOCKSTEP_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/policy.pb.h"
#include "security/tls_files.h"

namespace lockstep {

struct CallOptions {
  absl::Duration timeout = absl::Seconds(10);
};

class Client {
 public:
  // `address` is HOST:PORT. Does not wait for the coordinator: the first call does.
  // Errors: InvalidArgument: no address. Those of TlsFiles.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const std::string& address,
                                                         const TlsFiles& tls = {});
  ~Client();

  absl::StatusOr<v1::Job> CreateJob(const v1::JobSpec& spec, const CallOptions& options = {});
  absl::StatusOr<v1::Job> GetJob(const std::string& job, const CallOptions& options = {});
  // All pages; the deadline holds for each.
  absl::StatusOr<std::vector<v1::Job>> ListJobs(const CallOptions& options = {});
  absl::Status DeleteJob(const std::string& job, const CallOptions& options = {});
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers(const std::string& job,
                                                      const CallOptions& options = {});
  absl::StatusOr<v1::GetShardPlanResponse> GetShardPlan(const std::string& job,
                                                        const CallOptions& options = {});

  // The entry's number in the job's control log.
  absl::StatusOr<std::int64_t> DrainWorker(const v1::DrainWorkerRequest& request,
                                           const CallOptions& options = {});
  absl::StatusOr<std::int64_t> CheckpointNow(const std::string& job,
                                             const CallOptions& options = {});

  // `revision` 0 is the newest.
  absl::StatusOr<v1::SyncPolicyRevision> GetSyncPolicy(const std::string& job,
                                                       std::int64_t revision = 0,
                                                       const CallOptions& options = {});
  absl::StatusOr<v1::SyncPolicyRevision> UpdateSyncPolicy(
      const v1::UpdateSyncPolicyRequest& request, const CallOptions& options = {});
  // The buffers of all pages, whatever the page of the request; the deadline
  // holds for each.
  absl::StatusOr<v1::PreviewSyncPolicyResponse> PreviewSyncPolicy(
      const v1::PreviewSyncPolicyRequest& request, const CallOptions& options = {});
  // The newest `limit` revisions, newest first.
  absl::StatusOr<std::vector<v1::SyncPolicyRevision>> ListSyncPolicyRevisions(
      const std::string& job, int limit, const CallOptions& options = {});
  // The entry's number in the job's control log.
  absl::StatusOr<std::int64_t> SyncNow(const v1::SyncNowRequest& request,
                                       const CallOptions& options = {});

  // Calls `changed` with the job's state now and after each change, on this
  // thread, until it returns false (then OK), the job is deleted (NotFound) or
  // `timeout` is over (DeadlineExceeded).
  absl::Status WatchJob(const std::string& job, absl::Duration timeout,
                        const std::function<bool(const v1::WatchJobResponse&)>& changed);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLIENT_H_
