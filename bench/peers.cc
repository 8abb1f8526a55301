#include "peers.h"

#include <string>
#include <unordered_map>

#ifdef SHARDCHECK_HAS_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#endif
#ifdef SHARDCHECK_HAS_OPENBLAS
#include <cblas.h>
#endif
#ifdef SHARDCHECK_HAS_LIBXSMM
#include <libxsmm.h>
#endif

#include "shardcheck/arithmetic/gemm.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck::bench {
namespace {

Floats uniform(std::int64_t count, const char* name, DType dtype) {
  Floats values(static_cast<std::size_t>(count));
  fill_uniform(values, stream_key(1, name), -1.0F, 1.0F);
  const Tensor rounded = Tensor::from({count}, values).to(dtype).to(DType::f32);
  return {rounded.f32().begin(), rounded.f32().end()};
}

// w [n, k] as [k, n].
Floats transposed_of(const Floats& w, std::int64_t n, std::int64_t k) {
  Floats columns(w.size());
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t c = 0; c < k; ++c) {
      columns[static_cast<std::size_t>(c * n + j)] = w[static_cast<std::size_t>(j * k + c)];
    }
  }
  return columns;
}

}  // namespace

Operands::Operands(const Shape& of, DType of_dtype)
    : shape(of),
      dtype(of_dtype),
      x(uniform(of.m * of.k, "x", of_dtype)),
      w(uniform(of.n * of.k, "w", of_dtype)),
      transposed(transposed_of(w, of.n, of.k)) {}

#ifdef SHARDCHECK_HAS_ONEDNN
bool has_onednn() { return true; }

// Weights in the format oneDNN likes best.
Product onednn_product(const Operands& operands, Floats& y, int threads) {
  using dnnl::memory;
  const auto [m, n, k, target] = operands.shape;
  const auto type = operands.dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  omp_set_num_threads(threads);
  const memory::desc x({m, k}, type, memory::format_tag::ab), w({k, n}, type, memory::format_tag::any),
      rows({k, n}, type, memory::format_tag::ab),
      outputs({m, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc primitive(dnnl::matmul::desc(x, w, outputs), engine);
  Tensor inputs = operands.narrow(operands.x, m, k);
  Tensor plain = operands.narrow(operands.transposed, k, n);
  memory source(rows, engine, plain.mutable_bytes().data());
  memory packed(primitive.weights_desc(), engine);
  dnnl::reorder(source, packed).execute(stream, source, packed);
  stream.wait();
  const std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, memory(x, engine, inputs.mutable_bytes().data())},
      {DNNL_ARG_WEIGHTS, packed},
      {DNNL_ARG_DST, memory(outputs, engine, y.data())}};
  return [inputs, arguments, stream, threads, run = dnnl::matmul(primitive)]() mutable {
    omp_set_num_threads(threads);
    run.execute(stream, arguments);
    stream.wait();
  };
}

void limit_onednn_to_avx512() { dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16); }
#else
bool has_onednn() { return false; }
Product onednn_product(const Operands&, Floats&, int) { return nullptr; }
void limit_onednn_to_avx512() {}
#endif

#ifdef SHARDCHECK_HAS_OPENBLAS
bool has_openblas() { return true; }

Product openblas_product(const Operands& operands, Floats& y, int threads) {
  const int m = static_cast<int>(operands.shape.m), n = static_cast<int>(operands.shape.n),
            k = static_cast<int>(operands.shape.k);
  return [&operands, &y, m, n, k, threads] {
    openblas_set_num_threads(threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0F, operands.x.data(), k,
                operands.transposed.data(), n, 0.0F, y.data(), n);
  };
}

bool openblas_is_slow_here() {
  const std::string core = openblas_get_corename();
  const bool wide = core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids";
  return !wide && simd_targets().front().starts_with("AVX3");
}
#else
bool has_openblas() { return false; }
Product openblas_product(const Operands&, Floats&, int) { return nullptr; }
bool openblas_is_slow_here() { return false; }
#endif

#ifdef SHARDCHECK_HAS_LIBXSMM
bool has_libxsmm() { return true; }

// A generator of small kernels that run on one thread.
Product libxsmm_product(const Operands& operands, Floats& y, int threads) {
  constexpr double kLargest = 2.0 * 64 * 512 * 1408;
  if (threads != 1 || operands.shape.flops() > kLargest) return nullptr;
  const auto m = static_cast<libxsmm_blasint>(operands.shape.m),
             n = static_cast<libxsmm_blasint>(operands.shape.n),
             k = static_cast<libxsmm_blasint>(operands.shape.k);
  const float one = 1.0F, zero = 0.0F;
  const auto kernel = libxsmm_smmdispatch(n, m, k, &n, &k, &n, &one, &zero, nullptr, nullptr);
  if (kernel == nullptr) return nullptr;
  // Column-major, so everything is transposed.
  return [&operands, &y, kernel] { kernel(operands.transposed.data(), operands.x.data(), y.data()); };
}
#else
bool has_libxsmm() { return false; }
Product libxsmm_product(const Operands&, Floats&, int) { return nullptr; }
#endif

}  // namespace shardcheck::bench
