// Attendance: a CoordinatorLink over message streams and a policy writer.
//
// The shell around AttendanceState: it owns the thread that dials, sends and
// beats, and the waits. Knows neither gRPC nor protos.
//
// Thread-safe. Calls step the state under a mutex; the link's own thread carries
// the effects out, in order, and runs the OnAbort() callback. Sinks of streams
// only step the state.
#ifndef LOCKSTEP_WORKER_AGENT_ATTENDANCE_H_
#define LOCKSTEP_WORKER_AGENT_ATTENDANCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "worker/agent/attendance_state.h"
#include "worker/agent/coordinator_link.h"
#include "worker/agent/message_stream.h"
#include "worker/agent/policy_writer.h"

namespace lockstep {

class Attendance final : public CoordinatorLink {
 public:
  // Dials at once, on the link's thread.
  Attendance(const Hello& hello, std::unique_ptr<StreamDialer> dialer,
             std::unique_ptr<PolicyWriter> policies);
  // Without Leave() before, the coordinator sees a broken stream.
  ~Attendance() override;

  // Waits until the coordinator has welcomed this worker once. What comes after
  // that, also the end of the link, is for the waits below.
  // Errors: Unavailable: not in time; says why the last attempt failed.
  //   Otherwise the status with which the coordinator turned this worker away.
  absl::Status AwaitWelcome(absl::Duration timeout);

  absl::StatusOr<Proposal> AwaitProposal(absl::Duration timeout) override;
  // Errors besides: InvalidArgument: `mine` is beyond kMaxEndpointBytes.
  absl::StatusOr<std::string> ExchangeEndpoint(Epoch epoch,
                                               const std::optional<std::string>& mine,
                                               absl::Duration timeout) override;
  absl::Status AwaitStart(const Ready& ready, absl::Duration timeout) override;
  std::vector<ControlEntry> EntriesAfter(LogNumber after) override;
  void ReportProgress(std::int64_t step, Phase phase,
                      const std::map<std::string, double>& metrics,
                      const SyncCounters& sync) override;
  // Errors besides: once the link has ended, why it did; nobody was asked.
  absl::StatusOr<Revision> RevisePolicy(const SyncPolicy& policy, const std::string& reason,
                                        absl::Duration timeout) override;
  void ReportApplied(LogNumber number, std::int64_t step) override;
  void ReportStopped(Epoch epoch, std::int64_t step, const absl::Status& why) override;
  void OnAbort(std::function<void(const absl::Status&)> callback) override;
  void Leave(const absl::Status& why) override;

 private:
  class Sink;

  void Run();
  void CarryOut(AttendanceEffects effects) ABSL_LOCKS_EXCLUDED(mu_);
  void LogChanges(bool attending, const absl::Status& last_break, const absl::Status& end);
  void CallBackIfDue() ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  void Step(const AttendanceEvent& event) ABSL_LOCKS_EXCLUDED(mu_);
  void StepLocked(const AttendanceEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CallBackIsDueLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ", though ...": what stands in the way of the coordinator's answers, if known.
  std::string BreakTextLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RealClock clock_;
  const std::string job_;
  const std::unique_ptr<PolicyWriter> policies_;

  Mutex mu_;
  CondVar changed_;  // the state, what is pending, the callback, or stop_
  AttendanceState state_ ABSL_GUARDED_BY(mu_);
  std::vector<AttendanceEffects> pending_ ABSL_GUARDED_BY(mu_);
  std::function<void(const absl::Status&)> callback_ ABSL_GUARDED_BY(mu_);
  Epoch called_back_for_ ABSL_GUARDED_BY(mu_);
  bool calling_back_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;

  // Used by the link's thread alone. A stream goes before its sink.
  const std::unique_ptr<StreamDialer> dialer_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<MessageStream> stream_;
  bool was_attending_ = false;
  bool was_over_ = false;

  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_ATTENDANCE_H_
