#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

#include "arithmetic/exact_calls.h"
#include "shardcheck/arithmetic/exact.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "arithmetic/exact-inl.h"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h: the kernels for the static target.
#include "arithmetic/exact-inl.h"

namespace shardcheck {

HWY_EXPORT(ScanRows);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(AllIntegers);
HWY_EXPORT(EncodeHalves);
HWY_EXPORT(EncodeBiased);
HWY_EXPORT(PairPanel);
HWY_EXPORT(RoundBlock);
HWY_EXPORT(CarryBlock);
HWY_EXPORT(SumIntegers);
HWY_EXPORT(SumSquaredIntegers);

void scan_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, RowScan* scans) {
  HWY_DYNAMIC_DISPATCH(ScanRows)(x, stride, rows, count, scans);
}
bool all_integers(const float* x, std::int64_t count, double scale) {
  return HWY_DYNAMIC_DISPATCH(AllIntegers)(x, count, scale);
}
ScaledRow scale_row(float* x, std::int64_t count, float factor) {
  return HWY_DYNAMIC_DISPATCH(ScaleRow)(x, count, factor);
}
void encode_biased(EncodeCall& call) { HWY_DYNAMIC_DISPATCH(EncodeBiased)(call); }
void round_block(const RoundCall& call) { HWY_DYNAMIC_DISPATCH(RoundBlock)(call); }
void carry_block(const CarryCall& call) { HWY_DYNAMIC_DISPATCH(CarryBlock)(call); }
void sum_integers(IntegerSumCall& call) { HWY_DYNAMIC_DISPATCH(SumIntegers)(call); }
void sum_squared_integers(IntegerSumCall& call) { HWY_DYNAMIC_DISPATCH(SumSquaredIntegers)(call); }

namespace {

void encode_halves(EncodeCall& call) { HWY_DYNAMIC_DISPATCH(EncodeHalves)(call); }
void pair_panel(const PanelCall& call) { HWY_DYNAMIC_DISPATCH(PairPanel)(call); }

void encode_plainly(EncodeCall& call) {
  for (std::int64_t i = 0; i < call.count; ++i) {
    call.words[i] = std::nearbyint(static_cast<double>(call.x[i]) * call.scale);
  }
}

void scalar_panel(const PanelCall& call) {
  for (std::int64_t i = 0; i < call.rows; ++i) {
    Int128 sums[kExactPanel] = {};
    for (std::int64_t c = 0; c < call.k; ++c) {
      const auto a = static_cast<std::int64_t>(call.a[i * row_words(1, call.k) + c]);
      const double* w = call.w + c * kExactPanel;
      for (std::int64_t j = 0; j < kExactPanel; ++j) sums[j] += Int128{a} * static_cast<std::int64_t>(w[j]);
    }
    for (std::int64_t j = 0; j < kExactPanel; ++j) {
      call.high[i * kExactPanel + j] = static_cast<std::int64_t>(sums[j] >> kExactRadix);
      call.low[i * kExactPanel + j] =
          static_cast<std::int64_t>(sums[j] & ((std::int64_t{1} << kExactRadix) - 1));
    }
  }
}

constexpr ExactKernel kPair = {.name = "pair", .planes = 3, .encode = encode_halves, .panel = pair_panel};
constexpr ExactKernel kScalar = {
    .name = "scalar", .planes = 1, .encode = encode_plainly, .panel = scalar_panel};

std::vector<const ExactKernel*> runnable() {
  std::vector<const ExactKernel*> kernels = {&kPair, &kScalar};
  if (const ExactKernel* ifma = ifma_kernel()) kernels.insert(kernels.begin(), ifma);
  return kernels;
}

std::atomic<const ExactKernel*> forced = nullptr;

// A target forced below AVX-512 is to be what really runs.
bool target_has_avx512() {
#if HWY_ARCH_X86
  return (hwy::SupportedTargets() & (HWY_AVX3 | HWY_AVX3_DL)) != 0;
#else
  return false;
#endif
}

}  // namespace

const ExactKernel& exact_kernel() {
  if (const ExactKernel* kernel = forced.load()) return *kernel;
  const ExactKernel* ifma = ifma_kernel();
  return ifma != nullptr && target_has_avx512() ? *ifma : kPair;
}

std::vector<std::string> exact_kernels() {
  std::vector<std::string> names;
  for (const ExactKernel* kernel : runnable()) names.emplace_back(kernel->name);
  return names;
}

void force_exact_kernel(const std::string& name) {
  if (name.empty()) {
    forced = nullptr;
    return;
  }
  std::string allowed;
  for (const ExactKernel* kernel : runnable()) {
    if (name == kernel->name) {
      forced = kernel;
      return;
    }
    allowed += std::string(" ") + kernel->name;
  }
  throw std::invalid_argument(
      fmt::format("exact kernel \"{}\" cannot run here; allowed are{}", name, allowed));
}

}  // namespace shardcheck
