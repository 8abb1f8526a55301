#include "verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "folder_layout.h"
#include "options.h"
#include "shardcheck/case/case.h"
#include "shardcheck/checkpoint/shard_folder.h"
#include "shardcheck/model/sharded_model.h"
#include "shardcheck/tolerance/comparator.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {
namespace {

constexpr std::int64_t kDefaultTokens = 64;
constexpr int kLargestDefaultDegree = 8;

bool runs_at(const LayoutTable& table, const Geometry& geometry, int degree) {
  try {
    consumer_named(table.consumer()).require_supported(geometry, degree);
    return true;
  } catch (const UnsupportedLayout&) {
    return false;
  }
}

std::vector<int> runnable_degrees(const LayoutTable& table, const Geometry& geometry) {
  std::vector<int> candidates;
  for (int t = 1; t <= kLargestDefaultDegree; ++t) candidates.push_back(t);
  std::vector<int> degrees = supported_degrees(table, geometry, candidates);
  std::erase_if(degrees, [&](int t) { return !runs_at(table, geometry, t); });
  return degrees;
}

std::filesystem::path degree_folder(const std::filesystem::path& folder, int degree) {
  return folder / fmt::format("tp{}", degree);
}

/// Degrees of a folder of shards, or of the tpN folders in it.
std::vector<int> degrees_on_disk(const std::filesystem::path& folder) {
  if (const auto info = read_shard_folder_info(folder)) return {info->layout.tp_degree()};
  std::vector<int> degrees;
  for (int t = 1; t <= 1024; ++t)
    if (std::filesystem::is_directory(degree_folder(folder, t))) degrees.push_back(t);
  if (degrees.empty())
    throw InvalidInput(fmt::format(
        "--shards={}: neither shardcheck.json nor a tpN folder is there; give --tp. The rule: shards of "
        "degree N lie in DIR/tpN, and those of a single degree may lie in DIR itself",
        folder.string()));
  return degrees;
}

std::int64_t parameter_count(const TensorMap& tensors) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : tensors) count += tensor.elements();
  return count;
}

std::size_t bytes_per_row(const Tensor& tensor) {
  return tensor.rank() == 0 || tensor.dim(0) == 0
             ? tensor.bytes().size()
             : tensor.bytes().size() / static_cast<std::size_t>(tensor.dim(0));
}

bool same_row(const Tensor& x, std::int64_t i, const Tensor& y, std::int64_t j) {
  const std::size_t size = bytes_per_row(x);
  const auto row = [size](const Tensor& t, std::int64_t at) {
    return t.bytes().subspan(static_cast<std::size_t>(at) * size, size);
  };
  return std::ranges::equal(row(x, i), row(y, j));
}

/// Says what is wrong with one rank's tensor, given the right tensors of every rank.
std::string explain(const std::vector<Tensor>& right, int rank, const Tensor& actual) {
  const Tensor& expected = right[static_cast<std::size_t>(rank)];
  if (actual.dtype() != expected.dtype())
    return fmt::format("dtype {} instead of {}", short_name(actual.dtype()), short_name(expected.dtype()));
  for (std::size_t other = 0; other < right.size(); ++other)
    if (actual.same_bytes(right[other]))
      return fmt::format("rank {} holds the shard of rank {}", rank, other);
  if (expected.rank() == 0) return "the value differs";
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < expected.dim(0); ++i)
    if (!same_row(expected, i, actual, i)) rows.push_back(i);
  if (rows.size() == 2 && same_row(expected, rows[0], actual, rows[1]) &&
      same_row(expected, rows[1], actual, rows[0]))
    return fmt::format("rows {} and {} are exchanged", rows[0], rows[1]);
  return fmt::format("{} of {} rows differ, the first is row {}", rows.size(), expected.dim(0), rows[0]);
}

std::vector<ShardDifference> differences_of(const Layout& layout, const ShardedTensors& right,
                                            const ShardedTensors& actual) {
  std::vector<ShardDifference> result;
  for (const LayoutEntry& entry : layout.entries) {
    const std::vector<Tensor>& expected = right.at(entry.name);
    const std::vector<Tensor>& given = actual.at(entry.name);
    for (int rank = 0; rank < layout.degree; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (!expected[at].same_bytes(given[at]))
        result.push_back({entry.name, rank, explain(expected, rank, given[at])});
    }
  }
  return result;
}

