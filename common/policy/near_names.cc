#include "common/policy/near_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMaxOperations = 50'000'000;

enum class Kind { kLiteral, kStar, kStars };

struct Token {
  Kind kind = Kind::kLiteral;
  char literal = 0;
};

std::vector<Token> TokensOf(absl::string_view glob) {
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < glob.size(); ++i) {
    const absl::string_view rest = glob.substr(i);
    const bool starts_component = i == 0 || glob[i - 1] == '.';
    if (starts_component && absl::StartsWith(rest, "**.")) {
      tokens.push_back({Kind::kStars});  // the dot may be absent: near enough
      i += 2;
    } else if (absl::StartsWith(rest, "**")) {
      tokens.push_back({Kind::kStars});
      i += 1;
    } else if (rest[0] == '*') {
      tokens.push_back({Kind::kStar});
    } else {
      tokens.push_back({Kind::kLiteral, rest[0]});
    }
  }
  return tokens;
}

std::string GlobOfExpression(absl::string_view expression) {
  absl::ConsumePrefix(&expression, "^");
  absl::ConsumeSuffix(&expression, "$");
  return absl::StrReplaceAll(expression, {{".*", "**"},
                                          {".+", "**"},
                                          {"\\d+", "*"},
                                          {"[0-9]+", "*"},
                                          {"\\", ""},
                                          {"(", ""},
                                          {")", ""}});
}

}  // namespace

std::optional<int> EditDistance(absl::string_view glob, absl::string_view name, int limit) {
  // Row by row of Wagner and Fischer's table: distance[j] is that of the tokens
  // so far to the first j characters of the name.
  std::vector<int> distance(name.size() + 1);
  for (std::size_t j = 0; j < distance.size(); ++j) distance[j] = static_cast<int>(j);
  for (const Token& token : TokensOf(glob)) {
    int diagonal = distance[0];
    if (token.kind == Kind::kLiteral) ++distance[0];
    int least = distance[0];
    for (std::size_t j = 1; j < distance.size(); ++j) {
      const int above = distance[j];
      if (token.kind == Kind::kLiteral) {
        const int replaced = diagonal + (token.literal == name[j - 1] ? 0 : 1);
        distance[j] = std::min({replaced, above + 1, distance[j - 1] + 1});
      } else {
        const bool takes = token.kind == Kind::kStars || name[j - 1] != '.';
        distance[j] = std::min(above, distance[j - 1] + (takes ? 0 : 1));
      }
      diagonal = above;
      least = std::min(least, distance[j]);
    }
    if (least > limit) return std::nullopt;
  }
  if (distance.back() > limit) return std::nullopt;
  return distance.back();
}

std::vector<std::string> NearNames(absl::string_view pattern,
                                   const std::vector<absl::string_view>& names, int count) {
  const std::string glob = absl::ConsumePrefix(&pattern, "re:") ? GlobOfExpression(pattern)
                                                               : std::string(pattern);
  const auto literals = static_cast<int>(glob.size()) -
                        static_cast<int>(std::count(glob.begin(), glob.end(), '*'));
  // A third of the text wrong is a slip; half of it is another word.
  const int limit = std::max(1, (literals + 2) / 3);
  std::vector<std::pair<int, absl::string_view>> near;
  std::int64_t operations = 0;
  for (const absl::string_view name : names) {
    operations += static_cast<std::int64_t>(glob.size() + 1) *
                  static_cast<std::int64_t>(name.size() + 1);
    if (operations > kMaxOperations) break;
    const std::optional<int> distance = EditDistance(glob, name, limit);
    if (distance.has_value()) near.emplace_back(*distance, name);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (near.size() > static_cast<std::size_t>(count)) near.resize(count);
  std::vector<std::string> result;
  for (const auto& [distance, name] : near) result.emplace_back(name);
  return result;
}

}  // namespace lockstep
