#include "tests/fuzz/policy_promises.h"

#include <dirent.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/prng.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr char kFolder[] = "tests/fuzz";

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Contents by name.
std::map<std::string, std::string> Seeds() {
  std::map<std::string, std::string> seeds;
  const std::string folder = absl::StrCat(kFolder, "/corpus");
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) return seeds;
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (!absl::StartsWith(name, ".")) seeds[name] = Read(absl::StrCat(folder, "/", name));
  }
  closedir(listing);
  return seeds;
}

// The words of libFuzzer's dictionary: what stands between quotes on each line.
std::vector<std::string> Words() {
  std::vector<std::string> words;
  std::ifstream file(absl::StrCat(kFolder, "/policy.dict"));
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find('"');
    if (absl::StartsWith(line, "#") || first == std::string::npos) continue;
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

void Mutate(std::string& text, const std::vector<std::string>& seeds,
            const std::vector<std::string>& words, Prng& prng) {
  const std::size_t at = prng.Below(text.size() + 1);
  switch (prng.Below(6)) {
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
    default:
      text.insert(at, Piece(text, prng));
  }
}

TEST(PolicyPromises, HoldForEverySeedWhichComesAsFarAsItsNameSays) {
  const std::map<std::string, std::string> seeds = Seeds();
  ASSERT_GE(seeds.size(), 20u);
  for (const auto& [name, bytes] : seeds) {
    const absl::StatusOr<Reached> reached = CheckPolicyPromises(bytes);
    LOCKSTEP_ASSERT_OK(reached) << name;
    EXPECT_EQ(*reached,
              absl::StartsWith(name, "refused_") ? Reached::kRefused : Reached::kCompiled)
        << name;
  }
}

TEST(PolicyPromises, HoldForMutatedSeedsOfWhichManyStillCompile) {
  constexpr int kRuns = 6000;
  std::vector<std::string> seeds;
  for (const auto& [name, bytes] : Seeds()) seeds.push_back(bytes);
  const std::vector<std::string> words = Words();
  ASSERT_FALSE(seeds.empty());
  ASSERT_FALSE(words.empty());
  std::map<Reached, int> count;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    Prng prng(seed);
    std::string bytes = Any(seeds, prng);
    for (std::uint64_t left = 1 + prng.Below(3); left > 0; --left) {
      Mutate(bytes, seeds, words, prng);
    }
    const absl::StatusOr<Reached> reached = CheckPolicyPromises(bytes);
    LOCKSTEP_ASSERT_OK(reached) << "seed " << seed << ": " << absl::CHexEscape(bytes);
    ++count[*reached];
  }
  EXPECT_GE(count[Reached::kCompiled], kRuns / 10);
  EXPECT_GE(count[Reached::kRefused], kRuns / 100);
  EXPECT_GE(count[Reached::kNoMessage], kRuns / 100);
}

}  // namespace
}  // namespace lockstep
