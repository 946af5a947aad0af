// The kernels of LibTorch's double of a CUDA device: those of the CPU, run when their turn on the stream comes.
//
// A call has to return tensors of the right shapes before its kernel has run. So each operator runs twice:
//   now       on zeros in the shapes of the arguments. That yields the shapes of the results, which tensors of the
//             arguments they are views of, and LibTorch's errors for arguments that do not fit.
//   later     on the stream, on the bytes of the arguments and of the results.
// Where zeros are not good enough, the first run is on the values, and the host waits for them: operators that return
// numbers or whose shapes depend on values (counted as waits, as CUDA waits there), and calls that fail on zeros.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/SparseTensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/fakes/cuda/cudart.h"
#include "tests/fakes/cuda/torch_device.h"

namespace tutti::fakes {
namespace {

using c10::IValue;
using torch::jit::Stack;
using Tensors = std::vector<at::Tensor>;

constexpr auto kCuda = c10::DispatchKeySet(c10::DispatchKey::CUDA);

void wait_counted(c10::Stream stream) { c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).synchronizeStream(stream); }

// `value` with each tensor in it replaced by act(tensor).
template <class Act>
IValue with_tensors(const IValue& value, const Act& act) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(act(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(t.defined() ? act(t) : t);
    return list;
  }
  if (value.isList() && value.toListRef().size() > 0) {
    const auto type = value.toList().elementType();
    if (!type->isSubtypeOf(*c10::OptionalType::ofTensor())) return value;
    c10::List<c10::optional<at::Tensor>> list;
    for (const IValue& v : value.toListRef())
      list.push_back(v.isTensor() && v.toTensor().defined() ? c10::make_optional(act(v.toTensor())) : c10::nullopt);
    return list;
  }
  return value;
}

// The tensors that hold the numbers of a tensor.
Tensors parts_of(const at::Tensor& t) {
  if (!t.is_sparse()) return {t};
  const auto* const sparse = at::sparse::get_sparse_impl(t);
  return {sparse->indices(), sparse->values()};
}
at::Tensor sparse_of(c10::DispatchKey key, const at::Tensor& like, const at::Tensor& indices,
                     const at::Tensor& values) {
  const auto* const from = at::sparse::get_sparse_impl(like);
  at::Tensor made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  auto* const sparse = at::sparse::get_sparse_impl(made);
  sparse->resize_(from->sparse_dim(), from->dense_dim(), like.sizes());
  sparse->set_indices_and_values_unsafe(indices, values);
  sparse->set_coalesced(from->coalesced());
  return made;
}

// Stands for the tensors of a call on the CPU. Tensors that share memory do so there too.
class OnCpu {
 public:
  enum class Holding { kZeros, kValues, kTheBytes };
  explicit OnCpu(Holding holding) : holding_(holding) {}

  at::Tensor operator()(const at::Tensor& t) {
    if (t.is_cuda() && t.is_sparse()) {
      const Tensors parts = parts_of(t);
      return sparse_of(c10::DispatchKey::SparseCPU, t, (*this)(parts[0]), (*this)(parts[1]));
    }
    if (!t.is_cuda()) {
      at::Tensor copy = t.clone();
      if (t.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
      return copy;
    }
    return over(storage_of(t.storage()), t);
  }
  static at::Tensor over(const c10::Storage& storage, const at::Tensor& like) {
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (like.is_conj()) made._set_conj(true);
    if (like.is_neg()) made._set_neg(true);
    return made;
  }

 private:
  const c10::Storage& storage_of(const c10::Storage& device) {
    c10::Storage& made = made_[device.unsafeGetStorageImpl()];
    if (made) return made;
    const std::size_t bytes = device.nbytes();
    void* const there = fake_cuda_bytes(device.data_ptr().get());
    if (holding_ == Holding::kTheBytes) {
      made = c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(there, c10::kCPU));
      return made;
    }
    void* const memory = bytes > 0 ? std::calloc(bytes, 1) : nullptr;
    if (holding_ == Holding::kValues && bytes > 0) std::memcpy(memory, there, bytes);
    made = c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(memory, memory, &std::free, c10::kCPU),
                        c10::GetAllocator(c10::kCPU), true);
    return made;
  }
  const Holding holding_;
  std::map<c10::StorageImpl*, c10::Storage> made_;
};

