#include "worker/transport/nccl/fake/streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/transport/nccl/fake/world.h"

namespace lockstep::fake_nccl {

cudaStream_t Streams::CreateStream(World& world, int device) {
  auto stream = std::make_unique<Stream>();
  stream->device = device;
  // Handles are addresses, which no other object has as long as this one is kept.
  const auto handle = reinterpret_cast<cudaStream_t>(stream.get());
  stream->thread = std::thread([this, &world, &stream = *stream] { Run(world, stream); });
  streams_[handle] = std::move(stream);
  return handle;
}

void Streams::Run(World& world, Stream& stream) {
  MutexLock lock(&world.mu);
  while (true) {
    world.Await([&] { return !stream.queue.empty() || stream.destroyed; });
    if (world.ending || stream.queue.empty()) return;
    const Work work = stream.queue.front();
    work(world);
    stream.queue.pop_front();
    world.changed.SignalAll();
  }
}

Stream* Streams::FindStream(World& world, cudaStream_t stream, int device) {
  if (stream == nullptr) {
    cudaStream_t& null_stream = null_streams_[device];
    if (null_stream == nullptr) null_stream = CreateStream(world, device);
    stream = null_stream;
  }
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second->destroyed) return nullptr;
  return found->second.get();
}

void Streams::Enqueue(World& world, Stream& stream, Work work) {
  stream.queue.push_back(std::move(work));
  world.changed.SignalAll();
}

bool Streams::Idle(int device) const {
  return std::all_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
    return entry.second->device != device || entry.second->queue.empty();
  });
}

bool Streams::Idle() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& entry) { return entry.second->queue.empty(); });
}

cudaEvent_t Streams::CreateEvent(int device) {
  auto event = std::make_unique<Event>();
  event->device = device;
  const auto handle = reinterpret_cast<cudaEvent_t>(event.get());
  events_[handle] = std::move(event);
  return handle;
}

Event* Streams::FindEvent(cudaEvent_t event) {
  const auto found = events_.find(event);
  return found == events_.end() ? nullptr : found->second.get();
}

void Streams::DestroyEvent(cudaEvent_t event) { events_.erase(event); }

std::vector<std::string> Streams::Leaks() const {
  std::vector<std::string> leaks;
  for (const auto& [handle, stream] : streams_) {
    const bool is_null_stream = std::any_of(
        null_streams_.begin(), null_streams_.end(),
        [&handle = handle](const auto& entry) { return entry.second == handle; });
    if (!stream->destroyed && !is_null_stream) {
      leaks.push_back(absl::StrCat("GPU ", stream->device, ": a stream"));
    }
  }
  for (const auto& [handle, event] : events_) {
    leaks.push_back(absl::StrCat("GPU ", event->device, ": an event"));
  }
  return leaks;
}

void Streams::Join() {
  for (const auto& [handle, stream] : streams_) stream->thread.join();
}

}  // namespace lockstep::fake_nccl
