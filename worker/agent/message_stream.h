// MessageStream: one stream of messages to a coordinator and back.
//
// The seam between what a link means (attendance.h) and how bytes travel
// (grpc_stream.h; a fake in tests). A stream lives once: after a break the
// dialer opens a new one.
#ifndef LOCKSTEP_WORKER_AGENT_MESSAGE_STREAM_H_
#define LOCKSTEP_WORKER_AGENT_MESSAGE_STREAM_H_

#include <memory>

#include "absl/status/status.h"
#include "common/protocol/messages.h"

namespace lockstep {

// Hears what comes out of one stream, one call at a time, on any thread. Must
// not block and must not destroy the stream.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual void OnMessage(CoordinatorMessage message) = 0;
  // The last call: the coordinator ended the stream with `status`, or it broke.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// Send() and Close() are used by one thread.
class MessageStream {
 public:
  // Cancels what is under way. Afterwards the sink is not called any more.
  virtual ~MessageStream() = default;

  // Queues a message; never blocks. After the end, messages are dropped without
  // an error: OnEnd() has the reason, and must not be anticipated by a lesser one.
  // Errors: Unavailable: too much is queued; the stream is of no use any more.
  virtual absl::Status Send(WorkerMessage message) = 0;

  // No more follows: once all that is queued went out, the coordinator is told
  // so, and answers with the end of the stream.
  virtual void Close() = 0;
};

// Used by one thread.
class StreamDialer {
 public:
  virtual ~StreamDialer() = default;
  // Starts to open a stream; never blocks. A failure to connect is its end.
  // `sink` outlives the stream.
  virtual std::unique_ptr<MessageStream> Dial(MessageSink* sink) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_MESSAGE_STREAM_H_
