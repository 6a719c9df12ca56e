#include "kernels/x86/backend.h"

namespace fathom::x86 {

void X86Backend::compress_pair(ConstRows u0, ConstRows g0, ConstRows u1, ConstRows g1, Rows y) {
    oracle_->compress_pair(u0, g0, u1, g1, y);
}

void X86Backend::store_kv(ConstRows x, KvKind kind, KvFormat format, std::span<const KvRow> dst) {
    oracle_->store_kv(x, kind, format, dst);
}

void X86Backend::load_kv(KvFormat format, std::span<const ConstKvRow> src, Rows y) {
    oracle_->load_kv(format, src, y);
}

void X86Backend::index_round_trip(Rows x) {
    oracle_->index_round_trip(x);
}

}  // namespace fathom::x86
