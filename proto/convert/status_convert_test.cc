#include "proto/convert/status_convert.h"

#include <string>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/convert/status_message.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(StatusConvert, EveryCanonicalCodeComesBackEqual) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "waiting for w3");
    EXPECT_EQ(ToGrpcStatus(status).error_code(), code);
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << code;
  }
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("x")).error_code(), grpc::StatusCode::ABORTED);
}

TEST(StatusConvert, AnUnknownCodeIsStillAnError) {
  EXPECT_THAT(FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(77), "odd")),
              StatusIs(absl::StatusCode::kUnknown, HasSubstr("odd")));
}

TEST(StatusConvert, MessagesAreMadeFitToSend) {
  const grpc::Status sent = ToGrpcStatus(absl::InternalError(std::string(10'000, '\xff')));
  EXPECT_EQ(sent.error_message().size(), static_cast<std::size_t>(kMaxStatusMessageBytes));
  EXPECT_EQ(sent.error_message()[0], '?');
}

}  // namespace
}  // namespace lockstep
