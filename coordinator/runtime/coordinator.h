// Coordinator: the thread that owns the state machine.
//
// Everything reaches it through one mailbox, in turns: it steps the machine by all that came,
// in order, appends to the store, and only then sends and answers. If the store
// fails it stops; it never goes on from memory. It knows no gRPC.
//
// Thread-safe. Callbacks run on the coordinator's thread (or on the caller's, when
// the coordinator has stopped): they must be quick, and may call everything but
// AwaitEnd() and Shutdown().
#ifndef LOCKSTEP_COORDINATOR_RUNTIME_COORDINATOR_H_
#define LOCKSTEP_COORDINATOR_RUNTIME_COORDINATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mono_time.h"
#include "common/protocol/messages.h"
#include "coordinator/core/events.h"
#include "coordinator/core/state.h"
#include "coordinator/store/store.h"

namespace lockstep {

// The worker's end of an Attend stream, as the coordinator sees it.
class AttendSink {
 public:
  virtual ~AttendSink() = default;
  // Never blocks; a sink that cannot keep up ends itself and reports StreamBroke. Sinks get the
  // same object, one right after the other, if all are sent the same.
  virtual void Send(const SharedMessage& message) = 0;
  // The last call. Afterwards the sink is released.
  virtual void End(const absl::Status& why) = 0;
};

class Coordinator {
 public:
  // Recovers from the store and starts the thread. `clock` outlives it.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(std::unique_ptr<Store> store,
                                                            const Clock* clock);
  // Stops: streams end with UNAVAILABLE, requests in flight get CANCELLED.
  ~Coordinator();

  // A change. `done` is called exactly once; with UNAVAILABLE if the coordinator
  // has stopped, RESOURCE_EXHAUSTED if too much is waiting already.
  void Submit(Request request, std::function<void(absl::StatusOr<Reply>)> done);

  // A look at the state, consistent, on the coordinator's thread. `look` gets
  // null if the coordinator has stopped or too much is waiting already; it is
  // called exactly once. From a callback: at once, without waiting.
  void Read(std::function<void(const ClusterState*)> look);

  // Opens an Attend stream. Errors: Unavailable: stopped.
  absl::StatusOr<StreamId> OpenStream(std::shared_ptr<AttendSink> sink);
  void PostMessage(StreamId stream, WorkerMessage message);
  // The peer is gone; the sink gets no further call.
  void PostStreamBroke(StreamId stream);

  // `changed` is called after each change of the job (null: it does not exist),
  // once at the beginning, until the watch is closed. If the coordinator stops
  // first, `ended` is called once with UNAVAILABLE; at once with RESOURCE_EXHAUSTED if
  // there are too many.
  using WatchId = StrongId<struct WatchIdTag>;
  WatchId Watch(std::string job, std::function<void(const JobState*)> changed,
                std::function<void(const absl::Status&)> ended = nullptr);
  // Afterwards neither is running or will be called.
  void CloseWatch(WatchId watch);

  // Why the coordinator stopped by itself (the store failed); OK while it runs.
  absl::Status health() const;
  // Returns when the coordinator has stopped by itself or Shutdown() was called.
  void AwaitEnd();
  // Ends streams and requests and waits for that. May be called twice.
  void Shutdown();

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COORDINATOR_RUNTIME_COORDINATOR_H_
