// Large messages between GPUs of one host: the receiver copies from the sender's memory. What stays open, and what
// happens where that cannot be done. calls_test.cc checks their order. On the double, which ends a process that uses
// memory its owner has freed.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/cuda/ipc_worlds.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group.h"

namespace tutti::test {
namespace {

constexpr std::size_t kLarge = 100'000;  // floats: more than a link holds

// Floats in GPU memory.
class Message {
 public:
  Message(const Group& world, float value, std::size_t count = kLarge) : Message(device_of(world), value, count) {}
  Message(int device, float value, std::size_t count = kLarge)
      : device_(device), count_(count), memory_(device, count * sizeof(float)) {
    const std::vector<float> values = values_of(value);
    memory_.upload(values.data(), count_ * sizeof(float), stream_of(device_));
  }
  Request to(int peer, int tag = 0) const {
    return on_device(requests::send(std::span<const float>(data(), count_), peer, tag));
  }
  Request from(int peer, int tag = 0) const { return on_device(requests::recv(std::span(data(), count_), peer, tag)); }
  Request from_any(std::int32_t& source) const {
    return on_device(requests::recv_any(std::span(data(), count_), source));
  }
  void expect(float value, float step = 1) const {
    std::vector<float> now(count_);
    memory_.download(now.data(), count_ * sizeof(float));
    check(now == values_of(value, step), "expected ", value, ", got ", now.front(), " to ", now.back());
  }

