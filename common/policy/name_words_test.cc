#include "common/policy/name_words.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(HoldsAWord, TakesTheRowOfTheTable) {
  const struct {
    const char* name;
    absl::string_view word;
    bool holds;
  } rows[] = {
      {"queue", "queue", true},
      {"moco.queue.data", "queue", true},
      {"queue_ptr", "ptr", true},
      {"queue2", "queue", true},
      {"queue_2", "queue", true},
      {"prototypes", "prototype", true},
      {"ReplayBuffer.data", "replay", true},
      {"imageQueue", "queue", true},
      {"HTTPQueue", "queue", true},
      {"QUEUE", "queue", true},
      {"key-queue", "queue", true},
      {"memory_bank", "memory_bank", true},
      {"head.memoryBank2", "memory_bank", true},
      {"MemoryBank_old", "memory_bank", true},
      {"memorybank", "memory_bank", true},
      {"rope_cache", "rope", true},
      {"RoPE.cache", "rope", true},
      {"encoder.pos_emb", "pos_emb", true},

      {"", "queue", false},
      {".", "queue", false},
      {"123", "queue", false},
      {"descriptr", "ptr", false},
      {"ptrs_of", "of_ptr", false},
      {"tableau", "table", false},
      {"stable_rank", "table", false},
      {"property", "rope", false},
      {"precursor", "cursor", false},
      {"prehistory", "history", false},
      {"enqueued", "queue", false},
      {"mask2former.scale", "mask", false},
      {"unmasked", "mask", false},
      {"memory", "memory_bank", false},
      {"bank_memory", "memory_bank", false},
      {"memory.bank", "memory_bank", false},
      {"memory_of_bank", "memory_bank", false},
      {"pos_embargo", "pos_emb", false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(HoldsAWord(row.name, {&row.word, 1}), row.holds) << row.name << " " << row.word;
  }
}

TEST(HoldsAWord, IsAboutAnyOfTheWords) {
  const absl::string_view words[] = {"replay", "queue"};
  EXPECT_TRUE(HoldsAWord("queue", words));
  EXPECT_TRUE(HoldsAWord("replay", words));
  EXPECT_FALSE(HoldsAWord("queue", {}));
}

}  // namespace
}  // namespace lockstep
