// Tensors on GPUs. On the doubles, LibTorch's part of it is a double too: a device guard for CUDA, registered as a
// LibTorch with CUDA registers its own, and tensors over memory of the double of the runtime.
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>

#include "tests/cuda/worlds.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/tensor/collectives.h"

namespace tutti::test {
namespace {

#ifdef TUTTI_REAL_GPUS
void check_stream_was_asked_for() {}

// A tensor of these numbers on this rank's GPU.
class OnGpu {
 public:
  OnGpu(const Group& world, const std::vector<float>& values)
      : tensor_(at::tensor(values).to(c10::Device(c10::DeviceType::CUDA, c10::DeviceIndex(device_of(world))))) {}
  const at::Tensor& tensor() const { return tensor_; }
  std::vector<float> now() const {
    const at::Tensor host = tensor_.cpu();
    return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
  }

 private:
  const at::Tensor tensor_;
};
#else
int times_asked = 0;  // for the stream, or whether it has ended

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override { return device; }
  c10::Device getDevice() const override { return c10::Device(c10::DeviceType::CUDA, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, 7);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
  bool queryStream(const c10::Stream& stream) const override {
    ++times_asked;
    const cuda::Runtime& runtime = *cuda::runtime().or_throw();
    return runtime.cudaStreamQuery(stream_of(stream.device_index())) == 0;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const {  // virtual in a LibTorch that has it
    ++times_asked;
    return stream.id() == 7 ? stream_of(stream.device_index()) : nullptr;
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

void check_stream_was_asked_for() { check(times_asked > 0, "LibTorch was not asked for its stream"); }

// A tensor of these numbers on this rank's GPU.
class OnGpu {
 public:
  OnGpu(const Group& world, const std::vector<float>& values)
      : device_(device_of(world)), memory_(device_, values.size() * sizeof(float)) {
    const c10::Device device(c10::DeviceType::CUDA, c10::DeviceIndex(device_));
    tensor_ = at::for_blob(memory_.data(), {std::int64_t(values.size())})
                  .options(at::TensorOptions(at::kFloat).device(device))
                  .target_device(device)
                  .make_tensor();
    memory_.upload(values.data(), values.size() * sizeof(float), stream_of(device_));
  }
  const at::Tensor& tensor() const { return tensor_; }
  std::vector<float> now() const {
    std::vector<float> values(std::size_t(tensor_.numel()));
    memory_.download(values.data(), values.size() * sizeof(float));
    return values;
  }

 private:
  const int device_;
  DeviceMemory memory_;
  at::Tensor tensor_;
};
#endif

class CudaTensors : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Engines, CudaTensors, ::testing::ValuesIn(engines()),
                         [](const auto& info) { return std::string(info.param == kStaged ? "staged" : "nccl"); });

TEST_P(CudaTensors, AreCarriedOnTheCurrentStream) {
  const auto body = [](Group& world) {
    const float me = float(world.rank());
    OnGpu x(world, {me, 1, 2});
    all_reduce(world, x.tensor());
    check(x.now() == std::vector<float>({1, 2, 4}), "all_reduce");
    check_stream_was_asked_for();

    OnGpu part(world, {me + 1}), all(world, {0, 0});
    all_gather(world, part.tensor(), all.tensor());
    check(all.now() == std::vector<float>({1, 2}), "all_gather");
    OnGpu half(world, {0});
    reduce_scatter_async(world, all.tensor(), half.tensor(), ReduceOp::kMax).get();
    check(half.now() == std::vector<float>({me + 1}), "reduce_scatter");
    const std::vector<std::size_t> splits = {1, 1};
    OnGpu swapped(world, {0, 0}), mine(world, {10 * me, 10 * me + 1});
    all_to_all(world, mine.tensor(), splits, swapped.tensor(), splits);
    check(swapped.now() == std::vector<float>({me, 10 + me}), "all_to_all");
    if (world.rank() == 0) send(world, mine.tensor(), 1);
    if (world.rank() == 1) check(recv_any(world, mine.tensor()) == 0, "who");
    check(mine.now() == std::vector<float>({0, 1}), "send and recv");
    OnGpu a(world, {1}), b(world, {2, 3});
    const at::Tensor both[] = {a.tensor(), b.tensor()};
    all_reduce_coalesced(world, both);
    check(a.now() == std::vector<float>({2}) && b.now() == std::vector<float>({4, 6}), "coalesced");
  };
  EXPECT_EQ(describe(run_processes(2, body, with_gpus(GetParam()))), "");
}

TEST_P(CudaTensors, StayApartFromThoseOnTheCpu) {
  const auto body = [](Group& world) {
    OnGpu x(world, {1, 2});
    const at::Tensor out = at::zeros({4});
    expect_words(sentence_of([&] { all_gather(world, x.tensor(), out); }),
                 "all_gather: in is f32[2] on cuda:" + std::to_string(device_of(world)) +
                     " and out is f32[4]; expected both on one device");
    expect_words(sentence_of([&] { all_reduce(world, at::empty({2}, at::TensorOptions(at::kMeta))); }),
                 "is not on the CPU, nor on a CUDA device");
    const at::Tensor cpu = at::ones({3});
    all_reduce(world, cpu);
    check(cpu.sum().item<float>() == 6, "a tensor on the CPU");
  };
  EXPECT_EQ(describe(run_processes(2, body, with_gpus(GetParam()))), "");
}

}  // namespace
}  // namespace tutti::test
