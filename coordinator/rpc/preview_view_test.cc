#include "coordinator/rpc/preview_view.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

PolicyPreview OfBuffers(int count, const std::string& name) {
  PolicyPreview preview;
  for (int i = 0; i < count; ++i) {
    preview.buffers.push_back({.name = absl::StrCat(name, i),
                               .type = "float32[64]",
                               .operation = Operation::kMean,
                               .root = RootWorker{"w1"},
                               .root_worker = "w1",
                               .bytes = 256});
  }
  preview.total_buffers = preview.synced_buffers = count;
  return preview;
}

TEST(ViewOfPreview, ShowsWhatIsSet) {
  PolicyPreview preview = OfBuffers(1, "b");
  preview.buffers.push_back({.name = "q",
                             .selection = BufferPreview::Selection::kRankLocal,
                             .pattern = "q*",
                             .rule = 0,
                             .root = RootWorker{"w1"}});
  preview.at_start = {.buffers = 1, .transfers = 2, .bytes = 3};
  preview.before_forward = {.buffers = 4};
  preview.after_step = {.buffers = 5};
  preview.before_evaluation = {.buffers = 6};
  preview.before_checkpoint = {.buffers = 7};
  preview.on_command = {.buffers = 8};
  preview.warnings = {"mind"};
  const v1::PreviewSyncPolicyResponse view = ViewOfPreview(preview, {.size = 10});
  ASSERT_EQ(view.buffers_size(), 2);
  EXPECT_EQ(view.buffers(0).name(), "b0");
  EXPECT_EQ(view.buffers(0).type(), "float32[64]");
  EXPECT_EQ(view.buffers(0).selection(), v1::BufferPreview::SELECTION_SYNCED);
  EXPECT_EQ(view.buffers(0).operation(), v1::OPERATION_MEAN);
  EXPECT_EQ(view.buffers(0).root().worker(), "w1");
  EXPECT_EQ(view.buffers(0).root_worker(), "w1");
  EXPECT_EQ(view.buffers(0).schedule().every_forwards(), 1);
  EXPECT_EQ(view.buffers(0).bytes(), 256);
  EXPECT_EQ(view.buffers(1).selection(), v1::BufferPreview::SELECTION_RANK_LOCAL);
  EXPECT_EQ(view.buffers(1).pattern(), "q*");
  EXPECT_FALSE(view.buffers(0).has_rule());
  ASSERT_TRUE(view.buffers(1).has_rule());
  EXPECT_EQ(view.buffers(1).rule(), 0);
  EXPECT_EQ(view.buffers(1).operation(), v1::OPERATION_UNSPECIFIED);
  EXPECT_FALSE(view.buffers(1).has_root());
  EXPECT_FALSE(view.buffers(1).has_schedule());
  EXPECT_EQ(view.at_start().buffers(), 1);
  EXPECT_EQ(view.at_start().transfers(), 2);
  EXPECT_EQ(view.at_start().bytes(), 3);
  EXPECT_EQ(view.before_forward().buffers(), 4);
  EXPECT_EQ(view.after_step().buffers(), 5);
  EXPECT_EQ(view.before_evaluation().buffers(), 6);
  EXPECT_EQ(view.before_checkpoint().buffers(), 7);
  EXPECT_EQ(view.on_command().buffers(), 8);
  EXPECT_EQ(view.warnings(0), "mind");
  EXPECT_EQ(view.next_page_token(), "");
}

TEST(ViewOfPreview, NeverIsLargerThanAMessageMayBe) {
  const PolicyPreview preview = OfBuffers(5000, std::string(1000, 'x'));
  v1::PreviewSyncPolicyRequest request;
  request.set_page_size(10'000);
  int shown = 0, pages = 0;
  do {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Page page, ParsePreviewPage(request));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::int64_t first, FirstOfPage(page, 5000));
    const v1::PreviewSyncPolicyResponse view =
        first == 0 ? ViewOfPreview(preview, page)
                   : ViewOfRows(std::span(preview.buffers).subspan(
                                    static_cast<std::size_t>(first)),
                                first, 5000, page);
    if (view.buffers_size() > 0) {
      EXPECT_EQ(view.buffers(0).name(),
                preview.buffers[static_cast<std::size_t>(shown)].name);
    }
    EXPECT_LT(view.ByteSizeLong(), kMaxPageBytes + 10'000);
    shown += view.buffers_size();
    ++pages;
    request.set_page_token(view.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(shown, 5000);
  EXPECT_GT(pages, 4);
}

TEST(FirstOfPage, RefusesATokenThatItDidNotGive) {
  for (const char* after : {"3", "0", "-1", "x", "99999999999999999999"}) {
    EXPECT_THAT(FirstOfPage({.size = 1, .after = after}, 3),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page_token")))
        << after;
  }
  EXPECT_EQ(*FirstOfPage({.size = 1, .after = "2"}, 3), 2);
}

}  // namespace
}  // namespace lockstep
