#include "pool/testing/fault_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pool/embedded_store.h"
#include "pool/slot.h"
#include "pool/testing/content_oracle.h"
#include "pool/testing/memory_file_layer.h"
#include "pool/testing/store_calls.h"
#include "pool/testing/wait.h"

namespace fathom::testing {

namespace {

constexpr std::uint32_t kNumbers = 64;  // blocks of a namespace
constexpr std::uint64_t kNamespaces = 3;
constexpr std::int64_t kLivesPerDisk = 6, kStepsPerLife = 24;
constexpr std::array<std::int64_t, 3> kPayloads = {5'000, 20'000, 113'920};

class Disk {  // and all that is put on it
  public:
    Disk(std::uint64_t seed, FaultRunReport& report)
        : seed_(seed), random_(seed), disk_(seed), report_(report) {
        clock_.advance_us(1'750'000'000'000'000);
        payload_bytes_ = kPayloads[random_.next_below(kPayloads.size())];
    }

    void live() {
        ++report_.lives;
        reopen();
        if (store_ == nullptr) return;
        disk_.set_faults(mix_of_faults());
        const bool power_fails = random_.next_below(2) == 0;
        const auto last = static_cast<std::int64_t>(power_fails ? random_.next_below(kStepsPerLife)
                                                                : kStepsPerLife);
        for (std::int64_t step = 0; step < kStepsPerLife; ++step) {
            if (step == last) disk_.crash_after(static_cast<std::int64_t>(random_.next_below(60)));
            act();
        }
        disk_.hold_reads(false);
        store_->close(kNever);
        store_.reset();
        disk_.crash_after(-1);
        disk_.set_faults({});
        if (power_fails) {
            disk_.lose_power();
            ++report_.power_losses;
        }
        report_.faults += disk_.faults_done() - faults_counted_;
        faults_counted_ = disk_.faults_done();
    }

  private:
    EmbeddedOptions options() {
        EmbeddedOptions options;
        options.directory = "/pool";
        options.payload_bytes = payload_bytes_;
        options.capacity_bytes = 24 * kSegmentBytes;
        options.io_depth = 1 + static_cast<int>(random_.next_below(16));
        options.sync_every_put = random_.next_below(2) == 0;
        options.open_files_max = 2 + static_cast<int>(random_.next_below(16));
        options.clock = &clock_;
        options.metrics = &metrics_;
        options.files = disk_.layer(64);
        return options;
    }

    // First under faults, where it may be refused; then on a disk that works, where it may not.
    void reopen() {
        if (random_.next_below(4) == 0) {
            disk_.set_faults(mix_of_faults());
            auto opened = EmbeddedStore::open(options());
            if (opened.ok()) (*opened)->close(kNever);
            disk_.set_faults({});
        }
        disk_.set_capacity(std::int64_t{1} << 40);
        auto opened = EmbeddedStore::open(options());
        if (opened.ok()) {
            store_ = std::move(*opened);
            return;
        }
        ++report_.unopened;
        note(opened.status().to_string());
    }

    DiskFaults mix_of_faults() {
        DiskFaults faults;
        for (double* share :
             {&faults.read_flip, &faults.read_misdirected, &faults.read_stale, &faults.read_short,
              &faults.read_error, &faults.write_flip, &faults.write_torn, &faults.write_short,
              &faults.write_lost, &faults.write_misdirected, &faults.write_error, &faults.no_space,
              &faults.again, &faults.sync_error}) {
            const std::uint64_t kind = random_.next_below(40);
            if (kind == 0)
                *share = 0.5;
            else if (kind < 16)
                *share = 0.04 * random_.next_uniform();
        }
        return faults;
    }

    void act() {
        switch (random_.next_below(32)) {
            case 0:
                return random_.next_below(3) == 0 ? drop() : scrub();
            case 1:
                return scrub();
            case 2:
                return collect();
            case 3:
                return clock_.advance_us(static_cast<std::int64_t>(
                    random_.next_below(8) == 0 ? random_.next_below(90'000'000'000)
                                               : random_.next_below(1'000'000'000)));
            case 4:
                return meddle();
            case 5:
                return disk_.set_capacity(static_cast<std::int64_t>(2 + random_.next_below(30)) *
                                          kSegmentBytes);
            case 6:
            case 7:
            case 8:
            case 9:
            case 10:
            case 11:
            case 12:
                return put();
            case 13:
            case 14:
                return get(true);
            default:
                return get(false);
        }
    }

    BlockName some_name() {
        const std::uint64_t ns = random_.next_below(kNamespaces);
        return oracle_name(0, static_cast<std::uint32_t>(random_.next_below(kNumbers)), ns);
    }

    void put() {
        const std::uint64_t writer = ++writers_;
        std::vector<std::vector<std::uint8_t>> pages;
        std::vector<PutRequest> requests;
        for (std::uint64_t n = 1 + random_.next_below(40); n > 0; --n) {
            const BlockName name = some_name();
            pages.push_back(oracle_payload(name.key, writer, payload_bytes_));
            requests.push_back({.name = name, .page = pages.back().data()});
            put_by_[name.key.bytes].push_back(writer);
        }
        const PutOptions put_options{
            .traffic_class = static_cast<TrafficClass>(random_.next_below(kTrafficClasses)),
            .renew_before_ms = random_.next_below(3) == 0 ? std::int64_t{86'400'000} : 0};
        report_.puts += static_cast<std::int64_t>(requests.size());
        std::promise<PutResult> done;
        std::promise<void> released;
        (void)store_->put(std::move(requests), put_options, kNever,
                          {.done = [&](PutResult result) { done.set_value(std::move(result)); },
                           .released = [&] { released.set_value(); }});
        const PutResult result = await(done, "put", seed_);
        await(released, "release of a put", seed_);
        for (const PutOutcome outcome : result.blocks)
            report_.stored += outcome == PutOutcome::stored ? 1 : 0;
    }

    // `ended_early`: the disk does not answer until the call was cancelled or its time was up; the
    // pages are the store's until then.
    void get(bool ended_early) {
        std::vector<BlockName> names;
        std::vector<std::unique_ptr<AlignedPage>> pages;
        std::vector<GetRequest> requests;
        const bool whole_slot = random_.next_below(4) != 0;
        for (std::uint64_t n = 1 + random_.next_below(96); n > 0; --n) {
            names.push_back(some_name());
            pages.push_back(std::make_unique<AlignedPage>(payload_bytes_));
            requests.push_back(
                {.name = names.back(), .destination = {pages.back()->data(), whole_slot}});
        }
        std::promise<GetResult> done;
        std::promise<void> released;
        disk_.hold_reads(ended_early);
        const bool cancels = random_.next_below(2) == 0;
        const StoreOpPtr op =
            store_->get(std::move(requests),
                        ended_early && !cancels ? Deadline{clock_.now_us() + 1'000} : kNever,
                        {.done = [&](GetResult result) { done.set_value(std::move(result)); },
                         .released = [&] { released.set_value(); }});
        if (ended_early && cancels) op->cancel();
        if (ended_early && !cancels) clock_.advance_us(10'000);
        const GetResult result = await(done, "get", seed_);
        disk_.hold_reads(false);
        await(released, "release of a get", seed_);
        for (std::size_t i = 0; i < names.size(); ++i)
            judge(names[i], result.blocks[i], {pages[i]->data(), payload_size()});
    }

    void judge(const BlockName& name, GetStatus status, std::span<const std::uint8_t> payload) {
        ++report_.reads;
        report_.corrupt += status == GetStatus::corrupt ? 1 : 0;
        report_.late += status == GetStatus::timeout ? 1 : 0;
        report_.cancelled += status == GetStatus::cancelled ? 1 : 0;
        if (status != GetStatus::hit) return;
        ++report_.hits;
        const auto writer = payload_writer(name.key, payload);
        const std::vector<std::uint64_t>& may_be = put_by_[name.key.bytes];
        if (writer && std::find(may_be.begin(), may_be.end(), *writer) != may_be.end()) return;
        ++report_.wrong;
        note("a hit of bytes that nobody put under its name");
    }

    void drop() {
        std::promise<Status> done;
        (void)store_->drop_namespace(oracle_namespace(random_.next_below(kNamespaces)), kNever,
                                     [&](Status status) { done.set_value(std::move(status)); });
        (void)await(done, "drop", seed_);
    }
    void scrub() {
        std::promise<Status> done;
        (void)store_->scrub(
            kNever, [&](const ScrubReport&, Status status) { done.set_value(std::move(status)); });
        (void)await(done, "scrub", seed_);
    }
    void collect() {
        std::promise<Status> done;
        (void)store_->collect(kNever, [&](Status status) { done.set_value(std::move(status)); });
        (void)await(done, "collection", seed_);
    }

    // Somebody changes files behind the store's back.
    void meddle() {
        const std::vector<std::string> all = disk_.files();
        std::vector<std::string> segments;
        for (const std::string& path : all)
            if (path.ends_with(".seg")) segments.push_back(path);
        if (segments.empty()) return;
        const std::string& path = segments[random_.next_below(segments.size())];
        switch (random_.next_below(12)) {
            case 0:
                return disk_.remove(path);
            case 1:
                return disk_.truncate(path,
                                      static_cast<std::int64_t>(random_.next_below(kSegmentBytes)));
            case 2:
                return disk_.copy(path, segments[random_.next_below(segments.size())]);
            default:
                return disk_.flip(path,
                                  static_cast<std::int64_t>(random_.next_below(4'000'000)) * 8 + 3);
        }
    }

    std::size_t payload_size() const { return static_cast<std::size_t>(payload_bytes_); }
    void note(const std::string& what) {
        if (report_.first.empty()) report_.first = fmt::format("seed {}: {}", seed_, what);
    }

    const std::uint64_t seed_;
    RandomStream random_;
    MemoryDisk disk_;
    ManualClock clock_;
    MetricsRegistry metrics_;
    FaultRunReport& report_;
    std::int64_t payload_bytes_ = 0, faults_counted_ = 0;
    std::uint64_t writers_ = 0;
    std::map<Sha256Digest, std::vector<std::uint64_t>> put_by_;
    std::unique_ptr<EmbeddedStore> store_;
};

}  // namespace

FaultRunReport run_on_lying_disk(const FaultRunOptions& options) {
    FaultRunReport report;
    for (std::uint64_t round = 0; report.reads < options.reads; ++round) {
        Disk disk(options.seed + round, report);
        for (std::int64_t life = 0; life < kLivesPerDisk; ++life)
            disk.live();
        if (options.progress) {
            options.progress(std::min(
                1.0, static_cast<double>(report.reads) / static_cast<double>(options.reads)));
        }
    }
    return report;
}

}  // namespace fathom::testing
