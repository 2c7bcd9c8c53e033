// What torch's autograd asks of a device before it runs a backward pass there, answered for one card that is not there.
//
// A build of torch without CUDA knows the device type, but has neither a guard for it nor hooks. With these two, tensors
// that have a shape and a device but no numbers (FakeTensorMode) go through forward, backward and optimiser.

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

std::atomic<long> waits{0}; // how often torch itself, below Python, waited for the card

struct PretendCard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Device card() {
    return Device(DeviceType::CUDA, 0);
  }
  static Stream queue() {
    return Stream(Stream::DEFAULT, card());
  }

  // One card with one queue of work: the current ones, whoever asks and whatever was set before.
  Device getDevice() const override { return card(); }
  Device exchangeDevice(Device) const override { return card(); }
  Stream getStream(Device) const noexcept override { return queue(); }
  Stream getDefaultStream(Device) const override { return queue(); }
  Stream getNewStream(Device, int) const override { return queue(); }
  Stream exchangeStream(Stream) const noexcept override { return queue(); }

  // Work on the card is over as soon as it is begun.
  void record(void** event, const Stream&, DeviceIndex, c10::EventFlag) const override { *event = &waits; }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { ++waits; }
  void synchronizeStream(const Stream&) const override { ++waits; }
  void synchronizeDevice(DeviceIndex) const override { ++waits; }
};

C10_REGISTER_GUARD_IMPL(CUDA, PretendCard)

// torch creates the class of this very name when it first asks whether there is CUDA.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};

} // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}

extern "C" long waits_below_python() {
  return waits;
}
