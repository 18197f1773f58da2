// Checkpoints that are written, read, found and removed; with files of the host where it counts.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/memory_file_system.h"
#include "worker/checkpoint/sample_checkpoint.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRoot[] = "/job";

MATCHER_P(IsStep, step, "") {
  *result_listener << StatusOf(arg).ToString();
  return arg.ok() && *arg == step;
}

SampleCheckpoint Written(FileSystem& files, std::int64_t step, int world_size = 2,
                         std::uint64_t seed = 1) {
  Prng prng(seed);
  SampleCheckpoint sample = RandomCheckpoint(prng, world_size, step);
  LOCKSTEP_EXPECT_OK(WriteSample(files, kRoot, sample));
  return sample;
}

TEST(CheckpointLayout, StepsHaveOneNameEach) {
  EXPECT_EQ(StepDirectory(123), "step-000000000123");
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{123}, INT64_MAX}) {
    EXPECT_EQ(StepOfDirectory(StepDirectory(step)), step);
  }
  for (const char* name : {"step-123", "step--00000000123", "step-+00000000123", "step-", "123",
                           "step-0000000000123", "step-000000000123.tmp", "step-00000000012a",
                           "step-99999999999999999999"}) {
    EXPECT_EQ(StepOfDirectory(name), std::nullopt) << name;
  }
}

TEST(Checkpoint, AnyNumberOfRanksReadsWhatAnyNumberWrote) {
  Prng prng(17);
  for (int i = 0; i < 60; ++i) {
    MemoryFileSystem files;
    SampleCheckpoint sample = RandomCheckpoint(prng, static_cast<int>(prng.Between(1, 9)), i, 9);
    LOCKSTEP_ASSERT_OK(WriteSample(files, kRoot, sample));
    LOCKSTEP_ASSERT_OK(ReadAndCompare(files, kRoot, sample, 1));
    LOCKSTEP_ASSERT_OK(
        ReadAndCompare(files, kRoot, sample, static_cast<int>(prng.Between(1, 9))));
  }
}

TEST(Checkpoint, FromTwoRanksToThreeToOneOnTheHost) {
  const std::string root = testing::TempDir() + "/two_three_one";
  Prng prng(2);
  SampleCheckpoint two = RandomCheckpoint(prng, 2, 10, 40);
  LOCKSTEP_ASSERT_OK(WriteSample(HostFileSystem(), root, two));
  LOCKSTEP_ASSERT_OK(ReadAndCompare(HostFileSystem(), root, two, 3));
  SampleCheckpoint three = Resharded(two, 3);
  three.manifest.id.step = 20;
  LOCKSTEP_ASSERT_OK(WriteSample(HostFileSystem(), root, three));
  LOCKSTEP_ASSERT_OK(ReadAndCompare(HostFileSystem(), root, three, 1));
  EXPECT_THAT(FindLatest(HostFileSystem(), root), IsStep(20));
  EXPECT_THAT(*HostFileSystem().List(root + "/step-000000000020"),
              ElementsAre("manifest.json", "replicated.safetensors",
                          "shard-00000-of-00003.safetensors", "shard-00001-of-00003.safetensors",
                          "shard-00002-of-00003.safetensors"));
  LOCKSTEP_ASSERT_OK(KeepNewest(HostFileSystem(), root, 1));
  EXPECT_THAT(*HostFileSystem().List(root), ElementsAre("step-000000000020"));
  LOCKSTEP_ASSERT_OK(RemoveCheckpoint(HostFileSystem(), root, 20));
  EXPECT_THAT(*HostFileSystem().List(root), ElementsAre());
}