void require_matching_info(const std::filesystem::path& folder, const LayoutTable& table, int degree,
                           const Geometry& geometry) {
  const auto info = read_shard_folder_info(folder);
  if (!info)
    throw InvalidInput(
        fmt::format("{}: shardcheck.json is missing, so the shards may be unfinished; allowed: a folder "
                    "whose writer left it "
                    "behind the last rank file, at least {{\"format\": 1, \"layout\": \"{}:tp{}\", \"mesh\": "
                    "{{\"tp\": {}}}}}",
                    folder.string(), table.name(), degree, degree));
  if (info->layout.table != table.name() || info->layout.tp_degree() != degree)
    throw InvalidInput(fmt::format("{}: shards of {}, but {}:tp{} is asked for (--layout, --tp)",
                                   folder.string(), to_string(info->layout), table.name(), degree));
  if (info->geometry && *info->geometry != geometry)
    throw InvalidInput(fmt::format("{}: shards of another model ({}); the checkpoint has {}", folder.string(),
                                   to_string(*info->geometry), to_string(geometry)));
}

}  // namespace

Verdict DegreeCheck::verdict() const {
  if (!refused.empty() || !differences.empty()) return Verdict::failed;
  if (!vacuous.empty()) return Verdict::vacuous;
  if (!native_holds || tree_differing != 0) return Verdict::failed;
  return mistrusted.empty() ? Verdict::passed : Verdict::mistrusted;
}

bool Verification::holds() const { return verdict() == Verdict::passed; }

Verdict Verification::verdict() const {
  std::vector<Verdict> verdicts;
  if (golden) verdicts.push_back(golden->verdict());
  for (const DegreeCheck& check : degrees) verdicts.push_back(check.verdict());
  for (const Verdict worst : {Verdict::failed, Verdict::vacuous, Verdict::mistrusted})
    if (std::ranges::find(verdicts, worst) != verdicts.end()) return worst;
  return Verdict::passed;
}

struct Verifier::State {
  VerifyOptions options;
  Checkpoint checkpoint;
  LayoutTable table;
  std::optional<Golden> golden;
  Tokens tokens;
  std::vector<int> degrees;
  std::unique_ptr<ReferenceModel> native_model;
  Tensor native, tree;                                                     // reference logits
  std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> decoded;  // by prompt
  Verification result;

  explicit State(VerifyOptions o)
      : options(std::move(o)),
        checkpoint(load_source(options.folder, options.from)),
        table(table_at("layout", options.layout)) {}

  const Geometry& geometry() const { return checkpoint.config.geometry; }
  /// `share`: of the degrees that are done.
  void report(const std::string& text, std::optional<double> share = {}) const {
    if (options.progress) options.progress({ProgressEvent::Kind::stage, text, share});
  }

  void choose_degrees() {
    degrees = options.degrees;
    if (degrees.empty() && !options.shards.empty()) degrees = degrees_on_disk(options.shards);
    if (degrees.empty()) degrees = runnable_degrees(table, geometry());
    // What cannot run is refused before anything does.
    for (const int degree : degrees) {
      consumer_named(table.consumer()).require_supported(geometry(), degree);
      table.instantiate(geometry(), degree);
    }
  }

  void require_matching_shards() const {
    for (const int degree : degrees)
      if (const auto folder = shards_of(degree); !folder.empty())
        require_matching_info(folder, table, degree, geometry());
  }

  void choose_tokens() {
    const std::int64_t positions = checkpoint.config.max_positions;
    const std::int64_t available =
        golden ? static_cast<std::int64_t>(golden->tokens.size()) : std::max<std::int64_t>(positions, 1);
    const std::int64_t wanted = options.tokens.value_or(
        golden ? golden->logits.dim(0) : std::min(kDefaultTokens, std::max<std::int64_t>(positions, 1)));
    if (wanted > available)
      throw InvalidInput(fmt::format("--tokens={} exceeds the {} {}", wanted, available,
                                     golden ? "golden tokens" : "positions of the model"));
    if (golden)
      tokens = {1, wanted, {golden->tokens.begin(), golden->tokens.begin() + wanted}};
    else
      tokens = make_tokens(geometry(), 1, wanted, options.seed);
  }

