// A buffer consists of one part, or of one part per rank. Piece k of a call takes the elements k * m to (k + 1) * m of
// every part. So it is a call of the same verb with smaller parts, and all pieces together do the work of the call. m
// depends only on the verb, the type and the group size, so it is the same on all ranks.
//
// In the memory of a piece the parts are stored one after another. The call is in place wherever the verb allows that:
// one rank's part among all parts then needs neither memory nor a copy.
#include "tutti/comm/cuda/pieces.h"

#include <algorithm>
#include <numeric>

#include "tutti/comm/layout.h"

namespace tutti::cuda {
namespace {

constexpr std::size_t kAlign = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Pieces::Pieces(const Request& request, int rank, int size, std::size_t most)
    : request_(request),
      in_splits_(request.in_splits.begin(), request.in_splits.end()),
      out_splits_(request.out_splits.begin(), request.out_splits.end()),
      rank_(rank),
      element_(size_of(request.dtype)) {
  const bool has_parts = gives_parts(request.kind) || gets_parts(request.kind);
  const std::size_t vector =
      has_common_splits(request.kind) ? comm::common_splits(request)[std::size_t(rank)] : request.count;
  const auto lay_out = [&](Side& side, Verb::Buffer buffer, const std::vector<std::size_t>& splits) {
    if (buffer != Verb::Buffer::kParts)
      side.parts = {vector};
    else
      side.parts = splits.empty() ? std::vector<std::size_t>(std::size_t(size), request.count) : splits;
  };
  const bool is_one_buffer = verb(request.kind).in == Verb::Buffer::kNone;  // which the sender does not write
  if (comm::gives(request, rank)) lay_out(in_, verb(request.kind).in, in_splits_);
  if (comm::gets(request, rank) && !(is_one_buffer && comm::gives(request, rank)))
    lay_out(out_, verb(request.kind).out, out_splits_);
  std::size_t largest = 0;
  for (const Side* side : {&in_, &out_})
    for (const std::size_t part : side->parts) largest = std::max(largest, part);
  if (is_point_to_point(request.kind)) {
    per_piece_ = std::max<std::size_t>(largest, 1);
    return;
  }
  per_piece_ = std::max<std::size_t>(1, most / element_ / (has_parts ? std::size_t(size) : 1));
  number_ = std::max<std::size_t>(1, (largest + per_piece_ - 1) / per_piece_);
}

bool Pieces::needs_agreement() const {
  return (is_uneven(request_.kind) || !in_splits_.empty()) && !has_common_splits(request_.kind);
}

std::size_t Pieces::count_in(std::size_t part, std::size_t index) const {
  const std::size_t begin = index * per_piece_;
  return part > begin ? std::min(part - begin, per_piece_) : 0;
}

void Pieces::lay(const Side& side, std::size_t index, std::size_t at, std::vector<Run>& runs) const {
  std::size_t part_begin = 0;
  for (const std::size_t part : side.parts) {
    const std::size_t count = count_in(part, index);
    if (count > 0) runs.push_back({.elements_from = part_begin + index * per_piece_, .count = count, .bytes_at = at});
    at += count * element_;
    part_begin += part;
  }
}

std::size_t Pieces::extent(const Side& side, std::size_t index) const {
  std::size_t elements = 0;
  for (const std::size_t part : side.parts) elements += count_in(part, index);
  return elements * element_;
}

std::size_t Pieces::own_at(const Side& side, std::size_t index) const {
  std::size_t elements = 0;
  for (int r = 0; r < rank_; ++r) elements += count_in(side.parts[std::size_t(r)], index);
  return elements * element_;
}

StagedPiece Pieces::make(std::size_t index) const {
  StagedPiece piece;
  piece.request = request_;
  Request& r = piece.request;
  r.in = nullptr, r.out = nullptr;
  r.device = kHost, r.stream = nullptr;
  r.count = count_in(request_.count, index);
  for (const std::size_t part : in_splits_) piece.in_splits.push_back(count_in(part, index));
  for (const std::size_t part : out_splits_) piece.out_splits.push_back(count_in(part, index));
  r.in_splits = {}, r.out_splits = {};

  const bool broadcasts = r.kind == Kind::kBroadcast;
  const std::size_t in_bytes = extent(in_, index), out_bytes = extent(out_, index);
  piece.reads = !in_.parts.empty(), piece.writes = !out_.parts.empty() || broadcasts;
  piece.bytes = std::max(in_bytes, out_bytes);
  if (in_.parts.size() > 1 && out_.parts.size() == 1) {
    piece.out = own_at(in_, index);
  } else if (out_.parts.size() > 1 && in_.parts.size() == 1) {
    piece.in = own_at(out_, index);
  } else if (r.kind == Kind::kAllToAll && !in_splits_.empty()) {  // the only verb that is never in place
    piece.out = aligned(in_bytes);
    piece.bytes = piece.out + out_bytes;
  }
  lay(in_, index, piece.in, piece.to_read);
  lay(out_, index, piece.out, piece.to_write);
  return piece;
}

std::size_t Pieces::largest() const {
  const StagedPiece first = make(0);  // later parts are never larger
  return first.bytes;
}

}  // namespace tutti::cuda
