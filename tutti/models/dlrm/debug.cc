#include "tutti/models/dlrm/debug.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tutti/models/dlrm/numpy_text.h"

namespace tutti::dlrm {
namespace {

std::vector<double> reals(const std::vector<float>& values) { return {values.begin(), values.end()}; }

std::vector<double> reals(const at::Tensor& tensor) {
  const auto dense = tensor.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* data = dense.data_ptr<double>();
  return {data, data + dense.numel()};
}

// "[[1, 2], [1]]": how many lookups each sample has, by table.
std::string lengths_text(const std::vector<Lookups>& tables) {
  std::vector<std::string> texts;
  for (const auto& table : tables) {
    std::vector<std::int64_t> lengths;
    for (std::size_t i = 0; i + 1 < table.offsets.size(); ++i)
      lengths.push_back(table.offsets[i + 1] - table.offsets[i]);
    texts.push_back(fmt::format("[{}]", fmt::join(lengths, ", ")));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string indices_text(const std::vector<Lookups>& tables) {
  std::vector<std::string> texts;
  for (const auto& table : tables) texts.push_back(fmt::format("[{}]", fmt::join(table.indices, ", ")));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

void print_data(const Printer& printer, ClickSource& source, std::int64_t batches, int precision) {
  printer.line("data (inputs and targets):");
  if (!printer.speaks()) return;
  ClickBatch batch;
  for (std::int64_t number = 0; number < batches; ++number) {
    const auto part = BatchPart::whole(source.samples(number), source.shape().rows.size());
    source.read(number, part, batch).or_throw();
    printer.line(fmt::format("mini-batch: {}", number));
    printer.line(numpy_text(reals(batch.dense), std::size_t(source.shape().dense_features), precision));
    printer.line(lengths_text(batch.lookups));
    printer.line(indices_text(batch.lookups));
    printer.line(numpy_text(reals(batch.targets), 1, precision));
  }
}

void print_parameters(const Printer& printer, Model& model, int precision) {
  const auto& tables = model.architecture().tables;
  for (std::size_t table = 0; table < tables.size(); ++table) {
    const auto& spec = tables[table];
    const auto columns = std::size_t(spec.dim);
    if (!is_summarised(std::size_t(spec.rows), columns)) {
      printer.line(numpy_text(reals(model.read_rows(table, 0, spec.rows)), columns, precision));
      continue;
    }
    auto edges = reals(model.read_rows(table, 0, kEdgeRows));
    const auto tail = reals(model.read_rows(table, spec.rows - kEdgeRows, kEdgeRows));
    edges.insert(edges.end(), tail.begin(), tail.end());
    printer.line(numpy_text_of_edges(edges, columns, precision));
  }
  for (const auto& entry : model.dense()) {
    const auto values = reals(entry.value);
    printer.line(entry.value.dim() == 1 ? numpy_text(values, precision)
                                        : numpy_text(values, std::size_t(entry.value.size(1)), precision));
  }
}

}  // namespace tutti::dlrm
