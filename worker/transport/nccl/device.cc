#include "worker/transport/nccl/device.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/transport/nccl/errors.h"

namespace lockstep::nccl_link {

absl::StatusOr<Event> Event::Create(const NcclApi* api) {
  Event event;
  LOCKSTEP_RETURN_IF_ERROR(
      FromCuda(*api, api->EventCreateWithFlags(&event.event_, cudaEventDisableTiming),
               "making of an event"));
  event.api_ = api;
  return event;
}

absl::Status Event::Record(cudaStream_t stream) {
  return FromCuda(*api_, api_->EventRecord(event_, stream), "recording of an event");
}

absl::Status Event::HoldBack(cudaStream_t stream) const {
  return FromCuda(*api_, api_->StreamWaitEvent(stream, event_, 0), "ordering of streams");
}

absl::StatusOr<bool> Event::Reached() const {
  const cudaError_t error = api_->EventQuery(event_);
  if (error == cudaErrorNotReady) {
    // LibTorch takes what is left there for an error of its own.
    api_->GetLastCudaError();
    return false;
  }
  LOCKSTEP_RETURN_IF_ERROR(FromCuda(*api_, error, "work on the device"));
  return true;
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const NcclApi* api, int number,
                                                     std::function<cudaStream_t()> caller_stream) {
  int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(FromCuda(*api, api->GetDeviceCount(&count), "counting of devices"));
  if (number < 0 || number >= count) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no GPU ", number, ", but ", count,
                     "; count from 0, and see CUDA_VISIBLE_DEVICES"));
  }
  std::unique_ptr<Device> device(new Device(api, number, std::move(caller_stream)));
  LOCKSTEP_RETURN_IF_ERROR(device->MakeCurrent());
  for (cudaStream_t* stream : {&device->moves_, &device->arithmetic_}) {
    LOCKSTEP_RETURN_IF_ERROR(FromCuda(
        *api, api->StreamCreateWithFlags(stream, cudaStreamNonBlocking), "making of a stream"));
  }
  for (Event* event : {&device->called_, &device->entered_, &device->computed_, &device->ended_}) {
    LOCKSTEP_ASSIGN_OR_RETURN(*event, Event::Create(api));
  }
  return device;
}

Device::~Device() {
  for (cudaStream_t stream : {moves_, arithmetic_}) {
    if (stream != nullptr) api_.StreamDestroy(stream);
  }
}

absl::Status Device::MakeCurrent() {
  return FromCuda(api_, api_.SetDevice(number_), absl::StrCat("choice of GPU ", number_));
}

absl::Status Device::RecordCaller(Event& event) {
  return event.Record(caller_stream_ ? caller_stream_() : nullptr);
}

absl::Status Device::Enter() {
  LOCKSTEP_RETURN_IF_ERROR(MakeCurrent());
  LOCKSTEP_RETURN_IF_ERROR(RecordCaller(called_));
  LOCKSTEP_RETURN_IF_ERROR(called_.HoldBack(arithmetic_));
  return entered_.Record(arithmetic_);
}

absl::Status Device::Finish() {
  LOCKSTEP_RETURN_IF_ERROR(computed_.Record(arithmetic_));
  LOCKSTEP_RETURN_IF_ERROR(computed_.HoldBack(moves_));
  return ended_.Record(moves_);
}

absl::Status Device::Copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  return FromCuda(api_,
                  api_.MemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                                   moves_),
                  "copying of tensors");
}

absl::Status Device::Zero(std::byte* memory, std::int64_t bytes) {
  return FromCuda(api_, api_.MemsetAsync(memory, 0, static_cast<std::size_t>(bytes), moves_),
                  "clearing of memory");
}

absl::StatusOr<Reach> Device::ReachOf(const std::byte* memory) {
  cudaPointerAttributes attributes = {};
  LOCKSTEP_RETURN_IF_ERROR(FromCuda(api_, api_.PointerGetAttributes(&attributes, memory),
                                    "look-up of where a tensor lies"));
  switch (attributes.type) {
    case cudaMemoryTypeManaged:
      return Reach::kUsed;
    case cudaMemoryTypeDevice:
      return attributes.device == number_ ? Reach::kUsed : Reach::kCopied;
    case cudaMemoryTypeHost:
      return Reach::kCopied;
    default:
      return Reach::kNone;
  }
}

}  // namespace lockstep::nccl_link
