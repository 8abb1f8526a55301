#include "model/row_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/step_rows.h"
#include "shardcheck/arithmetic/kernels.h"

namespace shardcheck {
namespace {

/// Outputs from this size on are completed slice by slice: below it one exchange costs less than two.
constexpr std::int64_t kTwoShotBytes = std::int64_t{1} << 20;

std::vector<std::span<float>> buffers_of(RankMatrices& matrices) {
  std::vector<std::span<float>> buffers;
  for (Matrix& matrix : matrices) buffers.emplace_back(matrix.values);
  return buffers;
}

std::vector<std::span<const std::byte>> bytes_of(const std::vector<std::vector<float>>& buffers) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto& buffer : buffers) bytes.push_back(std::as_bytes(std::span(buffer)));
  return bytes;
}

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

/// Rows [first, last) of every matrix, where its rank's share says.
RankMatrices own_rows(const RankMatrices& sums, const std::vector<RowParallelPart>& parts, int degree) {
  RankMatrices own;
  for (std::size_t slot = 0; slot < sums.size(); ++slot) {
    const auto [first, last] = StepRows::share(sums[slot].rows, degree, parts[slot].rank);
    own.push_back(sums[slot].part(first, last));
  }
  return own;
}

/// Values as the storage dtype spells them: what a second shot ships.
std::vector<std::byte> stored_bytes(std::span<const float> values, DType storage) {
  const Tensor tensor = Tensor::from({std::ssize(values)}, values).to(storage);
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

void append_widened(std::span<const std::byte> bytes, DType storage, float* out) {
  if (storage == DType::f32) {
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < bytes.size(); i += 2, ++out) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i, sizeof(bits));
    *out = storage == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

}  // namespace

RankMatrices RowParallelSum::operator()(const Layer& layer, const std::vector<RowParallelPart>& held,
                                        const RankMatrices& xs) const {
  std::vector<std::vector<float>> biases;
  std::vector<RowParallelPart> parts;
  for (const RowParallelPart& part : held) {
    auto& bias = biases.emplace_back(part.bias.begin(), part.bias.end());
    if (!bias.empty()) steps_.before_bias(site(layer, part.rank), layer.role, bias);
    parts.push_back({part.rank, part.weights, bias});
  }
  return stepped(layer, parts, xs);
}

RankMatrices RowParallelSum::stepped(const Layer& layer, const std::vector<RowParallelPart>& parts,
                                     const RankMatrices& xs) const {
  if (!layer.scatters || degree() == 1) return whole_sum(layer, parts, xs);
  if (numerics_.arithmetic == Arithmetic::tree && reductions(layer, parts) == 1) {
    require_cuts_between_leaves(layer);
    return reduce_scatter(layer, covers(layer, parts, xs), xs.front().rows, whole_bias(parts));
  }
  return own_rows(whole_sum(layer, parts, xs), parts, degree());
}

RankMatrices RowParallelSum::whole_sum(const Layer& layer, const std::vector<RowParallelPart>& parts,
                                       const RankMatrices& xs) const {
  switch (numerics_.arithmetic) {
    case Arithmetic::native:
      return native_sum(layer, parts, xs);
    case Arithmetic::tree:
      return tree_sum(layer, parts, xs);
    case Arithmetic::exact:
      return exact_sum(layer, parts, xs);
  }
  throw std::logic_error("unknown arithmetic");
}

int RowParallelSum::reductions(const Layer& layer, const std::vector<RowParallelPart>& parts) const {
  return degree() > 1 ? steps_.reductions(site(layer, parts.front().rank), layer.role) : 1;
}

void RowParallelSum::reduce_again(RankMatrices& sums, int times) const {
  for (int i = 0; i < times; ++i) collective_.all_reduce_sum(buffers_of(sums));
}

void RowParallelSum::finish(RankMatrices& sums, std::span<const float> bias) const {
  for (Matrix& sum : sums) {
    if (!bias.empty()) add_bias(sum.values.data(), sum.rows, sum.width, sum.width, bias.data());
    numerics_.store(sum);
  }
}

std::vector<float> RowParallelSum::whole_bias(const std::vector<RowParallelPart>& parts) const {
  const std::span<const float> own = parts.front().bias;
  if (own.empty() || consumer_.row_bias() == RowBias::after_sum || degree() == 1)
    return {own.begin(), own.end()};
  std::vector<std::span<const std::byte>> sends;
  for (const RowParallelPart& part : parts) sends.push_back(std::as_bytes(part.bias));
  std::vector<std::size_t> sizes;
  const std::vector<float> all = floats_of(collective_.all_gather_bytes(sends, sizes));
  std::vector<float> sum(own.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    double total = 0.0;
    for (std::size_t at = i; at < all.size(); at += sum.size()) total += all[at];
    sum[i] = static_cast<float>(total);
  }
  return sum;
}

