// From the texts of options to what the training is told. Where one option follows from another, it is here that this
// is said.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "apps/options/command_line.h"
#include "apps/options/pretrain_gpt_options.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"

namespace tutti::cli {
namespace {

constexpr double kAny = std::numeric_limits<double>::max();
constexpr std::int64_t kMost = std::int64_t(1) << 40;

class Interpreter {
 public:
  Interpreter(const PretrainGptTexts& texts, std::int64_t vocabulary) : texts_(texts) {
    options_.shape.vocabulary = int(std::min<std::int64_t>(vocabulary, std::numeric_limits<int>::max()));
  }

  Result<gpt::Options> run() {
    TUTTI_TRY(check_pairs(texts_));
    TUTTI_TRY(shape());
    TUTTI_TRY(numbers());
    TUTTI_TRY(ranks());
    TUTTI_TRY(batches());
    TUTTI_TRY(length());
    TUTTI_TRY(optimizer());
    TUTTI_TRY(data());
    TUTTI_TRY(checkpoints());
    TUTTI_TRY(output());
    return options_;
  }

 private:
  Result<std::int64_t> whole(const std::string& name, std::int64_t least = 0, std::int64_t most = kMost) const {
    return whole_number(name, texts_.value(name), least, most);
  }
  // Of an option without a default: what it says, or `otherwise`.
  Result<std::int64_t> whole_or(const std::string& name, std::int64_t otherwise, std::int64_t least = 0) const {
    if (!texts_.has(name)) return otherwise;
    return whole(name, least);
  }
  Result<int> small(const std::string& name, int least = 0) const {
    return int(TUTTI_TRY(whole(name, least, std::numeric_limits<int>::max() / 8)));
  }
  Result<int> small_or(const std::string& name, int otherwise, int least = 0) const {
    if (!texts_.has(name)) return otherwise;
    return small(name, least);
  }
  Result<double> real(const std::string& name, double least = 0, double most = kAny) const {
    return real_number(name, texts_.value(name), least, most);
  }
  Result<int> needed(const std::string& name) const {
    if (!texts_.has(name)) return usage(name + " is missing", "pretrain_gpt --help has an example");
    return small(name, 1);
  }

  Status shape() {
    auto& s = options_.shape;
    s.layers = TUTTI_TRY(needed("--num-layers"));
    s.hidden = TUTTI_TRY(needed("--hidden-size"));
    s.heads = TUTTI_TRY(needed("--num-attention-heads"));
    s.sequence_length = TUTTI_TRY(needed("--seq-length"));
    s.positions = TUTTI_TRY(needed("--max-position-embeddings"));
    if (!texts_.has("--kv-channels") && s.hidden % s.heads != 0)
      return usage(fmt::format("--hidden-size {} cannot be divided into --num-attention-heads {}", s.hidden, s.heads),
                   fmt::format("--hidden-size {}, or say how wide a head is: --kv-channels",
                               (s.hidden / s.heads + 1) * s.heads));
    s.head_size = TUTTI_TRY(small_or("--kv-channels", s.hidden / s.heads, 1));
    const int groups = TUTTI_TRY(small("--num-query-groups", 1));
    if (groups != 1 && !texts_.flag("--group-query-attention"))
      return usage("--num-query-groups is for --group-query-attention, which is not given", "give both");
    s.groups = texts_.flag("--group-query-attention") ? groups : s.heads;
    s.activation = texts_.flag("--swiglu")         ? ActivationKind::kSwiglu
                   : texts_.flag("--squared-relu") ? ActivationKind::kSquaredRelu
                                                   : ActivationKind::kGelu;
    const int wide = 4 * s.hidden, gated = std::max(wide * 2 / 3 / 64 * 64, 64);
    s.ffn = TUTTI_TRY(small_or("--ffn-hidden-size", texts_.flag("--swiglu") ? gated : wide, 1));
    s.position = PositionKind(TUTTI_TRY(choose("--position-embedding-type", texts_.value("--position-embedding-type"),
                                               {"learned_absolute", "rope", "none"})));
    s.norm = NormKind(TUTTI_TRY(choose("--normalization", texts_.value("--normalization"), {"LayerNorm", "RMSNorm"})));
    s.norm_epsilon = TUTTI_TRY(real("--norm-epsilon"));
    s.rotary_base = TUTTI_TRY(real("--rotary-base", 1));
    s.rotary_percent = TUTTI_TRY(real("--rotary-percent", 0, 1));
    s.bias = !texts_.flag("--disable-bias-linear");
    s.tied = !texts_.flag("--untie-embeddings-and-output-weights");
    return check(s);
  }

