#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/parallel/data_parallel/reducer/features/logical_ranks.h"

namespace tutti {
namespace {

// The order of additions, as brackets.
std::string stacked(int begin, int end) {
  std::vector<std::string> stack;
  for (int part = begin; part < end; ++part) {
    stack.push_back(std::to_string(part));
    for (int merges = merges_after(part - begin, end - begin); merges > 0; --merges) {
      const std::string right = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + "+" + right + ")";
    }
  }
  EXPECT_EQ(stack.size(), 1u) << begin << " to " << end;
  return stack.back();
}

std::string halved(int begin, int end) {
  if (end - begin == 1) return std::to_string(begin);
  const int middle = begin + (end - begin) / 2;
  return "(" + halved(begin, middle) + "+" + halved(middle, end) + ")";
}

TEST(TreeSum, AStackAddsAsTheTreeDoes) {
  EXPECT_EQ(stacked(0, 6), "((0+(1+2))+(3+(4+5)))");
  for (int parts = 1; parts <= 40; ++parts) EXPECT_EQ(stacked(0, parts), halved(0, parts));
}

TEST(TreeSum, ProcessesWithNeighbouringPartsAddTheSameTree) {
  for (const int parts : {4, 6, 8, 12, 24, 40}) {
    for (int processes = 1; parts % processes == 0; processes *= 2) {
      std::vector<std::string> sums;
      const int each = parts / processes;
      for (int p = 0; p < processes; ++p) sums.push_back(stacked(p * each, (p + 1) * each));
      for (; sums.size() > 1;) {
        std::vector<std::string> next;
        for (std::size_t i = 0; i < sums.size(); i += 2) next.push_back("(" + sums[i] + "+" + sums[i + 1] + ")");
        sums = next;
      }
      EXPECT_EQ(sums[0], halved(0, parts)) << parts << " parts on " << processes;
    }
  }
}

}  // namespace
}  // namespace tutti
