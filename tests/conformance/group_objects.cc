// Byte strings and JSON between ranks: lengths that differ, none among them, limits, and text that is none.
#include <nlohmann/json.hpp>

#include "tests/conformance/group_conformance.h"
#include "tests/harness/error_of.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/json_objects.h"

namespace tutti::test {
namespace {

using nlohmann::json;

// Of every rank another, and of some nothing at all.
std::string value_of(int rank, std::size_t scale) {
  std::string value(rank % 3 == 1 ? 0 : std::size_t(rank + 1) * scale, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = char(i * 7 + std::size_t(rank));
  return value;
}

using test::error_of;

void expect_words(const std::string& text, const std::string& words) {
  check(text.find(words) != std::string::npos, text);
}

}  // namespace

TEST_P(GroupSuite, ByteStrings) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank(), root = n - 1;
    for (const std::size_t scale : {1, 1000, 700000}) {
      const std::string mine = value_of(me, scale);
      std::string told = me == root ? value_of(root, scale) : "something else";
      broadcast_bytes(world, told, root);
      check(told == value_of(root, scale), "broadcast_bytes");
      const auto all = all_gather_bytes(world, mine), gathered = gather_bytes(world, mine, root);
      check(int(all.size()) == n && int(gathered.size()) == (me == root ? n : 0), "how many values?");
      for (int r = 0; r < n; ++r) check(all[std::size_t(r)] == value_of(r, scale), "all_gather_bytes of rank ", r);
      check(me != root || gathered == all, "gather_bytes");
      check(scatter_bytes(world, me == root ? all : std::vector<std::string>(), root) == mine, "scatter_bytes");
      if (me != 0) send_bytes(world, mine, 0, 4);
      for (int i = 1; me == 0 && i < n; ++i) {
        std::int32_t source = -1;
        const std::string came = recv_bytes(world, kAnySource, 4, &source);
        check(came == value_of(source, scale), "recv_bytes from rank ", source);
      }
      barrier(world);
    }
  });
}

TEST_P(GroupSuite, ByteStringsThatAreTooLarge) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    const std::string mine(me == n - 1 ? 3000 : 10, 'x');
    // The least limit of all counts, and all refuse, whoever has set it.
    const ObjectLimit limit{.most = me == 0 ? 2048u : 1u << 20};
    const std::string text = error_of([&] { all_gather_bytes(world, mine, limit); });
    expect_words(text, "Limit: all_gather_bytes on group world, rank " + std::to_string(me) + ": rank " +
                           std::to_string(n - 1) + " gives a value of 2.93 KiB, at most 2 KiB are allowed");
    check(all_gather_bytes(world, mine).back() == std::string(3000, 'x'), "the group goes on");
    expect_words(error_of([&] { scatter_bytes(world, {}, n); }), "the root " + std::to_string(n) + " is not a rank");
    if (n == 1) {
      expect_words(error_of([&] { scatter_bytes(world, {}, 0); }), "the root gives 0 values, expected 1");
      return;
    }
    // A receiver with a lower limit than the sender throws the value away, and the next one arrives.
    const std::string large(3 << 20, 'y');
    if (me == 1) {
      expect_words(error_of([&] { send_bytes(world, large, 0, 1, {.most = 100}); }),
                   "was given a value of 3 MiB, at most 100 B are allowed");
      send_bytes(world, large, 0, 1);
      send_bytes(world, "after it", 0, 1);
      std::vector<std::uint8_t> other(16);
      send(world, std::span<const std::uint8_t>(other), 0, 1);
    }
    if (me == 0) {
      expect_words(error_of([&] { recv_bytes(world, 1, 1, nullptr, {.most = 100}); }),
                   "rank 1 sent a value of 3 MiB, at most 100 B are allowed");
      check(recv_bytes(world, kAnySource, 1) == "after it", "the message after the one that was thrown away");
      expect_words(
          error_of([&] { recv_bytes(world, 1, 1); }),
          "Corrupt: recv_bytes on group world, rank 0: rank 1 sent something with tag 1 that is not a byte string");
    }
    barrier(world);
  });
}

TEST_P(GroupSuite, Json) {
  everywhere([](Group& world) {
    const int n = world.size(), me = world.rank();
    const auto value = [](int rank) {
      return json{
          {"rank", rank}, {"name", "Zoë"}, {"sizes", std::vector<int>(std::size_t(rank), 7)}, {"none", nullptr}};
    };
    json told = me == 0 ? value(5) : json("something else");
    broadcast_json(world, told);
    check(told == value(5), "broadcast_json");
    const auto all = all_gather_json(world, value(me)), gathered = gather_json(world, value(me), 0);
    for (int r = 0; r < n; ++r) check(all[std::size_t(r)] == value(r), "all_gather_json");
    check(me == 0 ? gathered == all : gathered.empty(), "gather_json");
    check(scatter_json(world, me == 0 ? all : std::vector<json>(), 0) == value(me), "scatter_json");
    if (n > 1) {
      const int next = (me + 1) % n, before = (me + n - 1) % n;
      if (me == 0) send_json(world, value(me), next);
      check(recv_json(world, before) == value(before), "recv_json");
      if (me != 0) send_json(world, value(me), next);
    }
    // Text that is no JSON, from a rank that calls another verb; JSON that nests too deep, or has no number of ours; a
    // string that is none.
    std::string text = "{\"a\": [1, 2";
    if (me == 0) {
      broadcast_bytes(world, text);
      text = std::string(600, '[') + std::string(600, ']');
      broadcast_bytes(world, text);
      text = "[1e999]";
      broadcast_bytes(world, text);
      expect_words(error_of([&] { send_json(world, json("\xff"), 1); }), "has a string that is not UTF-8");
    } else {
      json got;
      expect_words(error_of([&] { broadcast_json(world, got); }),
                   "Corrupt: broadcast_json on group world, rank " + std::to_string(me) +
                       ": rank 0 sent text that is not JSON: parsing failed at byte 12 of 11");
      expect_words(error_of([&] { broadcast_json(world, got); }), "rank 0 sent JSON that nests more than 512 deep");
      expect_words(error_of([&] { broadcast_json(world, got); }), "rank 0 sent JSON with a number that is too large for");
    }
    barrier(world);
  });
}

}  // namespace tutti::test