  Status numbers() {
    auto& o = options_;
    o.vocabulary_divisible_by = TUTTI_TRY(small("--make-vocab-size-divisible-by", 1));
    o.attention_dropout = TUTTI_TRY(real("--attention-dropout", 0, 1));
    o.hidden_dropout = TUTTI_TRY(real("--hidden-dropout", 0, 1));
    if (o.attention_dropout == 1 || o.hidden_dropout == 1)
      return usage("a dropout of 1 leaves nothing", "--attention-dropout and --hidden-dropout: less than 1");
    o.initial_deviation = TUTTI_TRY(real("--init-method-std"));
    o.seed = std::uint64_t(TUTTI_TRY(whole("--seed", 0, std::numeric_limits<std::uint32_t>::max())));
    o.deterministic = texts_.flag("--deterministic-mode");
    return precision();
  }

  Status precision() {
    constexpr std::pair<const char*, gpt::Precision> kKinds[] = {
        {"--bf16", gpt::Precision::kBF16}, {"--fp16", gpt::Precision::kF16}, {"--fp64", gpt::Precision::kF64}};
    for (const auto& [flag, precision] : kKinds)
      if (texts_.flag(flag)) options_.precision = precision;
    return loss_scale();
  }

  // A fixed one goes with every precision, as in Megatron-LM; one that adapts is for f16.
  Status loss_scale() {
    LossScaleOptions scale;
    const bool half = options_.precision == gpt::Precision::kF16;
    for (const char* name : {"--initial-loss-scale", "--min-loss-scale", "--loss-scale-window", "--hysteresis"}) {
      if (texts_.has(name) && !half)
        return usage(std::string(name) + " is for --fp16, which is not given", "leave it out");
    }
    if (texts_.has("--loss-scale")) {
      scale.fixed = TUTTI_TRY(real("--loss-scale"));
      if (scale.fixed == 0) return usage("--loss-scale needs a number above 0, not 0");
    }
    if (texts_.has("--initial-loss-scale")) scale.initial = TUTTI_TRY(real("--initial-loss-scale"));
    if (texts_.has("--min-loss-scale")) scale.least = TUTTI_TRY(real("--min-loss-scale"));
    scale.window = TUTTI_TRY(whole_or("--loss-scale-window", scale.window, 1));
    scale.hysteresis = TUTTI_TRY(whole_or("--hysteresis", scale.hysteresis, 1));
    TUTTI_TRY(check(scale));
    if (half || scale.fixed != 0) options_.optimizer.loss_scale = scale;
    return {};
  }

  Status ranks() {
    auto& p = options_.parallel;
    p.grid.tensor = TUTTI_TRY(small("--tensor-model-parallel-size", 1));
    p.grid.pipeline = TUTTI_TRY(small("--pipeline-model-parallel-size", 1));
    p.grid.context = TUTTI_TRY(small("--context-parallel-size", 1));
    if (texts_.flag("--use-tp-pp-dp-mapping")) p.grid.order = "tp-cp-ep-pp-dp";
    p.sequence_parallel = texts_.flag("--sequence-parallel") && p.grid.tensor > 1;
    p.split_messages = !texts_.flag("--no-scatter-gather-tensors-in-pipeline");
    p.shard_optimizer = texts_.flag("--use-distributed-optimizer");
    p.overlap_gradients = texts_.flag("--overlap-grad-reduce");
    TUTTI_TRY(chunks());
    TUTTI_TRY(schedule());
    if (texts_.has("--decoder-first-pipeline-num-layers"))
      p.first_stage_layers = TUTTI_TRY(small("--decoder-first-pipeline-num-layers"));
    if (texts_.has("--decoder-last-pipeline-num-layers"))
      p.last_stage_layers = TUTTI_TRY(small("--decoder-last-pipeline-num-layers"));
    return recompute();
  }

  Status chunks() {
    auto& p = options_.parallel;
    constexpr const char *kStages = "--num-virtual-stages-per-pipeline-rank",
                         *kLayers = "--num-layers-per-virtual-pipeline-stage";
    p.chunks = TUTTI_TRY(small_or(kStages, 1, 1));
    if (!texts_.has(kLayers)) return {};
    const int layers = options_.shape.layers, each = TUTTI_TRY(small(kLayers, 1));
    if (layers % (p.grid.pipeline * each) != 0)
      return usage(fmt::format("{} layers cannot be divided into stages of {} ({}) on {} ranks", layers, each, kLayers,
                               p.grid.pipeline),
                   fmt::format("{} N, which divides them as equally as can be", kStages));
    p.chunks = layers / (p.grid.pipeline * each);
    return {};
  }

