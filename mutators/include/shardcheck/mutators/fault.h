// Faults: shape-preserving bugs, one file each under mutators/faults/. The file name is the fault's name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/case/subject.h"
#include "shardcheck/mutators/relabelling.h"
#include "shardcheck/tensor/stream.h"
#include "shardcheck/tolerance/workbench.h"

namespace shardcheck {

/// Letter of the family in the catalogue: F fused, A axis, R rank, G GQA, U uneven, X mesh, B bias and
/// reduction, N norm, V vocabulary, P position and pipeline, E experts, Q quantised, S sync and values, L
/// adapters, H state space and latent, C container, D determinism, K gradient, Z control.
using FaultFamily = char;
std::string_view family_name(FaultFamily family) noexcept;

/// Why `tree` is not asked about a relabelling.
inline constexpr std::string_view kTreeIsNotAsked =
    "a relabelling changes the order of sums, which tree fixes";

/// Where a fault acts.
enum class FaultLevel : std::uint8_t { plan, collective, forward, value, sync, container, gradient };
std::string_view to_string(FaultLevel level) noexcept;

struct Fault {
  std::string_view name;
  FaultFamily family = 'F';
  FaultLevel level = FaultLevel::plan;
  std::string_view claim;                   // what goes wrong, one present-tense sentence
  std::vector<std::string_view> reports;    // ids of public reports it stands for ("A5", "seed case 1")
  std::vector<Oracle> oracles;              // each of these must detect it
  std::string_view law = {};                // without oracles: the law that detects it
  std::vector<std::string_view> arguments;  // legal arguments, first is the default; empty: takes none

  /// Why the fault cannot act on this case ("one rank: the injection is the identity"), or nullopt.
  std::optional<std::string> (*not_applicable)(const Case& c, std::string_view argument) = nullptr;
  /// Why the faulty subject is right all the same on this case (structural witness), or nullopt.
  std::optional<std::string> (*equivalent)(const Case& c, std::string_view argument) = nullptr;
  /// The subject with the fault.
  std::shared_ptr<Subject> (*inject)(std::shared_ptr<Subject> inner, const Case& c,
                                     std::string_view argument) = nullptr;

  /// The permutation, carried through producers and consumers alike, by which the faulty subject computes the
  /// same function from other bytes on this case, or nullopt. It is confirmed by the bytes and by `exact`. A
  /// fault with neither oracles nor a law must have it: a control that is right though it looks wrong.
  std::optional<Relabelling> (*relabels)(const Case& c, std::string_view argument) = nullptr;

  /// Whether it acts on targets over other axes than tp too, for the levels plan, value and sync.
  bool meshes = false;
  /// Moves a drawn case toward those it acts on, for faults that few drawn cases suit: sets what it needs
  /// (a target over more ranks than KV heads, a remainder) and leaves the rest. The result may still be
  /// inapplicable.
  void (*steer)(Case& c, Stream& stream) = nullptr;
  /// In place of `inject`, for tensors that no forward pass here reads (families Q, L, H, K, C): which, and
  /// what each rank computes with where the engine has the fault. Judged by the layout oracle alone.
  EffectiveKind kind = EffectiveKind::none;
  ShardedTensors (*effective)(const Case& c, std::string_view argument) = nullptr;

  /// Whether the oracle must detect it: a declared one, and `exact` where `tree` is declared, but for family
  /// D, whose reduction orders do not exist under exact.
  bool expects(Oracle oracle) const;

  /// Whether it is no fault but a relabelling that no oracle of logits may flag.
  bool is_relabel_control() const;

  /// The case as this fault is judged on: about its kind of effective weights, else as it is.
  Case judged_on(Case c) const;

  /// Why the fault cannot act on this case, or nullopt: `not_applicable`; a case about other tensors than the
  /// fault's; and, but for `meshes`, faults of the plan, value and sync levels, which know how tensor
  /// parallelism cuts, do not touch targets over other axes.
  std::optional<std::string> why_inapplicable(const Case& c, std::string_view argument) const;
};

/// Every fault, sorted by name.
const std::vector<const Fault*>& all_faults();

/// A fault with its argument, from "NAME" or "NAME:ARGUMENT". Throws InvalidInput: unknown name (nearest
/// known one named), argument not allowed.
struct FaultChoice {
  const Fault* fault = nullptr;
  std::string argument;
  std::string text() const;  // "reverse_rank_order:o_proj"
};
FaultChoice parse_fault(std::string_view text);

/// A fault with each of its legal arguments, or once without one.
std::vector<FaultChoice> choices_of(const Fault& fault);
/// The choices of every fault, in the order of all_faults.
std::vector<FaultChoice> every_choice();

/// By family, then by text: the order of tables.
std::vector<FaultChoice> by_family(std::vector<FaultChoice> choices);

/// Whether a fault is one of delivered shards: not of the collective or forward level, nor one of tensors
/// that no forward pass reads.
bool acts_on_shards(const Fault& fault) noexcept;

/// Why the choice changes nothing on a case that it applies to (structural witness): `equivalent`, or the
/// relabelling of a fault that is no control; nullopt where it must be detected.
std::optional<std::string> why_equivalent(const FaultChoice& choice, const Case& c);

/// Whether the choice applies to the case and is not equivalent there.
bool acts_on(const FaultChoice& choice, const Case& c);

/// The drawn case if the choice acts on it, else moved by the fault's `steer`; about the fault's kind of
/// effective weights where it has one. A function of the fault, the case and `index`, the number of the draw.
Case suited_to(const FaultChoice& choice, Case drawn, std::uint64_t index);

/// "fault NAME cannot act here: REASON" where the case's fault is not applicable or equivalent, or relabels
/// what `tree` adds in order; nullopt where it acts, and without a fault. Throws InvalidInput as parse_fault
/// does.
std::optional<std::string> why_fault_is_inert(const Case& c);

/// The subject of a case: ours, or ours with the case's fault injected. Ours as well where the fault is not
/// applicable: ask why_fault_is_inert before taking a pass for evidence.
std::shared_ptr<Subject> subject_of(const Case& c);

}  // namespace shardcheck
