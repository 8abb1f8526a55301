// The one generator layer: draw a case, shrink a case. GoogleTest, the program and the fuzz editor all draw
// through it; rc::Gen<Case> wraps these two functions.
#pragma once

#include <vector>

#include "shardcheck/case/case.h"
#include "shardcheck/tensor/stream.h"

namespace shardcheck {

struct DrawOptions {
  bool forward = true;     // the law runs a forward pass: keep it small enough for about a millisecond
  bool any_dtype = false;  // bf16 and f16 too; native models stay f32, whose threshold is measured
  bool allow_unrepresentable = false;  // degrees the geometry does not divide by
  bool three_layouts = false;          // draw `via` too
  bool meshes = false;  // models of every family, layouts of every table that knows them, over any axes
  Arithmetic arithmetic = Arithmetic::native;
  bool any_arithmetic = false;
  bool axis = false;          // an arithmetic that claims bits: tree, and exact in a share
  bool any_contract = false;  // tree shape, leaf, key block and exchange too
};

/// A random case with powered inputs: heads not a power of two in a good share, at least two KV groups with
/// at least two query heads in a good share, one square dimension in a share and distinct dimensions
/// otherwise, uneven vocabulary in a share, at least 32 tokens for forward laws, source and target degree any
/// ordered pair.
Case draw_case(Stream& stream, const DrawOptions& options);

/// The case that `meshes` asks for: a small model of a family (Llama, mixtures of experts, latent attention,
/// GPT-2, NeoX) and layouts of at most 8 ranks, axes in any order, all of them representable.
Case draw_mesh_case(Stream& stream, const DrawOptions& options);

/// What a case about a determinism axis must have; the other axes are there in a share of the cases.
struct AxisWish {
  bool tp = false, pp = false, cp = false, ep = false;  // more than one rank, where the model can be cut
  bool sequence_parallel = false;
  bool ragged = false;  // several sequences, of different lengths
  bool chunks = false;
};

/// A small model of any family that has a forward pass, target `seed` over at most 8 ranks along tp, pp, cp
/// and ep in any order, a batch of short sequences; tree, and exact in a share; f32, bf16 and f16.
Case draw_axis_case(Stream& stream, const AxisWish& wish);

/// Simpler cases, most drastic first: each differs from `c` in one field or one coupled group of fields moved
/// toward its default, parses back, and has layouts that are representable and runnable where those of `c`
/// are. Law, arithmetic and fault are kept. Finite: every candidate has a strictly smaller `case_size`.
std::vector<Case> shrink_case(const Case& c);
/// Measure that every shrink step lowers.
double case_size(const Case& c);

/// Labels the runner counts: "uneven", "kv_heads<heads", "heads_not_power_of_two", "square", "fused", "tied",
/// "rope", "qk_norm", "bias", "source!=target", "target_degree>1", "16_bit", ...
std::vector<std::string> labels_of(const Case& c);

}  // namespace shardcheck
