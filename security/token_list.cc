#include "security/token_list.h"

#include <openssl/sha.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kHashDigits = 2 * SHA256_DIGEST_LENGTH;
constexpr std::size_t kMaxNameBytes = 200;

bool IsHash(absl::string_view word) {
  return word.size() == kHashDigits && std::ranges::all_of(word, [](char c) {
           return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string Sha256(absl::string_view text) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash), sizeof(hash)));
}

absl::StatusOr<std::string> TokenLine(absl::string_view token, const Caller& caller,
                                      absl::Time expires) {
  const auto role = [](std::string* out, Role role) { absl::StrAppend(out, RoleName(role)); };
  std::string line = absl::StrCat(Sha256(token), " ", caller.name, " ",
                                  absl::StrJoin(caller.roles, ",", role));
  for (const std::string& job : caller.jobs) absl::StrAppend(&line, " job=", job);
  for (const std::string& worker : caller.workers) absl::StrAppend(&line, " worker=", worker);
  if (expires != absl::InfiniteFuture()) {
    absl::StrAppend(&line, " expires=",
                    absl::FormatTime(absl::RFC3339_sec, expires, absl::UTCTimeZone()));
  }
  // What would be read as something else is no line.
  LOCKSTEP_ASSIGN_OR_RETURN(const TokenList list, TokenList::Parse(line));
  const absl::StatusOr<Caller> read = list.Find(token, absl::InfinitePast());
  if (!read.ok() || *read != caller) {
    return absl::InvalidArgumentError(
        "the names of the token's holder, jobs and workers must not have spaces or '#'");
  }
  return line;
}

absl::StatusOr<TokenList::Entry> TokenList::ParseEntry(absl::string_view line, std::string* hash) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 3 || !IsHash(words[0])) {
    return absl::InvalidArgumentError(
        "expected the SHA-256 of a token (64 lowercase hexadecimal digits), a name and its roles");
  }
  *hash = std::string(words[0]);
  Entry entry;
  if (words[1].size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name has more than ", kMaxNameBytes, " bytes"));
  }
  entry.caller.name = std::string(words[1]);
  for (const absl::string_view word : absl::StrSplit(words[2], ',')) {
    const std::optional<Role> role = RoleOf(word);
    if (!role.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          Quoted(word), " is no role; expected viewer, worker or operator, with commas between"));
    }
    entry.caller.roles.insert(*role);
  }
  for (std::size_t i = 3; i < words.size(); ++i) {
    absl::string_view word = words[i];
    if (absl::ConsumePrefix(&word, "job=") && !word.empty()) {
      entry.caller.jobs.emplace(word);
    } else if (absl::ConsumePrefix(&word, "worker=") && !word.empty()) {
      entry.caller.workers.emplace(word);
    } else if (absl::ConsumePrefix(&word, "expires=")) {
      std::string why;
      if (!absl::ParseTime(absl::RFC3339_full, word, &entry.expires, &why)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "expires=", Quoted(word), " is no time such as 2027-01-31T12:00:00Z: ", why));
      }
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          Quoted(words[i]), " is none of job=JOB, worker=NAME and expires=TIME"));
    }
  }
  return entry;
}

absl::StatusOr<TokenList> TokenList::Parse(absl::string_view text) {
  TokenList list;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    std::string hash;
    absl::StatusOr<Entry> entry = ParseEntry(line, &hash);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", entry.status().message()));
    }
    if (!list.by_hash_.emplace(hash, *std::move(entry)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": this token stands in the list already"));
    }
  }
  return list;
}

absl::StatusOr<Caller> TokenList::Find(absl::string_view token, absl::Time now) const {
  const auto found = by_hash_.find(Sha256(token));
  if (found == by_hash_.end()) {
    return absl::UnauthenticatedError(
        "the coordinator does not know this token; an operator adds it to the file of tokens");
  }
  const Entry& entry = found->second;
  if (now >= entry.expires) {
    return absl::UnauthenticatedError(absl::StrCat("the token of ", entry.caller.name,
                                                   " expired at ",
                                                   absl::FormatTime(absl::RFC3339_sec, entry.expires,
                                                                    absl::UTCTimeZone()),
                                                   "; ask for a new one"));
  }
  return entry.caller;
}

}  // namespace lockstep
