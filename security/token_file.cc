#include "security/token_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace lockstep {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           const Clock* clock) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  absl::StatusOr<TokenList> list = TokenList::Parse(text);
  if (!list.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file of tokens ", path, ": ", list.status().message()));
  }
  return std::unique_ptr<TokenFile>(
      new TokenFile(path, clock, std::move(text), *std::move(list)));
}

void TokenFile::LookAgain() {
  absl::StatusOr<std::string> text = ReadFile(path_);
  if (!text.ok()) {
    LogError("tokens stay as they were: ", text.status().message());
    return;
  }
  if (*text == text_) return;
  absl::StatusOr<TokenList> list = TokenList::Parse(*text);
  text_ = *std::move(text);
  if (!list.ok()) {
    LogError("tokens stay as they were: ", path_, ": ", list.status().message());
    return;
  }
  list_ = *std::move(list);
  LogInfo("read the file of tokens ", path_, " again");
}

absl::StatusOr<Caller> TokenFile::Find(absl::string_view token) {
  MutexLock lock(&mu_);
  const MonoTime now = clock_->Now();
  if (now - looked_ >= kLookEvery) {
    looked_ = now;
    LookAgain();
  }
  return list_.Find(token, clock_->WallNow());
}

}  // namespace lockstep
