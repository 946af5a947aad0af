#include "tutti/data/clicks/source.h"

#include <fmt/format.h>

namespace tutti {

Status check_part(const ClickSource& source, std::int64_t batch, const BatchPart& part) {
  if (batch < 0 || batch >= source.batches())
    return invalid_argument(fmt::format("there is no batch {}: the data has {}", batch, source.batches()));
  const std::int64_t samples = source.samples(batch);
  if (part.begin < 0 || part.begin > part.end || part.end > samples)
    return invalid_argument(fmt::format("samples {} up to {} of batch {} were asked for, which has {}", part.begin,
                                        part.end, batch, samples));
  const std::size_t tables = source.shape().rows.size();
  for (const int table : part.tables) {
    if (table < 0 || std::size_t(table) >= tables)
      return invalid_argument(fmt::format("there is no table {}: the data has {}", table, tables));
  }
  return {};
}

Status begin_read(const ClickSource& source, std::int64_t batch, const BatchPart& part, ClickBatch& into) {
  TUTTI_TRY(check_part(source, batch, part));
  const auto wanted = std::size_t(part.end - part.begin);
  into.samples = source.samples(batch);
  into.begin = part.begin;
  into.end = part.end;
  into.dense.resize(wanted * std::size_t(source.shape().dense_features));
  into.targets.resize(wanted);
  into.lookups.resize(part.tables.size());
  for (Lookups& lookups : into.lookups) {
    lookups.offsets.assign(1, 0);
    lookups.indices.clear();
  }
  return {};
}

}  // namespace tutti
