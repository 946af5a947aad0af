#include "tutti/store/memory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/conformance/store_conformance.h"
#include "tutti/store/shared_table.h"
#include "tutti/store/wire.h"

namespace tutti {
namespace {

class MemoryWorld : public StoreWorld {
 public:
  std::unique_ptr<Store> open() override { return table_.clone(Deadline::after_seconds(1)).or_throw(); }

 private:
  MemoryStore table_;
};

const StoreMaker kMemoryMaker{"Memory", [] { return std::make_unique<MemoryWorld>(); }};
INSTANTIATE_TEST_SUITE_P(InMemory, StoreConformance, testing::Values(kMemoryMaker, prefixed(kMemoryMaker)),
                         name_of_store);

using testing::ElementsAre;

// Entries of a primary are whole frames: a header of nine bytes and the body.
Status follow(store::SharedTable& standby, const std::string& entry) {
  const auto bytes = std::as_bytes(std::span(entry));
  return standby.apply_entry({.kind = std::uint8_t(entry.at(8)), .body = bytes.subspan(store::wire::kHeaderBytes)});
}

bool is_answered(const store::SharedTable::Answers& answers, store::Table::Ticket ticket) {
  for (const auto& answer : answers)
    for (const store::Table::Ticket one : answer.tickets)
      if (one == ticket) return !answer.reply.error;
  return false;
}

TEST(SharedTable, ACallWhoseReportThrowsHasEnded) {
  store::SharedTable table;
  const auto report = [](std::span<const int>, double) { throw std::runtime_error("enough"); };
  const auto entering = [](int rank) {
    return store::Request{.op = store::Op::kBarrier, .keys = {"b"}, .rank = rank, .size = 2};
  };
  EXPECT_THROW((void)table.call(entering(0), Deadline::after_seconds(60), report, 0.001), std::runtime_error);
  const auto other = table.call(entering(1), Deadline::after_seconds(0.05), {}, 1);
  ASSERT_FALSE(other.ok()) << "rank 0 had left";
  EXPECT_EQ(other.error().code, Code::kTimeout);
  EXPECT_TRUE(
      table.call({.op = store::Op::kSet, .keys = {"k"}, .values = {"v"}}, Deadline::after_seconds(60), {}, 1).ok())
      << "the table was left locked";
}

TEST(SharedTable, AStandbyTakesEveryChangeThatAFullPrimaryTook) {
  store::SharedTable primary, standby;
  store::Table::Ticket ticket = 1;
  for (std::size_t i = 0; i < store::kMaxKeys; ++i, ++ticket)
    ASSERT_TRUE(is_answered(
        primary.submit(ticket, {.op = store::Op::kSet, .keys = {std::to_string(i)}, .values = {""}}), ticket));
  primary.begin_replication();
  const store::Table::Ticket popper = ++ticket;
  EXPECT_THAT(primary.submit(popper, {.op = store::Op::kPop, .keys = {"queue"}}), ElementsAre());
  // One key too many, were it stored.
  (void)primary.submit(++ticket, {.op = store::Op::kPush, .keys = {"queue"}, .values = {"v"}});
  (void)primary.submit(++ticket, {.op = store::Op::kRemove, .keys = {"0"}});
  const auto pushed = primary.submit(++ticket, {.op = store::Op::kPush, .keys = {"queue"}, .values = {"w"}});
  EXPECT_TRUE(is_answered(pushed, ticket)) << "there is room for it";
  EXPECT_TRUE(is_answered(pushed, popper)) << "and it goes to whoever waits";
  for (const std::string& entry : primary.take_entries()) {
    const Status followed = follow(standby, entry);
    ASSERT_TRUE(followed.ok()) << to_string(followed.error());
  }
}

}  // namespace
}  // namespace tutti
