#include "kernels/x86/backend.h"

namespace fathom::x86 {

void X86Backend::index_scores(const IndexScoreArgs& args) {
    oracle_->index_scores(args);
}

std::int64_t X86Backend::select_top(std::span<const float> scores, std::int64_t k,
                                    std::span<std::int32_t> out) {
    return oracle_->select_top(scores, k, out);
}

std::int64_t X86Backend::select_blocks(std::span<const float> scores, std::int64_t block_size,
                                       std::int64_t k, std::span<std::int32_t> out) {
    return oracle_->select_blocks(scores, block_size, k, out);
}

}  // namespace fathom::x86
