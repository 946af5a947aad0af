#include "tutti/models/dlrm/printed_lines.h"

#include <fmt/format.h>

#include "tutti/models/dlrm/numpy_text.h"

namespace tutti::dlrm {

std::string progress_line(const Progress& progress, bool inference, double ms, double loss,
                          const std::string& wall_time) {
  return fmt::format("Finished {} it {}/{} of epoch {}, {:.2f} ms/it, loss {:.6f}{}",
                     inference ? "inference" : "training", progress.batch, progress.batches, progress.epoch, ms, loss,
                     wall_time);
}

std::string testing_line(const Progress& progress) {
  return fmt::format("Testing at - {}/{} of epoch {},", progress.batch, progress.batches, progress.epoch);
}

std::string scores_line(const TestScores& scores) {
  if (!scores.ranked)
    return fmt::format(" accuracy {:3.3f} %, best {:3.3f} %", 100 * scores.accuracy, 100 * scores.best_accuracy);
  return fmt::format(
      "recall {:.4f}, precision {:.4f}, f1 {:.4f}, ap {:.4f}, auc {:.4f}, best auc {:.4f}, accuracy {:3.3f} %, best "
      "accuracy {:3.3f} %",
      scores.recall, scores.precision, scores.f1, scores.average_precision, scores.auc, scores.best_auc,
      100 * scores.accuracy, 100 * scores.best_accuracy);
}

std::string world_line(int size, int rank, int local_rank) {
  return fmt::format("world size: {}, current rank: {}, local rank: {}", size, rank, local_rank);
}

std::string architecture_text(const Architecture& architecture, const std::vector<std::int64_t>& dims) {
  bool alike = true;
  for (auto dim : dims) alike = alike && dim == dims.front();
  const auto width = alike ? fmt::format("{}", dims.front()) : fmt::format("[{}]", fmt::join(dims, ", "));
  std::vector<std::int64_t> rows;
  for (const auto& feature : architecture.features) rows.push_back(feature.rows);
  std::string text = "model arch:\n";
  text += fmt::format("mlp top arch {} layers, with input to output dimensions:\n{}\n", architecture.top.size() - 1,
                      numpy_text(architecture.top));
  text += fmt::format("# of interactions\n{}\n", architecture.interactions());
  text += fmt::format("mlp bot arch {} layers, with input to output dimensions:\n{}\n", architecture.bottom.size() - 1,
                      numpy_text(architecture.bottom));
  text += fmt::format("# of features (sparse and dense)\n{}\n", architecture.vectors());
  text += fmt::format("dense feature size\n{}\nsparse feature size\n{}\n", architecture.dense_features(), width);
  text += fmt::format("# of embeddings (= # of sparse features) {}, with dimensions {}x:\n{}",
                      architecture.features.size(), width, numpy_text(rows));
  return text;
}

namespace {

std::string mlp_text(const char* name, const std::vector<std::int64_t>& sizes, bool sigmoid) {
  std::string text = fmt::format("  ({}): Sequential(\n", name);
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    text += fmt::format("    ({}): Linear(in_features={}, out_features={}, bias=True)\n", 2 * layer, sizes[layer],
                        sizes[layer + 1]);
    text += fmt::format("    ({}): {}\n", 2 * layer + 1, sigmoid && layer + 2 == sizes.size() ? "Sigmoid()" : "ReLU()");
  }
  return text + "  )\n";
}

}  // namespace

std::string model_text(const Architecture& architecture) {
  std::string text = "DLRM_Net(\n  (emb_l): ModuleList(\n";
  for (std::size_t i = 0; i < architecture.features.size(); ++i) {
    const auto& feature = architecture.features[i];
    const auto& table = architecture.tables[feature.table];
    switch (feature.kind) {
      case FeatureKind::kPlain:
        text += fmt::format("    ({}): EmbeddingBag({}, {}, mode=sum)\n", i, table.rows, table.dim);
        break;
      case FeatureKind::kQuotientRemainder:
        text += fmt::format("    ({}): QREmbeddingBag({}, {}, mode=sum)\n", i, feature.rows, table.dim);
        break;
      case FeatureKind::kProjected:
        text += fmt::format("    ({}): PrEmbeddingBag(\n      (embs): EmbeddingBag({}, {}, mode=sum)\n", i, table.rows,
                            table.dim);
        text += fmt::format("      (proj): Linear(in_features={}, out_features={}, bias=False)\n    )\n", table.dim,
                            architecture.dim);
        break;
    }
  }
  return text + "  )\n" + mlp_text("bot_l", architecture.bottom, false) + mlp_text("top_l", architecture.top, true) +
         ")";
}

}  // namespace tutti::dlrm
