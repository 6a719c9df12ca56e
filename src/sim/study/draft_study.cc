#include "sim/study/draft_study.h"

#include <algorithm>

#include "base/check.h"
#include "sim/event_queue.h"
#include "sim/fleet/decode_side.h"
#include "sim/fleet/fleet_event.h"

namespace fathom {
namespace {

constexpr double kTokensMax = 1 << 20;

class Run : DecodeSide::Host {
  public:
    explicit Run(const DraftStudy& study)
        : study_(study),
          decode_(config_of(study), study.seed, events_, *this, [] { return true; }) {
        for (std::size_t r = 0; r < study.sequences.size(); ++r)
            for (std::int64_t i = 0; i < study.sequences[r]; ++i)
                seats_.push_back({0, static_cast<std::uint32_t>(r)});
        entries_.resize(seats_.size());
        for (std::uint32_t slot = 0; slot < seats_.size(); ++slot) {
            lengths_.emplace_back(study.seed, slot, SimPurpose::session);
            begin(slot);
        }
    }

    DraftStudyResult run() {
        step(study_.warmup_steps);
        decode_.drafts()->count_from_here();
        const SimTime begin_ns = events_.now_ns();
        step(study_.steps);
        const double seconds = static_cast<double>(events_.now_ns() - begin_ns) / 1e9;
        const DraftFigures& figures = decode_.drafts()->counted();
        return {.tokens_s = seconds > 0 ? static_cast<double>(figures.tokens) / seconds : 0,
                .figures = figures,
                .decisions = decode_.drafts()->decision_hash()};
    }

  private:
    static DecodeSideConfig config_of(const DraftStudy& study) {
        DecodeSideConfig config = study.decode;
        config.groups = 1;
        config.ranks = static_cast<std::int64_t>(study.sequences.size());
        config.sequences_max =
            std::max<std::int64_t>(1, *std::ranges::max_element(study.sequences));
        return config;
    }

    void step(std::int64_t steps) {
        for (SimEvent event; steps > 0 && events_.pop(event); --steps)
            decode_.on_step(event.subject, event.detail);
    }

    void begin(std::uint32_t slot) {
        const auto draw = [&](double median, double sigma) {
            const double tokens = lengths_[slot].log_normal(median, sigma);
            return static_cast<std::int32_t>(std::clamp(tokens, 1.0, kTokensMax));
        };
        entries_[slot] = {.slot = slot,
                          .context_tokens = draw(study_.context_tokens, study_.context_sigma),
                          .left_tokens = draw(study_.output_tokens, study_.output_sigma)};
        decode_.promise(seats_[slot], entries_[slot]);
        decode_.adopt(seats_[slot], slot);
    }

    DecodeEntry& entry_of(std::uint32_t slot) override { return entries_[slot]; }
    void prefetch(std::uint32_t) const override {}
    void decoded(std::uint32_t slot) override { begin(slot); }
    // The group neither breaks down nor drains.
    void lost(std::uint32_t, std::int64_t) override {}
    void moved(std::uint32_t, std::int64_t) override {}
    void stayed(std::uint32_t, std::size_t) override {}

    DraftStudy study_;
    EventQueue events_;
    DecodeSide decode_;
    std::vector<DecodeSeat> seats_;  // by slot, as the next ones
    std::vector<DecodeEntry> entries_;
    std::vector<SimRandom> lengths_;
};

}  // namespace

DraftStudyResult run_draft_study(const DraftStudy& study) {
    FATHOM_CHECK(!study.sequences.empty() && study.decode.drafts.is_modelled());
    return Run(study).run();
}

double draft_gain(const DraftStudy& study) {
    DraftStudy all = study;
    all.decode.drafts.verification = Verification::all;
    const double tokens_s = run_draft_study(all).tokens_s;
    return tokens_s > 0 ? run_draft_study(study).tokens_s / tokens_s - 1 : 0;
}

}  // namespace fathom
