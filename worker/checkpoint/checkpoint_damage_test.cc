// Files that are not what was written: cut, changed, swapped, missing; machines that go down and
// disks that fill up while a checkpoint is written or removed.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "common/sharding/shard_plan.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/checkpoint_directory.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/memory_file_system.h"
#include "worker/checkpoint/sample_checkpoint.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr char kRoot[] = "/job";

MATCHER_P(IsStep, step, "") {
  *result_listener << StatusOf(arg).ToString();
  return arg.ok() && *arg == step;
}

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

class DamageTest : public testing::Test {
 protected:
  DamageTest() {
    LOCKSTEP_EXPECT_OK(WriteSample(files_, kRoot, sample_));
    paths_ = files_.Paths();
  }

  void ExpectDamageFound(const std::string& path) {
    ASSERT_THAT(ReadAndCompare(files_, kRoot, sample_, 2),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(FileName(path))));
  }

  Prng prng_{7};
  MemoryFileSystem files_;
  SampleCheckpoint sample_ = RandomCheckpoint(prng_, 3, 4);
  std::vector<std::string> paths_;
};

TEST_F(DamageTest, EveryCutIsFound) {
  for (const std::string& path : paths_) {
    const std::string whole = files_.Content(path);
    // Nothing, parts of the length, of the header and of the tensors, and all but one byte.
    std::vector<std::size_t> lengths = {0, 1, 7, 8, 9, 100, whole.size() - 1};
    for (int i = 0; i < 20; ++i) lengths.push_back(prng_.Below(whole.size()));
    for (const std::size_t length : lengths) {
      files_.Content(path) = whole.substr(0, length);
      ExpectDamageFound(path);
    }
    files_.Content(path) = whole + '\0';
    ExpectDamageFound(path);
    files_.Content(path) = whole;
  }
  LOCKSTEP_EXPECT_OK(ReadAndCompare(files_, kRoot, sample_, 2));
}

TEST_F(DamageTest, EveryChangedBitIsFound) {
  for (const std::string& path : paths_) {
    for (int i = 0; i < 200; ++i) {
      char& byte = files_.Content(path)[prng_.Below(files_.Content(path).size())];
      const char was = byte;
      byte ^= static_cast<char>(1 << prng_.Below(8));
      ExpectDamageFound(path);
      byte = was;
    }
  }
}

TEST_F(DamageTest, AFileOfAnotherPlaceIsFound) {
  // Of another step, whose files have the same sizes.
  SampleCheckpoint later = sample_;
  later.manifest.id.step = 5;
  LOCKSTEP_ASSERT_OK(WriteSample(files_, kRoot, later));
  for (const std::string& path : paths_) {
    const std::string whole = files_.Content(path);
    files_.Content(path) =
        files_.Content(absl::StrCat(kRoot, "/", StepDirectory(5), "/", FileName(path)));
    ExpectDamageFound(path);
    for (const std::string& other : paths_) {
      if (other == path) continue;
      files_.Content(path) = files_.Content(other);
      ExpectDamageFound(path);
    }
    files_.Content(path) = whole;
  }
}

TEST_F(DamageTest, AFileOfAnotherPlaceIsFoundAlsoIfTheManifestKnowsItsChecksum) {
  // A writer that put the files of two jobs, epochs or ranks under each other's names.
  const std::string folder = absl::StrCat(kRoot, "/", StepDirectory(4), "/");
  const auto with = [&](auto change) {
    SampleCheckpoint other = sample_;
    MemoryFileSystem elsewhere;
    change(other.manifest.id);
    LOCKSTEP_EXPECT_OK(WriteSample(elsewhere, kRoot, other));
    for (std::size_t i = 0; i < sample_.manifest.files.size(); ++i) {
      const std::string name = sample_.manifest.files[i].name;
      const std::string path = folder + name;
      const std::string whole = files_.Content(path);
      CheckpointManifest manifest = sample_.manifest;
      manifest.files[i] = other.manifest.files[i];
      files_.Content(path) =
          elsewhere.Content(absl::StrCat(kRoot, "/", StepDirectory(other.manifest.id.step), "/",
                                         name));
      const std::string text = files_.Content(folder + kManifestFile);
      files_.Content(folder + kManifestFile) = *ManifestToText(manifest);
      SampleCheckpoint expected = sample_;
      expected.manifest = manifest;
      EXPECT_THAT(ReadAndCompare(files_, kRoot, expected, 1),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr(name)));
      files_.Content(path) = whole;
      files_.Content(folder + kManifestFile) = text;
    }
  };
  with([](CheckpointId& id) { id.job = "jab"; });
  with([](CheckpointId& id) { id.epoch = 8; });
  with([](CheckpointId& id) { id.step = 5; });
}

