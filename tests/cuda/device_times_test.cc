// What a GPU's work takes: by events on its stream, on the clock of the host, without a wait of the host.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/training.h"
#include "tutti/base/deadline.h"
#include "tutti/tensor/device_clock.h"
#include "tutti/tensor/device_region.h"
#include "tutti/training/phase_timer.h"

namespace tutti::test {
namespace {

void await(StreamMark& mark) {
  for (const auto deadline = Deadline::after(std::chrono::seconds(60)); !mark.has_passed(); std::this_thread::yield())
    check(!deadline.expired(), "a mark has not passed in 60 s");
}

at::Tensor some_work(const at::Tensor& x) { return x.mm(x).tanh(); }

TEST(TimesOfGpus, MarksHaveTimesOfTheHostsClock) {
  expect_in_world(
      [](Group& world) {
        check(device_clock(kCpu) == nullptr, "a clock of the CPU");
        const at::Device gpu = gpu_of(world);
        const auto clock = device_clock(gpu);
        const at::Tensor x = at::ones({64, 64}, gpu);
        const auto before = now();
        const StreamMarkPtr first = clock->mark();
        const at::Tensor y = some_work(x);
        const StreamMarkPtr second = clock->mark();
        await(*second);
        const auto after = now();
        const auto begin = clock->host_time(*first).value(), end = clock->host_time(*second).value();
        constexpr Duration kWrong = std::chrono::milliseconds(5);
        check(before - kWrong <= begin && begin < end && end <= after + kWrong, "the times are not those of the host");
        const Duration apart = (end - begin) - clock->between(*first, *second).value();
        check(std::chrono::abs(apart) < std::chrono::microseconds(50), "times differ by ", apart.count(), " ns");
      },
      1);
}

// The events of a lane by name, in the order of their begins.
std::vector<std::pair<std::string, RegionEvent>> spans_of(const Trace& trace, const std::string& lane) {
  std::vector<std::pair<std::string, RegionEvent>> spans;
  for (const ThreadEvents& thread : trace.threads)
    if (thread.name == lane)
      for (const RegionEvent& event : thread.events) spans.emplace_back(trace.totals[event.which].name, event);
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.second.begin < b.second.begin; });
  return spans;
}

TEST(TimesOfGpus, ATraceHasALaneOfTheDevice) {
  expect_in_world(
      [](Group& world) {
        const at::Device gpu = gpu_of(world);
        const at::Tensor x = at::ones({64, 64}, gpu);
        at::Tensor y;
        start_trace();
        const std::uint64_t waits = host_waits_for(gpu.index());
        {
          const DeviceRegion step("step", gpu);
          {
            const DeviceRegion forward("forward", gpu);
            y = some_work(x);
          }
          const DeviceRegion backward("backward", gpu);
          y = some_work(y);
        }
        { const DeviceRegion on_cpu("of the CPU", kCpu); }
        const Trace trace = stop_trace();
        check(host_waits_for(gpu.index()) == waits, "the host waited for the GPU");
        const auto spans = spans_of(trace, gpu.str());
        check(spans.size() == 3, "the lane has ", spans.size(), " spans");
        const RegionEvent &step = spans[0].second, &forward = spans[1].second, &backward = spans[2].second;
        const auto end = [](const RegionEvent& event) { return event.begin + event.took; };
        check(spans[0].first == "step" && spans[1].first == "forward" && spans[2].first == "backward", "other names");
        check(end(forward) <= backward.begin + std::chrono::microseconds(1), "forward and backward overlap");
        check(end(backward) <= end(step) + std::chrono::microseconds(1), "backward ends after its step");
        check(spans_of(trace, "main").size() == 4, "the thread has ", spans_of(trace, "main").size(), " regions");
      },
      1);
}

TEST(TimesOfGpus, PhasesAreThoseOfAnEarlierStep) {
  expect_in_world(
      [](Group& world) {
        const at::Device gpu = gpu_of(world);
        PhaseTimer phases(device_clock(gpu));
        at::Tensor x = at::ones({64, 64}, gpu);
        const auto step = [&] {
          TrainingStep made;
          phases.begin();
          x = some_work(x);
          phases.lap(&TrainingStep::forward);
          phases.end(made);
          return made;
        };
        const std::uint64_t waits = host_waits_for(gpu.index());
#ifdef TUTTI_REAL_GPUS
        step();  // whose kernels may have run by its end
#else
        check(step().forward == 0, "a step has times before its kernels ran");
#endif
        check(host_waits_for(gpu.index()) == waits, "the host waited for the GPU");
        x.cpu();
        check(step().forward > 0, "the kernels of the step before took no time");
      },
      1);
}

}  // namespace
}  // namespace tutti::test
