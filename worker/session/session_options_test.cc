#include "worker/session/session_options.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

SessionOptions Good() {
  return {.coordinator = "localhost:7000", .job = "mnist", .worker = "w0", .transport = "shm"};
}

TEST(SessionOptions, AloneNothingNeedsToBeGiven) {
  LOCKSTEP_EXPECT_OK(SessionOptions().Validate());
  LOCKSTEP_EXPECT_OK(Good().Validate());
}

TEST(SessionOptions, EachMistakeIsNamed) {
  const std::vector<std::pair<void (*)(SessionOptions&), std::string>> mistakes = {
      {[](SessionOptions& o) { o.coordinator = "localhost"; }, "coordinator is 'localhost'"},
      {[](SessionOptions& o) { o.coordinator = ":7000"; }, "coordinator is ':7000'"},
      {[](SessionOptions& o) { o.coordinator = "host:70000"; }, "coordinator is 'host:70000'"},
      {[](SessionOptions& o) { o.job = ""; }, "job is ''"},
      {[](SessionOptions& o) { o.worker = ""; }, "worker is ''"},
      {[](SessionOptions& o) { o.transport = "tcp"; }, "transport is 'tcp'"},
      {[](SessionOptions& o) { o.transport = "gloo", o.gloo_bucket_bytes = 1000; },
       "gloo_bucket_bytes is '1000'"},
      {[](SessionOptions& o) { o.transport = "gloo", o.gloo_bucket_bytes = (1 << 20) + 8; },
       "multiples of 16"},
      {[](SessionOptions& o) { o.transport = "gloo", o.interface = ""; }, "interface is ''"},
      {[](SessionOptions& o) { o.transport = "nccl", o.interface = ""; }, "interface is ''"},
      {[](SessionOptions& o) { o.transport = "nccl", o.gpu = -1; }, "gpu is '-1'"},
      {[](SessionOptions& o) { o.join_timeout = absl::ZeroDuration(); }, "join_timeout is '0'"},
      {[](SessionOptions& o) { o.rejoin_timeout = -absl::Seconds(1); }, "rejoin_timeout is '-1s'"},
      {[](SessionOptions& o) { o.checkpoints.every_steps = 5; }, "directory"},
      {[](SessionOptions& o) { o.checkpoints.keep = -1; }, "checkpoints to keep: -1"},
      {[](SessionOptions& o) { o.operation_timeout = -absl::Seconds(1); },
       "operation_timeout is '-1s'"},
  };
  for (const auto& [make, message] : mistakes) {
    SessionOptions options = Good();
    make(options);
    EXPECT_THAT(options.Validate(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

TEST(SessionOptions, ThePolicyCountsAlone) {
  SessionOptions options;
  options.policy.schedule.every_steps = -1;
  EXPECT_THAT(options.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("every_steps")));
}

}  // namespace
}  // namespace lockstep
