// Streams and events of the fake: each stream is a thread that does its work in order.
//
// Part of World, whose mutex is held by all callers, and by work on streams while it
// does not wait.
#ifndef LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_STREAMS_H_
#define LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_STREAMS_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/transport/nccl/nccl_api.h"

namespace lockstep::fake_nccl {

struct World;

// Runs with the world's mutex held; waits by World::Await only.
using Work = std::function<void(World&)>;

struct Stream {
  int device = 0;
  std::deque<Work> queue;  // the first one is running
  bool destroyed = false;
  int unlaunched = 0;  // groups that are still in progress on the host
  std::thread thread;
};

// One EventRecord().
struct Recording {
  bool reached = false;
};

struct Event {
  int device = 0;
  std::shared_ptr<Recording> latest;  // null: never recorded
};

class Streams {
 public:
  cudaStream_t CreateStream(World& world, int device);
  // Null if there is no such stream, or it was destroyed. The null stream is that of
  // `device`, and waits for no other, which the original does for some.
  Stream* FindStream(World& world, cudaStream_t stream, int device);
  void Enqueue(World& world, Stream& stream, Work work);
  bool Idle(int device) const;
  bool Idle() const;

  cudaEvent_t CreateEvent(int device);
  Event* FindEvent(cudaEvent_t event);
  void DestroyEvent(cudaEvent_t event);

  std::vector<std::string> Leaks() const;

  // After World::ending was set; without the mutex.
  void Join();

 private:
  void Run(World& world, Stream& stream);

  std::map<cudaStream_t, std::unique_ptr<Stream>> streams_;  // destroyed ones, too
  std::map<int, cudaStream_t> null_streams_;                 // by device
  std::map<cudaEvent_t, std::unique_ptr<Event>> events_;
};

}  // namespace lockstep::fake_nccl

#endif  // LOCKSTEP_WORKER_TRANSPORT_NCCL_FAKE_STREAMS_H_
