#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/page.h"
#include "coordinator/rpc/rpc_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SyncPolicyServiceRpc : public RpcFixture {
 protected:
  SyncPolicyServiceRpc() { EXPECT_THAT(CreateJob("mnist", 2), IsOk()); }

  static v1::UpdateSyncPolicyRequest Ignoring(const std::string& pattern) {
    v1::UpdateSyncPolicyRequest request;
    request.set_job("mnist");
    request.mutable_policy()->add_ignore_list(pattern);
    return request;
  }
  absl::StatusOr<v1::SyncPolicyRevision> Update(const v1::UpdateSyncPolicyRequest& request) {
    v1::UpdateSyncPolicyResponse response;
    const absl::Status status =
        Call(policies_, &v1::SyncPolicyService::Stub::UpdateSyncPolicy, request, &response);
    if (!status.ok()) return status;
    return response.revision();
  }
  absl::StatusOr<v1::SyncPolicyRevision> Get(std::int64_t revision) {
    v1::GetSyncPolicyRequest request;
    request.set_job("mnist");
    request.set_revision(revision);
    v1::GetSyncPolicyResponse response;
    const absl::Status status =
        Call(policies_, &v1::SyncPolicyService::Stub::GetSyncPolicy, request, &response);
    if (!status.ok()) return status;
    return response.revision();
  }
  v1::SyncPolicyRevision Newest() {
    const absl::StatusOr<v1::SyncPolicyRevision> newest = Get(0);
    EXPECT_THAT(newest, IsOk());
    return newest.value_or(v1::SyncPolicyRevision());
  }
  static v1::PreviewSyncPolicyRequest PreviewOf(const std::string& job) {
    v1::PreviewSyncPolicyRequest request;
    request.set_job(job);
    return request;
  }
  absl::Status Preview(const v1::PreviewSyncPolicyRequest& request,
                       v1::PreviewSyncPolicyResponse* response) {
    return Call(policies_, &v1::SyncPolicyService::Stub::PreviewSyncPolicy, request, response);
  }
  absl::Status List(int page_size, const std::string& token,
                    v1::ListSyncPolicyRevisionsResponse* response) {
    v1::ListSyncPolicyRevisionsRequest request;
    request.set_job("mnist");
    request.set_page_size(page_size);
    request.set_page_token(token);
    return Call(policies_, &v1::SyncPolicyService::Stub::ListSyncPolicyRevisions, request,
                response);
  }
};

TEST_F(SyncPolicyServiceRpc, AnUpdateMakesARevisionThatKeepsWhoAndWhy) {
  v1::UpdateSyncPolicyRequest request = Ignoring("bn1.*");
  request.set_author("ada");
  request.set_reason("drift");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicyRevision made, Update(request));
  EXPECT_EQ(made.revision(), 2);
  EXPECT_EQ(made.state(), v1::SyncPolicyRevision::STATE_PENDING);
  const v1::SyncPolicyRevision newest = Newest();
  EXPECT_EQ(newest.revision(), 2);
  EXPECT_EQ(newest.author(), "ada");
  EXPECT_EQ(newest.reason(), "drift");
  EXPECT_EQ(newest.log_number(), 1);
  EXPECT_THAT(newest.policy().ignore_list(), ElementsAre("bn1.*"));
}

TEST_F(SyncPolicyServiceRpc, TheSamePolicyAgainMakesNoRevision) {
  v1::UpdateSyncPolicyRequest request = Ignoring("bn1.*");
  request.set_author("ada");
  ASSERT_THAT(Update(request), IsOk());
  request.set_author("bob");
  request.set_reason("once more");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicyRevision again, Update(request));
  EXPECT_EQ(again.revision(), 2);
  EXPECT_EQ(again.author(), "ada");
  EXPECT_EQ(again.etag(), Newest().etag());
  EXPECT_EQ(Newest().revision(), 2);
}

TEST_F(SyncPolicyServiceRpc, EachRevisionCanBeRead) {
  ASSERT_THAT(Update(Ignoring("bn1.*")), IsOk());
  ASSERT_THAT(Update(Ignoring("bn2.*")), IsOk());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicyRevision first, Get(1));
  EXPECT_EQ(first.revision(), 1);
  EXPECT_EQ(first.policy().ignore_list_size(), 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicyRevision second, Get(2));
  EXPECT_EQ(second.revision(), 2);
  EXPECT_THAT(second.policy().ignore_list(), ElementsAre("bn1.*"));
  EXPECT_EQ(Newest().revision(), 3);
  for (const std::int64_t none : {std::int64_t{4}, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(Get(none), StatusIs(absl::StatusCode::kNotFound, HasSubstr("revisions 1 to 3")));
  }
}

