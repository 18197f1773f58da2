// SimLink: a CoordinatorLink over AttendanceState and simulated streams: what Attendance
// (worker/agent/attendance.h) is over threads and gRPC.
//
// Belongs to one process, whose thread calls it. Used within one Scheduler.
#ifndef LOCKSTEP_TESTS_SIM_SIM_LINK_H_
#define LOCKSTEP_TESTS_SIM_SIM_LINK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/control_net.h"
#include "tests/sim/scheduler.h"
#include "worker/agent/attendance_state.h"
#include "worker/agent/coordinator_link.h"

namespace lockstep::sim {

class SimLink final : public CoordinatorLink {
 public:
  // Dials at once.
  SimLink(Scheduler* scheduler, Process* process, ControlNet* net, const Hello& hello);

  absl::Status AwaitWelcome(absl::Duration timeout);
  absl::StatusOr<Proposal> AwaitProposal(absl::Duration timeout) override;
  absl::StatusOr<std::string> ExchangeEndpoint(Epoch epoch, const std::optional<std::string>& mine,
                                               absl::Duration timeout) override;
  absl::Status AwaitStart(const Ready& ready, absl::Duration timeout) override;
  std::vector<ControlEntry> EntriesAfter(LogNumber after) override;
  void ReportProgress(std::int64_t step, Phase phase, const std::map<std::string, double>& metrics,
                      const SyncCounters& sync) override;
  absl::StatusOr<Revision> RevisePolicy(const SyncPolicy& policy, const std::string& reason,
                                        absl::Duration timeout) override;
  void ReportApplied(LogNumber number, std::int64_t step) override;
  void ReportStopped(Epoch epoch, std::int64_t step, const absl::Status& why) override;
  void OnAbort(std::function<void(const absl::Status&)> callback) override;
  void Leave(const absl::Status& why) override;

  // The process is gone: its streams break.
  void Drop() { net_.Drop(wire_); }
  // Each proposal that was taken.
  void OnProposal(std::function<void(const Proposal&)> hear) { on_proposal_ = std::move(hear); }

 private:
  void Step(const AttendanceEvent& event);
  void WakeInTime();
  void CallBackIfDue();
  bool Await(absl::Duration timeout, const std::function<bool()>& condition);

  Scheduler& scheduler_;
  Process* const process_;
  ControlNet& net_;
  AttendanceState state_;
  std::int64_t wire_ = 0;
  MonoTime wakes_at_ = MonoTime::Infinite();
  std::function<void(const absl::Status&)> callback_;
  std::function<void(const Proposal&)> on_proposal_;
  Epoch called_back_for_;
  bool left_ = false;
};

}  // namespace lockstep::sim

#endif  // LOCKSTEP_TESTS_SIM_SIM_LINK_H_