void run_on_cpu(const c10::OperatorHandle& op, Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard autograd(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const c10::impl::ExcludeDispatchKeyGuard autocast(c10::DispatchKey::AutocastCPU);
  op.callBoxed(&stack);
}

bool is_read_by_host(const c10::OperatorHandle& op, const Tensors& tensors) {
  static const std::set<std::string> shapes_by_values = {
      "aten::nonzero",  "aten::masked_select",     "aten::_unique",
      "aten::_unique2", "aten::unique_dim",        "aten::unique_consecutive",
      "aten::bincount", "aten::repeat_interleave", "aten::unique_dim_consecutive"};
  const std::string& name = op.schema().name();
  if (shapes_by_values.count(name)) return true;
  if (name.rfind("aten::index", 0) == 0 || name == "aten::_index_put_impl_")
    for (std::size_t i = 1; i < tensors.size(); ++i)
      if (tensors[i].scalar_type() == at::kBool || tensors[i].scalar_type() == at::kByte) return true;
  for (const auto& result : op.schema().returns()) {
    const std::string type = result.type()->str();
    if (type.find("Tensor") == std::string::npos) return true;
  }
  return false;
}

class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {
    const std::size_t count = op.schema().arguments().size();
    arguments_.assign(stack.end() - std::ptrdiff_t(count), stack.end());
    stack.resize(stack.size() - count);
    bool misplaced = false;
    for (IValue& argument : arguments_) {
      with_tensors(argument, [&](const at::Tensor& t) {
        if (t.is_cuda()) tensors_.push_back(t);
        has_sparse_ |= t.is_sparse();
        misplaced |= !t.is_cuda() && t.dim() > 0;
        return t;
      });
      if (argument.isDevice() && argument.toDevice().is_cuda()) {
        device_ = argument.toDevice();
        argument = c10::Device(c10::kCPU);
      }
    }
    if (!tensors_.empty()) device_ = tensors_[0].device();
    if (!device_.has_index()) device_.set_index(c10::DeviceIndex(fake_cuda_current_device()));
    const std::string& name = op.schema().name();
    for (const at::Tensor& t : tensors_) misplaced |= t.device() != device_;
    TORCH_CHECK(!misplaced || name.rfind("aten::index", 0) == 0 || name == "aten::_index_put_impl_", name,
                ": expected all tensors to be on the same device");
    throw_if_broken(device_);
  }

  void run() {
    const c10::DeviceGuard guard(device_);
    const c10::Stream stream = current_stream(device_);
    const Drawn drawn(*this);
    const bool is_read = is_read_by_host(op_, tensors_), on_values = is_read || has_sparse_;
    if (is_read && !has_sparse_) wait_counted(stream);
    if (has_sparse_) op_.schema().name() == "aten::_coalesce" ? wait_counted(stream) : await(stream);
    Stack results;
    try {
      results = run_ahead(on_values ? OnCpu::Holding::kValues : OnCpu::Holding::kZeros);
    } catch (const std::exception&) {
      if (on_values) throw;
      await(stream);
      drawn.restore();
      results = run_ahead(OnCpu::Holding::kValues);
    }
    adopt_shapes();
    // Before results are taken over: an operator may give a sparse argument other parts. The parts that it had are
    // freed after the kernel was put on the stream.
    std::vector<Tensors> parts_before;
    for (const at::Tensor& t : tensors_) parts_before.push_back(parts_of(t));
    OnCpu on_cpu(OnCpu::Holding::kTheBytes);
    Stack later;
    for (const IValue& argument : arguments_)
      later.push_back(with_tensors(argument, [&](const at::Tensor& t) { return on_cpu(t); }));
    if (drawn.generator.defined()) later[drawn.at] = drawn.before;
    Tensors made;  // an undefined one for each result that is none
    for (const IValue& result : results)
      stack_.push_back(with_tensors(result, [&](const at::Tensor& t) { return on_device(t, made); }));
    bool writes = op_.schema().is_mutable();
    for (const at::Tensor& t : made) writes |= t.defined();
    if (writes) run_later(stream, std::move(later), on_cpu, made);
  }

 private:
  // The generator of the call, and what it was when the call came. The first run draws from the generator, the second
  // from the copy.
  class Drawn {
   public:
    explicit Drawn(Call& call) {
      const auto& declared = call.op_.schema().arguments();
      for (std::size_t i = 0; i < declared.size(); ++i) {
        if (declared[i].type()->str().find("Generator") == std::string::npos) continue;
        IValue& value = call.arguments_[i];
        generator = drawn_from(value.isNone() ? default_generator(call.device_.index()) : value.toGenerator());
        lock_ = std::unique_lock(mutex_of_draws());
        before = generator.clone();
        value = generator;
        at = i;
      }
    }
    void restore() const {
      if (generator.defined()) generator.unsafeGetGeneratorImpl()->set_state(*before.get_state().unsafeGetTensorImpl());
    }
    std::size_t at = 0;
    at::Generator generator, before;

   private:
    static std::mutex& mutex_of_draws() {
      static std::mutex* const mutex = new std::mutex;
      return *mutex;
    }
    std::unique_lock<std::mutex> lock_;
  };

  Stack run_ahead(OnCpu::Holding holding) {
    OnCpu on_cpu(holding);
    ahead_.clear();
    parts_ahead_.clear();
    Stack stack;
    for (const IValue& argument : arguments_)
      stack.push_back(with_tensors(argument, [&](const at::Tensor& t) {
        at::Tensor stands = on_cpu(t);
        if (t.is_cuda()) {
          ahead_.push_back(stands);
          parts_ahead_.push_back(parts_of(stands));
        }
        return stands;
      }));
    run_on_cpu(op_, stack);
    return stack;
  }

  // Tensors that the operator has resized.
  void adopt_shapes() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor &t = tensors_[i], &stands = ahead_[i];
      if (t.is_sparse() || (t.sizes() == stands.sizes() && t.strides() == stands.strides())) continue;
      c10::StorageImpl* const storage = t.storage().unsafeGetStorageImpl();
      if (const std::size_t bytes = stands.storage().nbytes(); bytes > storage->nbytes()) {
        c10::DataPtr memory = device_allocator()->allocate(bytes);
        const std::size_t old = storage->nbytes();
        void *const to = fake_cuda_bytes(memory.get()), *const from = fake_cuda_bytes(storage->data());
        if (old > 0) enqueue(current_stream(device_), [=] { std::memcpy(to, from, old); });
        storage->set_data_ptr(std::move(memory));
        storage->set_nbytes(bytes);
      }
      t.unsafeGetTensorImpl()->set_sizes_and_strides(stands.sizes(), stands.strides(), stands.storage_offset());
    }
  }

  // The result on the device, each of its parts being an argument, a view of one, or made, which `made` says.
  at::Tensor on_device(const at::Tensor& result, Tensors& made) {
    if (result.is_sparse()) {
      const Tensors parts = parts_of(result);
      const at::Tensor indices = dense_on_device(parts[0], made), values = dense_on_device(parts[1], made);
      for (std::size_t i = 0; i < ahead_.size(); ++i)
        if (result.is_same(ahead_[i])) {
          auto* const sparse = at::sparse::get_sparse_impl(tensors_[i]);
          sparse->set_indices_and_values_unsafe(indices, values);
          sparse->set_coalesced(result.is_coalesced());
          return tensors_[i];
        }
      return sparse_of(c10::DispatchKey::SparseCUDA, result, indices, values);
    }
    return dense_on_device(result, made);
  }
  at::Tensor dense_on_device(const at::Tensor& result, Tensors& made) {
    made.emplace_back();
    for (std::size_t i = 0; i < ahead_.size(); ++i)
      if (result.is_same(ahead_[i])) return tensors_[i];
    for (std::size_t i = 0; i < ahead_.size(); ++i) {
      const Tensors &stand = parts_ahead_[i], own = parts_of(tensors_[i]);
      for (std::size_t k = 0; k < stand.size(); ++k) {
        if (!result.storage().is_alias_of(stand[k].storage())) continue;
        at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, c10::Storage(own[k].storage()), own[k].key_set(), result.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
        return view;
      }
    }
    made.back() = at::detail::empty_strided_generic(result.sizes(), result.strides(), device_allocator(), kCuda,
                                                    result.scalar_type());
    return made.back();
  }

  void run_later(c10::Stream stream, Stack stack, OnCpu& on_cpu, const Tensors& made) {
    Tensors targets;
    for (const at::Tensor& t : made) targets.push_back(t.defined() ? on_cpu(t) : t);
    const int threads = at::get_num_threads();
    enqueue(stream, [op = op_, stack = std::move(stack), targets = std::move(targets), threads]() mutable {
      if (at::get_num_threads() != threads) at::set_num_threads(threads);
      run_on_cpu(op, stack);
      std::size_t i = 0;
      for (const IValue& result : stack)
        with_tensors(result, [&](const at::Tensor& t) {
          for (const at::Tensor& part : parts_of(t)) {
            const at::Tensor& target = targets[i++];
            if (!target.defined()) continue;
            TORCH_CHECK(part.sizes() == target.sizes(), op.schema().name(),
                        ": the shape depends on values; name it in is_read_by_host()");
            target.copy_(part);
          }
          return t;
        });
    });
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  std::vector<IValue> arguments_;
  Tensors tensors_, ahead_;           // the arguments on the device, and what stood for them in the first run
  std::vector<Tensors> parts_ahead_;  // of these, before the run
  bool has_sparse_ = false;
  c10::Device device_ = c10::Device(c10::DeviceType::CUDA);
};