TEST_F(DamageTest, AClaimThatNoFileHasIsFoundBeforeMemoryIsAllocatedForIt) {
  CheckpointManifest manifest = sample_.manifest;
  manifest.model.parameters.front().tensor.shape = {std::int64_t{1} << 40};
  manifest.plan = *PlanShards(manifest.model, 3);
  manifest.slots.clear();
  files_.Content(absl::StrCat(kRoot, "/", StepDirectory(4), "/", kManifestFile)) =
      *ManifestToText(manifest);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CheckpointReader> reader,
                                CheckpointReader::Open(files_, kRoot, 4));
  const auto is_refused = StatusIs(absl::StatusCode::kDataLoss, HasSubstr("shard-00000"));
  EXPECT_THAT(reader->CheckFiles(), is_refused);
  EXPECT_THAT(ExportToTorch(*reader, files_, "/export.pt"), is_refused);
  EXPECT_THAT(files_.Open("/export.pt"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DamageTest, AMissingFileIsNamed) {
  for (const std::string& path : paths_) {
    const std::string whole = files_.Content(path);
    LOCKSTEP_ASSERT_OK(files_.Remove(path));
    EXPECT_THAT(ReadAndCompare(files_, kRoot, sample_, 2),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(FileName(path))));
    LOCKSTEP_ASSERT_OK(files_.Create(path).status());
    files_.Content(path) = whole;
  }
}

TEST_F(DamageTest, FilesThatNobodyWroteNeverGiveOtherValues) {
  std::vector<std::string> whole;
  for (const std::string& path : paths_) whole.push_back(files_.Content(path));
  for (int i = 0; i < 1500; ++i) {
    for (std::int64_t n = prng_.Between(1, 3); n > 0; --n) {
      std::string& content = files_.Content(paths_[prng_.Below(paths_.size())]);
      const std::string& other = whole[prng_.Below(whole.size())];
      const std::size_t at = prng_.Below(content.size() + 1);
      switch (prng_.Below(4)) {
        case 0:
          content.resize(at);
          break;
        case 1:
          content.insert(at, other.substr(prng_.Below(other.size()), prng_.Below(100)));
          break;
        case 2:
          content.erase(at, prng_.Below(100));
          break;
        default:
          if (at < content.size()) content[at] = static_cast<char>(prng_.Below(256));
          break;
      }
    }
    const absl::Status status = ReadAndCompare(files_, kRoot, sample_, 2);
    ASSERT_TRUE(status.ok() || absl::IsDataLoss(status)) << status;
    for (std::size_t j = 0; j < paths_.size(); ++j) files_.Content(paths_[j]) = whole[j];
  }
}

// Steps 1 and 2 are there; what happens to step 3 must not touch them.
struct Before {
  Before() {
    Prng prng(8);
    one = RandomCheckpoint(prng, 2, 1);
    two = RandomCheckpoint(prng, 2, 2);
    three = RandomCheckpoint(prng, 2, 3);
    LOCKSTEP_EXPECT_OK(WriteSample(files, kRoot, one));
    LOCKSTEP_EXPECT_OK(WriteSample(files, kRoot, two));
  }
  MemoryFileSystem files;
  SampleCheckpoint one, two, three;
};

