// TokenList: who may call with which bearer token. It knows tokens by their SHA-256 alone: they
// are random, so nobody finds a token by its hash.
//
// Text of lines, one for each token; '#' begins a comment:
//
//   SHA256 NAME ROLE[,ROLE] [job=JOB]... [worker=NAME]... [expires=2027-01-31T12:00:00Z]
//
// `lockstepctl token new` makes a token and its line. Immutable; any thread.
#ifndef LOCKSTEP_SECURITY_TOKEN_LIST_H_
#define LOCKSTEP_SECURITY_TOKEN_LIST_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "security/caller.h"

namespace lockstep {

// Lowercase hexadecimal.
std::string Sha256(absl::string_view text);

// The line of a token of `caller`, good until `expires`, which may be infinite.
// Errors: InvalidArgument: a name is empty or has spaces, or there is no role.
absl::StatusOr<std::string> TokenLine(absl::string_view token, const Caller& caller,
                                      absl::Time expires);

class TokenList {
 public:
  // Errors: InvalidArgument names the line, never a token.
  static absl::StatusOr<TokenList> Parse(absl::string_view text);

  // Errors: Unauthenticated: not in the list, or expired at `now`.
  absl::StatusOr<Caller> Find(absl::string_view token, absl::Time now) const;

 private:
  struct Entry {
    Caller caller;
    absl::Time expires = absl::InfiniteFuture();
  };
  static absl::StatusOr<Entry> ParseEntry(absl::string_view line, std::string* hash);

  std::map<std::string, Entry, std::less<>> by_hash_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TOKEN_LIST_H_
