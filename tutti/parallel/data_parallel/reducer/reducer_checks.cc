// The messages of Reducer about what cannot be right: each names this rank and the parameter, and says what to do.
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/data_parallel/reducer/reducer_state.h"
#include "tutti/parallel/replicas.h"

namespace tutti {
namespace {

constexpr std::size_t kNamesShown = 8;

std::string shown(std::vector<std::string> names) {
  const bool more = names.size() > kNamesShown;
  if (more) names.resize(kNamesShown);
  return join(names, ", ") + (more ? ", ..." : "");
}

const char* enumerator(Overlap overlap) {
  switch (overlap) {
    case Overlap::kAuto:
      return "Overlap::kAuto";
    case Overlap::kOn:
      return "Overlap::kOn";
    case Overlap::kOff:
      return "Overlap::kOff";
  }
  return "none of Overlap";
}

const char* enumerator(FiniteCheck check) {
  switch (check) {
    case FiniteCheck::kOff:
      return "FiniteCheck::kOff";
    case FiniteCheck::kInReduction:
      return "FiniteCheck::kInReduction";
    case FiniteCheck::kReport:
      return "FiniteCheck::kReport";
    case FiniteCheck::kThrow:
      return "FiniteCheck::kThrow";
  }
  return "none of FiniteCheck";
}

}  // namespace

std::string times(std::int64_t count) { return count == 1 ? "once" : fmt::format("{} times", count); }

Error Reducer::State::mistake(std::string detail, std::string hint) const {
  return Error{.code = Code::kInvalidArgument,
               .detail = "DataParallel: " + std::move(detail),
               .hint = std::move(hint),
               .group = group.name(),
               .rank = group.rank()};
}

void Reducer::State::end_group(std::string detail, std::string hint) const {
  const Error error = mistake(std::move(detail), std::move(hint));
  group.abort(error);
  throw Exception(error);
}

void Reducer::State::require_sensible_options() const {
  const auto refuse = [&](std::string detail, std::string hint) {
    throw Exception(mistake(std::move(detail), std::move(hint)));
  };
  require_no_excluded_pair();
  if (!(options.bucket_cap_mb >= 0 && std::isfinite(options.bucket_cap_mb)))
    refuse(fmt::format("DataParallelOptions::bucket_cap_mb is {}", options.bucket_cap_mb),
           "give the size of a bucket in MiB, 0 for a bucket for each parameter");
  const Autocast computes_in_it(options.autocast);  // better asked here than in the first forward()
  const auto tensors = tensors_of(*module);
  std::unordered_set<std::string> known;
  for (const auto& named : tensors) known.insert(named.name);
  const auto require_known = [&](const char* option, const std::vector<std::string>& names) {
    for (const auto& name : names) {
      if (!known.contains(name))
        refuse(fmt::format("DataParallelOptions::{} has \"{}\", which the model does not have", option, name),
               "take a name of named_parameters() or named_buffers(), for example " + tensors.front().name);
    }
  };
  if (tensors.empty()) return;
  require_known("params_and_buffers_to_ignore", options.params_and_buffers_to_ignore);
  require_known("delay_all_reduce_named_params", options.delay_all_reduce_named_params);
  require_known("sparse", options.sparse);
}

void Reducer::State::require_no_excluded_pair(bool DataParallelUse::*added) const {
  DataParallelUse use{.options = options, .no_sync = !sync};
  for (const auto& feature : features) feature->add_use(*this, use);
  if (added != nullptr) use.*added = true;
  if (const auto right = check_pairs(data_parallel_pairs(), data_parallel_options(), use); !right.ok())
    throw Exception(mistake(right.error().detail, right.error().hint));
}

void Reducer::State::require_something_to_train() const {
  if (!parameters.empty()) return;
  const auto refuse = [&](std::string detail, const char* remedy) {
    throw Exception(mistake(std::move(detail), std::string(remedy) + ", or call the module without DataParallel"));
  };
  const std::size_t all = parameters_of(*module).size();
  if (all == 0)
    refuse("the model has no parameters, so there is nothing to average",
           "register those that it has, and its modules (register_parameter, register_module)");
  if (std::any_of(ignored.begin(), ignored.end(), [](const at::Tensor& one) { return one.requires_grad(); }))
    refuse("DataParallelOptions::params_and_buffers_to_ignore names all parameters that require a gradient",
           "leave some out of the list");
  refuse(fmt::format("of the model's {} parameters none requires a gradient, so there is nothing to average", all),
         "call requires_grad_() of those to train before DataParallel is made");
}

std::vector<NamedValue> Reducer::State::named_options() const {
  const auto line = [](const char* name, const auto& value) { return NamedValue{name, fmt::format("{}", value)}; };
  const auto names = [](std::vector<std::string> list) {
    std::sort(list.begin(), list.end());
    return "[" + join(list, ", ") + "]";
  };
  return {line("first_bucket_bytes", options.first_bucket_bytes),
          line("bucket_cap_mb", options.bucket_cap_mb),
          line("in_place_bytes", options.in_place_bytes),
          line("overlap", enumerator(options.overlap)),
          line("broadcast_buffers", options.broadcast_buffers),
          line("find_unused_parameters", options.find_unused_parameters),
          line("gradient_as_bucket_view", options.gradient_as_bucket_view),
          line("static_graph", options.static_graph),
          line("params_and_buffers_to_ignore", names(options.params_and_buffers_to_ignore)),
          line("delay_all_reduce_named_params", names(options.delay_all_reduce_named_params)),
          line("sparse", names(options.sparse)),
          line("hook", options.hook ? options.hook->name() : "none"),
          line("finite_check", enumerator(options.finite_check)),
          line("autocast", options.autocast ? name(*options.autocast) : "none"),
          line("logical_ranks", options.logical_ranks),
          line("allow_empty_batches", options.allow_empty_batches)};
}

void Reducer::State::require_all_ready() const {
  if (arrivals->learning()) {
    if (!arrivals->none_came()) return;
  } else if (arrivals->all_came()) {
    return;
  }
  if (arrivals->none_came())
    end_group("finish() found no gradient of this step",
              "call it once after each backward(), of an output of forward()");
  if (options.find_unused_parameters) return;
  std::vector<std::string> missing, rarer;
  for (const auto index : arrivals->missing()) {
    missing.push_back(parameters[index].name);
    if (arrivals->expected(index) > 1)
      rarer.push_back(fmt::format("{} came {} instead of {}", parameters[index].name, times(arrivals->arrived(index)),
                                  times(arrivals->expected(index))));
  }
  const auto detail = fmt::format("{} of {} parameters got no gradient in this step: {}", missing.size(),
                                  parameters.size(), shown(missing));
  if (!options.static_graph)
    end_group(detail, "let every parameter take part in the loss, or set DataParallelOptions::find_unused_parameters");
  end_group(
      rarer.empty() ? detail : "in this step the gradient of " + shown(rarer),
      "static_graph promises that every step uses what the first one did; without it, set find_unused_parameters");
}

void Reducer::State::reject_repeated_gradient(std::size_t index) const {
  const auto& name = parameters[index].name;
  if (options.static_graph)
    throw Exception(mistake(fmt::format("the gradient of {} came {} in this step, but {} in the first one", name,
                                        times(arrivals->arrived(index)), times(arrivals->expected(index))),
                            "static_graph promises the same in every step; call finish() after each backward()"));
  throw Exception(mistake(
      "the gradient of " + name + " was made twice before finish()",
      "call finish() after each backward(), accumulate inside no_sync(), or, if nested backward() calls (activation "
      "checkpointing) use it several times, set DataParallelOptions::static_graph"));
}

void Reducer::State::throw_non_finite() const {
  const auto& non_finite = finite.found();
  std::string what = "the gradient of " + non_finite->parameter;
  std::string look;
  if (non_finite->rank == NonFinite::kOnTheWay) {
    what += " overflowed while it was averaged";
  } else if (non_finite->rank == NonFinite::kUnknownRank) {
    what = "the average of " + what + " holds NaN or infinity";
    look = "; FiniteCheck::kThrow looks at each rank's own before it is averaged, and names the rank";
  } else {
    what += fmt::format(" holds NaN or infinity on rank {}", non_finite->rank);
    look = "; look at that rank's batch";
  }
  Error error = mistake(
      fmt::format("{}, in step {} of this DataParallel", what, totals.steps),
      "leave this step out with zero_grad(), lower the learning rate or clip, or scale the loss (LossScaler)" + look);
  error.code = Code::kNonFinite;
  throw Exception(std::move(error));
}

void Reducer::require_what_a_scaler_needs() {
  const MutexLock lock(state_->mutex);
  if (state_->options.finite_check != FiniteCheck::kReport)
    throw Exception(state_->mistake("a LossScaler needs to know whether gradients are finite",
                                    "set DataParallelOptions::finite_check to FiniteCheck::kReport"));
  state_->require_no_excluded_pair(&DataParallelUse::loss_scaler);
}

void Reducer::State::require_layout(const Parameter& parameter, const at::Tensor& gradient) const {
  if (!gradient.defined()) return;
  const bool sparse = gradient.layout() != at::kStrided;
  if (sparse == (parameter.route == Route::kSparse)) return;
  if (sparse)
    end_group("the gradient of " + parameter.name + " is sparse; expected a dense one",
              "add the name to DataParallelOptions::sparse, or make the module without sparse(true)");
  end_group("the gradient of " + parameter.name + " is dense; expected a sparse one",
            "use the parameter through sparse lookups only, or do not promise that it is sparse "
            "(DataParallelOptions::sparse, the sparse(true) of its module)");
}

}  // namespace tutti