TEST_F(SyncPolicyServiceRpc, AStaleEtagIsRefused) {
  v1::UpdateSyncPolicyRequest request = Ignoring("bn1.*");
  request.set_etag(Newest().etag());
  EXPECT_THAT(Update(request), IsOk());
  EXPECT_THAT(Update(request), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(Newest().revision(), 2);
}

TEST_F(SyncPolicyServiceRpc, ValidateOnlyChangesNothing) {
  v1::UpdateSyncPolicyRequest request = Ignoring("bn1.*");
  request.set_validate_only(true);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const v1::SyncPolicyRevision would_be, Update(request));
  EXPECT_EQ(would_be.revision(), 2);
  EXPECT_EQ(would_be.state(), v1::SyncPolicyRevision::STATE_PENDING);
  EXPECT_EQ(Newest().revision(), 1);
}

TEST_F(SyncPolicyServiceRpc, RefusesWhatIsMalformed) {
  EXPECT_THAT(Update(Ignoring("re:(")), StatusIs(absl::StatusCode::kInvalidArgument));
  v1::UpdateSyncPolicyRequest no_policy;
  no_policy.set_job("mnist");
  EXPECT_THAT(Update(no_policy), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("policy")));
  v1::UpdateSyncPolicyRequest wordy = Ignoring("bn1.*");
  wordy.set_reason(std::string(5000, 'x'));
  EXPECT_THAT(Update(wordy), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reason")));
  v1::UpdateSyncPolicyRequest elsewhere = Ignoring("bn1.*");
  elsewhere.set_job("none");
  EXPECT_THAT(Update(elsewhere), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(Newest().revision(), 1);
}

TEST_F(SyncPolicyServiceRpc, ListsRevisionsNewestFirstInPages) {
  for (int i = 0; i < 4; ++i) ASSERT_THAT(Update(Ignoring(absl::StrCat("bn", i, ".*"))), IsOk());
  std::vector<std::int64_t> revisions;
  std::string token;
  do {
    v1::ListSyncPolicyRevisionsResponse page;
    ASSERT_THAT(List(2, token, &page), IsOk());
    for (const auto& revision : page.revisions()) revisions.push_back(revision.revision());
    token = page.next_page_token();
  } while (!token.empty());
  EXPECT_THAT(revisions, ElementsAre(5, 4, 3, 2, 1));
}

TEST_F(SyncPolicyServiceRpc, ARevisionListRefusesATokenThatItDidNotGive) {
  v1::ListSyncPolicyRevisionsResponse page;
  for (const char* after : {"-9223372036854775808", "-1", "0", "1", "x"}) {
    EXPECT_THAT(List(2, PageToken("revisions", after), &page),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page_token")))
        << after;
  }
}

TEST_F(SyncPolicyServiceRpc, APreviewNeedsAModel) {
  v1::PreviewSyncPolicyResponse preview;
  EXPECT_THAT(Preview(PreviewOf("mnist"), &preview),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("model of job 'mnist'")));
  EXPECT_THAT(Preview(PreviewOf("none"), &preview), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Preview(PreviewOf(""), &preview), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SyncPolicyServiceRpc, PreviewsTheNewestPolicyOrAnother) {
  ASSERT_THAT(CreateJob("solo"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("solo", "w0");
  v1::PreviewSyncPolicyResponse preview;
  ASSERT_THAT(Preview(PreviewOf("solo"), &preview), IsOk());
  ASSERT_EQ(preview.buffers_size(), 1);
  EXPECT_EQ(preview.buffers(0).name(), "bn1.running_mean");
  EXPECT_EQ(preview.buffers(0).selection(), v1::BufferPreview::SELECTION_SYNCED);
  EXPECT_EQ(preview.buffers(0).operation(), v1::OPERATION_BROADCAST);
  EXPECT_EQ(preview.buffers(0).root_worker(), "w0");
  EXPECT_EQ(preview.before_forward().buffers(), 0) << "a worker alone sends nothing";
  EXPECT_EQ(preview.warnings_size(), 0);

  v1::PreviewSyncPolicyRequest request = PreviewOf("solo");
  request.mutable_policy()->add_ignore_list("bn1.*");
  request.mutable_policy()->add_ignore_list("bn2.*");
  ASSERT_THAT(Preview(request, &preview), IsOk());
  EXPECT_EQ(preview.buffers(0).selection(), v1::BufferPreview::SELECTION_IGNORED);
  EXPECT_EQ(preview.buffers(0).pattern(), "bn1.*");
  EXPECT_EQ(preview.synced_buffers(), 0);
  EXPECT_THAT(preview.warnings(), ElementsAre(HasSubstr("'bn2.*' matches no buffer")));

  request.mutable_policy()->add_ignore_list("re:(");
  EXPECT_THAT(Preview(request, &preview),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ignore_list[2]")));
}

TEST_F(SyncPolicyServiceRpc, PreviewsTheModelOfAWorkerThatWaits) {
  RawWorker worker(*membership_);
  ASSERT_TRUE(worker.Write(RawWorker::Hello("mnist", "w0")));
  v1::AttendResponse welcome;
  ASSERT_TRUE(worker.Read(&welcome));
  v1::PreviewSyncPolicyResponse preview;
  ASSERT_THAT(Preview(PreviewOf("mnist"), &preview), IsOk());
  EXPECT_EQ(preview.total_buffers(), 1);
  EXPECT_EQ(preview.buffers(0).root_worker(), "");
  EXPECT_EQ(preview.before_forward().transfers(), 1);
  EXPECT_EQ(preview.before_forward().bytes(), 40);
  // What a preview warns of an update refuses.
  v1::PreviewSyncPolicyRequest unmatched = PreviewOf("mnist");
  unmatched.mutable_policy()->add_ignore_list("bn2.*");
  ASSERT_THAT(Preview(unmatched, &preview), IsOk());
  EXPECT_THAT(preview.warnings(), ElementsAre(HasSubstr("'bn2.*' matches no buffer")));
  EXPECT_THAT(Update(Ignoring("bn2.*")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'bn2.*' matches no")));
}

TEST_F(SyncPolicyServiceRpc, APreviewOfManyBuffersComesInPages) {
  v1::AttendRequest hello = RawWorker::Hello("mnist", "w0");
  for (int i = 0; i < 2500; ++i) {
    v1::TensorSpec* buffer = hello.mutable_hello()->mutable_manifest()->add_buffers();
    buffer->set_name(absl::StrCat("b", i));
    buffer->set_dtype(12);
  }
  RawWorker worker(*membership_);
  ASSERT_TRUE(worker.Write(hello));
  v1::AttendResponse welcome;
  ASSERT_TRUE(worker.Read(&welcome));

  v1::PreviewSyncPolicyRequest request = PreviewOf("mnist");
  std::vector<std::string> names;
  std::vector<int> sizes;
  do {
    v1::PreviewSyncPolicyResponse page;
    ASSERT_THAT(Preview(request, &page), IsOk());
    EXPECT_EQ(page.total_buffers(), names.empty() ? 2501 : 0) << "on the first page only";
    EXPECT_EQ(page.has_at_start(), names.empty());
    sizes.push_back(page.buffers_size());
    for (const auto& buffer : page.buffers()) names.push_back(buffer.name());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(sizes, ElementsAre(1000, 1000, 501));
  ASSERT_EQ(names.size(), 2501u);
  EXPECT_EQ(names[1], "b0");
  EXPECT_EQ(names[2500], "b2499");

  request.set_page_token("bm9uc2Vuc2U");
  v1::PreviewSyncPolicyResponse page;
  EXPECT_THAT(Preview(request, &page),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page_token")));
  request.clear_page_token();
  request.set_page_size(-1);
  EXPECT_THAT(Preview(request, &page), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(SyncPolicyServiceRpc, SyncNowWithoutARootGoesByThePolicy) {
  ASSERT_THAT(CreateJob("solo"), IsOk());
  RawWorker worker(*membership_);
  worker.Join("solo", "w0");
  const auto heard_root = [&](const v1::SyncNowRequest& request) -> std::string {
    v1::SyncNowResponse response;
    EXPECT_THAT(Call(policies_, &v1::SyncPolicyService::Stub::SyncNow, request, &response), IsOk());
    v1::AttendResponse heard;
    EXPECT_TRUE(worker.Read(&heard));
    if (heard.new_entries().entries_size() != 1) return "no entry";
    const v1::SyncOnce& once = heard.new_entries().entries(0).sync_once();
    return once.has_root() ? absl::StrCat("rank ", once.root().rank()) : "by the policy";
  };
  v1::SyncNowRequest request;
  request.set_job("solo");
  request.set_buffers(true);
  EXPECT_EQ(heard_root(request), "by the policy");
  request.mutable_root();
  EXPECT_EQ(heard_root(request), "rank 0");
}

TEST_F(SyncPolicyServiceRpc, SyncNowNeedsARunningJob) {
  v1::SyncNowRequest request;
  request.set_job("mnist");
  request.set_buffers(true);
  v1::SyncNowResponse response;
  EXPECT_THAT(Call(policies_, &v1::SyncPolicyService::Stub::SyncNow, request, &response),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace lockstep
