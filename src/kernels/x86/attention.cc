#include "kernels/x86/backend.h"

namespace fathom::x86 {

void X86Backend::sparse_attention(const AttentionArgs& args) {
    oracle_->sparse_attention(args);
}

}  // namespace fathom::x86
