#include "kernels/x86/backend.h"

namespace fathom::x86 {

void X86Backend::engram_lookup(const EngramTable& table, std::span<const std::int64_t> ids,
                               std::int64_t ids_per_row, Rows y) {
    oracle_->engram_lookup(table, ids, ids_per_row, y);
}

void X86Backend::engram_gate(const EngramGateArgs& args) {
    oracle_->engram_gate(args);
}

}  // namespace fathom::x86
