// The bench of a whole training loop: the demo's ResNet on MNIST's images.
//
// A repetition is some whole steps, each on the rank's next images: a batch is
// made, buffers are synchronised, forward, loss, backward, Step(). Its times are
// those of one step, on average. peers/peer_train.py does the same by torch.
#ifndef LOCKSTEP_TESTS_BENCH_TRAIN_BENCH_H_
#define LOCKSTEP_TESTS_BENCH_TRAIN_BENCH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tests/bench/rank_bench.h"

namespace lockstep {

// Collective: joins the others. At its end a rank's account is a TrainAccount.
// Errors: as LoadMnist() and Session::Join().
absl::StatusOr<std::unique_ptr<RankBench>> MakeTrainBench(const RankConfig& config);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_TRAIN_BENCH_H_
