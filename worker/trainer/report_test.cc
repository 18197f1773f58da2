#include "worker/trainer/report.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

TEST(Report, HoldsEveryFigureUnderItsName) {
  const TrainingReport report = {
      .rank = 1,
      .worker = "w1",
      .world_size = 2,
      .transport = "shm",
      .steps = 10,
      .images = 640,
      .seconds = 2,
      .evaluations = {{.step = 10, .accuracy = 0.5, .loss = 1.5}},
      .losses = {{.step = 1, .loss = std::nan("")}},
      .drift = {{.step = 5, .largest = 0.25, .buffer = "bn.running_mean"}},
      .switches = {{.revision = 2, .log_number = 1, .effective_step = 7}},
      .epochs = {{.epoch = 3,
                  .step = 4,
                  .samples = 256,
                  .rank = 1,
                  .world_size = 2,
                  .parameter_digest = "0f0f",
                  .stall_seconds = 0.5},
                 {.epoch = 4, .step = 10, .samples = 640, .world_size = 1}},
      .buffer_digest = "00ff",
      .parameter_digest = "ff00",
      .optimizer_bytes = 8,
      .sync = {.syncs = 3, .transfers = 4, .bytes = 300, .skipped_bytes = 7},
      .revision = 2,
  };
  EXPECT_EQ(nlohmann::json::parse(ToJson(report)), nlohmann::json::parse(R"({
    "rank": 1, "worker": "w1", "world_size": 2, "transport": "shm", "steps": 10,
    "images": 640, "seconds": 2.0, "images_per_second": 320.0,
    "evaluations": [{"step": 10, "accuracy": 0.5, "loss": 1.5}],
    "losses": [{"step": 1, "loss": null}],
    "drift": [{"step": 5, "largest": 0.25, "buffer": "bn.running_mean"}],
    "switches": [{"revision": 2, "log_number": 1, "effective_step": 7}],
    "epochs": [{"epoch": 3, "step": 4, "samples": 256, "rank": 1, "world_size": 2,
                "parameter_digest": "0f0f", "stall_seconds": 0.5},
               {"epoch": 4, "step": 10, "samples": 640, "rank": 0, "world_size": 1,
                "parameter_digest": "", "stall_seconds": null}],
    "buffer_digest": "00ff", "parameter_digest": "ff00", "optimizer_bytes": 8,
    "syncs": 3, "sync_transfers": 4, "synced_bytes": 300, "skipped_bytes": 7,
    "revision": 2})"));
}

}  // namespace
}  // namespace lockstep
