// Pages of lists: how many items, and where a page goes on.
//
// A token names the list it belongs to and the last key of the page before, so
// that it stays good when items come and go. Pure; thread-safe.
#ifndef LOCKSTEP_COORDINATOR_RPC_PAGE_H_
#define LOCKSTEP_COORDINATOR_RPC_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// A page ends early once its items take this much, so that it fits a message.
inline constexpr std::size_t kMaxPageBytes = 1 << 20;

struct PageLimits {
  int default_size = 100;
  int max_size = 1000;
};

struct Page {
  int size = 0;
  std::string after;  // the last key of the page before; empty: the first page
};

// Errors: InvalidArgument: a negative size, or a token of another list.
absl::StatusOr<Page> ParsePage(absl::string_view list, const PageLimits& limits,
                               std::int32_t page_size, const std::string& page_token);

std::string PageToken(absl::string_view list, absl::string_view last_key);

// Counts what is put on a page. `Fits` before each item.
class PageFill {
 public:
  explicit PageFill(const Page& page) : left_(page.size) {}
  bool Fits() const { return left_ > 0 && bytes_ < kMaxPageBytes; }
  void Add(std::size_t bytes) {
    --left_;
    bytes_ += bytes;
  }

 private:
  int left_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RPC_PAGE_H_