void run(const c10::OperatorHandle& op, Stack* stack) { Call(op, *stack).run(); }

at::Tensor empty(c10::SymIntArrayRef sizes, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
                 c10::optional<at::Device> device, c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(c10::asIntArrayRefUnchecked(sizes), device_allocator(), kCuda,
                                   c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, c10::optional<at::ScalarType> dtype,
                         c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(c10::asIntArrayRefUnchecked(sizes), c10::asIntArrayRefUnchecked(strides),
                                           device_allocator(), kCuda, c10::dtype_or_default(dtype));
}

at::Tensor& set_storage_part(at::Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef sizes,
                             c10::SymIntArrayRef strides) {
  const auto shape = c10::asIntArrayRefUnchecked(sizes);
  auto steps = c10::asIntArrayRefUnchecked(strides).vec();
  if (steps.empty()) steps = at::detail::defaultStrides(shape);
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(shape, steps, offset.expect_int());
  return self;
}
at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  const auto count = std::int64_t(storage.nbytes() / self.dtype().itemsize());
  return set_storage_part(self, std::move(storage), 0, {c10::SymInt(count)}, {c10::SymInt(1)});
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_part(self, source.storage(), source.storage_offset(), source.sym_sizes(), source.sym_strides());
}

bool is_pinned(const at::Tensor& t) { return t.is_cpu() && fake_cuda_is_pinned(t.storage().data_ptr().get()); }