 private:
  std::vector<float> values_of(float value, float step = 1) const {
    std::vector<float> values(count_);
    for (std::size_t i = 0; i < count_; ++i) values[i] = value + step * float(i % 1000);
    return values;
  }
  Request on_device(Request request) const {
    request.device = device_;
    request.stream = stream_of(device_);
    return request;
  }
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  const int device_;
  const std::size_t count_;
  DeviceMemory memory_;
};

// Rank 0 sends one message to rank 1.
void exchange(Group& world, float value, std::size_t count = kLarge) {
  const Message message(world, world.rank() == 0 ? value : -1, count);
  if (world.rank() > 1) return;
  world.run(world.rank() == 0 ? message.to(1) : message.from(0)).or_throw();
  message.expect(value);
}

// ---- what is open ----

TEST(CudaIpcMessage, IsCopiedFromTheSendersMemoryIfItIsLarge) {
  const auto body = [](Group& world) {
    {
      Group copy = world.split(0, world.rank()).or_throw();
      exchange(copy, 1, 64 << 10);  // 256 KiB
      check(open_handles() == 0, "after a small message: ", open_handles());
      const Message message(copy, float(copy.rank()));
      for (int i = 0; i < 3; ++i) copy.run(copy.rank() == 0 ? message.to(1) : message.from(0)).or_throw();
      message.expect(0);
      check(open_handles() == copy.rank(), "after three large ones: ", open_handles());
      barrier(copy);
    }
    check(open_handles() == 0, "after the group: ", open_handles());
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// exchange() frees the memory as soon as the call has ended.
TEST(CudaIpcMessage, FreedMemoryIsNotUsedAndClosed) {
  const auto body = [](Group& world) {
    for (int i = 0; i < 6; ++i) exchange(world, float(i), kLarge + std::size_t(i) * 1000);  // at addresses of their own
    check(open_handles() <= 2, "open, of six allocations that are freed: ", open_handles());
  };
  EXPECT_EQ(outcome_of(2, body, with_variable(1, "FAKE_CUDA_READS_LATE", "100")), "");
}

// The receiver of the second message does not read what its note says of the first.
TEST(CudaIpcMessage, FreedMemoryIsClosedAfterAMessageThatWasStaged) {
  const auto body = [](Group& world) {
    exchange(world, 1);
    if (world.rank() == 0) {
      const Message message(world, 2, kLarge + 1000);
      world.run(message.to(1)).or_throw();
    } else {
      std::vector<float> host(kLarge + 1000);
      recv(world, std::span(host), 0);
    }
    for (int i = 2; i < 5; ++i) exchange(world, float(i), kLarge + std::size_t(i) * 1000);
    check(open_handles() <= 1, "open, of five allocations that are freed: ", open_handles());
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// ---- where it is staged ----

TEST(CudaIpcMessage, IsStagedIfEitherBufferIsOnTheHost) {
  const auto body = [](Group& world) {
    std::vector<float> host(kLarge, 7);
    const Message message(world, 3);
    if (world.rank() == 0) {
      world.run(message.to(1)).or_throw();
      return send(world, std::span<const float>(host), 1);
    }
    recv(world, std::span(host), 0);
    check(host[0] == 3 && host[kLarge - 1] == 3 + float((kLarge - 1) % 1000), "on the host: ", host[0]);
    world.run(message.from(0)).or_throw();
    message.expect(7, 0);
    check(open_handles() == 0, "open: ", open_handles());
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

class CudaIpcMessageFallback : public ::testing::TestWithParam<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Errors, CudaIpcMessageFallback,
                         ::testing::Values(std::pair("FAKE_CUDA_IPC_GET", 0), std::pair("FAKE_CUDA_IPC_OPEN", 1)),
                         [](const auto& info) {
                           return std::string(info.param.first).substr(std::size("FAKE_CUDA_IPC"));
                         });

TEST_P(CudaIpcMessageFallback, IsStagedIfCudaDoesNotShareTheMemory) {
  const auto [variable, rank] = GetParam();
  const auto body = [rank = rank](Group& world) {
    if (world.rank() == rank) ::testing::internal::CaptureStderr();
    const Message message(world, world.rank() == 0 ? 5 : -1);
    for (int i = 0; i < 2; ++i) world.run(world.rank() == 0 ? message.to(1) : message.from(0)).or_throw();
    message.expect(5);
    check(open_handles() == 0, "open: ", open_handles());
    if (world.rank() == rank)
      expect_words(::testing::internal::GetCapturedStderr(), "moves a message of GPU memory through the CPU: ");
  };
  EXPECT_EQ(outcome_of(2, body, with_variable(rank, variable, "801")), "");
}

TEST(CudaIpcMessage, ToAnotherGpuThanTheFirstIsStaged) {
  const auto body = [](Group& world) {
    exchange(world, 1);
    const Message other(world.rank() == 0 ? 0 : 6, world.rank() == 0 ? 2 : -1);
    world.run(world.rank() == 0 ? other.to(1) : other.from(0)).or_throw();
    other.expect(2);
    exchange(world, 3);
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// What the receiver's stream waits for may come after the send.
TEST(CudaIpcMessage, ASendDoesNotWaitForTheReceiversStream) {
  const auto body = [](Group& world) {
    if (world.rank() == 0) {
      const Message message(world, 4);
      world.run(message.to(1)).or_throw();
      return barrier(world);
    }
    const Message message(world, -1);
    message.expect(-1);  // and its memory on the host is free again
    std::atomic<bool> go{false};
    StreamGate gate(device_of(world), stream_of(device_of(world)), go);
    const Work work = world.submit(message.from(0));
    barrier(world);
    check(!work.done(), "the receive did not wait for its stream");
    go = true;
    go.notify_all();
    work.get();
    message.expect(4);
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

// Rank 0 does not send the second message before the first has ended.
TEST(CudaIpcMessage, ALaterTagMayBeReceivedFirst) {
  const auto body = [](Group& world) {
    const Message first(world, world.rank() == 0 ? 1 : -1), second(world, world.rank() == 0 ? 2 : -1);
    if (world.rank() == 0) {
      world.run(first.to(1, 1)).or_throw();
      world.run(second.to(1, 2)).or_throw();
      return;
    }
    world.run(second.from(0, 2)).or_throw();
    world.run(first.from(0, 1)).or_throw();
    first.expect(1);
    second.expect(2);
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(CudaIpcMessage, BetweenHostsIsStagedAndFromAnySource) {
  WorldOptions options = with_gpus(kIpc);
  options.environment_of = [](int rank) {
    return std::map<std::string, std::string>{{"TUTTI_HOST_ID", rank == 1 ? "other" : "this"}};
  };
  const auto body = [](Group& world) {
    const Message message(world, float(world.rank()));
    if (world.rank() > 0) {
      const std::string wanted = world.rank() == 1 ? "staged" : "ipc", way = world.plan_name(message.to(0));
      check(way == wanted, "way: ", way);
      world.run(message.to(0)).or_throw();
      return;
    }
    for (int i = 0; i < 2; ++i) {
      std::int32_t source = -1;
      world.run(message.from_any(source)).or_throw();
      check(source > 0, "from ", source);
      message.expect(float(source));
    }
    check(open_handles() == 1, "open: ", open_handles());
  };
  EXPECT_EQ(outcome_of(3, body, options), "");
}

// ---- errors ----

TEST(CudaIpcMessage, OfAnotherSizeGivesTheSentenceOfAStagedOne) {
  for (const char* const engine : {kIpc, kStaged}) {
    const auto body = [](Group& world) {
      const Message message(world, 1, world.rank() == 0 ? kLarge : kLarge + 1);
      const std::string text =
          sentence_of([&] { world.run(world.rank() == 0 ? message.to(1) : message.from(0)).or_throw(); });
      if (world.rank() == 1)
        expect_words(
            text,
            "rank 0 at shm called send (f32[100000], to 1, tag 0), this rank recv (f32[100001], from 0, tag 0) "
            "(hint: a receive needs the type and count that were sent)");
      expect_words(text, "Mismatch: ");
    };
    EXPECT_EQ(outcome_of(2, body, with_gpus(engine)), "") << engine;
  }
}

TEST(CudaIpcMessage, AReceiverThatIsKilledWhileItReadsIsNamed) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const std::string text = sentence_of([&] { exchange(world, 1); });
        for (const char* const words : {"PeerLost: send #1 (f32[100000], to 1, tag 0, cuda:", "rank 1 ", "has exited"})
          expect_words(text, words);
      },
      with_variable(1, "FAKE_CUDA_DIES_READING", "1"));
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].error;
}

TEST(CudaIpcMessage, ASenderThatIsKilledIsNamed) {
  const auto outcomes = run_processes(
      2,
      [](Group& world) {
        const Group pair = world.split(0, world.rank()).or_throw();
        const Message message(world, 1);
        if (world.rank() == 0) {
          const Work work = world.submit(message.to(1));
          await_all(pair, 0);
          ::kill(::getpid(), SIGKILL);
        }
        await_all(pair, 0);
        expect_words(sentence_of([&] { barrier(pair); }), "rank 0 ");
        const std::string text = sentence_of([&] { world.run(message.from(0)).or_throw(); });
        for (const char* const words :
             {"PeerLost: recv #1 (f32[100000], from 0, tag 0, cuda:", "rank 0 ", "has exited"})
          expect_words(text, words);
      },
      with_gpus(kIpc));
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_TRUE(outcomes[1].ok()) << outcomes[1].error;
}

TEST(CudaIpcMessage, ASendWithoutAReceiveEndsAtItsDeadline) {
  const auto body = [](Group& world) {
    if (world.rank() == 1) return expect_words(sentence_of([&] { barrier(world); }), "send #1");
    const Message message(world, 1);
    Request request = message.to(1);
    request.limit = std::chrono::milliseconds(300);
    const std::string text = sentence_of([&] { world.run(request).or_throw(); });
    for (const char* const words : {"Timeout: send #1 (f32[100000], to 1, tag 0, cuda:", "still waiting for rank 1"})
      expect_words(text, words);
  };
  EXPECT_EQ(outcome_of(2, body), "");
}

TEST(CudaIpcMessage, AGroupThatEndsBeforeItsSendFailsTheReceive) {
  WorldOptions options = with_gpus(kIpc);
  options.leave_timeout = 1;
  const auto body = [](Group& world) {
    Group pair = world.split(0, world.rank()).or_throw();
    if (world.rank() == 0) {
      {
        const Message message(world, 1);
        (void)pair.submit(message.to(1));
        pair = Group();
      }
      return barrier(world);
    }
    barrier(world);
    const Message message(world, -1);
    const std::string text = sentence_of([&] { pair.run(message.from(0)).or_throw(); });
    expect_words(text, "this rank left the group while the call was in progress");
    message.expect(-1);
  };
  EXPECT_EQ(outcome_of(2, body, options), "");
}

}  // namespace
}  // namespace tutti::test
