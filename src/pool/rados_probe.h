// Asks the monitors of a RADOS cluster what they know. Such questions wait, so they have a thread
// of their own; answers go to the owner through `post`.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/queue.h"
#include "base/result.h"
#include "pool/rados_cluster.h"

namespace fathom {

struct RadosFinding {
    Status monitor;       // whether one answers
    std::string stopped;  // why I/O of the object in question stops; empty when it should not
};

class RadosProbe {
  public:
    RadosProbe(const RadosCluster& cluster, RadosClusterOptions options, RadosPost post,
               std::function<void(RadosFinding finding)> found);
    ~RadosProbe();  // waits for the question under way, at most for its time-outs
    RadosProbe(const RadosProbe&) = delete;
    RadosProbe& operator=(const RadosProbe&) = delete;

    // Asks, unless a question is under way. An object: whether its I/O can go on. Any thread.
    void ask(RadosPool pool, std::string object);

  private:
    struct Question {
        RadosPool pool;
        std::string object;
    };
    void run();
    RadosFinding look(const Question& question) const;
    Result<std::int64_t> min_size(const std::string& pool) const;

    const RadosCluster& cluster_;
    const RadosClusterOptions options_;
    const RadosPost post_;
    const std::function<void(RadosFinding finding)> found_;
    BoundedQueue<Question> questions_{1};
    std::thread thread_;
};

// Why a placement group does no I/O, from what `ceph osd map` answers; empty when it has devices
// enough.
std::string stopped_placement_group(std::string_view osd_map_json, std::int64_t min_size);

}  // namespace fathom