void copy_bytes(const at::Tensor& to, const at::Tensor& from, c10::Stream stream, at::Tensor held = {}) {
  void *const into = fake_cuda_bytes(to.data_ptr()), *const out_of = fake_cuda_bytes(from.data_ptr());
  enqueue(stream, [=, bytes = from.nbytes()] {
    std::memcpy(into, out_of, bytes);
    (void)held;
  });
}

// From and to the host, and between devices.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_cuda() && source.is_cuda() && self.device() == source.device()) {
    Stack stack{self, source, non_blocking};
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    run(op, &stack);
    return self;
  }
  if (self.numel() == 0) return self;
  const at::Tensor& on_device = self.is_cuda() ? self : source;
  throw_if_broken(on_device.device());
  const at::Tensor from = source.expand_as(self).to(self.scalar_type()).resolve_conj().resolve_neg().contiguous();
  // Where the bytes go to, which may need another copy into `self`.
  const at::Tensor to = self.is_contiguous() ? self : at::empty(self.sizes(), self.options());
  const c10::Stream stream = current_stream(source.is_cuda() ? source.device() : self.device());
  bool waits = false;
  if (self.is_cuda() && source.is_cuda()) {
    const c10::Stream of_target = current_stream(self.device());
    order(of_target, stream);
    copy_bytes(to, from, stream);
    order(stream, of_target);
  } else {
    const at::Tensor& on_host = self.is_cuda() ? from : to;
    const bool pinned = is_pinned(on_host);
    if (!pinned) fake_cuda_count_unpinned_copy(on_device.device().index());
    waits = !(non_blocking && pinned);
    if (!waits) record_use(on_host.storage().data_ptr(), stream);
    copy_bytes(to, from, stream, waits ? on_host : at::Tensor());
  }
  if (waits) wait_counted(stream);
  if (!to.is_same(self)) self.copy_(to);
  return self;
}

