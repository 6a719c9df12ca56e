// Bytes that change under the devices of a real cluster (kvpool.md 11.2): BlueStore on files, whose
// blocks are damaged behind its back, scrubbed and repaired. Every read is right meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "pool/rados_names.h"
#include "pool/testing/store_conformance.h"
#include "rados_raw.h"
#include "rados_rig.h"

namespace fathom::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);  // its helpers are used here

namespace {

constexpr std::int64_t kPayload = 113'920;
constexpr std::size_t kShardBytes = 28'672;
constexpr std::int64_t kRepairUs = 300'000'000;

Deadline soon() {
    return {real_clock().now_us() + kWaitUs};
}

// Flips a byte wherever a page of the file is this one; how often.
int flip_page(const std::string& path, const std::vector<char>& page) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_GE(fd, 0) << path;
    int flipped = 0;
    std::vector<char> piece(std::size_t{1} << 22);
    // Of a sparse file only what holds data.
    for (off_t at = ::lseek(fd, 0, SEEK_DATA); at >= 0; at = ::lseek(fd, at, SEEK_DATA)) {
        at -= at % static_cast<off_t>(page.size());
        const ssize_t got = ::pread(fd, piece.data(), piece.size(), at);
        if (got <= 0) break;
        for (std::size_t i = 0; i + page.size() <= static_cast<std::size_t>(got);
             i += page.size()) {
            if (std::memcmp(piece.data() + i, page.data(), page.size()) != 0) continue;
            const char other = static_cast<char>(page[100] ^ 8);
            EXPECT_EQ(::pwrite(fd, &other, 1, at + static_cast<off_t>(i) + 100), 1);
            ++flipped;
        }
        at += got;
    }
    ::close(fd);
    return flipped;
}

class RadosNightly : public ::testing::Test {
  protected:
    static CephCluster& cluster() { return *shared_cluster(); }

    void expect_all(const std::vector<BlockName>& names) {
        const ReadPages pages(names, kPayload);
        const Call<GetResult> call = start_get(*store_, pages.requests(), soon());
        call.wait_released();
        for (std::size_t i = 0; i < names.size(); ++i) {
            EXPECT_EQ(get_status_name(call.wait().blocks[i]), "hit") << i;
            EXPECT_EQ(payload_writer(names[i].key, pages.pages[i].payload()), std::uint64_t{1})
                << i;
        }
    }
    std::size_t inconsistent_groups() const {
        const std::string listed = cluster().rados({"list-inconsistent-pg", CephCluster::kPool});
        return static_cast<std::size_t>(std::count(listed.begin(), listed.end(), '.'));
    }
    static std::vector<std::string> groups() {
        std::vector<std::string> all;
        const std::string listed = cluster().ceph({"pg", "ls-by-pool", CephCluster::kPool});
        for (std::size_t at = 0; at < listed.size(); at = listed.find('\n', at) + 1) {
            const std::string word = listed.substr(at, listed.find_first_of(" \n", at) - at);
            if (word.find('.') != std::string::npos && std::isdigit(word[0]) != 0)
                all.push_back(word);
            if (listed.find('\n', at) == std::string::npos) break;
        }
        return all;
    }
    // Does it to every group again and again until it has come to pass.
    bool until(const std::string& what, const std::function<bool()>& done) {
        const std::int64_t end_us = real_clock().now_us() + kRepairUs;
        while (real_clock().now_us() < end_us) {
            for (const std::string& group : groups())
                cluster().ceph({"pg", what, group});
            for (int look = 0; look < 20; ++look)
                if (done()) return true;
        }
        return false;
    }

    std::unique_ptr<RadosStore> store_;
};

TEST_F(RadosNightly, BytesFlippedUnderDevicesAreReadRightAndRepaired) {
    auto opened = RadosStore::open(rados_options("nightly", kPayload));
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    store_ = std::move(*opened);
    const std::vector<BlockName> names = chain_names(1, 100);
    const WritePages writes(names, 1, kPayload);
    const Call<PutResult> call = start_put(*store_, writes.requests(), {}, soon());
    call.wait_released();
    for (const PutOutcome outcome : call.wait().blocks)
        ASSERT_EQ(put_outcome_name(outcome), "stored");
    // Devices are stopped one at a time, so that what they keep in memory is gone too.
    constexpr int kDamaged = 8;
    int flipped = 0;
    for (int osd = 0; osd < CephCluster::kOsds; ++osd) {
        cluster().kill_osd(osd);
        ASSERT_TRUE(cluster().await_osds(CephCluster::kOsds - 1));
        for (int i = osd; i < kDamaged; i += CephCluster::kOsds) {
            for (std::size_t shard = 0; shard < 3; ++shard) {
                const auto at = writes.payloads[static_cast<std::size_t>(i)].begin() +
                                static_cast<std::ptrdiff_t>(shard * kShardBytes + 4096);
                flipped += flip_page(cluster().osd_folder(osd) + "/block",
                                     std::vector<char>(at, at + 4096));
            }
        }
        cluster().start_osd(osd);
        ASSERT_TRUE(cluster().await_osds(CephCluster::kOsds));
        expect_all(names);
    }
    EXPECT_GT(flipped, 0);
    EXPECT_TRUE(until("deep-scrub", [&] { return inconsistent_groups() > 0; }))
        << "deep scrub found nothing";
    expect_all(names);
    EXPECT_TRUE(until("repair", [&] { return inconsistent_groups() == 0; })) << "not repaired";
    expect_all(names);
}

}  // namespace
}  // namespace fathom::testing

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    ::testing::AddGlobalTestEnvironment(new fathom::testing::CephEnvironment({.bluestore = true}));
    return RUN_ALL_TESTS();
}
