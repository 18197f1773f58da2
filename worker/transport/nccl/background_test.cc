#include "worker/transport/nccl/background.h"

#include <future>
#include <thread>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::nccl_link {
namespace {

using testing::ElementsAre;

TEST(Background, DoesOneThingAfterTheOtherOnAThreadOfItsOwn) {
  Background background;
  std::promise<void> go;
  std::vector<int> done;
  std::thread::id thread;
  EXPECT_FALSE(background.busy());
  background.Start([&] {
    go.get_future().wait();
    thread = std::this_thread::get_id();
    done.push_back(1);
    return absl::OkStatus();
  });
  background.Start([&] {
    EXPECT_EQ(std::this_thread::get_id(), thread);
    done.push_back(2);
    return absl::OkStatus();
  });
  EXPECT_TRUE(background.busy());
  go.set_value();
  LOCKSTEP_EXPECT_OK(background.Join());
  EXPECT_FALSE(background.busy());
  EXPECT_THAT(done, ElementsAre(1, 2));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(Background, WhatFollowsAnErrorIsNotBegunAndTheErrorIsSaidOnce) {
  Background background;
  background.Start([] { return absl::InternalError("first"); });
  background.Start([] {
    ADD_FAILURE();
    return absl::OkStatus();
  });
  EXPECT_THAT(background.Join(), StatusIs(absl::StatusCode::kInternal));
  bool begun = false;
  background.Start([&] {
    begun = true;
    return absl::OkStatus();
  });
  LOCKSTEP_EXPECT_OK(background.Join());
  EXPECT_TRUE(begun);
}

TEST(Background, JoinsNothingAtOnce) {
  Background background;
  LOCKSTEP_EXPECT_OK(background.Join());
}

}  // namespace
}  // namespace lockstep::nccl_link
