// Messages: a list of views as messages of bounded size. What is large is a message
// where it lies; only small views are packed together.
//
// Memory is kept for the messages under way, kRoundsUnderWay from the first that is
// not done. Thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_GLOO_MESSAGES_H_
#define LOCKSTEP_WORKER_TRANSPORT_GLOO_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/transport/pieces.h"
#include "worker/transport/tensor_view.h"

namespace lockstep::gloo_links {

class Messages {
 public:
  Messages(std::span<const TensorView> views, std::int64_t message_bytes);

  std::int64_t count() const { return static_cast<std::int64_t>(messages_.size()); }
  std::int64_t bytes(std::int64_t message) const { return messages_[message].bytes; }
  std::span<const Fragment> fragments(std::int64_t message) const {
    return messages_[message].fragments;
  }
  // Where the message lies.
  std::byte* data(std::int64_t message);
  // Between the views and there.
  void Pack(std::int64_t message);
  void Unpack(std::int64_t message);

 private:
  struct Message {
    std::vector<Fragment> fragments;
    std::int64_t bytes = 0;

    bool lies_in_view() const { return fragments.size() == 1; }
  };

  std::vector<Message> messages_;
  std::vector<std::byte> packed_;
  std::int64_t packed_bytes_ = 0;  // of the largest message that is packed
};

}  // namespace lockstep::gloo_links

#endif  // LOCKSTEP_WORKER_TRANSPORT_GLOO_MESSAGES_H_