TEST(CheckpointCrash, AfterACrashAtAnyMomentOfAWriteTheNewestIsWhole) {
  Before measured;
  const std::int64_t begin = measured.files.operations();
  LOCKSTEP_ASSERT_OK(WriteSample(measured.files, kRoot, measured.three));
  const std::int64_t count = measured.files.operations() - begin;
  ASSERT_GT(count, 20);
  int found_new = 0;
  for (std::int64_t at = 1; at <= count; ++at) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Before before;
      before.files.StopAt(at);
      EXPECT_THAT(WriteSample(before.files, kRoot, before.three),
                  StatusIs(absl::StatusCode::kInternal));
      Prng prng(seed);
      before.files.Crash(prng);
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::int64_t latest, FindLatest(before.files, kRoot));
      ASSERT_TRUE(latest == 2 || latest == 3) << latest;
      found_new += latest == 3;
      if (latest == 3) before.three.manifest.files = measured.three.manifest.files;
      ASSERT_THAT(
          ReadAndCompare(before.files, kRoot, latest == 3 ? before.three : before.two, 1), IsOk())
          << "stopped at operation " << at << ", seed " << seed;
      // And the next try works.
      if (latest == 3) continue;
      LOCKSTEP_ASSERT_OK(RemoveCheckpoint(before.files, kRoot, 3));
      LOCKSTEP_ASSERT_OK(WriteSample(before.files, kRoot, before.three));
      ASSERT_THAT(FindLatest(before.files, kRoot), IsStep(3));
    }
  }
  // The last operation of a write makes durable what is whole already.
  EXPECT_GT(found_new, 0);
}

TEST(CheckpointCrash, WhatWasCommittedSurvivesACrash) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Before before;
    LOCKSTEP_ASSERT_OK(WriteSample(before.files, kRoot, before.three));
    Prng prng(seed);
    before.files.Crash(prng);
    ASSERT_THAT(FindLatest(before.files, kRoot), IsStep(3));
    ASSERT_THAT(ReadAndCompare(before.files, kRoot, before.three, 1), IsOk());
  }
}

TEST(CheckpointCrash, AfterACrashAtAnyMomentOfARemovalWhatIsFoundIsWhole) {
  Before measured;
  const std::int64_t begin = measured.files.operations();
  LOCKSTEP_ASSERT_OK(RemoveCheckpoint(measured.files, kRoot, 2));
  const std::int64_t count = measured.files.operations() - begin;
  for (std::int64_t at = 1; at <= count; ++at) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Before before;
      before.files.StopAt(at);
      EXPECT_THAT(RemoveCheckpoint(before.files, kRoot, 2), StatusIs(absl::StatusCode::kInternal));
      Prng prng(seed);
      before.files.Crash(prng);
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::int64_t latest, FindLatest(before.files, kRoot));
      ASSERT_THAT(ReadAndCompare(before.files, kRoot, latest == 1 ? before.one : before.two, 1),
                  IsOk())
          << "stopped at operation " << at << ", seed " << seed;
    }
  }
}

TEST(CheckpointCrash, AFullDiskIsSaidAndLeavesTheOthersWhole) {
  Before measured;
  std::int64_t full = 0;
  for (const std::string& path : measured.files.Paths()) {
    full += static_cast<std::int64_t>(measured.files.Content(path).size());
  }
  LOCKSTEP_ASSERT_OK(WriteSample(measured.files, kRoot, measured.three));
  std::int64_t needed = 0;
  for (const CheckpointFile& file : measured.three.manifest.files) needed += file.sum.bytes;
  Prng prng(4);
  for (int i = 0; i < 100; ++i) {
    Before before;
    before.files.SetCapacity(full + prng.Between(0, needed));
    ASSERT_THAT(WriteSample(before.files, kRoot, before.three),
                StatusIs(absl::StatusCode::kResourceExhausted));
    ASSERT_THAT(FindLatest(before.files, kRoot), IsStep(2));
    ASSERT_THAT(ReadAndCompare(before.files, kRoot, before.two, 1), IsOk());
    for (const std::string& path : before.files.Paths()) {
      ASSERT_FALSE(absl::EndsWith(path, ".tmp")) << path;
    }
    before.files.SetCapacity(MemoryFileSystem::kNever);
    LOCKSTEP_ASSERT_OK(WriteSample(before.files, kRoot, before.three));
  }
}

}  // namespace
}  // namespace lockstep
