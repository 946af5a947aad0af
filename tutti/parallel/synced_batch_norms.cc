// A BatchNorm2d that is a typed member of the user's class cannot be replaced from outside: register_module() keeps a
// second pointer to it, and replacing that one changes what parameters() lists, not what forward() calls. So modules
// stay, and what they call is intercepted: LibTorch's dispatcher lets a library implement an operator for one kind of
// tensor. aten::batch_norm on the CPU and on GPUs is dispatched here. If neither its weight nor its running mean
// belongs to a synchronised module, LibTorch's implementation runs.
//
// The dispatcher belongs to the process, and so does the table of synchronised modules.
#include <ATen/Functions.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>

#include <unordered_map>

#include "tutti/base/mutex.h"
#include "tutti/parallel/sync_batch_norm.h"

namespace tutti {
namespace {

class NormTable {
 public:
  void add(const at::Tensor& key, const Group& group) {
    const MutexLock lock(mutex_);
    entries_.insert_or_assign(key.unsafeGetTensorImpl(), Entry{key, group});
  }
  void remove(const at::Tensor& key) {
    Entry gone;  // its group may wait for peers when it goes
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key.unsafeGetTensorImpl());
    if (found == entries_.end()) return;
    gone = std::move(found->second);
    entries_.erase(found);
  }
  Group find(const c10::optional<at::Tensor>& key) {
    if (!key || !key->defined()) return {};
    const MutexLock lock(mutex_);
    const auto found = entries_.find(key->unsafeGetTensorImpl());
    return found == entries_.end() ? Group() : found->second.group;
  }

 private:
  struct Entry {
    at::Tensor key;  // kept, so that its address stays its own
    Group group;
  };
  Mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, Entry> entries_ TUTTI_GUARDED_BY(mutex_);
};

NormTable& table() {
  static auto* const table = new NormTable;  // tensors may be normalised while the process ends
  return *table;
}

at::Tensor batch_norm(const at::Tensor& input, const c10::optional<at::Tensor>& weight,
                      const c10::optional<at::Tensor>& bias, const c10::optional<at::Tensor>& running_mean,
                      const c10::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
                      bool cudnn_enabled) {
  if (training) {
    Group group = table().find(weight);
    if (!group) group = table().find(running_mean);
    const auto or_none = [](const c10::optional<at::Tensor>& t) { return t ? *t : at::Tensor(); };
    if (group)
      return sync_batch_norm(group, input, or_none(weight), or_none(bias), or_none(running_mean), or_none(running_var),
                             momentum, eps);
  }
  return std::get<0>(at::_batch_norm_impl_index(input, weight, bias, running_mean, running_var, training, momentum, eps,
                                                cudnn_enabled));
}

void catch_batch_norm() {
  const auto catch_on = [](c10::DispatchKey key) {
    torch::Library made(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    made.impl("batch_norm", &batch_norm);
    return made;
  };
  static const torch::Library on_cpu = catch_on(c10::DispatchKey::AutogradCPU),
                              on_gpu = catch_on(c10::DispatchKey::AutogradCUDA);
}

}  // namespace

struct SyncedBatchNorms::State {
  std::vector<std::string> names;
  std::vector<at::Tensor> keys;
};

SyncedBatchNorms::SyncedBatchNorms(std::unique_ptr<State> state) : state_(std::move(state)) {}
SyncedBatchNorms::SyncedBatchNorms(SyncedBatchNorms&&) noexcept = default;
SyncedBatchNorms::~SyncedBatchNorms() {
  if (!state_) return;
  for (const auto& key : state_->keys) table().remove(key);
}
const std::vector<std::string>& SyncedBatchNorms::names() const { return state_->names; }

SyncedBatchNorms sync_batch_norms(const std::shared_ptr<torch::nn::Module>& module, const Group& group) {
  auto state = std::make_unique<SyncedBatchNorms::State>();
  const auto find = [&](const std::string& name, const auto* norm) {
    if (!norm) return;
    const at::Tensor key = norm->weight.defined() ? norm->weight : norm->running_mean;
    TUTTI_REQUIRE(
        key.defined(), "sync_batch_norms: the module \"", name,
        "\" has neither weights nor running statistics, by which it could be known; expected affine(true) or ",
        "track_running_stats(true)");
    TUTTI_REQUIRE(!table().find(key), "sync_batch_norms: the module \"", name,
                  "\" is synchronised already; let the first SyncedBatchNorms go before");
    state->names.push_back(name);
    state->keys.push_back(key);
  };
  for (const auto& item : module->named_modules()) {
    const auto* one = item.value().get();
    find(item.key(), dynamic_cast<const torch::nn::BatchNorm1dImpl*>(one));
    find(item.key(), dynamic_cast<const torch::nn::BatchNorm2dImpl*>(one));
    find(item.key(), dynamic_cast<const torch::nn::BatchNorm3dImpl*>(one));
  }
  TUTTI_REQUIRE(!state->keys.empty(), "sync_batch_norms: the model has no BatchNorm1d, BatchNorm2d or BatchNorm3d");
  catch_batch_norm();
  const Group own = group.split(0, group.rank(), group.name() + "/sync_batch_norm").or_throw();
  for (const auto& key : state->keys) table().add(key, own);
  return SyncedBatchNorms(std::move(state));
}

}  // namespace tutti
