// How PlanBuilder finds dependencies. For each area it keeps a map of the bytes touched so far. Each stretch records
// the last step that wrote it and the steps that have read it since. A reader depends on the writer. A writer depends
// on the readers, or on the previous writer if there are none. Earlier steps follow by transitivity. A lookup is
// logarithmic, so building a plan of a thousand steps takes well under a millisecond.
#include "tutti/comm/plans/plan.h"

#include <algorithm>

#include "tutti/base/error.h"

namespace tutti::comm {

const char* name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kRecursiveDoubling:
      return "recursive_doubling";
    case Algorithm::kBinomial:
      return "binomial";
    case Algorithm::kChain:
      return "chain";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kPairwise:
      return "pairwise";
    case Algorithm::kDissemination:
      return "dissemination";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kBruck:
      return "bruck";
    case Algorithm::kMesh:
      return "mesh";
    case Algorithm::kVanDeGeijn:
      return "van_de_geijn";
    case Algorithm::kTwoLevel:
      return "two_level";
  }
  return "?";
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= int(kLastAlgorithm); ++i) names.emplace_back(name(Algorithm(i)));
  return names;
}

Range PlanBuilder::scratch(std::size_t bytes) {
  const Range range{Area::kScratch, plan_.scratch_bytes, bytes};
  plan_.scratch_bytes += (bytes + 63) / 64 * 64;
  return range;
}

void PlanBuilder::send(int peer, Range from) { add({.kind = StepKind::kSend, .peer = peer, .from = from}); }
void PlanBuilder::recv(int peer, Range into) { add({.kind = StepKind::kRecv, .peer = peer, .into = into}); }
void PlanBuilder::recv_reduce(int peer, Range from, Range into) {
  add({.kind = StepKind::kRecvReduce, .peer = peer, .from = from, .into = into});
}
void PlanBuilder::copy(Range from, Range into) {
  if (from.bytes != 0 && from != into) add({.kind = StepKind::kCopy, .from = from, .into = into});
}
void PlanBuilder::reduce(Range from, Range into) {
  if (from.bytes != 0) add({.kind = StepKind::kReduce, .from = from, .into = into});
}

void PlanBuilder::add(Step step) {
  const auto index = std::uint32_t(plan_.steps.size());
  step.after_begin = std::uint32_t(plan_.after.size());
  switch (step.kind) {
    case StepKind::kSend:
      read(step.from, index);
      if (round_ >= 0) plan_.after.push_back(std::uint32_t(round_));
      sent_ = index;
      break;
    case StepKind::kRecv:
      write(step.into, index);
      break;
    case StepKind::kReduce:
      read(step.into, index);
      [[fallthrough]];
    case StepKind::kRecvReduce:
    case StepKind::kCopy:
      TUTTI_INVARIANT(step.from.bytes == step.into.bytes, step.from.bytes, " bytes onto ", step.into.bytes);
      read(step.from, index);
      write(step.into, index);
      break;
  }
  const auto begin = plan_.after.begin() + step.after_begin;
  std::sort(begin, plan_.after.end());
  plan_.after.erase(std::unique(begin, plan_.after.end()), plan_.after.end());
  if (plan_.after.size() > step.after_begin && plan_.after.back() == index)
    plan_.after.pop_back();  // the step itself, as both reader and writer
  step.after_end = std::uint32_t(plan_.after.size());
  plan_.steps.push_back(step);
}

// Makes `offset` a boundary. The bytes after it inherit the state of the bytes before it.
PlanBuilder::Touched::iterator PlanBuilder::split(Touched& touched, std::size_t offset) {
  auto at = touched.lower_bound(offset);
  if (at != touched.end() && at->first == offset) return at;
  return touched.emplace_hint(at, offset, at == touched.begin() ? Toucher{} : std::prev(at)->second);
}

void PlanBuilder::read(const Range& range, std::uint32_t step) {
  if (range.bytes == 0) return;
  Touched& touched = touched_[int(range.area)];
  split(touched, range.offset);
  const auto end = split(touched, range.offset + range.bytes);
  for (auto at = touched.find(range.offset); at != end; ++at) {
    if (at->second.writer >= 0) plan_.after.push_back(std::uint32_t(at->second.writer));
    at->second.readers.push_back(step);
  }
}

void PlanBuilder::write(const Range& range, std::uint32_t step) {
  if (range.bytes == 0) return;
  Touched& touched = touched_[int(range.area)];
  split(touched, range.offset);
  const auto end = split(touched, range.offset + range.bytes);
  for (auto at = touched.find(range.offset); at != end; ++at) {
    Toucher& toucher = at->second;
    if (toucher.readers.empty() && toucher.writer >= 0) plan_.after.push_back(std::uint32_t(toucher.writer));
    for (const std::uint32_t reader : toucher.readers) plan_.after.push_back(reader);
    toucher = Toucher{.writer = step, .readers = {}};
  }
}

Plan PlanBuilder::build() && { return std::move(plan_); }

Range part_of(const Range& whole, std::size_t element, int parts, int index) {
  const std::size_t count = whole.bytes / element, each = count / parts, longer = count % parts, before = index;
  const std::size_t first = each * before + std::min(before, longer);
  return {whole.area, whole.offset + first * element, (each + (before < longer ? 1 : 0)) * element};
}

std::vector<Range> parts_of(Area area, const Shape& shape, std::span<const std::size_t> splits) {
  std::vector<Range> parts;
  std::size_t offset = 0;
  for (int rank = 0; rank < shape.size; ++rank) {
    const std::size_t bytes = (splits.empty() ? shape.count : splits[std::size_t(rank)]) * shape.element;
    parts.push_back({area, offset, bytes});
    offset += bytes;
  }
  return parts;
}

std::vector<Range> segments_of(const Range& whole, std::size_t element, std::size_t segment) {
  const std::size_t piece = std::max(segment / element, std::size_t(1)) * element;
  std::vector<Range> segments;
  std::size_t done = 0;
  do {
    segments.push_back({whole.area, whole.offset + done, std::min(piece, whole.bytes - done)});
    done += segments.back().bytes;
  } while (done < whole.bytes);
  return segments;
}

}  // namespace tutti::comm