RankMatrices RowParallelSum::native_sum(const Layer& layer, const std::vector<RowParallelPart>& parts,
                                        const RankMatrices& xs) const {
  const bool after_sum = consumer_.row_bias() == RowBias::after_sum;
  RankMatrices sums;
  for (std::size_t slot = 0; slot < parts.size(); ++slot) {
    Matrix& sum = sums.emplace_back(xs[slot].rows, geometry_.d_model);
    const std::span<const float> addend = after_sum ? std::span<const float>{} : parts[slot].bias;
    numerics_.product(xs[slot], parts[slot].weights, 0, addend, sum.values.data());
    steps_.after_partial(site(layer, parts[slot].rank), layer.role, sum.values);
  }
  if (degree() > 1) reduce_again(sums, reductions(layer, parts));
  finish(sums, after_sum ? parts.front().bias : std::span<const float>{});
  return sums;
}

Reduction RowParallelSum::part_of(const Layer& layer, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return Reduction::part(numerics_.contract.shape, layer.k(), leaf_of(layer), layer.cuts[at],
                         layer.cuts[at + 1]);
}

std::vector<TreeNode> RowParallelSum::nodes_of_rank(const Layer& layer, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  std::vector<TreeNode> nodes = nodes_of(part_of(layer, rank), layer.cuts[at + 1] - layer.cuts[at]);
  if (!steps_.ships_leaves(site(layer, rank)) || nodes.empty()) return nodes;
  std::vector<TreeNode> leaves;
  for (std::int64_t leaf = nodes.front().first; leaf < nodes.back().last; ++leaf)
    leaves.push_back({leaf, leaf + 1});
  return leaves;
}

std::vector<std::vector<float>> RowParallelSum::covers(const Layer& layer,
                                                       const std::vector<RowParallelPart>& parts,
                                                       const RankMatrices& xs) const {
  std::vector<std::vector<float>> covers;
  for (std::size_t slot = 0; slot < parts.size(); ++slot) {
    const PackedWeights& weights = parts[slot].weights.packed();
    const std::int64_t rows = xs[slot].rows;
    const auto nodes = nodes_of_rank(layer, parts[slot].rank);
    auto& own = covers.emplace_back(nodes.size() * static_cast<std::size_t>(rows * weights.n()));
    gemm_nodes(xs[slot].values.data(), xs[slot].width, rows, weights, part_of(layer, parts[slot].rank), nodes,
               own.data());
    steps_.after_partial(site(layer, parts[slot].rank), layer.role, own);
  }
  return covers;
}

bool RowParallelSum::exchanges_in_two_shots(std::int64_t rows) const {
  if (degree() == 1 || exchange_ == CoverExchange::one_shot) return false;
  if (exchange_ == CoverExchange::two_shot) return true;
  return rows * geometry_.d_model * static_cast<std::int64_t>(sizeof(float)) >= kTwoShotBytes;
}

std::vector<std::int64_t> RowParallelSum::bounds_of(std::int64_t count, std::int64_t unit) const {
  std::vector<std::int64_t> bounds = {0};
  for (int rank = 0; rank < degree(); ++rank)
    bounds.push_back(StepRows::share(count, degree(), rank).second * unit);
  return bounds;
}

void RowParallelSum::require_cuts_between_leaves(const Layer& layer) const {
  const std::int64_t leaf = leaf_of(layer);
  std::int64_t largest = 0;
  bool inside = false;
  for (std::size_t i = 1; i + 1 < layer.cuts.size(); ++i) {
    if (layer.cuts[i] == layer.k()) continue;
    largest = std::gcd(largest, layer.cuts[i]);
    inside = inside || layer.cuts[i] % leaf != 0;
  }
  if (!inside) return;
  throw UnsupportedLayout(fmt::format(
      "layers.{}.{}: TP degree {} cuts its sum of length {} inside a leaf of {}: its contract does "
      "not hold this degree; the largest leaf that would do is {}",
      layer.layer, layer.role, degree(), layer.k(), leaf, largest));
}

