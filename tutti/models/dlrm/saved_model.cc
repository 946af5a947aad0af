// What is saved is a list of arrays, each known by its key: dense weights, of which every rank has the same, and for
// each table what it keeps (table_array.h). Saving and loading walk over the same list.
#include "tutti/models/dlrm/saved_model.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>
#include <set>

#include "tutti/checkpoint/data_position.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/tensor_bytes.h"
#include "tutti/training/same_run.h"

namespace tutti::dlrm {
namespace {

constexpr std::int64_t kBytesAtOnce = std::int64_t(4) << 20;
constexpr const char* kState = "sum";  // both Adagrads: of squares

struct TableKey {
  std::size_t table;
  TableArray array;
  TensorKey key;
  TensorShape shape;
};

std::string weight_name(const Architecture& architecture, std::size_t feature, std::size_t table) {
  switch (architecture.features[feature].kind) {
    case FeatureKind::kPlain:
      return fmt::format("emb_l.{}.weight", feature);
    case FeatureKind::kProjected:
      return fmt::format("emb_l.{}.embs.weight", feature);
    case FeatureKind::kQuotientRemainder:
      return fmt::format("emb_l.{}.weight_{}", feature, table == architecture.features[feature].table ? "q" : "r");
  }
  return {};
}

bool is_state(TableArray array) { return array == TableArray::kState || array == TableArray::kRowWeightState; }

std::vector<TableKey> table_keys(Model& model) {
  const auto& architecture = model.architecture();
  std::vector<TableKey> keys;
  for (std::size_t i = 0; i < architecture.features.size(); ++i) {
    const auto first = architecture.features[i].table;
    const auto end = architecture.features[i].kind == FeatureKind::kQuotientRemainder ? first + 2 : first + 1;
    for (auto table = first; table < end; ++table) {
      for (const auto array : kTableArrays) {
        const auto columns = model.columns(table, array);
        if (columns == 0) continue;
        const bool rows = array == TableArray::kRows || array == TableArray::kState;
        keys.push_back({.table = table,
                        .array = array,
                        .key = {rows ? weight_name(architecture, i, table) : fmt::format("v_W_l.{}", i),
                                is_state(array) ? kState : ""},
                        .shape = {std::uint64_t(architecture.tables[table].rows), std::uint64_t(columns)}});
      }
    }
  }
  return keys;
}

DType dtype_of(const Model& model) { return model.type() == at::kDouble ? DType::kF64 : DType::kF32; }

TensorShape stored_shape(const std::vector<std::int64_t>& shape) { return {shape.begin(), shape.end()}; }

// A part of an array that this rank has.
StateBox box_of(Model& model, const TableKey& key, std::size_t shard, const TableShard& place) {
  auto& tables = model.tables();
  const bool whole_rows = key.shape[1] != std::uint64_t(model.architecture().tables[key.table].dim);
  const auto columns = whole_rows ? Slice{0, std::int64_t(key.shape[1])} : place.columns;
  const auto bytes = std::size_t(columns.size()) * size_of(dtype_of(model));
  return {.key = key.key,
          .dtype = dtype_of(model),
          .shape = key.shape,
          .box = {{std::uint64_t(place.rows.begin), std::uint64_t(columns.begin)},
                  {std::uint64_t(place.rows.size()), std::uint64_t(columns.size())}},
          .source = [&tables, shard, array = key.array, bytes](std::uint64_t first, std::uint64_t count,
                                                               std::byte* into) -> Status {
            const auto rows = tables.read_shard(shard, array, std::int64_t(first), std::int64_t(count)).contiguous();
            std::memcpy(into, rows.data_ptr(), std::size_t(count) * bytes);
            return {};
          }};
}

std::vector<StateBox> expected(Model& model) {
  std::vector<StateBox> wanted;
  for (const auto& entry : model.dense()) {
    const TensorShape shape = stored_shape(entry.value.sizes().vec());
    wanted.push_back({{entry.name, ""}, dtype_of(model), shape});
    if (entry.squares.defined()) wanted.push_back({{entry.name, kState}, dtype_of(model), shape});
  }
  for (const auto& key : table_keys(model)) wanted.push_back({key.key, dtype_of(model), key.shape});
  return wanted;
}

// The weights alone, whatever else was saved with them.
Status expect_weights(const CheckpointReader& saved, Model& model) {
  for (const auto& wanted : expected(model)) {
    if (!wanted.key.state.empty()) continue;
    const auto* found = saved.find(wanted.key);
    if (found != nullptr && found->dtype == wanted.dtype && found->shape == wanted.shape) continue;
    const auto words = [](DType dtype, const TensorShape& shape) {
      return fmt::format("{}{}", name(dtype), shape_text(shape));
    };
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{}: {} is {}, but the model has {}", saved.folder(), to_string(wanted.key),
                                       found ? words(found->dtype, found->shape) : "not there",
                                       words(wanted.dtype, wanted.shape)),
                 .hint = "give the --arch options and the --dtype that it was trained with"};
  }
  return {};
}

