// The short run of the default tests: the target's seeds, and seeded mutations of them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gtest/gtest.h"
#include "tests/fuzz/promises.h"

namespace lockstep {
namespace {

constexpr char kDigits[] = "0123456789";

std::string Target() { return std::getenv("LOCKSTEP_FUZZ_TARGET"); }

// Contents by name.
std::map<std::string, std::string> Seeds() {
  std::map<std::string, std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("tests/fuzz/corpus/", Target()))) {
    const absl::StatusOr<std::string> text = ReadFile(entry.path());
    EXPECT_THAT(text, IsOk());
    seeds[entry.path().filename()] = text.value_or("");
  }
  return seeds;
}

// The words of libFuzzer's dictionary: what stands between quotes on each line.
std::vector<std::string> Words() {
  std::vector<std::string> words = {"\n"};
  const absl::StatusOr<std::string> text =
      ReadFile(absl::StrCat("tests/fuzz/", Target(), ".dict"));
  if (!text.ok()) return words;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::size_t first = line.find('"');
    if (absl::StartsWith(line, "#") || first == absl::string_view::npos) continue;
    std::string word;
    if (absl::CUnescape(line.substr(first + 1, line.rfind('"') - first - 1), &word)) {
      words.push_back(word);
    }
  }
  return words;
}

const std::string& Any(const std::vector<std::string>& of, Prng& prng) {
  return of[prng.Below(of.size())];
}

std::string Piece(const std::string& text, Prng& prng) {
  const std::size_t begin = prng.Below(text.size() + 1);
  return text.substr(begin, prng.Below(40));
}

// Texts with numbers in them stay what they are.
void ReplaceNumber(std::string& text, Prng& prng) {
  const std::size_t begin = text.find_first_of(kDigits, prng.Below(text.size() + 1));
  if (begin == std::string::npos) return;
  const std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
  const std::string numbers[] = {"0", "1", "16", "9223372036854775807", "99999999999999999999",
                                 absl::StrCat(prng.Below(100))};
  text.replace(begin, end - begin, numbers[prng.Below(std::size(numbers))]);
}

void Mutate(std::string& text, const std::vector<std::string>& seeds,
            const std::vector<std::string>& words, Prng& prng) {
  const std::size_t at = prng.Below(text.size() + 1);
  switch (prng.Below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << prng.Below(8)));
      break;
    case 1:
      text.erase(at, prng.Below(12));
      break;
    case 2:
      text.insert(at, Any(words, prng));
      break;
    case 3:
      text.replace(at, std::min<std::size_t>(text.size() - at, prng.Below(8)), Any(words, prng));
      break;
    case 4:
      text.insert(at, Piece(Any(seeds, prng), prng));
      break;
    case 5:
      text.insert(at, Piece(text, prng));
      break;
    default:
      ReplaceNumber(text, prng);
  }
}

TEST(Promises, HoldForEverySeedWhichComesAsFarAsItsNameSays) {
  const std::map<std::string, std::string> seeds = Seeds();
  ASSERT_GE(seeds.size(), 5u);
  for (const auto& [name, bytes] : seeds) {
    const absl::StatusOr<Reached> reached = CheckPromises(bytes);
    LOCKSTEP_ASSERT_OK(reached) << name;
    EXPECT_EQ(*reached,
              absl::StartsWith(name, "refused_") ? Reached::kRefused : Reached::kChecked)
        << name;
  }
}

TEST(Promises, HoldForMutatedSeedsOfWhichSomeAreStillAccepted) {
  constexpr int kRuns = 6000;
  std::vector<std::string> seeds;
  for (const auto& [name, bytes] : Seeds()) seeds.push_back(bytes);
  const std::vector<std::string> words = Words();
  ASSERT_FALSE(seeds.empty());
  std::map<Reached, int> count;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    Prng prng(seed);
    std::string bytes = Any(seeds, prng);
    for (std::uint64_t left = 1 + prng.Below(3); left > 0; --left) {
      Mutate(bytes, seeds, words, prng);
    }
    const absl::StatusOr<Reached> reached = CheckPromises(bytes);
    LOCKSTEP_ASSERT_OK(reached) << "seed " << seed << ": " << absl::CHexEscape(bytes);
    ++count[*reached];
  }
  EXPECT_GE(count[Reached::kChecked], kRuns / 100);
  for (const auto& [reached, inputs] : count) {
    RecordProperty(absl::StrCat("reached_", static_cast<int>(reached)), inputs);
  }
  EXPECT_GE(count[Reached::kRefused], kRuns / 100);
}

}  // namespace
}  // namespace lockstep
