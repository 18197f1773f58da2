// TokenFile: the list of tokens in a file, read again when the file changes. Thread-safe.
#ifndef LOCKSTEP_SECURITY_TOKEN_FILE_H_
#define LOCKSTEP_SECURITY_TOKEN_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/mono_time.h"
#include "common/base/mutex.h"
#include "security/token_list.h"

namespace lockstep {

class TokenFile {
 public:
  // Errors: those of ReadFile() and TokenList::Parse(), with the path. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path,
                                                         const Clock* clock);

  // Looks at the file at most once a second. One that cannot be read or is wrong is logged, and the
  // list before it stays good. Errors: TokenList::Find()'s.
  absl::StatusOr<Caller> Find(absl::string_view token);

 private:
  TokenFile(std::string path, const Clock* clock, std::string text, TokenList list)
      : path_(std::move(path)),
        clock_(clock),
        text_(std::move(text)),
        list_(std::move(list)),
        looked_(clock->Now()) {}
  void LookAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string path_;
  const Clock* const clock_;
  Mutex mu_;
  std::string text_ ABSL_GUARDED_BY(mu_);  // what was read last, good or not
  TokenList list_ ABSL_GUARDED_BY(mu_);
  MonoTime looked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SECURITY_TOKEN_FILE_H_