TEST(Checkpoint, ErrorsOfTheHostAreWhatTheyAre) {
  FileSystem& host = HostFileSystem();
  const std::string folder = testing::TempDir();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto full, host.Create("/dev/full"));
  EXPECT_THAT(full->Append(std::as_bytes(std::span("text"))),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/full")));
  EXPECT_THAT(host.Create(folder + "/no/such"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(host.Open(folder + "/none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(host.Open(folder), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(host.Open("/dev/null"), StatusIs(absl::StatusCode::kInternal, HasSubstr("regular")));
  EXPECT_THAT(host.List(folder + "/none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(host.Remove(folder + "/none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(host.Rename(folder + "/none", folder + "/x"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(host.SyncDirectory(folder + "/none"), StatusIs(absl::StatusCode::kNotFound));
  LOCKSTEP_EXPECT_OK(host.MakeDirectory(folder));
  std::ofstream(folder + "/short") << "abc";
  EXPECT_THAT(host.MakeDirectory(folder + "/short"), StatusIs(absl::StatusCode::kAlreadyExists));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, host.Open(folder + "/short"));
  EXPECT_EQ(file->bytes(), 3);
  std::byte bytes[4];
  EXPECT_THAT(file->ReadAt(0, bytes), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Checkpoint, RangesThatAreNotThereAreRefused) {
  MemoryFileSystem files;
  const SampleCheckpoint sample = Written(files, 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader, CheckpointReader::Open(files, kRoot, 1));
  const std::int64_t end = sample.manifest.plan.flat_elements;
  std::vector<float> out(16);
  std::vector<std::byte> bytes(64);
  LOCKSTEP_EXPECT_OK(reader->ReadSlot("exp_avg", end - 16, out));
  LOCKSTEP_EXPECT_OK(reader->ReadSlot("exp_avg", end, std::span<float>()));
  EXPECT_THAT(reader->ReadSlot("exp_avg", end - 15, out), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(reader->ReadSlot("exp_avg", -1, out), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(reader->ReadSlot("exp_avg", INT64_MAX, out), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(reader->ReadSlot("sum", 0, out), StatusIs(absl::StatusCode::kNotFound));
  const Block& block = sample.manifest.plan.blocks[0];
  EXPECT_THAT(reader->ReadParameters(0, block.end - 1, bytes),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(reader->ReadParameters(0, block.begin, std::span(bytes).first(3)),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(reader->ReadParameters(9, 0, bytes), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(reader->ReadReplicated("none", bytes), StatusIs(absl::StatusCode::kNotFound));
  bytes.resize(99'999);
  EXPECT_THAT(reader->ReadReplicated(sample.replicated.begin()->first, bytes),
              StatusIs(absl::StatusCode::kOutOfRange));
}

TEST(Checkpoint, WhatDoesNotFitIsNotWritten) {
  MemoryFileSystem files;
  Prng prng(1);
  const CheckpointManifest manifest = RandomCheckpoint(prng, 2, 1).manifest;
  const auto write = [&](int rank, const ShardData& data) {
    return WriteShard(files, kRoot, manifest.id, manifest.plan, manifest.slots, rank, data);
  };
  EXPECT_THAT(write(2, {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 2")));
  EXPECT_THAT(write(0, {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 slots")));
  ShardData empty;
  empty.slots.resize(manifest.slots.size());
  empty.parameters.resize(manifest.plan.blocks.size());
  EXPECT_THAT(write(0, empty),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("with 0 bytes; expected")));
  EXPECT_THAT(WriteReplicated(files, kRoot, manifest.id,
                              {{.spec = {"wave", DType::kComplex128, {0}}, .bytes = {}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'wave'"), HasSubstr("complex128"))));
  EXPECT_THAT(files.Paths(), ElementsAre());
}

TEST(Checkpoint, ACommitChecksThatAllFilesAreThereAndOfThisCheckpoint) {
  MemoryFileSystem files;
  const SampleCheckpoint sample = Written(files, 1);
  const std::string folder = absl::StrCat(kRoot, "/", StepDirectory(1), "/");
  LOCKSTEP_ASSERT_OK(files.Remove(folder + kManifestFile));
  EXPECT_THAT(CheckpointReader::Open(files, kRoot, 1), StatusIs(absl::StatusCode::kNotFound));

  CheckpointManifest other = sample.manifest;
  other.id.epoch = 8;
  EXPECT_THAT(Commit(files, kRoot, other),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("shard-00000"), HasSubstr("epoch is '7'; expected '8'"))));
  const std::string last = folder + ShardFile(1, 2);
  files.Content(last).pop_back();
  EXPECT_THAT(Commit(files, kRoot, sample.manifest),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("shard-00001")));
  LOCKSTEP_ASSERT_OK(files.Remove(last));
  EXPECT_THAT(Commit(files, kRoot, sample.manifest),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("shard-00001")));
  EXPECT_THAT(FindLatest(files, kRoot),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no manifest.json")));
}

TEST(Checkpoint, ACompleteCheckpointIsNotWrittenOver) {
  MemoryFileSystem files;
  SampleCheckpoint first = Written(files, 5);
  Prng prng(99);
  SampleCheckpoint second = RandomCheckpoint(prng, 2, 5);
  EXPECT_THAT(WriteSample(files, kRoot, second), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Commit(files, kRoot, first.manifest), StatusIs(absl::StatusCode::kAlreadyExists));
  LOCKSTEP_EXPECT_OK(ReadAndCompare(files, kRoot, first, 1));
  LOCKSTEP_ASSERT_OK(RemoveCheckpoint(files, kRoot, 5));
  LOCKSTEP_ASSERT_OK(WriteSample(files, kRoot, second));
  LOCKSTEP_EXPECT_OK(ReadAndCompare(files, kRoot, second, 1));
}

TEST(Checkpoint, TheNewestIsFoundAndTheOthersGo) {
  MemoryFileSystem files;
  EXPECT_THAT(FindLatest(files, kRoot), StatusIs(absl::StatusCode::kNotFound));
  for (const std::int64_t step : {100, 9, 20, 30, 40}) Written(files, step);
  // Of a write that did not end: one older than the newest checkpoint and one newer.
  for (const std::int64_t step : {25, 200}) {
    Written(files, step);
    LOCKSTEP_ASSERT_OK(
        files.Remove(absl::StrCat(kRoot, "/", StepDirectory(step), "/", kManifestFile)));
  }
  LOCKSTEP_ASSERT_OK(files.MakeDirectory(absl::StrCat(kRoot, "/notes")));
  files.Content(absl::StrCat(kRoot, "/", StepDirectory(40), "/", kManifestFile))[5] ^= 1;
  EXPECT_THAT(FindLatest(files, kRoot), IsStep(100));
  EXPECT_THAT(KeepNewest(files, kRoot, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  LOCKSTEP_ASSERT_OK(KeepNewest(files, kRoot, 2));
  EXPECT_THAT(*files.List(kRoot), ElementsAre("notes", StepDirectory(30), StepDirectory(40),
                                              StepDirectory(100), StepDirectory(200)));
  files.Content(absl::StrCat(kRoot, "/", StepDirectory(100), "/", kManifestFile)).pop_back();
  EXPECT_THAT(FindLatest(files, kRoot), IsStep(30));
}

TEST(Checkpoint, WhatIsNoCheckpointsStays) {
  MemoryFileSystem files;
  Written(files, 1);
  const std::string note = absl::StrCat(kRoot, "/", StepDirectory(1), "/note.txt");
  LOCKSTEP_ASSERT_OK(files.Create(note).status());
  LOCKSTEP_ASSERT_OK(RemoveCheckpoint(files, kRoot, 1));
  EXPECT_THAT(files.Paths(), ElementsAre(note));
  LOCKSTEP_EXPECT_OK(RemoveCheckpoint(files, kRoot, 77));
}

}  // namespace
}  // namespace lockstep