  Status schedule() {
    auto& p = options_.parallel;
    p.schedule = p.chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward;
    if (texts_.has("--pipeline-schedule")) {
      std::vector<std::string> names;
      for (const ScheduleKind kind : kScheduleKinds) names.emplace_back(name(kind));
      p.schedule = kScheduleKinds[TUTTI_TRY(choose("--pipeline-schedule", texts_.value("--pipeline-schedule"), names))];
      if (p.schedule == ScheduleKind::kZeroBubbleV && !texts_.has("--num-virtual-stages-per-pipeline-rank") &&
          !texts_.has("--num-layers-per-virtual-pipeline-stage"))
        p.chunks = 2;
    }
    p.microbatch_group = TUTTI_TRY(small_or("--microbatch-group-size-per-virtual-pipeline-stage", 0, 1));
    if (p.microbatch_group > 0 && p.schedule != ScheduleKind::kInterleaved)
      return usage("--microbatch-group-size-per-virtual-pipeline-stage is for --pipeline-schedule interleaved");
    return {};
  }

  Status recompute() {
    const auto &granularity = texts_.value("--recompute-granularity"), &method = texts_.value("--recompute-method");
    // "selective" recomputes attention scores, which is always done here.
    if (granularity.empty() || granularity == "selective") {
      if (!method.empty() || texts_.has("--recompute-num-layers"))
        return usage("--recompute-method and --recompute-num-layers are for --recompute-granularity full");
      return {};
    }
    (void)TUTTI_TRY(choose("--recompute-granularity", granularity, {"full", "selective"}));
    const std::size_t kind = method.empty() ? 0 : TUTTI_TRY(choose("--recompute-method", method, {"uniform", "block"}));
    options_.parallel.recompute = {.method = kind == 0 ? RecomputeMethod::kUniform : RecomputeMethod::kBlock,
                                   .layers = TUTTI_TRY(small_or("--recompute-num-layers", 1, 1))};
    return {};
  }

  Status batches() {
    auto& b = options_.batches;
    b.micro_batch = TUTTI_TRY(needed("--micro-batch-size"));
    b.global_batch = TUTTI_TRY(whole_or("--global-batch-size", 0, 1));  // 0: micro batch x replicas
    b.decrease_if_needed = texts_.flag("--decrease-batch-size-if-needed");
    if (const auto& words = texts_.words.at("--rampup-batch-size"); !words.empty()) {
      if (words.size() != 3)
        return usage(fmt::format("--rampup-batch-size needs 3 numbers, not {}", words.size()),
                     "--rampup-batch-size START INCREMENT SAMPLES");
      if (b.global_batch == 0) return usage("--rampup-batch-size leads to --global-batch-size, which is not given");
      std::int64_t numbers[3];
      for (int i = 0; i < 3; ++i) numbers[i] = TUTTI_TRY(whole_number("--rampup-batch-size", words[i], 0, kMost));
      b.ramp_up = {numbers[0], numbers[1], numbers[2]};
    }
    if (!texts_.has("--step-batch-size-schedule")) return {};
    try {
      b.steps = parse_batch_steps(texts_.value("--step-batch-size-schedule"), options_.shape.sequence_length);
    } catch (const Exception& failure) {
      return usage("--step-batch-size-schedule: " + failure.error().detail);
    }
    return {};
  }

  // train_samples where --train-iters is given, and the lengths of learning rates, hang on the size of the world as
  // far as --global-batch-size does: gpt::with_world() has the rest.
  Status length() {
    auto& o = options_;
    o.skip_train = texts_.flag("--skip-train");
    o.train_steps = TUTTI_TRY(whole_or("--train-iters", 0, 1));
    o.train_samples = TUTTI_TRY(whole_or("--train-samples", 0, 1));
    if (o.train_steps == 0 && o.train_samples == 0 && !o.skip_train)
      return usage("--train-iters is missing: how many steps to train", "or --train-samples");
    o.evaluation.iterations = TUTTI_TRY(whole("--eval-iters"));
    o.evaluation.interval = TUTTI_TRY(whole_or("--eval-interval", 0, 1));
    return {};
  }

  // A length in steps or in samples, whichever the training is given in.
  Result<gpt::Length> length_of(const char* in_steps, const char* in_samples) const {
    return gpt::Length{.steps = TUTTI_TRY(whole_or(in_steps, 0)), .samples = TUTTI_TRY(whole_or(in_samples, 0))};
  }

