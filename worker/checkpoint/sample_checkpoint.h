// Checkpoints for tests, with values drawn from a seed: written by any number of ranks, and
// compared when read by any other.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SAMPLE_CHECKPOINT_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SAMPLE_CHECKPOINT_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/prng.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/file_system.h"

namespace lockstep {

struct SampleCheckpoint {
  CheckpointManifest manifest;                         // files are set by Write()
  std::vector<std::vector<float>> slots;               // from the slot's begin on
  std::vector<std::vector<std::byte>> parameters;      // by block
  std::map<std::string, std::vector<std::byte>> replicated;
};

// Trainable parameters of all trainable types, frozen ones and buffers of any type that files can
// hold, of job "job" and epoch 7. `elements` bounds each dimension.
SampleCheckpoint RandomCheckpoint(Prng& prng, int world_size, std::int64_t step,
                                  std::int64_t elements = 6);

// The same values, for another number of ranks.
SampleCheckpoint Resharded(const SampleCheckpoint& sample, int world_size);

// All ranks' files, then the manifest; `sample` gets their sums.
absl::Status WriteSample(FileSystem& files, const std::string& root, SampleCheckpoint& sample);

// Reads all of it, each slot and block in the ranges that `readers` ranks would, and compares.
// Errors: those of CheckpointReader; Internal: a value is another.
absl::Status ReadAndCompare(const FileSystem& files, const std::string& root,
                            const SampleCheckpoint& sample, int readers);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SAMPLE_CHECKPOINT_H_
