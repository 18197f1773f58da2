// Command: a line of a script, taken apart. Thread-compatible.
#ifndef LOCKSTEP_TESTS_GOLDEN_COMMAND_H_
#define LOCKSTEP_TESTS_GOLDEN_COMMAND_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace lockstep {

// "update ignore=bn1.* dry" as verb, words and key=value options.
class Command {
 public:
  explicit Command(const std::string& line) {
    std::vector<std::string> parts = absl::StrSplit(line, ' ', absl::SkipEmpty());
    verb = parts.front();
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const std::size_t equals = parts[i].find('=');
      if (equals == std::string::npos) {
        words.push_back(parts[i]);
      } else {
        options_[parts[i].substr(0, equals)] = parts[i].substr(equals + 1);
      }
    }
  }

  bool Has(const std::string& word) const {
    return std::find(words.begin(), words.end(), word) != words.end();
  }
  bool Gives(const std::string& key) const { return Find(key) != nullptr; }
  std::string Text(const std::string& key, const std::string& otherwise) const {
    const std::string* const value = Find(key);
    return value == nullptr ? otherwise : *value;
  }
  std::int64_t Number(const std::string& key, std::int64_t otherwise) const {
    const std::string* const value = Find(key);
    std::int64_t number = otherwise;
    if (value != nullptr) {
      EXPECT_TRUE(absl::SimpleAtoi(*value, &number)) << *value;
    }
    return number;
  }
  absl::Duration Duration(const std::string& key, absl::Duration otherwise) const {
    const std::string* const value = Find(key);
    absl::Duration duration = otherwise;
    if (value != nullptr) {
      EXPECT_TRUE(absl::ParseDuration(*value, &duration)) << *value;
    }
    return duration;
  }
  std::vector<std::string> List(const std::string& key) const {
    return absl::StrSplit(Text(key, ""), ',', absl::SkipEmpty());
  }

  // A key=value that nobody asked for: a mistake in the script. Empty: none.
  std::string Unasked() const {
    for (const auto& [key, value] : options_) {
      if (!asked_.contains(key)) return key;
    }
    return "";
  }

  std::string verb;
  std::vector<std::string> words;

 private:
  const std::string* Find(const std::string& key) const {
    asked_.insert(key);
    const auto it = options_.find(key);
    return it == options_.end() ? nullptr : &it->second;
  }

  std::map<std::string, std::string> options_;
  mutable std::set<std::string> asked_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_GOLDEN_COMMAND_H_
