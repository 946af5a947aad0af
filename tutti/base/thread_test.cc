#include "tutti/base/thread.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

namespace tutti {

namespace {

struct Seen {
  explicit Seen(std::optional<bool>& into) : past(into) {}
  ~Seen() { past = unwinding.is_past(); }
  std::optional<bool>& past;
  Unwinding unwinding;
};

TEST(Unwinding, IsTrueOnlyForExceptions) {
  std::optional<bool> plain, thrown_past;
  { const Seen seen(plain); }
  try {
    const Seen seen(thrown_past);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(plain, false);
  EXPECT_EQ(thrown_past, true);
}

TEST(Unwinding, IgnoresExceptionsOutsideTheObjectsLifetime) {
  struct AtEnd {
    std::function<void()> act;
    ~AtEnd() { act(); }
  };
  std::optional<bool> within, thrown_within;
  try {
    const AtEnd end{[&] {
      { const Seen seen(within); }
      try {
        const Seen seen(thrown_within);
        throw 2;
      } catch (int) {
      }
    }};
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(within, false);
  EXPECT_EQ(thrown_within, true);
}

}  // namespace

}  // namespace tutti
