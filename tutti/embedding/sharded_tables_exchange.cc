// How rows and gradients get to the other ranks: by two barriers if their memory is in reach, else by the verbs.
//
// Backward is the transpose of forward, so each request is the forward one with its ends exchanged: an all_to_all with
// its splits exchanged, a scatter by the gather to its root.
#include <fmt/format.h>

#include <algorithm>

#include "tutti/comm/collectives.h"
#include "tutti/embedding/batch.h"

namespace tutti {

template <class T>
Status ShardedTables<T>::start_rows(Batch& batch) {
  if (placement_.ranks == 1) return {};
  if (batch.shared) {
    batch.rows_work = Works({group_.submit({.kind = Kind::kBarrier})});
    return {};
  }
  if (options_.wire != WireFormat::kExact) {
    batch.make_wire(wire_layout_, rank_, wire_of<T>(options_.wire));
    encode_owner(batch, true);
  }
  batch.rows_work = exchange(batch, false);
  return {};
}

// Between the owner's buffer and its wire.
template <class T>
void ShardedTables<T>::encode_owner(Batch& batch, bool to_wire) {
  for (const std::size_t p : part_of_) {
    if (p == kNoPart) continue;
    const ExchangePart &part = layout_.parts()[p], &on_wire = wire_layout_.parts()[p];
    for (int reader = 0; reader < placement_.ranks; ++reader) {
      const Slice theirs = my_slice(batch.samples, reader, placement_.ranks);
      T* const rows = batch.memory->owner.data() + layout_.in_owner(part, theirs, batch.samples, options_.exchange);
      std::byte* const wire =
          batch.memory->owner_wire.data() + wire_layout_.in_owner(on_wire, theirs, batch.samples, options_.exchange) *
                                                std::int64_t(size_of(wire_of<T>(options_.wire).dtype));
      to_wire ? encode(options_.wire, rows, theirs.size(), part.width, wire)
              : decode(options_.wire, wire, theirs.size(), part.width, rows);
    }
  }
}

// Between `area`, of the reader's parts, and its wire.
template <class T>
void ShardedTables<T>::encode_reader(Batch& batch, T* area, bool to_wire) {
  for (std::size_t p = 0; p < layout_.parts().size(); ++p) {
    const ExchangePart &part = layout_.parts()[p], &on_wire = wire_layout_.parts()[p];
    T* const rows = area + layout_.in_reader(part, batch.mine);
    std::byte* const wire =
        batch.memory->reader_wire.data() +
        wire_layout_.in_reader(on_wire, batch.mine) * std::int64_t(size_of(wire_of<T>(options_.wire).dtype));
    to_wire ? encode(options_.wire, rows, batch.mine.size(), part.width, wire)
            : decode(options_.wire, wire, batch.mine.size(), part.width, rows);
  }
}

// The verbs that carry rows to the readers, or `back`: gradients to the owners.
template <class T>
Works ShardedTables<T>::exchange(Batch& batch, bool back) {
  const bool exact = options_.wire == WireFormat::kExact;
  const ExchangeLayout& layout = exact ? layout_ : wire_layout_;
  const DType dtype = wire_of<T>(options_.wire).dtype;
  const std::int64_t unit = std::int64_t(size_of(dtype));
  auto* const owner =
      exact ? reinterpret_cast<std::byte*>(batch.memory->owner.data()) : batch.memory->owner_wire.data();
  auto* const reader =
      !exact ? batch.memory->reader_wire.data() : reinterpret_cast<std::byte*>(back ? batch.gradients() : batch.rows());
  const auto sizes = split_lengths(batch.samples, placement_.ranks);
  const std::int64_t mine = batch.mine.size();
  std::vector<Request> requests;
  std::vector<std::vector<std::size_t>> splits;  // which the requests refer to
  const auto times = [&](std::int64_t units) {
    auto& made = splits.emplace_back();
    for (const std::int64_t size : sizes) made.push_back(std::size_t(size * units));
    return std::span<const std::size_t>(made);
  };
  splits.reserve(layout.parts().size() + std::size_t(placement_.ranks) + 2);
  const auto scatter = [&](int root, std::int64_t at_owner, std::int64_t before, std::int64_t units) {
    Request request{.kind = back ? Kind::kGatherV : Kind::kScatterV, .dtype = dtype, .root = root};
    request.count = std::size_t(mine * units);
    std::byte* const here = reader + mine * before * unit;
    std::byte* const there = root == rank_ ? owner + at_owner * unit : nullptr;
    back ? (request.in = here, request.out = there) : (request.in = there, request.out = here);
    if (root == rank_) (back ? request.out_splits : request.in_splits) = times(units);
    requests.push_back(request);
  };
  switch (options_.exchange) {
    case TableExchange::kAllToAll: {
      const auto of_readers = times(layout.units_of(rank_));
      auto& of_owners = splits.emplace_back();
      for (int o = 0; o < placement_.ranks; ++o) of_owners.push_back(std::size_t(mine * layout.units_of(o)));
      Request request{.kind = Kind::kAllToAll, .dtype = dtype, .in = owner, .out = reader};
      request.in_splits = of_readers;
      request.out_splits = of_owners;
      if (back) std::swap(request.in_splits, request.out_splits), request.in = reader, request.out = owner;
      requests.push_back(request);
      break;
    }
    case TableExchange::kScatter:
      for (int o = 0; o < placement_.ranks; ++o)
        if (layout.units_of(o) > 0) scatter(o, 0, layout.before(o), layout.units_of(o));
      break;
    case TableExchange::kScatterList:
      for (const ExchangePart& part : layout.parts())
        scatter(part.owner, batch.samples * part.in_owner, part.before, part.units);
      break;
  }
  return group_.submit(requests);
}

template Status ShardedTables<float>::start_rows(Batch& batch);
template Works ShardedTables<float>::exchange(Batch& batch, bool back);
template void ShardedTables<float>::encode_owner(Batch& batch, bool to_wire);
template void ShardedTables<float>::encode_reader(Batch& batch, float* area, bool to_wire);
template Status ShardedTables<double>::start_rows(Batch& batch);
template Works ShardedTables<double>::exchange(Batch& batch, bool back);
template void ShardedTables<double>::encode_owner(Batch& batch, bool to_wire);
template void ShardedTables<double>::encode_reader(Batch& batch, double* area, bool to_wire);

}  // namespace tutti
