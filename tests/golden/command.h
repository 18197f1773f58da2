// Command: a line of a script, taken apart. Thread-compatible.
#ifndef LOCKSTEP_TESTS_GOLDEN_COMMAND_H_
#define LOCKSTEP_TESTS_GOLDEN_COMMAND_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {

// "update ignore=bn1.* dry" as verb, words and key=value options.
struct Command {
  std::string verb;
  std::vector<std::string> words;
  std::map<std::string, std::string> options;

  explicit Command(const std::string& line) {
    std::vector<std::string> parts = absl::StrSplit(line, ' ', absl::SkipEmpty());
    verb = parts.front();
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const std::size_t equals = parts[i].find('=');
      if (equals == std::string::npos) {
        words.push_back(parts[i]);
      } else {
        options[parts[i].substr(0, equals)] = parts[i].substr(equals + 1);
      }
    }
  }

  bool Has(const std::string& word) const {
    return std::find(words.begin(), words.end(), word) != words.end();
  }
  std::string Text(const std::string& key, const std::string& otherwise) const {
    const auto it = options.find(key);
    return it == options.end() ? otherwise : it->second;
  }
  std::int64_t Number(const std::string& key, std::int64_t otherwise) const {
    const auto it = options.find(key);
    std::int64_t number = otherwise;
    if (it != options.end()) {
      EXPECT_TRUE(absl::SimpleAtoi(it->second, &number)) << it->second;
    }
    return number;
  }
  absl::Duration Duration(const std::string& key, absl::Duration otherwise) const {
    const auto it = options.find(key);
    absl::Duration duration = otherwise;
    if (it != options.end()) {
      EXPECT_TRUE(absl::ParseDuration(it->second, &duration)) << it->second;
    }
    return duration;
  }
  std::vector<std::string> List(const std::string& key) const {
    return absl::StrSplit(Text(key, ""), ',', absl::SkipEmpty());
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_GOLDEN_COMMAND_H_