  Status optimizer() {
    auto& o = options_.optimizer;
    o.adam = TUTTI_TRY(choose("--optimizer", texts_.value("--optimizer"), {"adam", "sgd"})) == 0;
    o.beta1 = TUTTI_TRY(real("--adam-beta1", 0, 1));
    o.beta2 = TUTTI_TRY(real("--adam-beta2", 0, 1));
    o.epsilon = TUTTI_TRY(real("--adam-eps"));
    o.momentum = TUTTI_TRY(real("--sgd-momentum", 0, 1));
    o.clip_grad = TUTTI_TRY(real("--clip-grad"));
    auto& rate = o.learning_rate;
    if (!texts_.has("--lr") && !options_.skip_train) return usage("--lr is missing: the learning rate");
    rate.most = texts_.has("--lr") ? TUTTI_TRY(real("--lr")) : 0;
    rate.least = TUTTI_TRY(real("--min-lr"));
    rate.at_start = TUTTI_TRY(real("--lr-warmup-init"));
    if (rate.least > rate.most && texts_.has("--lr"))
      return usage(fmt::format("--min-lr {} is more than --lr {}", rate.least, rate.most));
    if (rate.at_start > rate.most && texts_.has("--lr"))
      return usage(fmt::format("--lr-warmup-init {} is more than --lr {}", rate.at_start, rate.most));
    rate.style = DecayStyle(TUTTI_TRY(choose("--lr-decay-style", texts_.value("--lr-decay-style"),
                                             {"constant", "linear", "cosine", "inverse-square-root", "WSD"})));
    rate.anneal = AnnealStyle(TUTTI_TRY(choose("--lr-wsd-decay-style", texts_.value("--lr-wsd-decay-style"),
                                               {"linear", "cosine", "exponential", "minus_sqrt"})));
    o.decay = TUTTI_TRY(length_of("--lr-decay-iters", "--lr-decay-samples"));
    o.warm_up = TUTTI_TRY(length_of("--lr-warmup-iters", "--lr-warmup-samples"));
    o.anneal = TUTTI_TRY(length_of("--lr-wsd-decay-iters", "--lr-wsd-decay-samples"));
    if (texts_.has("--lr-warmup-fraction")) o.warm_up_fraction = TUTTI_TRY(real("--lr-warmup-fraction", 0, 1));
    if (rate.style == DecayStyle::kWarmUpStableDecay && o.anneal.steps + o.anneal.samples == 0)
      return usage("--lr-decay-style WSD needs to know when to fall", "--lr-wsd-decay-iters or --lr-wsd-decay-samples");
    return weight_decay();
  }

  Status weight_decay() {
    auto& decay = options_.optimizer.weight_decay;
    const double plain = TUTTI_TRY(real("--weight-decay"));
    decay.style = IncreaseStyle(TUTTI_TRY(choose("--weight-decay-incr-style", texts_.value("--weight-decay-incr-style"),
                                                 {"constant", "linear", "cosine"})));
    const bool has_start = texts_.has("--start-weight-decay"), has_end = texts_.has("--end-weight-decay");
    if (decay.style == IncreaseStyle::kConstant) {
      if (has_start || has_end)
        return usage(
            "--start-weight-decay and --end-weight-decay are for a --weight-decay-incr-style other than "
            "constant");
      decay.start = decay.end = plain;
      return {};
    }
    if (!has_start || !has_end)
      return usage("--weight-decay-incr-style needs --start-weight-decay and --end-weight-decay");
    decay.start = TUTTI_TRY(real("--start-weight-decay"));
    decay.end = TUTTI_TRY(real("--end-weight-decay"));
    return {};
  }

  Status data() {
    auto& d = options_.data;
    d.sequence_length = options_.shape.sequence_length;
    d.vocabulary = options_.shape.vocabulary;
    d.seed = std::uint32_t(options_.seed);
    d.mock = texts_.flag("--mock-data");
    const char* kApart[] = {"--train-data-path", "--valid-data-path", "--test-data-path"};
    bool has_apart = false;
    for (int part = 0; part < 3; ++part) {
      const auto& words = texts_.words.at(kApart[part]);
      has_apart = has_apart || !words.empty();
      d.apart[std::size_t(part)] = TUTTI_TRY(parse_blend(words));
    }
    const auto& words = texts_.words.at("--data-path");
    d.divided = TUTTI_TRY(parse_blend(words));
    if (!d.mock && !has_apart && words.empty())
      return usage("there is no data: none of --data-path, --train-data-path and --mock-data is given",
                   "--mock-data for a try; tutti data tokenize makes files of text");
    if (texts_.has("--split") && !d.mock) {
      if (words.empty()) return usage("--split divides --data-path, which is not given");
      d.split = texts_.value("--split");
    }
    const auto kind = TUTTI_TRY(choose("--dataloader-type", texts_.value("--dataloader-type"), {"single", "cyclic"}));
    const bool one_order = texts_.flag("--no-data-sharding");
    if (kind == 0 && one_order) return usage("--no-data-sharding is for --dataloader-type cyclic");
    options_.order = kind == 0   ? SampleOrder::kSequential
                     : one_order ? SampleOrder::kRandom
                                 : SampleOrder::kRandomSharded;
    return {};
  }

