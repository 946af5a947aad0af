// What can be wrong with options that each are well formed. dlrm_s_pytorch.py finds some of this after it has read its
// data, and some never; here all of it is told before a rank has met another.
#include "tutti/models/dlrm/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/base/text.h"

namespace tutti::dlrm {
namespace {

Error usage(std::string detail, std::string hint = {}) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

Status check_architecture(const ArchitectureOptions& arch) {
  if (int(arch.qr) + int(arch.md) + int(arch.weighted_pooling != WeightedPooling::kNone) > 1)
    return usage("tables are of one kind: --qr-flag, --md-flag or --weighted-pooling", "drop the others");
  if (arch.mlp_bottom.size() < 2) {
    return usage(fmt::format("--arch-mlp-bot {} is not an MLP: it needs the number of dense features and one layer",
                             sizes_text(arch.mlp_bottom)),
                 "for example --arch-mlp-bot 13-512-64");
  }
  if (arch.mlp_top.back() != 1) {
    return usage(fmt::format("--arch-mlp-top {} ends in {}, but a click has one probability", sizes_text(arch.mlp_top),
                             arch.mlp_top.back()),
                 fmt::format("end it in 1: --arch-mlp-top {}-1", sizes_text(arch.mlp_top)));
  }
  const bool doubled = arch.qr && arch.qr_operation == QrOperation::kConcat;
  const auto wanted = doubled ? 2 * arch.sparse_feature_size : arch.sparse_feature_size;
  if (arch.mlp_bottom.back() != wanted) {
    return usage(fmt::format("the bottom MLP ends in {} (--arch-mlp-bot {}), but the interaction needs a width of {} "
                             "({}--arch-sparse-feature-size {}{})",
                             arch.mlp_bottom.back(), sizes_text(arch.mlp_bottom), wanted, doubled ? "2 x " : "",
                             arch.sparse_feature_size, doubled ? ", since --qr-operation concat joins two rows" : ""),
                 fmt::format("end --arch-mlp-bot in {}", wanted));
  }
  return {};
}

Status check_loss(const LossOptions& loss) {
  if (loss.weights.size() != 2) {
    return usage(fmt::format("--loss-weights has {} numbers, but there are two classes", loss.weights.size()),
                 "give that of the negatives, then that of the positives: --loss-weights 1.0-2.0");
  }
  return {};
}

Status check_data(const Options& options) {
  const auto& data = options.data;
  if (data.generation == DataGeneration::kDataset && data.processed_file.empty() && data.raw_file.empty()) {
    return usage("--data-generation dataset needs --processed-data-file",
                 "tutti data criteo makes it from the text files, tutti data clicks draws one");
  }
  if (data.generation != DataGeneration::kDataset && (!data.processed_file.empty() || !data.raw_file.empty())) {
    return usage(fmt::format("{} is given, but --data-generation is {}",
                             data.raw_file.empty() ? "--processed-data-file" : "--raw-data-file",
                             data.generation == DataGeneration::kRandom ? "random" : "synthetic"),
                 "--data-generation dataset reads it");
  }
  if (!data.raw_file.empty()) {
    return usage(fmt::format("--raw-data-file {}: train_dlrm reads the packed binary, not text", data.raw_file),
                 "tutti data criteo packs it once; then --processed-data-file names the result");
  }
  if (data.sub_sample_rate != 0) {
    return usage(
        fmt::format("--data-sub-sample-rate {} leaves samples out while text is read, and train_dlrm reads none",
                    data.sub_sample_rate),
        "give it to tutti data criteo");
  }
  if (data.minimum > data.maximum)
    return usage(fmt::format("--rand-data-min {} is above --rand-data-max {}", data.minimum, data.maximum));
  if ((data.mlperf_shuffle) && !data.mlperf_binary)
    return usage("--mlperf-bin-shuffle shuffles what --mlperf-bin-loader reads, which is not given");
  if (data.memory_map && data.generation != DataGeneration::kDataset)
    return usage("--memory-map maps the file of a dataset", "add --data-generation dataset, or leave it out");
  if (!data.test_file.empty() && !data.mlperf_binary) {
    return usage(fmt::format("--test-data-file {} is for --mlperf-bin-loader: a packed file has its test days itself",
                             data.test_file));
  }
  if (data.generation != DataGeneration::kDataset && data.max_ind_range > 0)
    return usage(fmt::format("--max-ind-range {} is for datasets: random ids are below --arch-embedding-size anyway",
                             data.max_ind_range));
  if (data.mlperf_binary && data.generation != DataGeneration::kDataset)
    return usage("--mlperf-bin-loader reads a dataset", "add --data-generation dataset --processed-data-file FILE");
  return {};
}

Status check_training(const Options& options) {
  const auto& training = options.training;
  const auto largest = std::max(training.batch, training.test_batch);
  if (options.data.num_batches > std::numeric_limits<std::int64_t>::max() / largest) {
    return usage(
        fmt::format("--num-batches {} of {} samples are more than can be counted", options.data.num_batches, largest));
  }
  if (training.test_batch == 0)
    return usage("--test-mini-batch-size 0: a batch has at least one sample", "-1 takes that of the training");
  if (options.placement.cached_bytes > 0 && options.placement.folder.empty())
    return usage("--table-cache is for tables in files, and --table-folder is not given");
  if (training.decay_start < training.warmup_steps) {
    return usage(fmt::format("--lr-decay-start-step {} comes before the warm-up ends (--lr-num-warmup-steps {})",
                             training.decay_start, training.warmup_steps),
                 "let the decay start at the end of the warm-up or later");
  }
  const auto& inference = options.inference;
  if (!inference.only && (inference.mlp_bits != 32 || inference.table_bits != 32)) {
    return usage(fmt::format("{} {}: only inference is quantised",
                             inference.mlp_bits != 32 ? "--quantize-mlp-with-bit" : "--quantize-emb-with-bit",
                             inference.mlp_bits != 32 ? inference.mlp_bits : inference.table_bits),
                 "add --inference-only");
  }
  return {};
}

Status check_report(const Options& options) {
  const auto& report = options.report;
  if (report.mlperf_logging && options.data.generation != DataGeneration::kDataset && !options.data.round_targets) {
    return usage("--mlperf-logging counts clicks, and random targets are fractions",
                 "add --round-targets true, which makes them 0 or 1");
  }
  if (report.save_freq > 0 && report.save_model.empty())
    return usage(fmt::format("--save-freq {} without --save-model: there is no place to save to", report.save_freq));
  if (!report.mlperf_logging && (report.accuracy_threshold > 0 || report.auc_threshold > 0)) {
    return usage(fmt::format("--{}-threshold stops a run that is scored, and without --mlperf-logging none is",
                             report.auc_threshold > 0 ? "mlperf-auc" : "mlperf-acc"),
                 "add --mlperf-logging");
  }
  if ((report.accuracy_threshold > 0 || report.auc_threshold > 0) && report.test_freq <= 0)
    return usage("thresholds are checked when the model is tested, and --test-freq is not given");
  return {};
}

template <class T, class Parse>
Result<std::vector<T>> parse_list(const std::string& option, const std::string& text, const char* what, Parse parse) {
  std::vector<T> values;
  const auto parts = split(text, '-');
  for (std::size_t place = 0; place < parts.size(); ++place) {
    const auto value = parse(parts[place]);
    if (!value) {
      return usage(fmt::format("{} needs {} joined by \"-\"; number {} of '{}' is '{}'", option, what, place + 1, text,
                               parts[place]));
    }
    values.push_back(T(*value));
  }
  return values;
}

}  // namespace

Status check(const Options& options) {
  TUTTI_TRY(check_architecture(options.architecture));
  TUTTI_TRY(check_loss(options.loss));
  TUTTI_TRY(check_data(options));
  TUTTI_TRY(check_training(options));
  return check_report(options);
}

Result<std::vector<std::int64_t>> parse_sizes(const std::string& option, const std::string& text) {
  return parse_list<std::int64_t>(option, text, "sizes from 1 up", [](const std::string& part) {
    const auto value = parse_int(part);
    return value && *value >= 1 && *value <= (std::int64_t(1) << 40) ? value : std::nullopt;
  });
}

Result<std::vector<double>> parse_weights(const std::string& option, const std::string& text) {
  return parse_list<double>(option, text, "numbers from 0 up", [](const std::string& part) {
    const auto value = parse_double(part);
    return value && *value >= 0 && *value <= std::numeric_limits<double>::max() ? value : std::nullopt;
  });
}

std::string sizes_text(const std::vector<std::int64_t>& sizes) { return fmt::format("{}", fmt::join(sizes, "-")); }

}  // namespace tutti::dlrm
