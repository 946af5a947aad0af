// Messages between two ranks: order, tags, any source, batches.
#include <algorithm>
#include <random>

#include "tests/conformance/group_conformance.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {

TEST_P(GroupSuite, SendAndReceive) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    if (n == 1) return;
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    for (std::size_t count : {0, 1, 1001, 300000}) {
      std::vector<std::int32_t> out(count, me), in(count, -1);
      Work sending = isend(world, std::span<const std::int32_t>(out), next, 3);
      recv(world, std::span(in), before, 3);
      sending.get();
      for (std::int32_t v : in) check(v == before, "a wrong element from rank ", before);
    }
    // Tags out of order, beside a collective.
    std::int32_t a = me * 10 + 1, b = me * 10 + 2, got_a = 0, got_b = 0;
    Work first = isend(world, std::span<const std::int32_t>(&a, 1), next, 1),
         second = isend(world, std::span<const std::int32_t>(&b, 1), next, 2);
    check(all_reduce(world, std::int32_t(1)) == n, "all_reduce beside sends");
    Work late = irecv(world, std::span(&got_b, 1), before, 2), early = irecv(world, std::span(&got_a, 1), before, 1);
    for (Work* work : {&first, &second, &late, &early}) work->get();
    check(got_a == before * 10 + 1 && got_b == before * 10 + 2, "tags were mixed up");
  });
}

TEST_P(GroupSuite, ReceiveFromAnySource) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    if (n == 1) return;
    constexpr int kMessages = 30;
    for (const std::size_t count : {0, 1, 1001, 100000}) {
      const int messages = count > 2000 ? 3 : kMessages;
      const int tag = int(count);  // who is done with one round may already send for the next
      if (me != 0) {
        std::vector<std::int32_t> mine(count);
        for (int i = 0; i < messages; ++i) {
          std::fill(mine.begin(), mine.end(), me * 1000 + i);
          send(world, std::span<const std::int32_t>(mine), 0, tag);
        }
        continue;
      }
      std::vector<int> came(std::size_t(n), 0);
      std::vector<std::int32_t> data(count);
      for (int i = 0; i < messages * (n - 1); ++i) {
        const int source = recv_any(world, std::span(data), tag);
        const int number = came[std::size_t(source)]++;
        for (const std::int32_t v : data)
          check(v == source * 1000 + number, "message ", number, " of rank ", source, " holds ", v);
      }
      for (int r = 1; r < n; ++r)
        check(came[std::size_t(r)] == messages, came[std::size_t(r)], " messages of rank ", r);
    }
    // Asynchronous, beside a collective; and the sender may leave as soon as it has sent.
    std::int32_t value = me, source = kAnySource;
    if (me == 0) {
      std::vector<std::int32_t> values(std::size_t(n), -1), sources(std::size_t(n), -1);
      std::vector<Work> works;
      for (int i = 1; i < n; ++i)
        works.push_back(irecv_any(world, std::span(&values[std::size_t(i)], 1), sources[std::size_t(i)], 7));
      barrier(world);
      for (const Work& work : works) work.get();
      for (int i = 1; i < n; ++i) check(values[std::size_t(i)] == sources[std::size_t(i)], "from whom?");
      for (int i = 1; i < n; ++i) {
        source = recv_any(world, std::span(&value, 1), 9);
        check(value == source, "rank ", source, " sent ", value);
      }
    } else {
      send(world, std::span<const std::int32_t>(&value, 1), 0, 7);
      barrier(world);
      send(world, std::span<const std::int32_t>(&value, 1), 0, 9);
    }
  });
}

// Every rank exchanges several messages with every other, listed in an order of its own.
TEST_P(GroupSuite, BatchesInAnyOrder) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    for (const std::size_t count : {std::size_t(1), std::size_t(60000)}) {
      constexpr int kTags = 3;
      const auto cell = [&](int peer, int tag) { return std::size_t(peer * kTags + tag); };
      std::vector<std::vector<std::int32_t>> outs(std::size_t(n * kTags)), ins(std::size_t(n * kTags));
      std::vector<Request> batch;
      for (int peer = 0; peer < n; ++peer)
        for (int tag = 0; tag < kTags && peer != me; ++tag) {
          outs[cell(peer, tag)].assign(count, me * 100 + peer * 10 + tag);
          ins[cell(peer, tag)].assign(count, -1);
          batch.push_back(requests::send(std::span<const std::int32_t>(outs[cell(peer, tag)]), peer, tag));
          batch.push_back(requests::recv(std::span(ins[cell(peer, tag)]), peer, tag));
        }
      std::shuffle(batch.begin(), batch.end(), std::mt19937(unsigned(me) + unsigned(count)));
      const Works works = batch_isend_irecv(world, batch);
      check(works.size() == batch.size(), "a Work for each");
      works.get();
      for (int peer = 0; peer < n; ++peer)
        for (int tag = 0; tag < kTags && peer != me; ++tag)
          for (const std::int32_t v : ins[cell(peer, tag)])
            check(v == peer * 100 + me * 10 + tag, "from rank ", peer, " with tag ", tag, ": ", v);
    }
    // One that cannot be right: none is started.
    std::int32_t x = 0;
    const Works works = batch_isend_irecv(world, {requests::send(std::span<const std::int32_t>(&x, 1), (me + 1) % n),
                                                  requests::recv(std::span(&x, 1), 99)});
    const Status status = works.wait();
    check(!status.ok() && (n == 1 || to_string(status.error()).find("the peer 99 is not a rank") != std::string::npos),
          "a wrong peer in a batch");
    barrier(world);
  });
}

}  // namespace tutti::test
