#include "sim/fleet/fleet.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "sim/fleet/drain_side.h"
#include "sim/fleet/expert_side.h"
#include "sim/fleet/kv_model.h"
#include "sim/fleet/lifecycle.h"
#include "sim/fleet/request.h"
#include "sim/fleet/sample_interval.h"
#include "sim/fleet/slot_table.h"
#include "sim/fleet/traffics.h"
#include "sim/fleet/workload.h"

namespace fathom {
namespace {

constexpr SimTime kPollNs = 200'000'000;
constexpr SimTime kPlaceNs = 5'000'000;
// Of those that wait, in one tick; few while decode is full, since each looks at every rank.
constexpr std::size_t kPlaceMax = 4096, kPlaceWhenFull = 64;
constexpr std::size_t kPrefetch = 8;  // requests ahead
// Between two questions whether to go on: an event of a huge fleet may take a millisecond.
constexpr std::int64_t kEventsPerLook = 1024;
constexpr int kSamples = 240;
constexpr double kFirstOutputGuess = 400;  // until requests have ended

class Fleet : private PrefillSide::Host,
              private DecodeSide::Host,
              private DrainSide::Host,
              private Lifecycle::Host {
  public:
    Fleet(const FleetConfig& config, Traffics traffics, const std::function<bool()>& goes_on)
        : config_(config),
          workload_(std::move(traffics.open)),
          clients_(std::move(traffics.clients)),
          kv_(config,
              traffics.written_tokens_s() * static_cast<double>(config.network.token_bytes)),
          prefill_(config.prefill, config.seed, events_, *this, goes_on),
          decode_(config.decode, config.seed, events_, *this, goes_on),
          drains_(config, events_, prefill_, decode_, *this),
          lifecycle_(config, events_, *this),
          end_ns_(static_cast<SimTime>(config.duration_s * 1e9)),
          given_up_ns_(20 * end_ns_ + SimTime{24} * 3600 * 1'000'000'000),
          warmup_ns_(static_cast<SimTime>(config.warmup_s * 1e9)) {
        result_.config = config;
        if (config.experts.is_process)
            experts_ = std::make_unique<ExpertSide>(config, events_, prefill_, decode_);
        const WorkloadMeans& means = traffics.means;
        result_.rate = traffics.rate;
        for (std::int64_t e = 0; e < config.prefill.engines; ++e)
            engine_ports_.push_back(kv_.make_port(config.prefill.ranks));
        for (std::int64_t r = 0; r < config.decode_cards(); ++r)
            rank_ports_.push_back(kv_.make_port(1));
        for (std::size_t i = 0; i < kTrafficKinds; ++i) {
            outputs_[i].mean = means.output_tokens > 0 ? means.output_tokens : kFirstOutputGuess;
            outputs_[i].p90 =
                means.output_p90_tokens > 0 ? means.output_p90_tokens : 2.5 * outputs_[i].mean;
        }
    }

    Result<FleetResult> run(const FleetHooks& hooks) {
        if (hooks.progress && !hooks.progress(0, config_.duration_s)) return interrupted();
        FATHOM_RETURN_IF_ERROR(begin_arrivals());
        push(kPollNs, FleetEvent::prefill_poll);
        push(sample_ns(1), FleetEvent::sample);
        FATHOM_RETURN_IF_ERROR(lifecycle_.begin());
        SimEvent event;
        while (!is_over() && events_.pop(event)) {
            if (event.time_ns >= (config_.runs_out ? given_up_ns_ : end_ns_)) break;
            if (!has_warmed_up_ && event.time_ns >= warmup_ns_) begin_counting();
            hash_.add(static_cast<std::uint64_t>(event.time_ns) << 4 ^ event.kind);
            hash_.add(static_cast<std::uint64_t>(event.subject));
            prefetch_days();
            FATHOM_RETURN_IF_ERROR(handle(event));
            if (++result_.totals.events % kEventsPerLook == 0 && hooks.progress &&
                !hooks.progress(static_cast<double>(event.time_ns) / 1e9, config_.duration_s))
                return interrupted();
        }
        finish();
        return std::move(result_);
    }

  private:
    static Status interrupted() { return error(StatusCode::cancelled, "the run was interrupted"); }

    void push(SimTime time_ns, FleetEvent kind, std::size_t subject = 0, std::uint32_t detail = 0) {
        events_.push(time_ns, static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(subject),
                     detail);
    }
    SimTime now_ns() const { return events_.now_ns(); }
    SimTime sample_ns(int index) const { return end_ns_ / kSamples * index; }
    bool is_over() const {
        return config_.runs_out && !has_arrival_ && in_flight_ == 0 && calls_due_ == 0;
    }

    // What the events of a day need lies anywhere in memory; it is fetched while those of the day
    // before are handled, and what that points to when the day begins.
    void prefetch_days() {
        if (std::exchange(fetched_day_, events_.day()) == events_.day()) return;
        for (const SimEvent& event : events_.today()) {
            if (event.kind != static_cast<std::uint32_t>(FleetEvent::adopt)) continue;
            const Request& request = requests_[event.subject];
            if (request.leaves_rank < 0) prefill_.prefetch_rank(request.engine, request.rank);
        }
        for (const SimEvent& event : events_.next_day()) {
            if (event.kind == static_cast<std::uint32_t>(FleetEvent::adopt))
                requests_.prefetch(event.subject);
            else if (event.kind == static_cast<std::uint32_t>(FleetEvent::prefill_step))
                prefill_.prefetch(event.subject);
        }
    }

    Status handle(const SimEvent& event) {
        switch (static_cast<FleetEvent>(event.kind)) {
            case FleetEvent::arrival:
                return on_arrival();
            case FleetEvent::prefill_step:
                prefill_.on_step(event.subject, event.detail);
                return {};
            case FleetEvent::prefill_wake:
                prefill_.on_wake(event.subject, event.detail);
                return {};
            case FleetEvent::prefill_poll:
                on_poll();
                return {};
            case FleetEvent::decode_step:
                decode_.on_step(event.subject, event.detail);
                return {};
            case FleetEvent::place:
                place();
                return {};
            case FleetEvent::adopt:
                adopt(event.subject, event.detail);
                return {};
            case FleetEvent::sample:
                sample();
                return {};
            case FleetEvent::client:
                on_client(event.subject);
                return {};
            default:
                handle_unit(event);
                return {};
        }
    }

    void handle_unit(const SimEvent& event) {
        switch (static_cast<FleetEvent>(event.kind)) {
            case FleetEvent::break_down:
                lifecycle_.on_break(event.subject, event.detail);
                return;
            case FleetEvent::repair:
                lifecycle_.on_repair(event.subject, event.detail);
                return;
            case FleetEvent::started:
                lifecycle_.on_started(event.subject, event.detail);
                return;
            case FleetEvent::drain_begin:
                lifecycle_.on_drain_begin();
                return;
            case FleetEvent::drain_check:
                lifecycle_.on_drain_check(event.subject, event.detail);
                return;
            case FleetEvent::plan:
                lifecycle_.on_plan();
                return;
            default:
                experts_->on_event(event);
                return;
        }
    }

    // --- arrivals

    Status begin_arrivals() {
        if (!clients_) return fetch_arrival();
        for (std::size_t client = 0; client < clients_->size(); ++client)
            push_call(client, clients_->begin_ns(client));
        return {};
    }

    void push_call(std::size_t client, SimTime at_ns) {
        if (at_ns >= end_ns_) return;
        push(at_ns, FleetEvent::client, client);
        ++calls_due_;
    }

    void on_client(std::size_t client) {
        --calls_due_;
        const std::uint32_t slot = take_slot();
        clients_->call(client, now_ns(), requests_[slot].arrival);
        arrive(slot);
    }

    // A client that was refused comes again; its request counts anew.
    void refuse(std::uint32_t slot) {
        const std::int64_t client = requests_[slot].arrival.client;
        // Of a resumed one: what it generated before.
        abandoned_tokens_ += requests_[slot].output_tokens - requests_[slot].arrival.output_tokens;
        free_slot(slot);
        if (client < 0) return;
        ++result_.totals.retried;
        push_call(static_cast<std::size_t>(client), clients_->refused(now_ns()));
    }

    Status fetch_arrival() {
        auto more = workload_->next(next_);
        FATHOM_RETURN_IF_ERROR(more.status());
        has_arrival_ = *more && next_.time_ns < end_ns_;
        if (has_arrival_) push(std::max(next_.time_ns, now_ns()), FleetEvent::arrival);
        return {};
    }

    std::uint32_t take_slot() {
        std::uint32_t slot = 0;
        if (free_.empty()) {
            slot = static_cast<std::uint32_t>(requests_.size());
            requests_.add();
        } else {
            slot = free_.back();
            free_.pop_back();
        }
        Request& request = requests_[slot];
        const std::uint32_t attempt = request.attempt;
        static_cast<RequestState&>(request) = kNewRequest;  // its arrival is written next
        request.attempt = attempt + 1;  // never repeats: late events know who is meant
        request.in_use = true;
        request.serial = ++serial_;
        ++in_flight_;
        return slot;
    }
    void settle(Request& request) { owed_us_ -= std::exchange(request.owed_us, 0); }
    void free_slot(std::uint32_t slot) {
        settle(requests_[slot]);
        requests_[slot].in_use = false;
        free_.push_back(slot);
        --in_flight_;
    }
    std::uint64_t id_of(std::uint32_t slot) const { return requests_[slot].serial << 32 | slot; }
    static std::uint32_t slot_of(std::uint64_t id) { return static_cast<std::uint32_t>(id); }

    Status on_arrival() {
        const std::uint32_t slot = take_slot();
        std::swap(requests_[slot].arrival, next_);
        requests_[slot].arrival.time_ns = now_ns();
        arrive(slot);
        return fetch_arrival();
    }

    void arrive(std::uint32_t slot) {
        Request& request = requests_[slot];
        request.arrived_ns = now_ns();
        request.is_counted = has_warmed_up_;
        request.first_input_tokens = request.arrival.input_tokens;
        request.output_tokens = request.arrival.output_tokens;
        ++result_.totals.arrived;
        if (request.is_counted) ++result_.counted.arrived;
        admit(slot);
    }

    void admit(std::uint32_t slot) {
        Request& request = requests_[slot];
        PoolHit hit = kv_.look_up(request.arrival);
        if (request.is_resumed) hit.is_window_found = false;  // it was where it decoded
        request.hit_tokens = hit.tokens;
        request.work = prefill_work(request.arrival.input_tokens, hit.tokens, hit.is_window_found);
        const PrefillAdmission admission =
            prefill_.admit({.id = id_of(slot),
                            .total_tokens = request.arrival.input_tokens,
                            .hit_tokens = hit.tokens,
                            .is_window_found = hit.is_window_found,
                            .deadline_us = now_ns() / 1000});
        // An idle engine may have taken it already, but it is not done before time passes.
        if (!admission.is_accepted) {
            ++result_.totals.rejected;
            if (request.is_counted) ++result_.counted.rejected;
            refuse(slot);
            return;
        }
        request.owed_us =
            config_.prefill.policy.costs[prefill_class(request.arrival.input_tokens)].request_us(
                request.work.context, request.work.tokens, true);
        admitted_us_ += request.owed_us;
        owed_us_ += request.owed_us;
        count_admitted(request, hit, result_.totals);
        if (request.is_counted) count_admitted(request, hit, result_.counted);
        if (admission.shed_id) close(*admission.shed_id);
    }

    void close(std::uint64_t id) {
        const Request& request = requests_[slot_of(id)];
        ++result_.totals.closed;
        closed_tokens_ += request.work.tokens;
        if (request.is_counted) ++result_.counted.closed;
        refuse(slot_of(id));
    }

    void on_poll() {
        closed_.clear();
        prefill_.on_poll(&closed_);
        for (const std::uint64_t id : closed_)
            close(id);
        push(now_ns() + kPollNs, FleetEvent::prefill_poll);
    }

    // --- prefill

    SimTime load_kv(const PrefillGrant& grant) override {
        const Request& request = requests_[slot_of(grant.id)];
        result_.totals.pool_read_bytes += kv_.kv_bytes(request.work.context);
        if (has_warmed_up_) result_.counted.pool_read_bytes += kv_.kv_bytes(request.work.context);
        return kv_.read(now_ns(), request.work.context, engine_ports_[grant.engine]);
    }
    void prefetch(std::uint64_t id) const override { requests_.prefetch(slot_of(id)); }
    bool is_redone(std::uint64_t id) const override { return requests_[slot_of(id)].is_redone; }
    void granted(const PrefillGrant& grant) override {
        Request& request = requests_[slot_of(grant.id)];
        if (!std::exchange(request.is_granted, true)) request.granted_ns = now_ns();
        if (grant.attempt > 1 && !std::exchange(request.is_unspoilt, false))
            request.is_redone = true;
    }

    void prefilled(std::uint64_t id, std::size_t engine, std::size_t rank,
                   std::int64_t blocks) override {
        const std::uint32_t slot = slot_of(id);
        Request& request = requests_[slot];
        request.engine = static_cast<std::uint32_t>(engine);
        request.rank = static_cast<std::uint32_t>(rank);
        request.blocks = blocks;
        settle(request);
        if (request.is_resumed) count_gap(request);
        if (!request.has_first_token) {
            request.has_first_token = true;
            request.first_token_ns = now_ns();
            if (request.is_counted) count_first_token(request);
        }
        if (request.arrival.output_tokens <= 1) {
            release_prompt(request);
            finish_request(slot);
            return;
        }
        to_place_.push_back(slot);
        schedule_place();
    }

    void release_prompt(Request& request) {
        prefill_.release(request.engine, request.rank, std::exchange(request.blocks, 0));
    }

    void count_gap(Request& request) {
        request.is_resumed = false;
        result_.gap_ms.add(static_cast<double>(now_ns() - request.left_ns) / 1e6);
        const std::int64_t tail = request.arrival.input_tokens - request.hit_tokens;
        result_.replays_beyond_block += request.work.tokens > tail + 128 ? 1 : 0;
        result_.recomputed_tokens_max =
            std::max(result_.recomputed_tokens_max, request.work.tokens);
    }

    void count_first_token(const Request& request) {
        const double ttft_ms =
            static_cast<double>(request.first_token_ns - request.arrived_ns) / 1e6;
        const double queue_ms = static_cast<double>(request.granted_ns - request.arrived_ns) / 1e6;
        for (RequestFigures* figures : figures_of(request)) {
            figures->ttft_ms.add(ttft_ms);
            figures->queue_ms.add(queue_ms);
        }
        interval_.ttft_ms.add(ttft_ms);
    }

    std::array<RequestFigures*, 3> figures_of(const Request& request) {
        return {&result_.by_class[prefill_class(request.first_input_tokens)],
                &result_.by_traffic[static_cast<std::size_t>(request.arrival.traffic)],
                &result_.all};
    }

    // --- decode

    void schedule_place() {
        if (std::exchange(is_place_due_, true)) return;
        push((now_ns() / kPlaceNs + 1) * kPlaceNs, FleetEvent::place);
    }

    void place() {
        is_place_due_ = false;
        batch_.clear();
        const std::size_t most = is_decode_full_ ? kPlaceWhenFull : kPlaceMax;
        is_decode_full_ = false;
        const std::size_t count = std::min(to_place_.size(), most);
        for (std::size_t i = 0; i < count; ++i) {
            if (i + kPrefetch < count) requests_.prefetch(to_place_[i + kPrefetch]);
            const Request& request = requests_[to_place_[i]];
            const OutputGuess& guess = outputs_[static_cast<std::size_t>(request.arrival.traffic)];
            batch_.push_back({.id = to_place_[i],
                              .context_tokens = request.arrival.input_tokens,
                              .output_tokens = std::llround(guess.mean),
                              .output_p90_tokens = std::llround(guess.p90)});
        }
        placements_.clear();
        decode_.place(batch_, &placements_);
        for (std::size_t i = 0; i < placements_.size(); ++i) {
            const DecodePlacement& placement = placements_[i];
            if (i + kPrefetch < placements_.size()) decode_.prefetch(placements_[i + kPrefetch]);
            Request& request = requests_[placement.id];
            request.is_placed = placement.rank >= 0;
            if (request.is_placed)
                hand_over(static_cast<std::uint32_t>(placement.id), placement);
            else
                is_decode_full_ = true;
        }
        std::size_t kept = 0;
        for (std::size_t i = 0; i < to_place_.size(); ++i)
            if (i >= batch_.size() || !requests_[to_place_[i]].is_placed)
                to_place_[kept++] = to_place_[i];
        to_place_.resize(kept);
        if (!to_place_.empty()) schedule_place();
    }

    void hand_over(std::uint32_t slot, const DecodePlacement& placement) {
        Request& request = requests_[slot];
        const Arrival& arrival = request.arrival;
        request.seat.group = static_cast<std::uint32_t>(placement.group);
        request.seat.rank = static_cast<std::uint32_t>(placement.rank);
        const OutputGuess& guess = outputs_[static_cast<std::size_t>(arrival.traffic)];
        request.entry = {.slot = slot,
                         .context_tokens = static_cast<std::int32_t>(arrival.input_tokens),
                         .left_tokens = static_cast<std::int32_t>(arrival.output_tokens - 1),
                         .growth_tokens = static_cast<std::int32_t>(std::lround(guess.p90))};
        decode_.promise(request.seat, request.entry);
        request.group_epoch = decode_.epoch(request.seat.group);
        const std::size_t left_group = group_of_rank(request.leaves_rank);
        const std::int64_t ahead =
            request.leaves_rank >= 0 ? drains_.copied_tokens(left_group, slot) : 0;
        const std::int64_t bytes =
            kv_.kv_bytes(arrival.input_tokens - ahead) + config_.network.bundle_bytes;
        result_.totals.handoff_bytes += bytes;
        if (request.is_counted) result_.counted.handoff_bytes += bytes;
        Link& port = rank_ports_[std::size_t{request.seat.group} *
                                     static_cast<std::size_t>(config_.decode.ranks) +
                                 request.seat.rank];
        Link& from = request.leaves_rank >= 0
                         ? rank_ports_[static_cast<std::size_t>(request.leaves_rank)]
                         : engine_ports_[request.engine];
        SimTime there_ns = std::max(port.pass(now_ns(), bytes), from.pass(now_ns(), bytes));
        if (ahead > 0) there_ns = std::max(there_ns, kv_.read(now_ns(), ahead, port));
        push(there_ns + kv_.latency_ns(), FleetEvent::adopt, slot, request.attempt);
    }

    void adopt(std::uint32_t slot, std::uint32_t attempt) {
        Request& request = requests_[slot];
        if (!request.in_use || request.attempt != attempt) return;
        const bool is_gone = decode_.epoch(request.seat.group) != request.group_epoch;
        if (request.leaves_rank >= 0) {
            const std::size_t group = group_of_rank(request.leaves_rank);
            if (is_gone && drains_.refused(group, slot)) return;  // its drain says what then
            if (!is_gone && drains_.adopted(group, slot)) count_moved(request);
        } else {
            release_prompt(request);
        }
        if (is_gone) {
            request.left_ns = now_ns();
            resume(slot, 0);
            return;
        }
        request.leaves_rank = -1;
        decode_.adopt(request.seat, slot);
    }

    void count_moved(const Request& request) {
        result_.move_ms.add(static_cast<double>(now_ns() - request.left_ns) / 1e6);
        ++result_.totals.moved;
        if (request.is_counted) ++result_.counted.moved;
    }
    std::size_t group_of_rank(std::int64_t rank) const {
        return static_cast<std::size_t>(rank / config_.decode.ranks);
    }

    DecodeEntry& entry_of(std::uint32_t slot) override { return requests_[slot].entry; }
    void prefetch(std::uint32_t slot) const override { requests_.prefetch(slot); }
    void decoded(std::uint32_t slot) override { finish_request(slot); }
    void lost(std::uint32_t slot, std::int64_t generated) override {
        requests_[slot].left_ns = now_ns();
        resume(slot, generated);
    }
    void stayed(std::uint32_t slot, std::size_t group) override { drains_.stayed(group, slot); }

    void moved(std::uint32_t slot, std::int64_t generated) override {
        Request& request = requests_[slot];
        (void)drains_.stopped(request.seat.group, slot);
        request.is_short_draining = false;
        request.arrival.input_tokens += generated;
        request.arrival.output_tokens -= generated;
        request.leaves_rank = static_cast<std::int32_t>(
            static_cast<std::int64_t>(request.seat.group) * config_.decode.ranks +
            static_cast<std::int64_t>(request.seat.rank));
        request.left_ns = now_ns();
        ++request.attempt;
        request.is_placed = false;
        to_place_.push_back(slot);
        schedule_place();
    }

    SimTime copy_ahead(std::uint32_t slot, std::int64_t tokens) override {
        const DecodeSeat& seat = requests_[slot].seat;
        Link& port =
            rank_ports_[std::size_t{seat.group} * static_cast<std::size_t>(config_.decode.ranks) +
                        seat.rank];
        return port.pass(now_ns(), kv_.kv_bytes(tokens)) + kv_.latency_ns();
    }
    // Its place elsewhere, if it has one, is free again.
    void resume_moving(std::uint32_t slot) override {
        const Request& request = requests_[slot];
        if (!request.is_placed)
            std::erase(to_place_, slot);
        else if (decode_.epoch(request.seat.group) == request.group_epoch)
            decode_.withdraw(request.seat, request.entry);
        resume(slot, 0);
    }
    void handed_back(std::uint64_t id, std::int64_t left_tokens) override {
        Request& request = requests_[slot_of(id)];
        request.is_granted = false;
        request.is_unspoilt = left_tokens == request.work.tokens;
        spoilt_tokens_ += request.work.tokens - left_tokens;
    }
    void drop_finished(std::size_t engine) override {
        for (std::uint32_t slot = 0; slot < requests_.size(); ++slot) {
            Request& request = requests_[slot];
            if (!request.in_use || request.blocks == 0 || request.engine != engine) continue;
            request.left_ns = now_ns();
            release_prompt(request);
            resume_moving(slot);
        }
    }

    // What was generated becomes part of the prompt; the pool has whole blocks of it.
    void resume(std::uint32_t slot, std::int64_t generated) {
        Request& request = requests_[slot];
        Arrival& arrival = request.arrival;
        ++result_.totals.resumed;
        if (request.is_counted) ++result_.counted.resumed;
        settle(request);
        request.is_short_draining = request.is_granted = false;
        request.is_resumed = true;
        request.leaves_rank = -1;
        arrival.time_ns = now_ns();
        if (arrival.block_tokens == 0) {
            arrival.gap_us = 0;
            arrival.reusable_tokens = arrival.input_tokens + generated;
            arrival.answer_tokens = generated;
        }
        arrival.input_tokens += generated + 1;  // the first token came from prefill
        arrival.output_tokens = std::max<std::int64_t>(1, arrival.output_tokens - generated - 1);
        request.serial = ++serial_;
        ++request.attempt;
        request.is_redone = true;
        admit(slot);
    }

    void finish_request(std::uint32_t slot) {
        Request& request = requests_[slot];
        const std::int64_t written = kv_.store(request.arrival, now_ns(), request.hit_tokens);
        ++result_.totals.finished;
        if (request.is_short_draining) ++result_.totals.short_chats_ended;
        result_.totals.output_tokens += request.output_tokens;
        result_.totals.pool_written_bytes += written;
        outputs_[static_cast<std::size_t>(request.arrival.traffic)].learn(request.output_tokens);
        if (has_warmed_up_) {
            result_.served.input_tokens += request.first_input_tokens;
            result_.served.hit_tokens += std::min(request.hit_tokens, request.first_input_tokens);
            result_.served.output_tokens += request.output_tokens;
            result_.counted.pool_written_bytes += written;
        }
        if (request.is_counted) {
            ++result_.counted.finished;
            result_.counted.output_tokens += request.output_tokens;
            for (RequestFigures* figures : figures_of(request))
                count_finished(request, now_ns(), config_.slo, *figures);
        }
        interval_.output_tokens += request.output_tokens;
        const std::int64_t client = request.arrival.client;
        free_slot(slot);
        if (client >= 0)
            push_call(static_cast<std::size_t>(client),
                      clients_->answered(static_cast<std::size_t>(client), now_ns()));
    }

    // --- units that come and go

    bool is_engine(std::size_t unit) const {
        return unit < static_cast<std::size_t>(config_.prefill.engines);
    }
    std::size_t group_of(std::size_t unit) const {
        return unit - static_cast<std::size_t>(config_.prefill.engines);
    }
    void unit_off(std::size_t unit) override { unit_stops(unit); }
    void unit_stops(std::size_t unit) override {
        is_engine(unit) ? prefill_.stop(unit) : decode_.stop(group_of(unit));
    }
    void unit_starting(std::size_t unit) override {
        is_engine(unit) ? prefill_.prepare(unit) : decode_.prepare(group_of(unit));
    }
    void unit_ready(std::size_t unit) override {
        is_engine(unit) ? prefill_.start(unit) : decode_.start(group_of(unit));
    }
    double drain_wait_s(std::size_t unit) override {
        return drains_.tick(unit) ? -1 : drains_.wait_s(unit);
    }
    bool unit_drains(std::size_t unit) override {
        if (!drains_.begin(unit)) return false;
        if (is_engine(unit)) return true;
        for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
            Request& request = requests_[slot];
            const bool is_there = request.in_use && request.is_placed &&
                                  request.seat.group == group_of(unit) &&
                                  request.arrival.traffic == Traffic::chat &&
                                  request.output_tokens <= kShortOutputTokens;
            if (!is_there || std::exchange(request.is_short_draining, true)) continue;
            ++result_.totals.short_chats;
        }
        return true;
    }
    void unit_breaks(std::size_t unit) override {
        is_engine(unit) ? prefill_.break_down(unit) : decode_.break_down(group_of(unit));
        drains_.broke(unit);
    }
    ScalingSignals scaling_signals() const override {
        return {.admitted_us = admitted_us_,
                .owed_us = std::max(0.0, owed_us_),
                .prefill_ns = prefill_.step_ns(),
                .decoding = decode_.sequences() + static_cast<std::int64_t>(to_place_.size()),
                .hit_tokens = result_.totals.hit_tokens,
                .input_tokens = result_.totals.input_tokens};
    }

    // --- figures

    void begin_counting() {
        has_warmed_up_ = true;
        prefill_.count_from(now_ns());
        decode_.count_from(now_ns());
        counted_from_ns_ = now_ns();
        decode_rank_us_ = decode_.rank_us();
        decode_max_us_ = decode_.max_us();
        sequence_steps_ = decode_.sequence_steps();
        rank_steps_ = decode_.rank_steps();
        if (experts_) experts_->count_from_here();
    }

    void sample() {
        FleetSample sample = interval_.close({.now_ns = now_ns(),
                                              .prefill_step_ns = prefill_.step_ns(),
                                              .decode_step_ns = decode_.step_ns(),
                                              .input_tokens = result_.totals.input_tokens,
                                              .hit_tokens = result_.totals.hit_tokens},
                                             config_.prefill_cards(), config_.decode_cards());
        sample.waiting = prefill_.waiting();
        sample.decoding = decode_.sequences();
        sample.in_flight = in_flight_;
        sample.prefill_ready = lifecycle_.ready(FleetRole::prefill);
        sample.decode_ready = lifecycle_.ready(FleetRole::decode);
        if (experts_) experts_->add_to(sample);
        if (decode_.drafts()) decode_.drafts()->add_to(sample);
        result_.series.push_back(sample);
        if (now_ns() < end_ns_) push(now_ns() + sample_ns(1), FleetEvent::sample);
    }

    void finish() {
        prefill_.close_spans();
        decode_.close_spans();
        FleetTotals& totals = result_.totals;
        totals.in_flight = in_flight_;
        totals.prefill_steps = prefill_.steps();
        totals.decode_steps = decode_.steps();
        totals.redone_tokens = prefill_.redone_tokens();
        if (has_warmed_up_)
            result_.measured_s = static_cast<double>(now_ns() - counted_from_ns_) / 1e9;
        result_.prefill = prefill_.ledger();
        result_.decode = decode_.ledger();
        result_.counted.decode_rank_us = decode_.rank_us() - decode_rank_us_;
        result_.counted.decode_max_us = decode_.max_us() - decode_max_us_;
        result_.counted.decode_sequence_steps = decode_.sequence_steps() - sequence_steps_;
        result_.counted.decode_rank_steps = decode_.rank_steps() - rank_steps_;
        result_.prefill_decisions = prefill_.decision_hash();
        decode_.finish(result_);
        result_.fleet_decisions = lifecycle_.decision_hash();
        if (drains_.has_drained())
            result_.fleet_decisions =
                Digest().add(result_.fleet_decisions).add(drains_.decision_hash()).value();
        result_.drains = drains_.figures();
        result_.scaling = lifecycle_.figures();
        // In the time in which requests arrive, however early or late the last one ends.
        if (result_.rate == 0)
            result_.rate = static_cast<double>(totals.arrived) / config_.duration_s;
        hash_.add(result_.prefill_decisions).add(result_.decode_decisions);
        hash_.add(result_.fleet_decisions);
        if (experts_) hash_.add(experts_->finish(result_));
        hash_.add(totals.events).add(totals.finished).add(totals.output_tokens);
        result_.hash = hash_.value();
        check_conservation();
    }

    void check_conservation() {
        const FleetTotals& totals = result_.totals;
        const auto expect = [&](const char* what, std::int64_t got, std::int64_t wanted) {
            if (got != wanted)
                result_.violations.push_back(
                    fmt::format("{}: {} and {} should be equal", what, got, wanted));
        };
        expect("requests arrived, and rejected + closed + finished + in flight", totals.arrived,
               totals.rejected + totals.closed + totals.finished + totals.in_flight);
        expect("card-time of prefill, and the sum of its parts", result_.prefill.total_ns,
               result_.prefill.sum_ns());
        expect("card-time of decode, and the sum of its parts", result_.decode.total_ns,
               result_.decode.sum_ns());
        if (config_.failures.card_mtbf_h <= 0 &&
            (config_.failures.at_s <= 0 || config_.failures.engines == 0)) {
            std::int64_t queued = 0;
            for (std::size_t slot = 0; slot < requests_.size(); ++slot) {
                const Request& request = requests_[slot];
                if (request.in_use && !request.is_granted) queued += request.work.tokens;
            }
            expect("tokens to compute, and computed + granted + queued + closed",
                   totals.computed_tokens,
                   prefill_.computed_tokens() + prefill_.pending_tokens() + queued +
                       closed_tokens_ - spoilt_tokens_);
        }
        if (totals.in_flight == 0) {
            expect("blocks in use on prefill engines when nothing is in flight, and none",
                   prefill_.used_blocks(), 0);
            expect("blocks in use on decode ranks when nothing is in flight, and none",
                   decode_.used_blocks(), 0);
            expect("output tokens, and those of prefill + decode",
                   totals.output_tokens + abandoned_tokens_,
                   decode_.generated_tokens() + totals.finished + resumed_first_tokens());
        }
    }
    // Every resumption makes one more first token at prefill.
    std::int64_t resumed_first_tokens() const { return result_.totals.resumed; }

    FleetConfig config_;
    EventQueue events_;
    std::unique_ptr<Workload> workload_;
    std::unique_ptr<Clients> clients_;
    KvModel kv_;
    PrefillSide prefill_;
    DecodeSide decode_;
    DrainSide drains_;
    Lifecycle lifecycle_;
    std::unique_ptr<ExpertSide> experts_;  // null without a process of experts
    std::vector<Link> engine_ports_, rank_ports_;
    SimTime end_ns_, given_up_ns_, warmup_ns_;
    SimTime counted_from_ns_ = 0;
    std::int64_t fetched_day_ = -1;
    bool is_decode_full_ = false;
    bool has_warmed_up_ = false, has_arrival_ = false, is_place_due_ = false;
    Arrival next_;
    SlotTable<Request> requests_;
    std::vector<std::uint32_t> free_, to_place_;
    std::uint64_t serial_ = 0;
    std::int64_t in_flight_ = 0, closed_tokens_ = 0, calls_due_ = 0;
    std::int64_t spoilt_tokens_ = 0;        // computed by engines that then drained
    std::int64_t abandoned_tokens_ = 0;     // generated for requests that were refused later
    double admitted_us_ = 0, owed_us_ = 0;  // card-time
    std::array<OutputGuess, kTrafficKinds> outputs_;
    std::vector<DecodeRequest> batch_;
    std::vector<DecodePlacement> placements_;
    std::vector<std::uint64_t> closed_;
    SampleInterval interval_;
    double decode_rank_us_ = 0, decode_max_us_ = 0, sequence_steps_ = 0, rank_steps_ = 0;
    Digest hash_;
    FleetResult result_;
};

}  // namespace

Result<FleetResult> run_fleet(const FleetConfig& config, const FleetHooks& hooks) {
    FATHOM_RETURN_IF_ERROR(check_fleet(config));
    FATHOM_ASSIGN(Traffics traffics, open_traffics(config));
    const auto goes_on = [&] { return !hooks.progress || hooks.progress(0, config.duration_s); };
    const auto fleet = std::make_unique<Fleet>(config, std::move(traffics), goes_on);
    return fleet->run(hooks);
}

}  // namespace fathom
