#pragma once
// What a run of train_dlrm is asked to do. Names, defaults and meaning are those of dlrm_s_pytorch.py
// (facebookresearch/dlrm); docs/how-to/train-dlrm.md lists what differs.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/embedding/options.h"
#include "tutti/planning/tables/placement.h"

namespace tutti::dlrm {

enum class Interaction { kDot, kCat };
enum class LossFunction { kMse, kBce, kWbce };
enum class OptimizerKind { kSgd, kRowWiseAdagrad, kAdagrad };
enum class DataGeneration { kRandom, kDataset, kSynthetic };
enum class RandomDistribution { kUniform, kGaussian };
enum class QrOperation { kMult, kAdd, kConcat };
enum class WeightedPooling { kNone, kFixed, kLearned };
enum class RealType { kFloat32, kFloat64 };

// --arch-*, and the tricks that make tables smaller.
struct ArchitectureOptions {
  std::int64_t sparse_feature_size = 2;                  // columns of a table
  std::vector<std::int64_t> embedding_size = {4, 3, 2};  // rows by table; a dataset brings its own
  std::vector<std::int64_t> mlp_bottom = {4, 3, 2};
  std::vector<std::int64_t> mlp_top = {4, 2, 1};  // without the width of the interaction, which is put in front
  Interaction interaction = Interaction::kDot;
  bool interaction_itself = false;
  WeightedPooling weighted_pooling = WeightedPooling::kNone;
  bool md = false;
  std::int64_t md_threshold = 200;  // tables with more rows than this are made narrower
  double md_temperature = 0.3;
  bool md_round_dims = false;
  bool qr = false;
  std::int64_t qr_threshold = 200;  // tables with more rows than this are split
  QrOperation qr_operation = QrOperation::kMult;
  std::int64_t qr_collisions = 4;
};

struct LossOptions {
  LossFunction function = LossFunction::kMse;
  std::vector<double> weights = {1, 1};  // of wbce: of a negative, of a positive sample
  double threshold = 0;                  // in (0, 1): predictions are held within [t, 1 - t]
};

struct DataOptions {
  DataGeneration generation = DataGeneration::kRandom;
  std::int64_t size = 1;         // samples
  std::int64_t num_batches = 0;  // > 0: instead of `size`; of a dataset: batches of an epoch
  RandomDistribution distribution = RandomDistribution::kUniform;
  double minimum = 0, maximum = 1;
  double mu = -1;  // of the Gaussian; -1: the middle
  double sigma = 1;
  bool round_targets = false;
  std::int64_t indices_per_lookup = 10;
  bool indices_per_lookup_fixed = false;
  std::string trace_file = "./input/dist_emb_j.log";  // "j" stands for the number of the table
  bool trace_padding = false;
  std::string data_set;  // "kaggle", "terabyte"; empty: as the file says
  std::string raw_file, processed_file;
  std::string test_file;  // of MLPerf's binary; empty: the same
  std::int64_t max_ind_range = -1;
  double sub_sample_rate = 0;
  std::int64_t workers = 0;        // batches that a thread reads ahead
  std::int64_t test_workers = -1;  // -1: as many
  bool memory_map = false;         // a packed file is always mapped
  bool mlperf_binary = false, mlperf_shuffle = false;
};

struct TrainingOptions {
  std::int64_t batch = 1;        // of all ranks together
  std::int64_t test_batch = -1;  // -1: as large
  std::int64_t epochs = 1;
  double learning_rate = 0.01;
  std::int64_t seed = 123;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  std::int64_t warmup_steps = 0, decay_start = 0, decay_steps = 0;
  std::int64_t accumulate = 1;  // batches to a step
  RealType type = RealType::kFloat32;
  bool reference_gradient_scale = false;  // --dlrm-gradient-scale: tables learn as many times faster as there are ranks
};

struct InferenceOptions {
  bool only = false;
  int mlp_bits = 32;    // 8, 16, 32
  int table_bits = 32;  // 4, 8, 32
};

struct ReportOptions {
  std::int64_t print_freq = 1, test_freq = -1;
  int print_precision = 5;
  bool print_time = false, print_wall_time = false, print_all = false;
  bool debug = false, profiling = false, compute_graph = false, json = false;
  std::string tensor_board;  // the folder, in out_dir; empty: none
  std::string out_dir = ".";
  std::string save_model, load_model;
  std::int64_t save_freq = 0;  // batches; 0: when a test is the best yet, or without tests at the end
  bool mlperf_logging = false;
  double accuracy_threshold = 0, auc_threshold = 0;
};

// Where tables lie, and how their rows travel.
struct PlacementOptions {
  TablePlacement planned;          // of --parallel auto; overrides the next two if it has tables
  std::string plan_file;           // overrides `placement`
  std::string placement = "auto";  // placing.h has the names
  TableExchange exchange = TableExchange::kAllToAll;
  WireFormat wire = WireFormat::kExact;
  bool links_only = false;        // rows travel as between hosts
  std::string folder;             // of mapped tables; empty: in memory
  std::int64_t cached_bytes = 0;  // of those; 0: as EmbeddingOptions says
};

struct Options {
  ArchitectureOptions architecture;
  LossOptions loss;
  DataOptions data;
  TrainingOptions training;
  InferenceOptions inference;
  ReportOptions report;
  PlacementOptions placement;
  std::string backend;         // --dist-backend: "", tutti, gloo, mpi, nccl
  std::string device = "cpu";  // rank_device(): of the MLPs
};

// The first contradiction that the options alone show (kUsage), with the option and its value. Pairs that exclude each
// other are in apps/options/train_dlrm_options.cc.
Status check(const Options& options);

// "512-256-1": sizes from 1 up. `option` names it in the error.
Result<std::vector<std::int64_t>> parse_sizes(const std::string& option, const std::string& text);
// "1.0-2.5": numbers from 0 up.
Result<std::vector<double>> parse_weights(const std::string& option, const std::string& text);
std::string sizes_text(const std::vector<std::int64_t>& sizes);

}  // namespace tutti::dlrm
