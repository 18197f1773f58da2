// The web page's files, which the program carries with it. Any thread.
#ifndef LOCKSTEP_COORDINATOR_WEB_PAGE_FILES_H_
#define LOCKSTEP_COORDINATOR_WEB_PAGE_FILES_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep {

// By name: "index.html".
const std::map<std::string, absl::string_view>& PageFiles();

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_WEB_PAGE_FILES_H_