// What the shapes of weights may not show: another operation on as many numbers.
Status check_operations(const CheckpointReader& saved, const ArchitectureOptions& options) {
  std::vector<RunValue> values = {{.name = "arch_interaction_op",
                                   .option = "--arch-interaction-op",
                                   .given = std::int64_t(options.interaction),
                                   .kinds = {"dot", "cat"},
                                   .may_lack = true}};
  if (options.qr)
    values.push_back({.name = "qr_operation",
                      .option = "--qr-operation",
                      .given = std::int64_t(options.qr_operation),
                      .kinds = {"mult", "add", "concat"},
                      .may_lack = true});
  return check_same_run(saved, saved.facts().values, values);
}

Status read_table(const CheckpointReader& saved, Model& model, const TableKey& key, const Slice& rows) {
  const auto columns = std::int64_t(key.shape[1]);
  const auto at_once = std::max<std::int64_t>(1, kBytesAtOnce / columns / std::int64_t(size_of(dtype_of(model))));
  for (auto first = rows.begin; first < rows.end; first += at_once) {
    const auto count = std::min(at_once, rows.end - first);
    const auto values = at::empty({count, columns}, model.type());
    TUTTI_TRY(
        saved.read(key.key, TensorBox::rows(key.shape, std::uint64_t(first), std::uint64_t(count)), values.data_ptr()));
    model.write_rows(key.table, first, values, key.array);
  }
  return {};
}

// Into memory of any device.
Status read_dense(const CheckpointReader& saved, const TensorKey& key, const at::Tensor& tensor) {
  const at::Tensor values = tensor.device().is_cpu() ? tensor : at::empty(tensor.sizes(), tensor.scalar_type());
  TUTTI_TRY(saved.read(key, host_bytes(values)));
  if (!values.is_same(tensor)) tensor.copy_(values);
  return {};
}

Status read_all(const CheckpointReader& saved, Model& model, bool training) {
  for (const auto& entry : model.dense()) {
    TUTTI_TRY(read_dense(saved, {entry.name, ""}, entry.value));
    if (training && entry.squares.defined()) TUTTI_TRY(read_dense(saved, {entry.name, kState}, entry.squares));
  }
  const auto shards = model.my_shards();
  for (const auto& key : table_keys(model)) {
    if (!training && is_state(key.array)) continue;
    std::set<std::int64_t> seen;
    for (const auto& [table, shard] : shards) {
      if (table == key.table && seen.insert(shard.rows.begin).second)
        TUTTI_TRY(read_table(saved, model, key, shard.rows));
    }
  }
  return {};
}

// An architecture as values of a checkpoint, and back.
void add_architecture(const Architecture& architecture, CheckpointValues& values) {
  const auto& options = architecture.options;
  std::vector<std::int64_t> rows;
  for (const auto& feature : architecture.features) rows.push_back(feature.rows);
  values["arch_embedding_size"] = sizes_text(rows);
  values["arch_mlp_bot"] = sizes_text(options.mlp_bottom);
  values["arch_mlp_top"] = sizes_text(options.mlp_top);
  values["arch_sparse_feature_size"] = options.sparse_feature_size;
  values["arch_interaction_op"] = std::int64_t(options.interaction);
  values["arch_interaction_itself"] = options.interaction_itself;
  values["weighted_pooling"] = std::int64_t(options.weighted_pooling);
  values["md_flag"] = options.md;
  values["md_threshold"] = options.md_threshold;
  values["md_temperature"] = options.md_temperature;
  values["md_round_dims"] = options.md_round_dims;
  values["qr_flag"] = options.qr;
  values["qr_threshold"] = options.qr_threshold;
  values["qr_operation"] = std::int64_t(options.qr_operation);
  values["qr_collisions"] = options.qr_collisions;
}

// Numbers may come back as whole ones.
double real(const CheckpointValues& values, const char* name) {
  const auto found = values.find(name);
  if (found == values.end()) return 0;
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return double(*value);
  return 0;
}
std::int64_t whole(const CheckpointValues& values, const char* name) { return std::int64_t(real(values, name)); }

bool flag(const CheckpointValues& values, const char* name) {
  const auto found = values.find(name);
  const auto* value = found == values.end() ? nullptr : std::get_if<bool>(&found->second);
  return value != nullptr && *value;
}
Result<std::vector<std::int64_t>> sizes(const CheckpointValues& values, const char* name) {
  const auto found = values.find(name);
  const auto* text = found == values.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (text == nullptr) {
    return Error{.code = Code::kUnsupported,
                 .detail = fmt::format("the checkpoint has no \"{}\": it is none of train_dlrm's", name)};
  }
  return parse_sizes(name, *text);
}

}  // namespace

