// StreamCopy: a copy whose result nobody reads soon.
//
// Writes past the caches where the processor can (SSE2): the lines written are not
// read first, which saves a third of the memory's work, and what the caches hold
// stays there. Elsewhere it is memcpy. Pure; thread-compatible.
#ifndef LOCKSTEP_WORKER_TRANSPORT_SHM_STREAM_COPY_H_
#define LOCKSTEP_WORKER_TRANSPORT_SHM_STREAM_COPY_H_

#include <cstddef>
#include <cstdint>

namespace lockstep::shm {

// The ranges may not overlap; any alignment. All of it is seen by whoever sees
// what this thread writes afterwards.
void StreamCopy(std::byte* to, const std::byte* from, std::int64_t bytes);

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_TRANSPORT_SHM_STREAM_COPY_H_