RankMatrices RowParallelSum::tree_sum(const Layer& layer, const std::vector<RowParallelPart>& parts,
                                      const RankMatrices& xs) const {
  require_cuts_between_leaves(layer);
  const std::int64_t rows = xs.front().rows;
  const auto nodes = covers(layer, parts, xs);
  const std::vector<float> bias = whole_bias(parts);
  const int times = reductions(layer, parts);
  if (times == 1 && exchanges_in_two_shots(rows)) return two_shot(layer, nodes, rows, bias);
  RankMatrices sums;
  if (times == 0) {
    // A partial sum kept as if it were the whole: what is left of the tree when nothing was exchanged.
    for (const auto& own : nodes) {
      Matrix& sum = sums.emplace_back(rows, geometry_.d_model);
      for (std::size_t i = 0; i < own.size(); ++i) sum.values[i % sum.values.size()] += own[i];
    }
  } else {
    sums = one_shot(layer, nodes, rows);
    reduce_again(sums, times - 1);
  }
  finish(sums, bias);
  return sums;
}

std::vector<float> RowParallelSum::complete(const Layer& layer, std::span<const std::byte> gathered,
                                            std::int64_t width) const {
  std::vector<TreeNode> nodes;
  for (int rank = 0; rank < degree(); ++rank) {
    for (const TreeNode& node : nodes_of_rank(layer, rank)) nodes.push_back(node);
  }
  const auto expected = nodes.size() * static_cast<std::size_t>(width) * sizeof(float);
  if (gathered.size() != expected) {
    throw InvalidShards(fmt::format("{}: the ranks sent {} bytes of tree nodes, expected {}", layer.role,
                                    gathered.size(), expected));
  }
  // Collectives hand over vectors of their own, aligned for any type: read where they are.
  const auto* values = reinterpret_cast<const float*>(gathered.data());
  std::vector<const float*> starts;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    starts.push_back(values + i * static_cast<std::size_t>(width));
  std::vector<float> root(static_cast<std::size_t>(width));
  const Reduction whole = Reduction::whole(numerics_.contract.shape, layer.k(), leaf_of(layer));
  complete_tree(whole.shape, whole.leaves, nodes, starts, width, root.data());
  return root;
}

RankMatrices RowParallelSum::one_shot(const Layer& layer, const std::vector<std::vector<float>>& covers,
                                      std::int64_t rows) const {
  std::vector<std::size_t> sizes;
  const auto gathered = collective_.all_gather_bytes(bytes_of(covers), sizes);
  Matrix sum(0, geometry_.d_model);
  sum.rows = rows;
  sum.values = complete(layer, gathered, rows * geometry_.d_model);
  return RankMatrices(covers.size(), sum);
}

std::vector<std::vector<float>> RowParallelSum::finished_slices(const Layer& layer,
                                                                const std::vector<std::vector<float>>& covers,
                                                                std::int64_t width,
                                                                std::span<const std::int64_t> bounds,
                                                                std::span<const float> bias) const {
  std::vector<std::vector<std::vector<float>>> pieces(covers.size());
  std::vector<std::vector<std::span<const std::byte>>> sends;
  for (std::size_t slot = 0; slot < covers.size(); ++slot) {
    for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
      auto& piece = pieces[slot].emplace_back();
      for (auto node = covers[slot].begin(); node != covers[slot].end(); node += width)
        piece.insert(piece.end(), node + bounds[rank], node + bounds[rank + 1]);
    }
    sends.push_back(bytes_of(pieces[slot]));
  }
  const auto received = collective_.all_to_all_bytes(sends);
  std::vector<std::vector<float>> finished;
  for (std::size_t slot = 0; slot < received.size(); ++slot) {
    const auto rank = static_cast<std::size_t>(collective_.local_ranks()[slot]);
    std::vector<float>& root =
        finished.emplace_back(complete(layer, received[slot], bounds[rank + 1] - bounds[rank]));
    for (std::size_t i = 0; i < root.size() && !bias.empty(); ++i)
      root[i] += bias[(static_cast<std::size_t>(bounds[rank]) + i) % bias.size()];
  }
  return finished;
}

RankMatrices RowParallelSum::two_shot(const Layer& layer, const std::vector<std::vector<float>>& covers,
                                      std::int64_t rows, std::span<const float> bias) const {
  const std::int64_t width = rows * geometry_.d_model;
  // Second shot: finished values, in the storage dtype.
  const DType storage = numerics_.contract.storage;
  std::vector<std::vector<std::byte>> finished;
  for (const auto& values : finished_slices(layer, covers, width, bounds_of(width, 1), bias))
    finished.push_back(stored_bytes(values, storage));
  const std::vector<std::span<const std::byte>> slices(finished.begin(), finished.end());
  std::vector<std::size_t> sizes;
  const auto gathered = collective_.all_gather_bytes(slices, sizes);
  Matrix sum(rows, geometry_.d_model);
  if (gathered.size() != sum.values.size() * static_cast<std::size_t>(size_bits(storage)) / 8)
    throw InvalidShards(fmt::format("{}: the ranks sent {} bytes of finished slices for {} values",
                                    layer.role, gathered.size(), sum.values.size()));
  append_widened(gathered, storage, sum.values.data());
  return RankMatrices(covers.size(), sum);
}