  Status checkpoints() {
    auto& c = options_.checkpoints;
    c.folder = texts_.value("--save");
    c.folder_per_node = texts_.flag("--save-dir-per-node");
    c.interval = TUTTI_TRY(whole("--save-interval"));
    c.keep = int(TUTTI_TRY(whole("--keep", 0, 1 << 30)));
    c.keep_every = TUTTI_TRY(whole("--save-retain-interval"));
    c.in_background = texts_.flag("--async-save");
    c.memory_copy_interval = TUTTI_TRY(whole("--memory-copy-interval"));
    if (c.folder.empty() && (c.interval > 0 || c.keep > 0 || c.in_background || c.folder_per_node))
      return usage("--save-interval, --keep, --async-save and --save-dir-per-node are for --save, which is not given",
                   "say where to save: --save DIR");
    if (c.keep_every > 0 && c.keep == 0)
      return usage("--save-retain-interval is for --keep: without it all checkpoints stay");
    auto& o = options_;
    o.load = texts_.value("--load");
    o.must_load = texts_.flag("--exit-on-missing-checkpoint");
    o.weights_only = texts_.flag("--finetune");
    o.load_optimizer = !texts_.flag("--no-load-optim");
    o.save_optimizer = !texts_.flag("--no-save-optim");
    if (o.load.empty() && (o.must_load || o.weights_only || !o.load_optimizer || texts_.has("--ckpt-step")))
      return usage(
          "--ckpt-step, --exit-on-missing-checkpoint, --finetune and --no-load-optim are for --load, which is "
          "not given");
    if (texts_.has("--ckpt-step")) {
      o.load = (std::filesystem::path(o.load) / checkpoint_folder_name(TUTTI_TRY(whole("--ckpt-step")))).string();
      o.must_load = true;
    }
    return {};
  }

  Status output() {
    auto& r = options_.report;
    r.log_interval = TUTTI_TRY(whole("--log-interval", 1));
    r.throughput = texts_.flag("--log-throughput");
    r.parameter_norm = texts_.flag("--log-params-norm");
    r.zero_gradients = texts_.flag("--log-num-zeros-in-grad");
    r.timing_level = int(TUTTI_TRY(whole("--timing-log-level", 0, 2)));
    r.timing = gpt::TimingOption(
        TUTTI_TRY(choose("--timing-log-option", texts_.value("--timing-log-option"), {"max", "minmax", "all"})));
    r.tensorboard = texts_.value("--tensorboard-dir");
    r.tensorboard_interval = TUTTI_TRY(whole("--tensorboard-log-interval", 1));
    r.timers_to_tensorboard = texts_.flag("--log-timers-to-tensorboard");
    if (r.timers_to_tensorboard && r.tensorboard.empty())
      return usage("--log-timers-to-tensorboard is for --tensorboard-dir, which is not given");
    r.trace = texts_.value("--trace");
    r.json = texts_.flag("--json");
    options_.exit_interval = TUTTI_TRY(whole("--exit-interval"));
    options_.exit_after_seconds = 60 * TUTTI_TRY(real("--exit-duration-in-mins"));
    auto& g = options_.generate;
    if (texts_.has("--generate")) g.prompt = texts_.value("--generate");
    g.tokens = TUTTI_TRY(small("--generate-tokens", 1));
    g.temperature = TUTTI_TRY(real("--temperature"));
    g.top_k = TUTTI_TRY(small("--top-k"));
    return {};
  }

  const PretrainGptTexts& texts_;
  gpt::Options options_;
};

}  // namespace

Result<gpt::Options> interpret_pretraining(const PretrainGptTexts& texts, std::int64_t vocabulary) {
  return Interpreter(texts, vocabulary).run();
}

}  // namespace tutti::cli