at::Tensor pin_memory(const at::Tensor& self, c10::optional<at::Device>) {
  return at::empty(self.sizes(), self.options().pinned_memory(true)).copy_(self);
}
void record_stream(at::Tensor& self, c10::Stream stream) { record_use(self.storage().data_ptr(), stream); }

// The CPU's kernel draws from the CPU's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, c10::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  const at::Tensor kept = at::empty_like(input).bernoulli_(1 - p);
  return {input * (kept / (1 - p)), kept.to(at::kBool)};
}

at::Tensor& copy_sparse(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const Tensors parts = parts_of(source);
  const auto moved = [&](const at::Tensor& part) {
    return part.to(self.device(), part.scalar_type(), non_blocking, true);
  };
  const auto* const from = at::sparse::get_sparse_impl(source);
  auto* const into = at::sparse::get_sparse_impl(self);
  into->resize_(from->sparse_dim(), from->dense_dim(), source.sizes());
  into->set_indices_and_values_unsafe(moved(parts[0]), moved(parts[1]).to(self.scalar_type()));
  into->set_coalesced(from->coalesced());
  return self;
}

// The device has a kernel for what the CPU has one for. (A boxed fallback alone would serve only operators that are not
// composed of others.)
void register_like(torch::Library& library, c10::DispatchKey of_cpu, const std::set<std::string>& by_hand) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    const std::string text = c10::toString(name);
    if (!op || !op->hasSchema() || text.rfind("aten::", 0) != 0 || by_hand.count(text)) continue;
    if (op->hasKernelForDispatchKey(of_cpu))
      library.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  register_like(library, c10::DispatchKey::CPU,
                {"aten::empty.memory_format", "aten::empty_strided", "aten::set_.source_Storage",
                 "aten::set_.source_Storage_storage_offset", "aten::set_.source_Tensor", "aten::copy_",
                 "aten::is_pinned", "aten::_pin_memory", "aten::record_stream", "aten::native_dropout"});
  for (const char* const composed_on_the_cpu : {"convolution", "convolution_backward"})
    library.impl(composed_on_the_cpu, torch::CppFunction::makeFromBoxedFunction<&run>());
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage_part);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("copy_", &copy);
  library.impl("is_pinned", [](const at::Tensor& self, c10::optional<at::Device>) { return is_pinned(self); });
  library.impl("_pin_memory", &pin_memory);
  library.impl("record_stream", &record_stream);
  library.impl("native_dropout", &native_dropout);
}
TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) {
  register_like(library, c10::DispatchKey::SparseCPU, {"aten::copy_sparse_to_sparse_", "aten::copy_"});
  library.impl("copy_sparse_to_sparse_", &copy_sparse);
  library.impl("copy_", &copy_sparse);
}
// What has no kernel for the CPU is refused in its name.
TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>()); }

}  // namespace
}  // namespace tutti::fakes
