#pragma once
// What every Store must do. A store's test says how to make a table that several handles share, and instantiates the
// suite:
//   INSTANTIATE_TEST_SUITE_P(Memory, StoreConformance, testing::Values(StoreMaker{...}), name_of_store);
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "tutti/store/store.h"

namespace tutti {

// One table. Handles die before it.
class StoreWorld {
 public:
  virtual ~StoreWorld() = default;
  virtual std::unique_ptr<Store> open() = 0;  // another handle
};

struct StoreMaker {
  std::string name;
  std::function<std::unique_ptr<StoreWorld>()> make;
};

inline void PrintTo(const StoreMaker& maker, std::ostream* out) { *out << maker.name; }

class StoreConformance : public testing::TestWithParam<StoreMaker> {
 protected:
  void SetUp() override {
    world_ = GetParam().make();
    store_ = world_->open();
  }

  std::unique_ptr<StoreWorld> world_;
  std::unique_ptr<Store> store_;
};

inline std::string name_of_store(const testing::TestParamInfo<StoreMaker>& info) { return info.param.name; }

// The same world seen through a PrefixStore.
StoreMaker prefixed(StoreMaker maker);

}  // namespace tutti
