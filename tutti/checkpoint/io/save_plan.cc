#include "tutti/checkpoint/io/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using nlohmann::json;

struct BoxHolder {
  int rank;
  std::size_t number;  // among the rank's boxes
};

// A tensor, as all ranks together have it.
struct TensorPieces {
  const GivenBox* first = nullptr;
  int first_rank = 0;
  std::vector<TensorBox> boxes;  // different ones
  std::vector<std::vector<BoxHolder>> holders;
  std::map<std::pair<TensorShape, TensorShape>, std::size_t> known;  // to its place in `boxes`
};

Status add(TensorPieces& pieces, const GivenBox& given, BoxHolder holder) {
  if (!pieces.first) {
    pieces.first = &given;
    pieces.first_rank = holder.rank;
  } else if (given.dtype != pieces.first->dtype || given.shape != pieces.first->shape) {
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("the tensor {} is {}{} on rank {} and {}{} on rank {}", to_string(given.key),
                                       name(pieces.first->dtype), shape_text(pieces.first->shape), pieces.first_rank,
                                       name(given.dtype), shape_text(given.shape), holder.rank),
                 .hint = "every rank has to give the dtype and the shape of the whole tensor"};
  }
  const bool no_elements = elements_of(given.shape) == 0;
  if (given.box.elements() == 0 && !no_elements) return {};
  const TensorBox box = no_elements ? TensorBox::whole(given.shape) : given.box;
  const auto [found, fresh] = pieces.known.try_emplace({box.begin, box.extent}, pieces.boxes.size());
  if (fresh) {
    pieces.boxes.push_back(box);
    pieces.holders.emplace_back();
  }
  auto& holders = pieces.holders[found->second];
  if (!holders.empty() && holders.back().rank == holder.rank && !no_elements)
    return invalid_argument(
        fmt::format("rank {} gives {} of the tensor {} twice", holder.rank, box_text(box), to_string(given.key)));
  holders.push_back(holder);
  return {};
}

Status check(const TensorKey& key, const TensorPieces& pieces) {
  if (pieces.boxes.size() > kMostBoxes)
    return Error{.code = Code::kLimit,
                 .detail = fmt::format("the tensor {} is in {} boxes; a checkpoint allows {}", to_string(key),
                                       pieces.boxes.size(), kMostBoxes)};
  const std::string trouble = gap_or_overlap(pieces.first->shape, pieces.boxes);
  if (trouble.empty()) return {};
  return invalid_argument(
      fmt::format("the tensor {} {} cannot be saved: {}", to_string(key), shape_text(pieces.first->shape), trouble),
      "the boxes of all ranks together have to cover a tensor once; replicas give the same box");
}

}  // namespace

Result<std::string> encode_given(const std::vector<GivenBox>& boxes) {
  auto list = json::array();
  for (const GivenBox& given : boxes)
    list.push_back({given.key.name, given.key.state, int(given.dtype), given.shape, given.box.begin, given.box.extent,
                    given.may_differ});
  try {
    return list.dump();
  } catch (const json::exception&) {
    return invalid_argument("checkpoint: the name of a tensor is not valid UTF-8");
  }
}

Result<std::vector<GivenBox>> decode_given(std::string_view text) {
  std::vector<GivenBox> boxes;
  try {
    for (const json& given : json::parse(text))
      boxes.push_back({.key = {given.at(0), given.at(1)},
                       .dtype = DType(given.at(2).get<int>()),
                       .shape = given.at(3),
                       .box = {given.at(4), given.at(5)},
                       .may_differ = given.at(6)});
  } catch (const json::exception&) {
    return Error{.code = Code::kCorrupt, .detail = "a rank sent a list of tensors that cannot be read"};
  }
  return boxes;
}

Result<std::vector<std::vector<std::size_t>>> plan_save(const std::vector<std::vector<GivenBox>>& given) {
  std::map<TensorKey, TensorPieces> tensors;
  for (std::size_t rank = 0; rank < given.size(); ++rank)
    for (std::size_t number = 0; number < given[rank].size(); ++number) {
      const GivenBox& box = given[rank][number];
      TUTTI_TRY(add(tensors[box.key], box, {int(rank), number}));
    }
  std::vector<std::vector<std::size_t>> plan(given.size());
  std::vector<std::uint64_t> bytes(given.size());
  // What has one possible writer only is dealt out first, then replicas fill up.
  for (const bool replicas : {false, true}) {
    for (const auto& [key, pieces] : tensors) {
      if (!replicas) TUTTI_TRY(check(key, pieces));
      for (std::size_t b = 0; b < pieces.boxes.size(); ++b) {
        const auto& holders = pieces.holders[b];
        if ((holders.size() > 1 && !pieces.first->may_differ) != replicas) continue;
        const auto fewer_bytes = [&](const BoxHolder& x, const BoxHolder& y) {
          return bytes[std::size_t(x.rank)] < bytes[std::size_t(y.rank)];
        };
        const BoxHolder& writer =
            replicas ? *std::min_element(holders.begin(), holders.end(), fewer_bytes) : holders.front();
        bytes[std::size_t(writer.rank)] += pieces.boxes[b].elements() * size_of(pieces.first->dtype);
        plan[std::size_t(writer.rank)].push_back(writer.number);
      }
    }
  }
  for (auto& numbers : plan) std::sort(numbers.begin(), numbers.end());
  return plan;
}

}  // namespace tutti
