#include "tutti/parallel/tensor/division.h"

#include "tutti/base/error.h"

namespace tutti {
namespace {

std::string multiples_near(std::int64_t whole, std::int64_t of) {
  const std::int64_t below = whole / of * of;
  return below > 0 ? detail::words(below, " or ", below + of, " can") : detail::words(of, " can");
}

}  // namespace

std::int64_t equal_part(std::int64_t whole, int ranks, const std::string& who, const std::string& what) {
  TUTTI_REQUIRE(ranks >= 1, who, ": ", ranks, " ranks, expected 1 or more");
  if (whole < 1) throw Exception(invalid_argument(detail::words(who, ": ", whole, " ", what, ", expected 1 or more")));
  if (whole % ranks != 0)
    throw Exception(invalid_argument(
        detail::words(who, ": ", whole, " ", what, " cannot be divided equally among ", ranks, " ranks"),
        multiples_near(whole, ranks)));
  return whole / ranks;
}

HeadShare head_share(std::int64_t heads, std::int64_t groups, int ranks) {
  const char* const who = "attention";
  const HeadShare share{equal_part(heads, ranks, who, "heads"), groups < 1 ? 0 : groups / ranks};
  if (groups < 1 || heads % groups != 0)
    throw Exception(invalid_argument(
        detail::words(who, ": ", heads, " heads cannot be divided equally among ", groups, " query groups"),
        "the groups have to divide the heads"));
  equal_part(groups, ranks, who, "query groups");
  return share;
}

}  // namespace tutti