  /// Degrees whose shards are read or written: all but 1, unless 1 is all there is.
  std::vector<int> sharded_degrees() const {
    std::vector<int> sharded = degrees;
    if (sharded.size() > 1) std::erase(sharded, 1);
    return sharded;
  }

  /// The folder of one degree below a user's folder; empty when that degree has none.
  std::filesystem::path folder_of(const std::filesystem::path& folder, int degree) const {
    const std::vector<int> sharded = sharded_degrees();
    if (folder.empty() || std::find(sharded.begin(), sharded.end(), degree) == sharded.end()) return {};
    return sharded.size() == 1 ? folder : degree_folder(folder, degree);
  }

  /// Where shards of a degree are read: DIR/tpN also for a single degree, unless DIR itself holds shards.
  std::filesystem::path shards_of(int degree) const {
    const std::filesystem::path folder = folder_of(options.shards, degree);
    if (folder != options.shards || folder.empty() || read_shard_folder_info(folder)) return folder;
    const std::filesystem::path below = degree_folder(folder, degree);
    return std::filesystem::is_directory(below) ? below : folder;
  }

  /// Logits of every rank: foreign shards may make them differ.
  std::vector<Tensor> run(const Layout& layout, const ShardedTensors& shards, Arithmetic arithmetic) const {
    const auto collective = make_in_process_collective(layout.degree);
    const ShardedModel model(geometry(), shards, consumer_named(layout.consumer), *collective, arithmetic,
                             result.contract);
    return model.forward(tokens);
  }

  /// Foreign shards are evidence, and the checkpoint is an input: neither is written over.
  void require_separate_output() const {
    if (options.write_shards.empty()) return;
    std::vector<std::filesystem::path> inputs = {options.folder}, outputs = {options.write_shards};
    if (!options.shards.empty()) inputs.push_back(options.shards);
    for (const int degree : sharded_degrees()) {
      if (!options.shards.empty()) inputs.push_back(shards_of(degree));
      outputs.push_back(folder_of(options.write_shards, degree));
    }
    const auto resolved = [](const std::filesystem::path& folder) {
      return std::filesystem::weakly_canonical(folder / "");
    };
    for (const auto& input : inputs)
      for (const auto& output : outputs)
        if (resolved(input) == resolved(output))
          throw InvalidInput(
              fmt::format("--write-shards={} is the folder that is verified: allowed is another folder",
                          options.write_shards.string()));
  }

  void prepare_reference() {
    if (native_model) return;
    report("verify  reference");
    native_model =
        std::make_unique<ReferenceModel>(geometry(), checkpoint.logical, Arithmetic::native, result.contract);
    native = native_model->forward(tokens);
    tree = ReferenceModel(geometry(), checkpoint.logical, Arithmetic::tree, result.contract).forward(tokens);
  }

  void judge_logits(const Layout& layout, const ShardedTensors& shards, DegreeCheck& check) const {
    Case c;
    c.law = "sharded_equals_reference";
    c.geometry = geometry();
    c.dtype = checkpoint.dtype;
    c.length = tokens.length;
    c.target.table = table.name();
    if (layout.degree > 1) c.target.axes = {{"tp", layout.degree}};
    const Threshold threshold = threshold_for(c, checkpoint.logical, tokens, native);
    const Comparison deviation = compare_ranks(native, run(layout, shards, Arithmetic::native)).worst;
    check.vacuous = deviation.vacuous;
    if (layout.degree > 1) check.mistrusted = threshold.mistrusted();
    check.deviation = deviation.max_abs;
    check.threshold = threshold.value;
    check.threshold_source = threshold.source;
    check.native_holds = layout.degree == 1 ? deviation.max_abs == 0.0 : deviation.max_abs < threshold.value;
    check.tree_differing = compare_ranks(tree, run(layout, shards, Arithmetic::tree)).worst.differing_bits;
  }

