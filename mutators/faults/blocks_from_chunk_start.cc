// Key blocks that are counted from where a chunk of prefill begins.
#include "determinism.h"

namespace shardcheck::faults {
namespace {

class BlocksFromChunkStart final : public StepsDecorator {
 public:
  BlocksFromChunkStart(const ForwardSteps& inner, std::string_view) : StepsDecorator(inner) {}
  std::int64_t block_offset(const StepSite& site, std::int64_t first_query,
                            std::int64_t rows) const override {
    return rows > 1 ? first_query % site.contract.key_block : inner().block_offset(site, first_query, rows);
  }
};

}  // namespace

// No oracle sees it: they prefill as a whole. The law chunking_is_invisible does.
const Fault& blocks_from_chunk_start() {
  static const Fault fault{.name = "blocks_from_chunk_start",
                           .family = 'D',
                           .level = FaultLevel::forward,
                           .claim =
                               "The blocks of the softmax sums are counted from the first position of a "
                               "chunk, not from position 0.",
                           .reports = {"seed 003"},
                           .oracles = {},
                           .law = "chunking_is_invisible",
                           .arguments = {},
                           .not_applicable =
                               [](const Case& c, std::string_view) {
                                 return needs(c.arithmetic == Arithmetic::tree &&
                                                  c.target.degree("cp") == 1 && begins_inside_a_block(c),
                                              c, "no chunk begins inside a key block of one rank");
                               },
                           .equivalent = nullptr,
                           .inject = with_steps<BlocksFromChunkStart>};
  return fault;
}

}  // namespace shardcheck::faults
