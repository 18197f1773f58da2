// Document: the commands that a page of docs tells its reader to type, and on which host.
//
// Such a block is fenced, and its first line is "```sh host=NAME"; blocks without a host are for
// the reader's eyes. Values; thread-compatible.
#ifndef LOCKSTEP_TESTS_HOSTS_DOCUMENT_H_
#define LOCKSTEP_TESTS_HOSTS_DOCUMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

struct CommandBlock {
  std::string host;      // "all": each of them
  int line = 0;          // of the page, where the commands begin; the first is 1
  std::string commands;  // whole lines

  bool operator==(const CommandBlock&) const = default;
};

// In the page's order. Errors: InvalidArgument: a fence that is not closed, or words behind "sh"
// other than a host; the line is named.
absl::StatusOr<std::vector<CommandBlock>> CommandBlocks(absl::string_view page);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_HOSTS_DOCUMENT_H_