RankMatrices RowParallelSum::reduce_scatter(const Layer& layer, const std::vector<std::vector<float>>& covers,
                                            std::int64_t rows, std::span<const float> bias) const {
  const std::int64_t d = geometry_.d_model;
  RankMatrices own;
  for (auto& values : finished_slices(layer, covers, rows * d, bounds_of(rows, d), bias)) {
    Matrix& sum = own.emplace_back();
    sum.rows = std::ssize(values) / d;
    sum.width = d;
    sum.values = std::move(values);
    numerics_.store(sum);
  }
  return own;
}

std::vector<std::vector<std::int32_t>> RowParallelSum::agreed_tops(const RankMatrices& xs) const {
  std::vector<std::vector<std::int32_t>> tops;
  std::vector<std::span<std::int32_t>> buffers;
  for (const Matrix& x : xs) tops.push_back(row_tops(x.values.data(), x.width, x.rows, x.width));
  for (auto& own : tops) buffers.emplace_back(own);
  collective_.all_reduce_max_i32(buffers);
  return tops;
}

ExactPartial RowParallelSum::exact_part(const Layer& layer, const RowParallelPart& part, const Matrix& x,
                                        std::span<const std::int32_t> tops) const {
  ExactPartial partial = exact_partial(x.values.data(), x.width, x.rows, part.weights.exact(), tops);
  if (&steps_ == &right_steps()) return partial;
  // A step works on values: where it changes one, the changed values are what the rank hands on.
  std::vector<float> values(static_cast<std::size_t>(partial.rows() * partial.columns()));
  partial.round(values.data(), partial.columns());
  const std::vector<float> before = values;
  steps_.after_partial(site(layer, part.rank), layer.role, values);
  if (std::memcmp(before.data(), values.data(), values.size() * sizeof(float)) == 0) return partial;
  // The same exponents as the other ranks', so that the merge below still adds plain words.
  const Matrix nothing(x.rows, x.width);
  ExactPartial changed = exact_partial(nothing.values.data(), x.width, x.rows, part.weights.exact(), tops);
  for (std::int64_t i = 0; i < partial.rows(); ++i) {
    for (std::int64_t j = 0; j < partial.columns(); ++j)
      changed.add_product(i, j, values[static_cast<std::size_t>(i * partial.columns() + j)], 1.0F);
  }
  return changed;
}

void RowParallelSum::merge(std::vector<ExactPartial>& partials) const {
  if (degree() == 1) return;
  std::vector<std::span<std::int64_t>> words;
  std::vector<std::vector<std::byte>> rests;
  for (ExactPartial& partial : partials) rests.push_back(partial.rest_bytes());
  for (ExactPartial& partial : partials) words.push_back(partial.words());
  collective_.all_reduce_sum_i64(words);
  const std::vector<std::span<const std::byte>> sends(rests.begin(), rests.end());
  std::vector<std::size_t> sizes;
  const auto gathered = collective_.all_gather_bytes(sends, sizes);
  for (ExactPartial& partial : partials) partial.set_rest(gathered);
}

RankMatrices RowParallelSum::exact_sum(const Layer& layer, const std::vector<RowParallelPart>& parts,
                                       const RankMatrices& xs) const {
  const auto tops = agreed_tops(xs);
  const bool after_sum = consumer_.row_bias() == RowBias::after_sum;
  std::vector<ExactPartial> partials;
  for (std::size_t slot = 0; slot < parts.size(); ++slot) {
    partials.push_back(exact_part(layer, parts[slot], xs[slot], tops[slot]));
    // One more addend of the sum: of the whole where everyone has it, else of the rank's part.
    if (!parts[slot].bias.empty() && !after_sum) partials.back().add_bias(parts[slot].bias);
  }
  const int times = reductions(layer, parts);
  if (times > 0) merge(partials);
  RankMatrices sums;
  for (std::size_t slot = 0; slot < parts.size(); ++slot) {
    if (!parts[slot].bias.empty() && after_sum) partials[slot].add_bias(parts[slot].bias);
    Matrix& sum = sums.emplace_back(xs[slot].rows, geometry_.d_model);
    partials[slot].round(sum.values.data(), sum.width);
  }
  reduce_again(sums, std::max(0, times - 1));
  finish(sums, {});
  return sums;
}

}  // namespace shardcheck
