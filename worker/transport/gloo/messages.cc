#include "worker/transport/gloo/messages.h"

#include <algorithm>
#include <cstring>

#include "worker/transport/gloo/pipeline.h"

namespace lockstep::gloo_links {
namespace {

// From here on a message of its own costs less than a copy.
constexpr std::int64_t kAloneBytes = 64 << 10;

}  // namespace

Messages::Messages(std::span<const TensorView> views, std::int64_t message_bytes) {
  for (PieceCutter cutter(views, message_bytes, kAloneBytes); cutter.Next();) {
    messages_.push_back({{cutter.fragments().begin(), cutter.fragments().end()}, cutter.bytes()});
    if (!messages_.back().lies_in_view()) packed_bytes_ = std::max(packed_bytes_, cutter.bytes());
  }
  packed_.resize(packed_bytes_ * std::min(count(), kRoundsUnderWay));
}

std::byte* Messages::data(std::int64_t message) {
  const Message& m = messages_[message];
  if (m.lies_in_view()) return m.fragments[0].data;
  return packed_.data() + message % kRoundsUnderWay * packed_bytes_;
}

void Messages::Pack(std::int64_t message) {
  if (messages_[message].lies_in_view()) return;
  for (const Fragment& f : fragments(message)) std::memcpy(data(message) + f.offset, f.data, f.bytes);
}

void Messages::Unpack(std::int64_t message) {
  if (messages_[message].lies_in_view()) return;
  for (const Fragment& f : fragments(message)) std::memcpy(f.data, data(message) + f.offset, f.bytes);
}

}  // namespace lockstep::gloo_links
