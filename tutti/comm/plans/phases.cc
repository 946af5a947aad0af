#include "tutti/comm/plans/phases.h"

#include <algorithm>
#include <numeric>

namespace tutti::comm {

Members everybody(const Shape& shape, int first) {
  Members all{.ranks = std::vector<int>(std::size_t(shape.size)),
              .place = (shape.rank - first + shape.size) % shape.size};
  for (int place = 0; place < shape.size; ++place) all.ranks[place] = (first + place) % shape.size;
  return all;
}

Parts even_parts(const Range& whole, std::size_t element, int parts) {
  Parts result;
  for (int part = 0; part < parts; ++part) result.push_back(part_of(whole, element, parts, part));
  return result;
}

Parts rotated(Parts parts, int first) {
  std::rotate(parts.begin(), parts.begin() + first, parts.end());
  return parts;
}

namespace {

// Appends a part. The first range may be an empty placeholder.
void append(std::vector<Range>& ranges, const Range& part) {
  Range& last = ranges.back();
  if (last.bytes == 0)
    last = part;
  else if (last.area == part.area && last.offset + last.bytes == part.offset)
    last.bytes += part.bytes;
  else if (part.bytes != 0)
    ranges.push_back(part);
}

}  // namespace

std::vector<Range> joined(std::span<const Range> parts, int first, int count) {
  std::vector<Range> ranges = {Range{}};
  for (int i = 0; i < count; ++i) append(ranges, parts[std::size_t(first + i) % parts.size()]);
  return ranges;
}

std::vector<Range> joined(const ScatteredParts& parts, int first, int count) {
  std::vector<Range> ranges = {Range{}};
  for (int i = 0; i < count; ++i) {
    for (const Range& range : parts[std::size_t(first + i) % parts.size()]) append(ranges, range);
  }
  return ranges;
}

void send(PlanBuilder& plan, int peer, const std::vector<Range>& from, const Pieces& pieces) {
  for (const Range& range : from) {
    for (const Range& piece : segments_of(range, pieces.element, pieces.segment)) plan.send(peer, piece);
  }
}

void recv(PlanBuilder& plan, int peer, const std::vector<Range>& into, const Pieces& pieces) {
  for (const Range& range : into) {
    for (const Range& piece : segments_of(range, pieces.element, pieces.segment)) plan.recv(peer, piece);
  }
}

void recv_reduce(PlanBuilder& plan, int peer, const Range& from, const Range& into, const Pieces& pieces) {
  const auto own = segments_of(from, pieces.element, pieces.segment);
  const auto sums = segments_of(into, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < sums.size(); ++i) plan.recv_reduce(peer, own[i], sums[i]);
}

}  // namespace tutti::comm