  /// Tensors that are not what their layout asks for are a failed check; files that are absent or broken are
  /// refused, as everywhere.
  static ShardedTensors read_foreign(const std::filesystem::path& folder, const Layout& layout) {
    for (int rank = 0; rank < layout.degree; ++rank) {
      const auto file = folder / shard_file_name(rank, layout.degree);
      if (!std::filesystem::exists(file))
        throw InvalidCheckpoint(fmt::format("{}: no such file; needed at degree {}: one for every rank",
                                            file.string(), layout.degree));
      SafetensorsFile{file};
    }
    try {
      return read_shard_folder(folder, layout);
    } catch (const InvalidCheckpoint& error) {
      throw InvalidShards(error.what());
    }
  }

  DegreeCheck check_degree(int degree) const {
    DegreeCheck check;
    check.degree = degree;
    const Layout layout = table.instantiate(geometry(), degree);
    const ShardedTensors ours = split(checkpoint.logical, layout);
    check.written = folder_of(options.write_shards, degree);
    if (!check.written.empty()) write_shard_folder(check.written, layout, ours);
    check.shards = shards_of(degree);
    if (check.shards.empty()) {
      judge_logits(layout, ours, check);
      return check;
    }
    try {
      const ShardedTensors theirs = read_foreign(check.shards, layout);
      check.differences = differences_of(layout, ours, theirs);
      judge_logits(layout, theirs, check);
    } catch (const InvalidShards& error) {
      check.refused = error.what();
    }
    return check;
  }
};

Verifier::Verifier(VerifyOptions options) : state_(std::make_unique<State>(std::move(options))) {
  State& s = *state_;
  if (!s.options.golden.empty()) s.golden = load_golden(s.options.golden, s.geometry());
  s.choose_degrees();
  s.require_matching_shards();
  s.require_separate_output();
  s.choose_tokens();
  s.result.folder = s.options.folder;
  s.result.model_type = s.checkpoint.config.model_type;
  s.result.geometry = s.geometry();
  s.result.dtype = s.checkpoint.dtype;
  s.result.parameters = parameter_count(s.checkpoint.logical);
  s.result.layout = s.table.name();
  s.result.contract = contract_for(s.geometry());
  s.result.tokens = s.tokens.count();
}

Verifier::~Verifier() = default;

const Verification& Verifier::result() const { return state_->result; }
const std::optional<Golden>& Verifier::golden() const { return state_->golden; }
std::int64_t Verifier::max_positions() const { return state_->checkpoint.config.max_positions; }

void Verifier::check_golden() {
  State& s = *state_;
  if (!s.golden) return;
  s.prepare_reference();
  s.report("verify  golden logits and tokens");
  const std::int64_t positions = s.golden->logits.dim(0);
  const std::vector<std::int32_t>& tokens = s.golden->tokens;
  const Tensor logits = s.native_model->forward({1, positions, {tokens.begin(), tokens.begin() + positions}});
  const Comparison comparison = compare_logits(s.golden->logits, logits);
  GoldenCheck check;
  check.vacuous = comparison.vacuous;
  check.max_difference = comparison.max_abs;
  check.worst_position = comparison.worst_row;
  check.positions = positions;
  check.tokens = static_cast<std::int64_t>(tokens.size());
  const std::vector<std::int32_t> decoded = decode({tokens[0]}, check.tokens);
  check.tokens_reproduced =
      std::mismatch(tokens.begin(), tokens.end(), decoded.begin(), decoded.end()).first - tokens.begin();
  s.result.golden = check;
}

void Verifier::check_degrees() {
  State& s = *state_;
  s.prepare_reference();
  for (const int degree : s.degrees) {
    s.report(fmt::format("verify  tp{}", degree),
             static_cast<double>(s.result.degrees.size()) / static_cast<double>(s.degrees.size()));
    s.result.degrees.push_back(s.check_degree(degree));
  }
}

std::vector<std::int32_t> Verifier::decode(const std::vector<std::int32_t>& prompt,
                                           std::int64_t count) const {
  State& s = *state_;
  if (s.checkpoint.config.max_positions > 0 && count > s.checkpoint.config.max_positions)
    throw InvalidInput(fmt::format("{} tokens exceed the {} positions of the model", count,
                                   s.checkpoint.config.max_positions));
  s.prepare_reference();
  std::vector<std::int32_t>& known = s.decoded[prompt];
  if (static_cast<std::int64_t>(known.size()) < count)
    known = decode_greedily(*s.native_model, prompt, count);
  return {known.begin(), known.begin() + count};
}

}  // namespace shardcheck
