// NCCL that fails, hangs or never begins, ranks that die in the middle of its calls, and calls that differ.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/cuda/worlds.h"
#include "tutti/comm/stream_calls.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

Request all_reduce_of(const Group& world, const DeviceMemory& memory, std::size_t count) {
  return {.kind = Kind::kAllReduce,
          .dtype = DType::kF32,
          .in = memory.data(),
          .out = memory.data(),
          .count = count,
          .device = device_of(world)};
}

// Two calls, the second of which goes wrong somewhere: its sentence.
std::string second_call(const Group& world) {
  DeviceMemory memory(device_of(world), 4000);
  const Request request = all_reduce_of(world, memory, 1000);
  world.run(request).or_throw();
  await_all(world, 1);  // a rank that is slow must not learn of the error in its first call
  return sentence_of([&] { world.run(request).or_throw(); });
}

TEST(NcclFaults, ARankThatIsKilledIsNamed) {
  const auto outcomes = run_processes(
      3,
      [](Group& world) {
        DeviceMemory memory(device_of(world), 4000);
        const Request request = all_reduce_of(world, memory, 1000);
        world.run(request).or_throw();
        kill_after_all(world, 1);
        const std::string text = sentence_of([&] { world.run(request).or_throw(); });
        expect_words(text, "PeerLost: all_reduce #2 (f32[1000], sum, cuda:");
        expect_words(text, "rank 1 ");
        expect_words(text, "has exited");
        expect_words(sentence_of([&] { all_reduce(world, 1); }),
                     "has exited");  // the group has ended, on the host as well
      },
      with_gpus(kNccl));
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int r : {0, 2}) EXPECT_TRUE(outcomes[std::size_t(r)].ok()) << describe(outcomes);
}

TEST(NcclFaults, AHangEndsAtTheDeadline) {
  auto options = with_gpus(kNccl, {{"FAKE_NCCL", "hang:1:2"}});
  options.timeout = 1;
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const std::string text = second_call(world);
        expect_words(text, "all_reduce #2 (f32[1000], sum, cuda:");
        expect_words(text, "Timeout: ");
        expect_words(text, "still waiting for rank ");
      },
      options);
  EXPECT_EQ(describe(outcomes), "");
}

TEST(NcclFaults, AnNcclErrorIsReported) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const std::string text = second_call(world);
        expect_words(text,
                     "NCCL could not continue: unhandled system error (told by the double) (hint: NCCL_DEBUG=WARN");
      },
      with_gpus(kNccl, {{"FAKE_NCCL", "fail:1:2"}}));
  EXPECT_EQ(describe(outcomes), "");
}

// A rank learns of it by the call itself, or, where the call was left to the stream, before its next step. It is
// reported once.
TEST(NcclFaults, ACallThatWasLeftToAStreamIsReportedByTheNextAwait) {
  const auto outcomes = run_processes(
      3,
      [](Group& world) {
        const int device = device_of(world);
        DeviceMemory memory(device, 4000);
        Request request = all_reduce_of(world, memory, 1000);
        request.stream = stream_of(device);
        world.run(request).or_throw();
        std::atomic<bool> go{false};
        std::optional<StreamGate> gate;
        if (world.rank() != 1) gate.emplace(device, request.stream, go);
        kill_after_all(world, 1);
        const std::string text = sentence_of([&] {
          world.submit(request).wait_on(request.stream).or_throw();
          go = true;
          go.notify_all();
          await_stream_calls().or_throw();
        });
        expect_words(text, "PeerLost: all_reduce #2 (f32[1000], sum, cuda:");
        expect_words(text, "rank 1 ");
        await_stream_calls().or_throw();
      },
      with_gpus(kNccl));
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const int r : {0, 2}) EXPECT_TRUE(outcomes[std::size_t(r)].ok()) << describe(outcomes);
}

TEST(NcclFaults, AnotherThreadAborts) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        DeviceMemory memory(device_of(world), 4000);
        const Request request = all_reduce_of(world, memory, 1000);
        if (world.rank() == 1) {
          expect_words(sentence_of([&] { barrier(world); }), "enough of this");
          return;
        }
        const Work work = world.submit(request);  // rank 1 never comes
        std::thread other([&] { world.abort({.code = Code::kAborted, .detail = "enough of this"}); });
        expect_words(sentence_of([&] { work.get(); }), "enough of this");
        other.join();
      },
      with_gpus(kNccl));
  EXPECT_EQ(describe(outcomes), "");
}

TEST(NcclFaults, ABeginningThatNeverEnds) {
  const auto outcomes = run_processes(
      2, [](Group&) {}, with_gpus(kNccl, {{"FAKE_NCCL", "never_init:1"}, {"TUTTI_JOIN_TIMEOUT", "3s"}}));
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, HasSubstr("opening the engine nccl on group world, rank "));
    // The one that is through first is gone for the other.
    EXPECT_THAT(outcome.error, ::testing::AnyOf(HasSubstr("NCCL did not connect the ranks after 3"),
                                                HasSubstr("has left"), HasSubstr("has exited")));
  }
}

// The others, for whom NCCL still waits, are told.
TEST(NcclFaults, ABeginningThatFails) {
  const auto outcomes = run_processes(
      3, [](Group&) {}, with_gpus(kNccl, {{"FAKE_NCCL", "fail_init:0"}}));
  EXPECT_THAT(outcomes[0].error, HasSubstr("NCCL could not continue: unhandled system error"));
  for (const int r : {1, 2})
    EXPECT_THAT(outcomes[std::size_t(r)].error,
                HasSubstr("rank 0 could not open it: PeerLost: NCCL could not continue: unhandled system error"));
}

// The other ranks need not wait for the whole limit of a beginning, which is minutes.
TEST(NcclFaults, ARankThatDiesWhileNcclBegins) {
  const auto outcomes = run_processes(
      3,
      [](Group& world) {
        barrier(world);  // NCCL stands for all
        kill_after_all(world, 2);
        const std::string text = sentence_of([&] { (void)world.split(0, 0).or_throw(); });
        expect_words(text, "has exited");
      },
      with_gpus(kNccl));
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  for (const int r : {0, 1}) EXPECT_TRUE(outcomes[std::size_t(r)].ok()) << describe(outcomes);
}

// NCCL compares nothing; the group does, after a second of waiting.
TEST(NcclFaults, CallsThatDifferAreReported) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        DeviceMemory memory(device_of(world), 4000);
        Request request = all_reduce_of(world, memory, world.rank() == 0 ? 1000 : 1000);
        if (world.rank() == 1) request.device = kHost;
        std::vector<float> on_host(1000);
        if (world.rank() == 1) request.in = request.out = on_host.data();
        const std::string text = sentence_of([&] { world.run(request).or_throw(); });
        expect_words(text, "Mismatch: ");
        expect_words(text, "called all_reduce #1 (f32[1000], sum");
        expect_words(text, " while this rank called all_reduce #1 (f32[1000], sum");
      },
      with_gpus(kNccl));
  EXPECT_EQ(describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::test
