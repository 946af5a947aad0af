#include "tutti/store/memory_store.h"

#include <gtest/gtest.h>

#include "tests/conformance/store_conformance.h"

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

}  // namespace
}  // namespace tutti
