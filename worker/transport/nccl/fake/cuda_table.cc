// The CUDA runtime's half of the table.
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/transport/nccl/fake/world.h"
#include "worker/transport/nccl/nccl_functions.h"

namespace lockstep::fake_nccl {
namespace {

cudaError_t Fail(World& world, int device, cudaError_t error, const std::string& text) {
  world.Violate(device, text);
  return error;
}

cudaError_t RuntimeGetVersion(int* version) {
  return EnterOnThread<cudaError_t>("RuntimeGetVersion", [&](World& world, int) {
    *version = world.options.runtime_version;
    return cudaSuccess;
  });
}

cudaError_t DriverGetVersion(int* version) {
  return EnterOnThread<cudaError_t>("DriverGetVersion", [&](World& world, int) {
    *version = world.options.driver_version;
    return cudaSuccess;
  });
}

cudaError_t GetDeviceCount(int* count) {
  return EnterOnThread<cudaError_t>("GetDeviceCount", [&](World& world, int) {
    *count = world.options.devices;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t SetDevice(int device) {
  return EnterOnThread<cudaError_t>("SetDevice", [&](World& world, int) {
    if (device < 0 || device >= world.options.devices) {
      return Fail(world, device, cudaErrorInvalidDevice,
                  absl::StrCat("SetDevice: there are ", world.options.devices, " GPUs"));
    }
    world.Thread().device = device;
    return cudaSuccess;
  });
}

cudaError_t Allocate(const char* function, Memory::Kind kind, void** memory, std::size_t bytes) {
  return EnterOnThread<cudaError_t>(function, [&](World& world, int device) {
    *memory = world.memory.Allocate(kind, device, bytes);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t Malloc(void** memory, std::size_t bytes) {
  return Allocate("Malloc", Memory::Kind::kDevice, memory, bytes);
}

cudaError_t MallocManaged(void** memory, std::size_t bytes, unsigned flags) {
  return Allocate("MallocManaged", Memory::Kind::kManaged, memory, bytes);
}

cudaError_t HostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  return Allocate("HostAlloc", Memory::Kind::kPinned, memory, bytes);
}

cudaError_t FreeKind(const char* function, Memory::Kind kind, void* memory) {
  return EnterOnThread<cudaError_t>(function, [&](World& world, int device) {
    if (memory == nullptr) return cudaSuccess;
    const std::optional<std::string> why = world.FreeWhenIdle(function, kind, memory);
    return why.has_value() ? Fail(world, device, cudaErrorInvalidValue, *why) : cudaSuccess;
  });
}

cudaError_t Free(void* memory) { return FreeKind("Free", Memory::Kind::kDevice, memory); }
cudaError_t FreeHost(void* memory) { return FreeKind("FreeHost", Memory::Kind::kPinned, memory); }

cudaError_t PointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return EnterOnThread<cudaError_t>("PointerGetAttributes", [&](World& world, int) {
    *attributes = {};
    auto* address = const_cast<void*>(pointer);
    const Memory::Allocation* allocation = world.memory.Find(pointer);
    if (allocation == nullptr) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = cudaInvalidDeviceId;
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    attributes->device = allocation->device;
    attributes->devicePointer = address;
    switch (allocation->kind) {
      case Memory::Kind::kDevice:
      case Memory::Kind::kNccl:
        attributes->type = cudaMemoryTypeDevice;
        break;
      case Memory::Kind::kManaged:
        attributes->type = cudaMemoryTypeManaged;
        attributes->hostPointer = address;
        break;
      case Memory::Kind::kPinned:
        attributes->type = cudaMemoryTypeHost;
        attributes->hostPointer = address;
        break;
    }
    return cudaSuccess;
  });
}

int DeviceOfStream(World& world, cudaStream_t stream) {
  const int device = world.Thread().device;
  const Stream* found = world.streams.FindStream(world, stream, device);
  return found == nullptr ? device : found->device;
}

// One call that puts work on a stream, or otherwise uses it.
template <typename Body>
cudaError_t OnStream(const char* function, cudaStream_t handle, Body body) {
  return Enter<cudaError_t>(
      ActiveWorld(), function, [&](World& world) { return DeviceOfStream(world, handle); },
      [&](World& world, int device) {
        Stream* stream = world.streams.FindStream(world, handle, device);
        if (stream == nullptr) {
          return Fail(world, device, cudaErrorInvalidResourceHandle,
                      absl::StrCat(function, " on a stream that does not exist any more"));
        }
        if (stream->unlaunched > 0) {
          world.Violate(device, absl::StrCat(function, " on a stream that a group in progress may "
                                                       "or may not have reached: poll first"));
        }
        return body(world, *stream);
      });
}

cudaError_t StreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return EnterOnThread<cudaError_t>("StreamCreateWithFlags", [&](World& world, int device) {
    *stream = world.streams.CreateStream(world, device);
    return cudaSuccess;
  });
}

cudaError_t StreamDestroy(cudaStream_t handle) {
  return OnStream("StreamDestroy", handle, [](World& world, Stream& stream) {
    stream.destroyed = true;
    return cudaSuccess;
  });
}

// Why a copy or a fill may not touch the range, at the call or when it runs.
std::optional<std::string> WhyUnusable(World& world, const Stream& stream, const char* function,
                                       const void* pointer, std::size_t bytes) {
  std::optional<std::string> why = world.memory.WhyUnusable(stream.device, pointer, bytes);
  if (why.has_value()) why = absl::StrCat(function, " touches ", *why);
  return why;
}

// cudaMemcpyDefault: managed memory, which is on both sides.
cudaMemcpyKind KindOfCopy(Memory::Kind from, Memory::Kind to) {
  if (from == Memory::Kind::kManaged || to == Memory::Kind::kManaged) return cudaMemcpyDefault;
  const bool to_host = to == Memory::Kind::kPinned;
  if (from == Memory::Kind::kPinned) {
    return to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
  }
  return to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

cudaError_t MemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                        cudaStream_t handle) {
  return OnStream("MemcpyAsync", handle, [&](World& world, Stream& stream) {
    if (bytes == 0) return cudaSuccess;
    // Memory that is not pinned would make the original wait inside of the call.
    for (const void* pointer : {static_cast<const void*>(to), from}) {
      const auto why = WhyUnusable(world, stream, "MemcpyAsync", pointer, bytes);
      if (why.has_value()) return Fail(world, stream.device, cudaErrorInvalidValue, *why);
    }
    const cudaMemcpyKind actual =
        KindOfCopy(world.memory.Find(from)->kind, world.memory.Find(to)->kind);
    if (kind != cudaMemcpyDefault && actual != cudaMemcpyDefault && kind != actual) {
      return Fail(world, stream.device, cudaErrorInvalidMemcpyDirection,
                  absl::StrCat("MemcpyAsync of kind ", kind, " where the pointers are of kind ",
                               actual));
    }
    world.streams.Enqueue(world, stream, [=, &stream](World& world) {
      for (const void* pointer : {static_cast<const void*>(to), from}) {
        const auto why = WhyUnusable(world, stream, "MemcpyAsync", pointer, bytes);
        if (why.has_value()) return world.Violate(stream.device, *why);
      }
      std::memmove(to, from, bytes);
    });
    return cudaSuccess;
  });
}

cudaError_t MemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t handle) {
  return OnStream("MemsetAsync", handle, [&](World& world, Stream& stream) {
    if (bytes == 0) return cudaSuccess;
    const auto why = WhyUnusable(world, stream, "MemsetAsync", memory, bytes);
    if (why.has_value()) return Fail(world, stream.device, cudaErrorInvalidValue, *why);
    world.streams.Enqueue(world, stream, [=, &stream](World& world) {
      const auto why = WhyUnusable(world, stream, "MemsetAsync", memory, bytes);
      if (why.has_value()) return world.Violate(stream.device, *why);
      std::memset(memory, value, bytes);
    });
    return cudaSuccess;
  });
}

cudaError_t EventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return EnterOnThread<cudaError_t>("EventCreateWithFlags", [&](World& world, int device) {
    *event = world.streams.CreateEvent(device);
    return cudaSuccess;
  });
}

cudaError_t NoEvent(World& world, int device, const char* function) {
  return Fail(world, device, cudaErrorInvalidResourceHandle,
              absl::StrCat(function, " of an event that does not exist any more"));
}

cudaError_t EventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return OnStream("EventRecord", stream_handle, [&](World& world, Stream& stream) {
    Event* event = world.streams.FindEvent(handle);
    if (event == nullptr) return NoEvent(world, stream.device, "EventRecord");
    if (event->device != stream.device) {
      return Fail(world, stream.device, cudaErrorInvalidResourceHandle,
                  absl::StrCat("EventRecord of an event of GPU ", event->device));
    }
    event->latest = std::make_shared<Recording>();
    world.streams.Enqueue(world, stream,
                          [recording = event->latest](World&) { recording->reached = true; });
    return cudaSuccess;
  });
}

cudaError_t StreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned flags) {
  return OnStream("StreamWaitEvent", stream_handle, [&](World& world, Stream& stream) {
    Event* event = world.streams.FindEvent(handle);
    if (event == nullptr) return NoEvent(world, stream.device, "StreamWaitEvent");
    if (event->latest == nullptr) return cudaSuccess;
    world.streams.Enqueue(world, stream, [recording = event->latest](World& world) {
      world.Await([&] { return recording->reached; });
    });
    return cudaSuccess;
  });
}

int DeviceOfEvent(World& world, cudaEvent_t handle) {
  const Event* event = world.streams.FindEvent(handle);
  return event == nullptr ? world.Thread().device : event->device;
}

cudaError_t EventQuery(cudaEvent_t handle) {
  return Enter<cudaError_t>(
      ActiveWorld(), "EventQuery", [&](World& world) { return DeviceOfEvent(world, handle); },
      [&](World& world, int device) {
        const Event* event = world.streams.FindEvent(handle);
        if (event == nullptr) return NoEvent(world, device, "EventQuery");
        const bool done = event->latest == nullptr || event->latest->reached;
        return done ? cudaSuccess : cudaErrorNotReady;
      });
}

cudaError_t EventDestroy(cudaEvent_t handle) {
  return Enter<cudaError_t>(
      ActiveWorld(), "EventDestroy", [&](World& world) { return DeviceOfEvent(world, handle); },
      [&](World& world, int device) {
        if (world.streams.FindEvent(handle) == nullptr) {
          return NoEvent(world, device, "EventDestroy");
        }
        world.streams.DestroyEvent(handle);
        return cudaSuccess;
      });
}

cudaError_t GetLastCudaError() {
  cudaError_t last = cudaSuccess;
  const auto injected = EnterOnThread<cudaError_t>("GetLastCudaError", [&](World& world, int) {
    last = std::exchange(world.Thread().cuda_error, cudaSuccess);
    return cudaSuccess;
  });
  return injected == cudaSuccess ? last : injected;
}

const char* GetCudaErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "an error of the fake CUDA runtime";
  }
}

}  // namespace

void Keep(World& world, cudaError_t error) {
  if (error != cudaSuccess) world.Thread().cuda_error = error;
}

void FillCudaFunctions(NcclApi& api) {
#define LOCKSTEP_FILL(member, symbol) api.member = &member;
  LOCKSTEP_CUDA_FUNCTIONS(LOCKSTEP_FILL)
#undef LOCKSTEP_FILL
}

}  // namespace lockstep::fake_nccl
