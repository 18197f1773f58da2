#include "client/ctl/preview_table.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

v1::BufferPreview Buffer(const std::string& name, v1::BufferPreview::Selection selection) {
  v1::BufferPreview buffer;
  buffer.set_name(name);
  buffer.set_type("float32[64]");
  buffer.set_selection(selection);
  return buffer;
}

v1::BufferPreview Synced(const std::string& name, v1::Operation operation) {
  v1::BufferPreview buffer = Buffer(name, v1::BufferPreview::SELECTION_SYNCED);
  buffer.set_operation(operation);
  buffer.mutable_schedule()->set_every_steps(100);
  buffer.set_root_worker("w0");
  buffer.set_bytes(256);
  return buffer;
}

TEST(RenderPreview, ShowsEachBufferThenTheCostOfEachMomentThenWarnings) {
  v1::PreviewSyncPolicyResponse preview;
  *preview.add_buffers() = Synced("bn1.running_mean", v1::OPERATION_BROADCAST);
  *preview.add_buffers() = Synced("bn1.running_var", v1::OPERATION_MEAN);
  preview.mutable_buffers(1)->set_rule(1);
  preview.mutable_buffers(1)->set_pattern("**.running_var");
  preview.mutable_buffers(1)->mutable_root()->set_worker("w0");
  preview.mutable_buffers(1)->mutable_schedule()->set_before_evaluation(true);
  *preview.add_buffers() = Buffer("cache", v1::BufferPreview::SELECTION_IGNORED);
  preview.mutable_buffers(2)->set_pattern("cache*");
  *preview.add_buffers() = Buffer("ema", v1::BufferPreview::SELECTION_NOT_ALLOWED);
  *preview.add_buffers() = Buffer("queue", v1::BufferPreview::SELECTION_RANK_LOCAL);
  preview.mutable_buffers(4)->set_rule(0);
  preview.mutable_buffers(4)->set_pattern("queue");
  preview.mutable_at_start()->set_buffers(2);
  preview.mutable_at_start()->set_transfers(1);
  preview.mutable_at_start()->set_bytes(512);
  preview.mutable_after_step()->set_buffers(2);
  preview.mutable_after_step()->set_transfers(2);
  preview.mutable_after_step()->set_bytes(512);
  preview.set_total_buffers(5);
  preview.set_synced_buffers(2);
  preview.add_warnings("bn1 is selected only in part");
  EXPECT_EQ(RenderPreview(preview),
            R"(BUFFER            TYPE         WHAT HAPPENS  ROOT                  WHEN                      BYTES  DECIDED BY
bn1.running_mean  float32[64]  broadcast     the lowest rank (w0)  at start and every 100      256  the policy
                                                                   steps
bn1.running_var   float32[64]  mean          worker w0             at start and every 100      256  rules[1]: **.running_var
                                                                   steps and before
                                                                   evaluation
cache             float32[64]  ignored       -                     -                             0  ignore_list: cache*
ema               float32[64]  not allowed   -                     -                             0  allow_list
queue             float32[64]  rank-local    -                     -                             0  rules[0]: queue

2 of 5 buffers are synchronised

MOMENT             BUFFERS  TRANSFERS  BYTES
at start                 2          1    512
before forward           0          0      0
after step               2          2    512
before evaluation        0          0      0
before checkpoint        0          0      0
on command               0          0      0

warning: bn1 is selected only in part
)");
}

TEST(RenderPreview, ShowsALongListInFull) {
  v1::PreviewSyncPolicyResponse preview;
  for (int i = 0; i < 3000; ++i) {
    *preview.add_buffers() = Buffer(absl::StrCat("buffer-", i, "-end"),
                                    v1::BufferPreview::SELECTION_IGNORED);
  }
  const std::string text = RenderPreview(preview);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_THAT(text, HasSubstr(absl::StrCat("buffer-", i, "-end"))) << i;
  }
}

TEST(RenderPreview, NamesTheMemberThatStandsInForARoot) {
  v1::PreviewSyncPolicyResponse preview;
  *preview.add_buffers() = Synced("x", v1::OPERATION_BROADCAST);
  preview.mutable_buffers(0)->mutable_root()->set_worker("w9");
  EXPECT_THAT(RenderPreview(preview), HasSubstr("worker w9 (w0)"));
}

TEST(DescribeTreatment, IsWhatIsDoneAndNotWhatDecidedIt) {
  v1::BufferPreview buffer = Synced("x", v1::OPERATION_MEAN);
  const std::string text = "mean, root the lowest rank; at start and every 100 steps";
  EXPECT_EQ(DescribeTreatment(buffer), text);
  buffer.set_rule(2);
  buffer.set_pattern("x");
  EXPECT_EQ(DescribeTreatment(buffer), text);
  EXPECT_EQ(DescribeTreatment(Buffer("x", v1::BufferPreview::SELECTION_IGNORED)), "ignored");
}

}  // namespace
}  // namespace lockstep