Result<Architecture> saved_architecture(const std::string& folder) {
  const auto saved = TUTTI_TRY(CheckpointReader::open(folder, VerifyLevel::kFiles));
  const auto& values = saved.facts().values;
  ArchitectureOptions options;
  const auto rows = TUTTI_TRY(sizes(values, "arch_embedding_size"));
  options.mlp_bottom = TUTTI_TRY(sizes(values, "arch_mlp_bot"));
  options.mlp_top = TUTTI_TRY(sizes(values, "arch_mlp_top"));
  options.sparse_feature_size = whole(values, "arch_sparse_feature_size");
  options.interaction = Interaction(whole(values, "arch_interaction_op"));
  options.interaction_itself = flag(values, "arch_interaction_itself");
  options.weighted_pooling = WeightedPooling(whole(values, "weighted_pooling"));
  options.md = flag(values, "md_flag");
  options.md_threshold = whole(values, "md_threshold");
  options.md_temperature = real(values, "md_temperature");
  options.md_round_dims = flag(values, "md_round_dims");
  options.qr = flag(values, "qr_flag");
  options.qr_threshold = whole(values, "qr_threshold");
  options.qr_operation = QrOperation(whole(values, "qr_operation"));
  options.qr_collisions = whole(values, "qr_collisions");
  Options all;
  all.architecture = options;
  TUTTI_TRY(check(all));
  return architecture_of(options, options.mlp_bottom.front(), rows, folder);
}

void add_boxes(StateDict& state, Model& model) {
  const auto add = [&state](StateBox box) {
    state.loading() ? state.optional_tensor(std::move(box)) : state.tensor(std::move(box));
  };
  if (state.loading()) state.allow_other_tensors();
  for (const auto& entry : model.dense()) {
    const auto add_dense = [&](const at::Tensor& tensor, const char* name) {
      add(state_box({entry.name, name}, tensor, stored_shape(entry.value.sizes().vec()), {}));
    };
    add_dense(entry.value, "");
    if (entry.squares.defined()) add_dense(entry.squares, kState);
  }
  const auto shards = model.my_shards();
  for (const auto& key : table_keys(model)) {
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen;  // parts of columns share what is kept once a row
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
      if (shards[shard].first != key.table) continue;
      auto box = box_of(model, key, shard, shards[shard].second);
      if (seen.insert({box.box.begin[0], box.box.begin[1]}).second) add(std::move(box));
    }
  }
}

CheckpointFacts facts_of(const Group& world, const Model& model, const SavedState& state) {
  CheckpointFacts facts{.step = state.steps};
  facts.data = {{"epoch", state.epoch},
                {"batch", state.batch},
                {"batch_size", state.batch_size},
                {"epochs", state.epochs},
                {"batches", state.batches},
                {"test_batches", state.test_batches},
                {"loss_batches", state.loss_batches},
                {"loss_samples", state.loss_samples}};
  facts.values = {{"train_loss", state.train_loss},
                  {"loss_sum", state.loss_sum},
                  {"test_accuracy", state.test_accuracy},
                  {"best_accuracy", state.best_accuracy},
                  {"best_auc", state.best_auc}};
  add_architecture(model.architecture(), facts.values);
  facts.layout = {{"ranks", std::int64_t(world ? world.size() : 1)}};
  return facts;
}

Status save_model(const Group& world, const std::string& folder, Model& model, const SavedState& state) {
  const auto facts = facts_of(world, model, state);
  StateDict mine(StateUse::kSave);
  add_boxes(mine, model);
  return save_checkpoint(world, folder, mine.boxes(), facts, {.keep = 1});
}

Result<SavedState> load_model(const Group& world, const std::string& folder, Model& model, bool training) {
  const auto saved =
      world ? TUTTI_TRY(CheckpointReader::open(world, folder)) : TUTTI_TRY(CheckpointReader::open(folder));
  return load_model(saved, model, training);
}

Result<SavedState> load_model(const CheckpointReader& saved, Model& model, bool training) {
  TUTTI_TRY(training ? saved.expect(expected(model)) : expect_weights(saved, model));
  TUTTI_TRY(check_operations(saved, model.architecture().options));
  const std::int64_t epoch = training ? TUTTI_TRY(place_in_data(saved, "epoch")) : whole(saved.facts().data, "epoch");
  const std::int64_t batch = training ? TUTTI_TRY(place_in_data(saved, "batch")) : whole(saved.facts().data, "batch");
  TUTTI_TRY(read_all(saved, model, training));
  const auto& [data, values] = std::tie(saved.facts().data, saved.facts().values);
  return SavedState{.epoch = epoch,
                    .batch = batch,
                    .steps = saved.facts().step,
                    .epochs = whole(data, "epochs"),
                    .batches = whole(data, "batches"),
                    .test_batches = whole(data, "test_batches"),
                    .batch_size = whole(data, "batch_size"),
                    .train_loss = real(values, "train_loss"),
                    .loss_sum = real(values, "loss_sum"),
                    .loss_batches = whole(data, "loss_batches"),
                    .loss_samples = whole(data, "loss_samples"),
                    .test_accuracy = real(values, "test_accuracy"),
                    .best_accuracy = real(values, "best_accuracy"),
                    .best_auc = real(values, "best_auc")};
}

}  // namespace tutti::dlrm
